"""Tables as datasets, a row for each query and item, a column for each attribute: files, frames, sets of the hub.

Rows of a query are its list, in their order. A mistake is named by file, line (of what has no lines the row, from 1)
and column.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.base import cache_folder
from llmfair.datasets.files import ATTRIBUTES, Content, DataOptions, OwnData, identifier
from llmfair.errors import MissingExtra, UsageError, did_you_mean, line_of
from llmfair.io import files
from llmfair.io.files import csv_rows, json_lines, number, unique, write_whole, wrong
from llmfair.io.trec import RESERVED, RESERVED_QUERY, UNKNOWN, declared_groups, no_group
from llmfair.nouns import Attribute, Document, Query

Row = tuple[int, Mapping[str, Any]]
"""The line of a row, or its number where a form has no lines, and its cells by column."""
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
        known = read_attributes(self.declared_in if declared else shipped_attributes())
        columns = _renamed(self.options.columns, known)
        content, there = Content(), dict[str, None]()
        reader = _Reader(Path(self.where), known, columns, str(self.declared_in), content)
        for line, row in self.rows({*columns.values()}):
            there |= dict.fromkeys(row)
            reader.take(line, row)
        if not there:
            raise reader.wrong(0, "", "has no rows")
        for name, column in columns.items():
            if name != column and column not in there:
                raise reader.wrong(0, column, f"there is no such column for {name} (--columns)")
        content.attributes = [attribute for name, attribute in known.items() if columns[name] in there]
        content.leave_out_short(self.where, HINT)
        if not content.attributes:
            raise UsageError(
                f"{self.where}: no column is an attribute ({', '.join(known)}).",
                f"--columns {next(iter(known))}=COLUMN, or declare your own in {self.declared_in}",
            )
        return content


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


class _Reader:
    """Puts rows into `content`, one by one. Raises UsageError for the first that is wrong."""

    def __init__(
        self,
        path: Path,
        attributes: Mapping[str, Attribute],
        columns: Mapping[str, str],
        declared_in: str,
        content: Content,
    ) -> None:
        self.path, self.attributes, self.columns = path, attributes, columns
        self.declared_in, self.content = declared_in, content
        self.lines: dict[tuple[str, ...], int] = {}
        self.query_ids: dict[str, str] = {}
        self.shared: dict[tuple[object, ...], Mapping[str, tuple[str, ...]]] = {}

    def take(self, line: int, row: Mapping[str, Any]) -> None:
        """One row."""
        cells = {}
        for name in COLUMNS:
            value = row.get(self.columns[name])
            if isinstance(value, dict | list | tuple | bytes):
                raise self.wrong(line, name, f"is no text or number but {type(value).__name__}")
            cells[name] = _text(value).strip()
        words, title, text = cells["query"], cells["title"], cells["text"]
        query_id = cells["query_id"] or (
            self.query_ids.setdefault(words, f"q{len(self.query_ids) + 1}") if words else ""
        )
        doc_id = cells["doc_id"]
        for name, needed in (("query_id", query_id), ("doc_id", doc_id), ("title", title or text)):
            if not needed:
                there = self.columns[name] in row
                what = "is empty" if there else f"there is no such column ({', '.join(row)})"
                raise self.wrong(line, name, what)
            if name != "title" and identifier(needed) is None:
                raise self.wrong(line, name, f"'{needed}' holds white space")
        if query_id == RESERVED_QUERY:
            raise self.wrong(line, "query_id", RESERVED)
        query = Query(query_id, words or query_id)
        document = Document(doc_id, title or text, text, self._groups(line, row))
        content = self.content
        for name, what, before, now in (
            ("query", f"query '{query_id}'", content.queries.setdefault(query_id, query), query),
            ("doc_id", f"item '{doc_id}'", content.documents.setdefault(doc_id, document), document),
        ):
            first = self.lines.setdefault((what,), line)
            if before != now:
                raise self.wrong(line, name, f"{what} was told otherwise on line {first}")
        if (first := self.lines.setdefault((query_id, doc_id), line)) != line:
            what = f"'{doc_id}' of query '{query_id}' was already given on line {first}"
            raise self.wrong(line, "doc_id", what)
        content.lists.setdefault(query_id, []).append(doc_id)
        if relevance := cells["relevance"]:
            truth = TRUTH.get(relevance.lower())
            try:
                value = number(relevance) if truth is None else truth
            except ValueError:
                value = 0.5
            if value != int(value) or abs(value) >= 1e15:
                raise self.wrong(line, "relevance", f"'{relevance}' is not an integer")
            content.qrels.setdefault(query_id, {})[doc_id] = int(value)

    def _groups(self, line: int, row: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
        by_attribute: dict[str, tuple[str, ...]] = {}
        for name, attribute in self.attributes.items():
            value = row.get(self.columns[name])
            several = value if isinstance(value, list | tuple) else _text(value).split(SEVERAL)
            groups = dict.fromkeys(group for group in map(str.strip, map(_text, several)) if group)
            groups.pop(UNKNOWN, None)
            declared = declared_groups(attribute)
            for group in groups:
                if declared is not None and group not in declared:
                    column = self.columns[name]
                    raise no_group(self.path, line, column, name, group, declared, self.declared_in)
            if groups:
                by_attribute[name] = tuple(groups)
        return self.shared.setdefault(tuple(by_attribute.items()), by_attribute)

    def wrong(self, line: int, name: str, what: str) -> UsageError:
        """A mistake, by the table's own name of the column."""
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
    try:
        with files.opened(path) as stored, ParquetFile(stored) as file:
            unread = dict.fromkeys(unique(path, 0, file.schema_arrow.names, HINT))
            rows = file.read([name for name in unread if name in wanted]).to_pylist()
    except (ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        raise wrong(path, 0, "", f"cannot be read as Parquet: {line_of(error)}", HINT) from None
    return ((number, unread | row) for number, row in enumerate(rows, start=1))


FORMS: Mapping[str, Callable[[Path, Collection[str]], Iterator[Row]]] = {
    ".csv": _csv, ".tsv": _csv, ".jsonl": _json, ".parquet": _parquet
}  # fmt: skip
"""How tables are read, by the ending of their file; a text may be packed (.gz)."""


def form_of(path: Path) -> str | None:
    """The ending that says how a file is read; None of one that is no table."""
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return ending if ending in FORMS else None


# Frames of pandas or polars, kept as tables by their content, so that their runs can go on


def is_frame(value: object) -> bool:
    """Whether a value is a table in memory."""
    return hasattr(value, "columns") and (hasattr(value, "iter_rows") or hasattr(value, "to_dict"))


def stored_frame(frame: Any) -> str:
    """The file that a frame is kept in, below the cache's folder. Raises UsageError where it cannot be written."""
    names = unique(Path("the frame"), 0, map(str, frame.columns), "rename or drop one")
    rows: Iterable[Mapping[Any, Any]] = (
        frame.iter_rows(named=True)
        if hasattr(frame, "iter_rows")
        else frame.astype(object).where(frame.notna(), None).to_dict("records")
    )
    lines = [
        f"{json.dumps(dict(zip(names, row.values(), strict=True)), ensure_ascii=False, default=_native)}\n"
        for row in rows
    ]
    digest = hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = cache_folder() / "frames" / digest / "frame.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lines)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}.", "name another folder with LLMFAIR_CACHE_DIR"
        ) from None
    return str(path)


def _native(value: Any) -> Any:
    """A number or array of numpy as JSON has it; a date and whatever else as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


# Sets of the Hugging Face hub, or of a folder as the datasets package reads it: `hf:ORG/NAME[:split]`


def hub_table(name: str, options: DataOptions) -> Table:
    """A dataset of the hub by its name with the prefix; of several splits one has to be named."""
    return Table(
        name, Path(name), lambda _: enumerate(_split(name), start=1), options, files.stored(Path(ATTRIBUTES))
    )


@files.usual()
def _split(name: str) -> Any:
    """The rows of one split. Raises MissingExtra, and UsageError for what there is not."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtra("the datasets package is not installed.", "pip install 'llmfair[hub]'") from None
    source, _, split = name.removeprefix(PREFIX).partition(":")
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
