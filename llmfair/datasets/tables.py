"""Tables as datasets, a row for each query and item, a column for each attribute: files, and sets of the hub.

Rows of a query are its list, in their order. A mistake is named by file, line (of what has no lines the row, from 1)
and column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.files import ATTRIBUTES, Content, DataOptions, OwnData, identifier
from llmfair.errors import MissingExtra, UsageError, did_you_mean, line_of
from llmfair.io import files
from llmfair.io.files import FREELY, TIMES, csv_rows, json_lines, number, unique, wrong
from llmfair.io.trec import RESERVED, RESERVED_QUERY, UNKNOWN, declared_groups, no_group
from llmfair.nouns import Attribute, Document, Query

Row = tuple[int, Mapping[str, Any]]
"""The line of a row, or its number where a form has no lines, and its cells by column."""
AT_ONCE = 256
"""Rows of a Parquet file that are read at once."""
PREFIX = "hf:"
COLUMNS = ("query_id", "query", "doc_id", "title", "text", "relevance")
"""What is read of a row, beside a column for each attribute."""
TRUTH = {"true": 1.0, "false": 0.0}
SEVERAL = "|"
"""Between the groups of an item that is in several."""
HINT = (
    "a row for each query and item, with columns query_id (or query), doc_id, title (or text), relevance, and one for "
    "each attribute; others by --columns doc_id=id,gender=sex"
)


class Table(OwnData):
    """A dataset of rows. `where` names it in errors; `declared_in` is the file that declares attributes.

    Without that file they are those that are built in. `rows` is told which columns are looked at.
    """

    def __init__(
        self,
        name: str,
        where: Path,
        rows: Callable[[Collection[str]], Iterable[Row]],
        options: DataOptions,
        declared_in: Path,
    ) -> None:
        self.name, self.where, self.rows, self.options = name, str(where), rows, options
        self.declared_in = Path(options.attributes) if options.attributes else declared_in

    def read(self) -> Content:
        declared = self.options.attributes or self.declared_in.is_file()
        attributes = read_attributes(self.declared_in if declared else shipped_attributes())
        columns = _renamed(self.options.columns, attributes)
        reading = _Reading(Path(self.where), attributes, columns, f"{self.declared_in}")
        for line, row in self.rows({*columns.values()}):
            reading.take(line, row)
        return reading.content()


def table_of(path: Path, options: DataOptions) -> Table:
    """A file as a dataset, by the ending of its name."""
    read = FORMS[str(form_of(path))]
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    return Table(name, path, partial(read, path), options, files.stored(path.parent / ATTRIBUTES))


def _renamed(columns: str | None, attributes: Mapping[str, Attribute]) -> dict[str, str]:
    """Columns of the table by what they are read as. Raises UsageError."""
    ours = (*COLUMNS, *attributes)
    theirs_by_ours = {name: name for name in ours}
    for pair in columns.split(",") if columns else ():
        name, _, theirs = (part.strip() for part in pair.partition("="))
        if name not in theirs_by_ours or not theirs:
            raise UsageError(
                f"--columns {pair}: expected NAME=COLUMN, NAME one of {', '.join(ours)}."
                f"{did_you_mean(name, ours) if theirs else ''}",
                "for example --columns doc_id=id,gender=sex",
            )
        theirs_by_ours[name] = theirs
    return theirs_by_ours


class _Reading:
    """What rows come to, row by row. Raises UsageError for the first that is wrong."""

    def __init__(
        self, path: Path, attributes: Mapping[str, Attribute], columns: Mapping[str, str], declared_in: str
    ) -> None:
        self.path, self.known, self.columns, self.declared_in = path, attributes, columns, declared_in
        self.result = Content()
        self.lines: dict[tuple[str, ...], int] = {}
        self.query_ids: dict[str, str] = {}
        self.seen: dict[str, None] = {}
        self.shared: dict[tuple[object, ...], Mapping[str, tuple[str, ...]]] = {}
        self.used: set[str] = set()

    def take(self, line: int, row: Mapping[str, Any]) -> None:
        """One row."""
        self.seen |= dict.fromkeys(row)
        cells = {}
        for name in COLUMNS:
            value = row.get(self.columns[name])
            if isinstance(value, dict | list | tuple | bytes):
                raise self._wrong(line, name, f"is no text or number but {type(value).__name__}")
            cells[name] = _text(value).strip()
        query, document = self._query(line, row, cells), self._document(line, row, cells)
        pair = ("pair", query.query_id, document.doc_id)
        if self.lines.setdefault(pair, line) != line:
            item = f"'{document.doc_id}' of query '{query.query_id}'"
            raise self._wrong(line, "doc_id", f"{item} was already given on line {self.lines[pair]}")
        result = self.result
        result.queries[query.query_id] = query
        result.documents[document.doc_id] = document
        result.lists.setdefault(query.query_id, []).append(document.doc_id)
        if text := cells["relevance"]:
            relevance = self._relevance(line, text)
            result.qrels.setdefault(query.query_id, {})[document.doc_id] = relevance

    def content(self) -> Content:
        """What all rows come to."""
        result = self.result
        if not self.seen:
            raise self._wrong(0, "", "has no rows")
        for name, column in self.columns.items():
            if name != column and column not in self.seen:
                raise self._wrong(0, column, f"there is no such column for {name} (--columns)")
        result.attributes = [attribute for name, attribute in self.known.items() if name in self.used]
        for query_id in result.queries:
            result.leave_out_short(query_id)
        if not result.lists:
            raise UsageError(f"{self.path}: no query has two candidates or more.", HINT)
        if not result.attributes:
            raise UsageError(
                f"{self.path}: no column is an attribute ({', '.join(self.known)}).",
                f"--columns {next(iter(self.known))}=COLUMN, or declare your own in {self.declared_in}",
            )
        return result

    def _query(self, line: int, row: Mapping[str, Any], cells: Mapping[str, str]) -> Query:
        own_id, text = cells["query_id"], cells["query"]
        if not own_id and not text:
            by_text = self.columns["query"] in row and self.columns["query_id"] not in row
            raise self._lacking(line, row, "query" if by_text else "query_id")
        query_id = own_id or self.query_ids.setdefault(text, f"q{len(self.query_ids) + 1}")
        if identifier(query_id) is None:
            raise self._wrong(line, "query_id", f"'{query_id}' holds white space")
        if query_id == RESERVED_QUERY:
            raise self._wrong(line, "query_id", RESERVED)
        query = Query(query_id, text or query_id)
        self._same(line, "query", f"query '{query_id}'", self.result.queries.get(query_id), query)
        return query

    def _document(self, line: int, row: Mapping[str, Any], cells: Mapping[str, str]) -> Document:
        doc_id, title, text = cells["doc_id"], cells["title"], cells["text"]
        if not doc_id:
            raise self._lacking(line, row, "doc_id")
        if identifier(doc_id) is None:
            raise self._wrong(line, "doc_id", f"'{doc_id}' holds white space")
        if not title and not text:
            raise self._lacking(line, row, "text" if self.columns["title"] not in row else "title")
        document = Document(doc_id, title or text, text, self._groups(line, row))
        self._same(line, "doc_id", f"item '{doc_id}'", self.result.documents.get(doc_id), document)
        return document

    def _groups(self, line: int, row: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
        by_attribute: dict[str, tuple[str, ...]] = {}
        for name, attribute in self.known.items():
            if (column := self.columns[name]) not in row:
                continue
            self.used.add(name)
            value = row[column]
            several = map(_text, value) if isinstance(value, list | tuple) else _text(value).split(SEVERAL)
            stripped = map(str.strip, several)
            groups = tuple(dict.fromkeys(group for group in stripped if group not in ("", UNKNOWN)))
            declared = declared_groups(attribute)
            for group in groups:
                if declared is not None and group not in declared:
                    raise no_group(self.path, line, column, name, group, declared, self.declared_in)
            if groups:
                by_attribute[name] = groups
        return self.shared.setdefault(tuple(by_attribute.items()), by_attribute)

    def _relevance(self, line: int, text: str) -> int:
        try:
            value = TRUTH[text.lower()] if text.lower() in TRUTH else number(text)
        except ValueError:
            value = 0.5
        if value != int(value) or abs(value) >= 1e15:
            raise self._wrong(line, "relevance", f"'{text}' is not an integer")
        return int(value)

    def _same(self, line: int, name: str, what: str, before: object, now: object) -> None:
        """A query or item that comes again says the same."""
        first = self.lines.setdefault((name, what), line)
        if before is not None and before != now:
            raise self._wrong(line, name, f"{what} was told otherwise on line {first}")

    def _lacking(self, line: int, row: Mapping[str, Any], name: str) -> UsageError:
        there = self.columns[name] in row
        return self._wrong(line, name, "is empty" if there else f"there is no such column ({', '.join(row)})")

    def _wrong(self, line: int, name: str, what: str) -> UsageError:
        return wrong(self.path, line, self.columns.get(name, name), what, HINT)


def _text(value: Any) -> str:
    """A cell as a text: "" of one that is empty, be that None or a number that is none."""
    return "" if value is None or value != value else str(value)


# Files


def _csv(path: Path, wanted: Collection[str]) -> Iterator[Row]:
    return csv_rows(path, HINT, "\t" if path.name.removesuffix(".gz").endswith(".tsv") else "")


def _json(path: Path, wanted: Collection[str]) -> Iterator[Row]:
    return json_lines(path, dict[str, Any], HINT)


def _parquet(path: Path, wanted: Collection[str]) -> Iterator[Row]:
    """The rows of a Parquet file, from 1; cells of columns that are not `wanted` are None. Raises MissingExtra."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MissingExtra("pyarrow is not installed.", "pip install 'llmfair[parquet]'") from None
    row_number, column = 0, ""
    try:
        with files.opened(path) as stored, ParquetFile(stored) as file:
            names = unique(path, 0, file.schema_arrow.names, HINT)
            unread = dict.fromkeys(names)
            read = [name for name in names if name in wanted]
            _check_size(path, file.metadata, read, os.fstat(stored.fileno()).st_size)
            for batch in file.iter_batches(AT_ONCE, columns=read):
                cells: dict[str, list[Any]] = {}
                for column in read:
                    cells[column] = batch.column(column).to_pylist()
                column = ""
                for row in zip(*cells.values(), strict=True) if cells else repeat((), batch.num_rows):
                    row_number += 1
                    yield row_number, unread | dict(zip(read, row, strict=True))
    except (ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        what = "holds what cannot be read" if column else "not a Parquet file"
        raise wrong(path, row_number, column, f"{what}: {line_of(error)}", HINT) from None


def _check_size(path: Path, metadata: Any, columns: Collection[str], size: int) -> None:
    """Raises UsageError where these columns of a file of this size unpack to far more than texts do."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    unpacked = sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if chunk.path_in_schema.partition(".")[0] in columns or chunk.path_in_schema in columns
    )
    if unpacked > FREELY + TIMES * size:
        raise wrong(path, 0, "", f"unpacks to more than {TIMES} times its size", HINT)


FORMS: Mapping[str, Callable[[Path, Collection[str]], Iterator[Row]]] = {
    ".csv": _csv, ".tsv": _csv, ".jsonl": _json, ".parquet": _parquet
}  # fmt: skip
"""How tables are read, by the ending of their file; a text may be packed (.gz)."""


def form_of(path: Path) -> str | None:
    """The ending that says how a file is read; None of one that is no table."""
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return ending if ending in FORMS else None


# Sets of the Hugging Face hub, or of a folder as the datasets package reads it: `hf:ORG/NAME[:split]`


def hub_table(name: str, options: DataOptions) -> Table:
    """A dataset of the hub by its name with the prefix; of several splits one has to be named."""
    source, _, split = name.removeprefix(PREFIX).partition(":")
    if not source:
        raise UsageError(f"'{name}' names no dataset.", "hf:ORG/NAME, or hf:ORG/NAME:split")

    def rows(wanted: Collection[str]) -> Iterable[Row]:
        return enumerate(_split(name, source, split), start=1)

    return Table(name, Path(name), rows, options, files.stored(Path(ATTRIBUTES)))


@files.usual()
def _split(name: str, source: str, split: str) -> Any:
    """The rows of one split. Raises MissingExtra, and UsageError for what there is not."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtra("the datasets package is not installed.", "pip install 'llmfair[hub]'") from None
    try:
        dataset = load_dataset(source, split=split or None)
    except Exception as error:  # of the hub, of the network, or of the file's own form
        raise UsageError(
            f"{name}: {line_of(error)}", "hf:ORG/NAME[:split], as datasets.load_dataset takes them"
        ) from None
    if split or not hasattr(dataset, "keys"):
        return dataset
    if len(dataset) > 1:
        raise UsageError(
            f"{name} has several splits.", f"name one: {', '.join(f'{name}:{part}' for part in dataset)}"
        )
    return next(iter(dataset.values()))
