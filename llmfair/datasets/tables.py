"""A table as a dataset: a row for each query and item, a column for each attribute.

Rows of a query are its list, in their order. Every mistake is named by file, line (of what has no lines the row, from
1) and column; the first five and the total are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.files import ATTRIBUTES, identifier
from llmfair.datasets.own import Content, Given, OwnData
from llmfair.datasets.rows import FORMS, Row, form_of
from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files
from llmfair.io.trec import RESERVED_QUERY, UNKNOWN, Problems, declared_groups, finite_number, no_group
from llmfair.nouns import Attribute, Document, Query

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
        rows: Callable[[Problems, Collection[str]], Iterator[Row]],
        given: Given,
        declared_in: Path,
    ) -> None:
        self.name, self.where, self.rows, self.columns = name, str(where), rows, given.columns
        self.declared_in = Path(given.attributes) if given.attributes else declared_in
        self.must_declare = bool(given.attributes)

    def read(self) -> Content:
        declared = self.must_declare or self.declared_in.is_file()
        known = read_attributes(self.declared_in if declared else shipped_attributes())
        columns = _renamed(self.columns, known)
        reading = _Reading(Path(self.where), known, columns, f"{self.declared_in}")
        for number, row in self.rows(reading.problems, {*columns.values()}):
            reading.take(number, row)
        return reading.content()


def table_of(path: Path, given: Given) -> Table:
    """A file as a dataset, by the ending of its name."""
    read = FORMS[str(form_of(path))]
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    return Table(name, path, partial(read, path), given, files.stored(path.parent / ATTRIBUTES))


def _renamed(columns: str | None, known: Mapping[str, Attribute]) -> dict[str, str]:
    """Columns of the table by what they are read as. Raises UsageError."""
    ours = (*COLUMNS, *known)
    found = {name: name for name in ours}
    for one in columns.split(",") if columns else ():
        name, equals, theirs = (part.strip() for part in one.partition("="))
        if not (name and equals and theirs):
            raise UsageError(
                f"--columns {one} names no column.", "for example --columns doc_id=id,gender=sex"
            )
        if name not in found:
            raise UsageError(
                f"--columns {one}: nothing is read as '{name}'.{did_you_mean(name, ours)}",
                f"known: {', '.join(ours)}",
            )
        found[name] = theirs
    return found


class _Reading:
    """What rows come to, row by row."""

    def __init__(
        self, path: Path, known: Mapping[str, Attribute], columns: Mapping[str, str], declared_in: str
    ) -> None:
        self.path, self.known, self.columns, self.declared_in = path, known, columns, declared_in
        self.problems = Problems()
        self.result = Content()
        self.lines: dict[tuple[str, ...], int] = {}
        self.query_ids: dict[str, str] = {}
        self.seen: dict[str, None] = {}
        self.strange: set[tuple[str, str]] = set()
        self.shared: dict[tuple[object, ...], Mapping[str, tuple[str, ...]]] = {}
        self.used: set[str] = set()

    def take(self, number: int, row: Mapping[str, Any]) -> None:
        """One row, or what is wrong with it."""
        self.seen |= dict.fromkeys(row)
        before = self.problems.count
        for name in COLUMNS:
            if isinstance(value := row.get(self.columns[name]), dict | list | tuple | bytes):
                self._wrong(number, name, f"is no text or number but {type(value).__name__}")
                return
        query, document = self._query(number, row), self._document(number, row)
        relevance = self._relevance(number, row)
        if query is None or document is None or self.problems.count > before:
            return
        pair = ("pair", query.query_id, document.doc_id)
        if not self._first(number, "doc_id", f"'{document.doc_id}' of query '{query.query_id}'", pair):
            return
        result = self.result
        result.queries[query.query_id] = query
        result.documents[document.doc_id] = document
        result.lists.setdefault(query.query_id, []).append(document.doc_id)
        if relevance is not None:
            result.qrels.setdefault(query.query_id, {})[document.doc_id] = relevance

    def content(self) -> Content:
        """All rows. Raises UsageError."""
        result = self.result
        if not self.seen and not self.problems.count:
            self._wrong(0, "", "has no rows")
        for name, column in self.columns.items():
            if name != column and column not in self.seen and self.seen:
                self._wrong(0, column, f"there is no such column for {name} (--columns)")
        self.problems.raise_any(HINT)
        result.attributes = [attribute for name, attribute in self.known.items() if name in self.used]
        for query_id, listed in [*result.lists.items()]:
            if len(listed) < 2:
                result.left_out[query_id] = f"query '{query_id}' has {len(listed)} candidate(s)"
                del result.lists[query_id]
        if not result.lists:
            raise UsageError(f"{self.path}: no query has two candidates or more.", HINT)
        if not result.attributes:
            raise UsageError(
                f"{self.path}: no column is an attribute ({', '.join(self.known)}).",
                f"--columns {next(iter(self.known))}=COLUMN, or declare your own in {self.declared_in}",
            )
        return result

    def _query(self, number: int, row: Mapping[str, Any]) -> Query | None:
        given, text = self._cell(row, "query_id"), self._cell(row, "query")
        if not given and not text:
            which = (
                "query_id" if self.columns["query_id"] in row or self.columns["query"] not in row else "query"
            )
            self._lacking(number, row, which)
            return None
        query_id = given or self.query_ids.setdefault(text, f"q{len(self.query_ids) + 1}")
        if identifier(query_id) is None:
            self._wrong(number, "query_id", f"'{query_id}' holds white space")
        elif query_id == RESERVED_QUERY:
            self._wrong(number, "query_id", f"'{query_id}' stands for all queries in results; choose another")
        query = Query(query_id, text or query_id)
        self._same(number, "query", f"query '{query_id}'", self.result.queries.get(query_id), query)
        return query

    def _document(self, number: int, row: Mapping[str, Any]) -> Document | None:
        doc_id, title, text = (self._cell(row, name) for name in ("doc_id", "title", "text"))
        if not doc_id:
            self._lacking(number, row, "doc_id")
            return None
        if identifier(doc_id) is None:
            self._wrong(number, "doc_id", f"'{doc_id}' holds white space")
        if not title and not text:
            self._lacking(number, row, "text" if self.columns["title"] not in row else "title")
        document = Document(doc_id, title or text, text, self._groups(number, row))
        self._same(number, "doc_id", f"item '{doc_id}'", self.result.documents.get(doc_id), document)
        return document

    def _groups(self, number: int, row: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name, attribute in self.known.items():
            if (column := self.columns[name]) not in row:
                continue
            self.used.add(name)
            value = row[column]
            several = (
                [_text(one) for one in value]
                if isinstance(value, list | tuple)
                else _text(value).split(SEVERAL)
            )
            groups = tuple(dict.fromkeys(one.strip() for one in several if one.strip() not in ("", UNKNOWN)))
            declared = declared_groups(attribute)
            for group in groups:
                if declared is not None and group not in declared and (name, group) not in self.strange:
                    self.strange.add((name, group))
                    self._wrong(number, name, no_group(name, group, declared, self.declared_in))
            if groups:
                found[name] = groups
        return self.shared.setdefault(tuple(found.items()), found)

    def _relevance(self, number: int, row: Mapping[str, Any]) -> int | None:
        text = self._cell(row, "relevance")
        if not text:
            return None
        value = TRUTH.get(text.lower(), finite_number(text))
        if value is None or value != int(value) or abs(value) >= 1e15:
            self._wrong(number, "relevance", f"'{text}' is not an integer")
            return None
        return int(value)

    def _cell(self, row: Mapping[str, Any], name: str) -> str:
        return _text(row.get(self.columns[name])).strip()

    def _lacking(self, number: int, row: Mapping[str, Any], name: str) -> None:
        there = self.columns[name] in row
        self._wrong(number, name, "is empty" if there else f"there is no such column ({', '.join(row)})")

    def _same(self, number: int, name: str, what: str, before: object, now: object) -> None:
        """A query or item that comes again says the same."""
        key = (name, what)
        if before is not None and before != now:
            self._wrong(number, name, f"{what} was told otherwise on line {self.lines[key]}")
        self.lines.setdefault(key, number)

    def _first(self, number: int, name: str, what: str, key: tuple[str, ...]) -> bool:
        if self.lines.setdefault(key, number) != number:
            self._wrong(number, name, f"{what} was already given on line {self.lines[key]}")
            return False
        return True

    def _wrong(self, number: int, name: str, text: str) -> None:
        self.problems.add(self.path, number, self.columns.get(name, name), text)


def _text(value: Any) -> str:
    """A cell as a text: "" of one that is empty, be that None or a number that is none."""
    return "" if value is None or value != value else str(value)
