"""Tables as datasets, a row for each query and item: files, frames, sets of the hub; and collections of ir_datasets.

Rows of a query are its list, in their order. A mistake is named by file, line (of what has no lines the row, from 1)
and column.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from llmfair.datasets.attributes import by_pairs, read_attributes, shipped_attributes
from llmfair.datasets.base import cache_folder, check_one
from llmfair.datasets.files import ATTRIBUTES, NO_GROUPS, DataOptions, Groups, OwnData, groups_of, is_id
from llmfair.datasets.judgements import HINT as RUN_HINT
from llmfair.datasets.judgements import read_any_run
from llmfair.errors import MissingExtra, UsageError, did_you_mean, line_of
from llmfair.io import files
from llmfair.io.files import number, write_whole, writing, wrong
from llmfair.io.tables import PACKED, Row, frame_of, records, rows_of
from llmfair.io.trec import RESERVED, RESERVED_QUERY, UNKNOWN, declared_groups, nearest, no_group
from llmfair.nouns import Attribute, Document, Query

PREFIX = "hf:"
COLUMNS = ("query_id", "query", "doc_id", "title", "text", "relevance")
"""What is read of a row, beside a column for each attribute."""
INSTEAD = {"query_id": "query", "query": "query_id", "title": "text", "text": "title"}
"""The column that does where another is not there."""
TRUTH = {"true": "1", "false": "0"}
SEVERAL = "|"
"""Between the groups of an item that is in several."""
HINT = (
    "a row for each query and item, with columns query_id (or query), doc_id, title (or text), relevance, and one for "
    "each attribute; others by --columns doc_id=id,gender=sex"
)


@dataclass(frozen=True)
class Columns:
    """What a table's columns are read as: those of `COLUMNS` and of attributes, by their names in the table."""

    path: Path
    names: Mapping[str, str]
    attributes: Mapping[str, Attribute]
    declared_in: Path

    def fail(self, of: str, what: str, line: int = 0) -> UsageError:
        return wrong(self.path, line, self.names.get(of, of), what, HINT)

    def absent(self, of: str, row: Iterable[str]) -> str:
        """What is wrong where there is no such column."""
        column, there = self.names[of], [*row]
        what = f"there is no such column{f' for {of}' * (of != column)} ({', '.join(there)})"
        near = next(
            (f"; did you mean '{name}'?" for name in there if name.casefold() == column.casefold()), ""
        )
        return what + (near or nearest(column, there))

    def cells(self, line: int, row: Mapping[str, Any]) -> dict[str, str]:
        """The cells of `COLUMNS`, without white space around. Raises UsageError for one that is missing or no text."""
        cells = {}
        for of in COLUMNS:
            value = row.get(self.names[of])
            if isinstance(value, dict | list | tuple | bytes):
                raise self.fail(of, f"is no text or number but {type(value).__name__}", line)
            cells[of] = _text(value).strip()
        for of in ("query_id", "doc_id", "title"):
            if not (cells[of] or cells.get(INSTEAD.get(of, ""))):
                raise self.fail(of, "is empty" if self.names[of] in row else self.absent(of, row), line)
            if of != "title" and cells[of] and not is_id(cells[of]):
                raise self.fail(of, f"'{cells[of]}' holds white space", line)
        if cells["query_id"] == RESERVED_QUERY:
            raise self.fail("query_id", RESERVED, line)
        return cells

    def groups(self, line: int, row: Mapping[str, Any]) -> Groups:
        """The groups of the row's item. Raises UsageError for one that is not declared."""
        by_attribute: dict[str, tuple[str, ...]] = {}
        for of, attribute in self.attributes.items():
            value, allowed = row.get(self.names[of]), declared_groups(attribute)
            several = value if isinstance(value, list | tuple) else _text(value).split(SEVERAL)
            texts = dict.fromkeys(_text(group).strip() for group in several)
            groups = tuple(group for group in texts if group not in ("", UNKNOWN))
            for group in groups:
                if allowed is not None and group not in allowed:
                    raise no_group(self.path, line, self.names[of], of, group, allowed, str(self.declared_in))
            if groups:
                by_attribute[of] = groups
        return by_attribute

    def grade(self, line: int, text: str) -> int:
        """The relevance that a cell says. Raises UsageError."""
        with suppress(ValueError):
            value = number(TRUTH.get(text.lower(), text))
            if value == int(value) and abs(value) < 1e15:
                return int(value)
        raise self.fail("relevance", f"'{text}' is not an integer", line)


def read_table(
    name: str,
    path: Path,
    rows_with: Callable[[Collection[str]], Iterable[Row]],
    options: DataOptions,
    declared_in: Path,
) -> OwnData:
    """The data of rows, which are told which columns are looked at; `path` names them in errors.

    `declared_in` is the file that declares attributes; without it they are those that are built in. Raises UsageError
    for the first row that is wrong.
    """
    declared_in = Path(options.attributes) if options.attributes else declared_in
    beside = options.attributes or declared_in.is_file()
    declared = read_attributes(declared_in if beside else shipped_attributes())
    wanted = [*options.wanted, *chain.from_iterable(of.crossed for of in declared.values())]
    attributes = {name: by_pairs(name) for name in wanted if name not in COLUMNS} | declared
    columns = Columns(path, _renamed(options.columns, attributes), attributes, declared_in)
    data, there, query_ids = OwnData(name, str(path)), dict[str, None](), dict[str, str]()
    lines: dict[tuple[str, ...], int] = {}
    shared: dict[tuple[object, ...], Groups] = {}
    for line, row in rows_with({*columns.names.values()}):
        there |= dict.fromkeys(row)
        cells, groups = columns.cells(line, row), columns.groups(line, row)
        words, doc_id = cells["query"], cells["doc_id"]
        query_id = cells["query_id"] or query_ids.setdefault(words, f"q{len(query_ids) + 1}")
        query, title = Query(query_id, words or query_id), cells["title"] or cells["text"]
        document = Document(doc_id, title, cells["text"], shared.setdefault(tuple(groups.items()), groups))
        for of, what, before, now in (
            ("query", f"query '{query_id}'", data.by_id.setdefault(query_id, query), query),
            ("doc_id", f"item '{doc_id}'", data.documents.setdefault(doc_id, document), document),
        ):
            first = lines.setdefault((what,), line)
            if before != now:
                raise columns.fail(of, f"{what} was told otherwise on line {first}", line)
        if (first := lines.setdefault((query_id, doc_id), line)) != line:
            what = f"'{doc_id}' of query '{query_id}' was already given on line {first}"
            raise columns.fail("doc_id", what, line)
        data.lists.setdefault(query_id, []).append(doc_id)
        if relevance := cells["relevance"]:
            data.qrels.setdefault(query_id, {})[doc_id] = columns.grade(line, relevance)
    if not there:
        raise columns.fail("", "has no rows")
    others = [column for column in there if column not in columns.names.values()]
    folded = {*map(str.casefold, others)}
    for of, column in columns.names.items():
        in_capitals = column.casefold() in folded and columns.names.get(INSTEAD.get(of, "")) not in there
        if column not in there and (of != column or in_capitals):
            raise columns.fail(of, columns.absent(of, there))
    data.leave_out_short(HINT)
    data.have(declared, {of for groups in shared.values() for of in groups})
    data.undeclared += others
    if not data.attributes:
        check_one(options.asked or "")
        raise UsageError(
            f"{path}: no item has a group of {' or '.join(attributes)} ({', '.join(there)}).",
            f"-a COLUMN compares the groups of any column; --columns {next(iter(declared))}=COLUMN, or "
            f"[COLUMN] in {declared_in}, says more of it",
        )
    return data


def table_of(path: Path, options: DataOptions) -> OwnData:
    """A file as a dataset, by the ending of its name."""
    name = (Path(path.stem) if path.suffix in PACKED else path).stem
    return read_table(
        name, path, lambda of: rows_of(path, HINT, of), options, files.stored(path.parent / ATTRIBUTES)
    )


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


def _text(value: Any) -> str:
    """A cell as a text: "" of one that is empty, be that None or a number that is none."""
    return "" if value is None or value != value else str(value)


def stored_frame(table: Any) -> str:
    """The file that a table in memory is kept in, by its content, so that its runs can go on. Raises UsageError."""
    rows = records(frame_of(table))
    lines = [f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows]
    digest = hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = cache_folder() / "frames" / digest / "frame.jsonl"
    with writing(path.parent, "name another folder with LLMFAIR_CACHE_DIR"):
        write_whole(path, lines)
    return str(path)


# Sets of the Hugging Face hub, or of a folder as the datasets package reads it: `hf:ORG/NAME[:split]`


@files.usual()
def hub_table(name: str, options: DataOptions) -> OwnData:
    """A dataset of the hub by its name with the prefix; of several splits one has to be named.

    Raises MissingExtra, and UsageError for what there is not.
    """
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtra("the datasets package is not installed.", "pip install 'llmfair[hub]'") from None
    source, _, split = name.removeprefix(PREFIX).partition(":")
    try:
        rows = load_dataset(source, split=split or None)
    except Exception as error:  # of the hub, of the network, or of the file's own form
        raise UsageError(
            f"{name}: {line_of(error)}", "hf:ORG/NAME[:split], as datasets.load_dataset takes them"
        ) from None
    if not split and hasattr(rows, "keys"):
        if len(rows) > 1:
            parts = ", ".join(f"{name}:{part}" for part in rows)
            raise UsageError(f"{name} has several splits.", f"name one: {parts}")
        (rows,) = rows.values()
    return read_table(
        name, Path(name), lambda _: enumerate(rows, start=1), options, files.stored(Path(ATTRIBUTES))
    )


# Collections of ir_datasets, `irds:beir/scifact/test`: groups from a file, lists from a run or from BM25


POOL = 100
"""Documents that BM25 finds for a list."""
MOST_INDEXED = 1_000_000
"""Documents of a collection that is indexed whole, which takes so many texts in memory."""
COLLECTION_HINT = "llmfair listwise -d irds:beir/scifact/test --groups groups.tsv --run bm25.run"


def ir_collection(name: str, options: DataOptions, indexes: Path) -> OwnData:
    """A collection by its name with the prefix; `indexes` is where those of BM25 are kept. Raises UsageError."""
    import ir_datasets

    theirs = name.removeprefix("irds:")
    if not options.groups:
        raise UsageError(f"{name} says nothing of groups.", "--groups FILE: doc_id<TAB>attribute<TAB>group")
    declared = read_attributes(Path(options.attributes) if options.attributes else shipped_attributes())
    groups, used = groups_of(Path(options.groups), declared, "a file for --attributes", options.wanted)
    try:
        collection = ir_datasets.load(theirs)
    except KeyError:
        raise UsageError(f"ir_datasets has no '{theirs}'.", "https://ir-datasets.com lists them") from None
    data = OwnData(name)
    try:
        data.by_id = {row.query_id: Query(row.query_id, _words_of(row)) for row in collection.queries_iter()}
        lists = _lists(collection, name, data.by_id, options.run, indexes)
        judged: dict[str, dict[str, int]] = {query_id: {} for query_id in lists}
        for row in collection.qrels_iter():
            if row.query_id in lists:
                judged[row.query_id][row.doc_id] = int(row.relevance)
        ranked = {doc_id for doc_ids in lists.values() for doc_id in doc_ids}
        rows = collection.docs_store().get_many([*ranked.union(*judged.values())]).values()
        data.documents = {document.doc_id: document for document in _documents(rows, groups)}
    except UsageError:
        raise
    except Exception as error:  # of a download, or of what the collection lacks
        raise UsageError(f"{name}: {line_of(error)}", COLLECTION_HINT) from None
    if gone := sorted(ranked - data.documents.keys()):
        raise UsageError(f"{options.run}: document '{gone[0]}' is not in {name}.", RUN_HINT)
    data.qrels = {
        query_id: {doc_id: grade for doc_id, grade in of.items() if doc_id in data.documents}
        for query_id, of in judged.items()
        if of
    }
    data.lists = {query_id: [*lists[query_id]] for query_id in data.by_id if query_id in lists}
    data.leave_out_short(COLLECTION_HINT)
    data.have(declared, used)
    return data


def _lists(
    collection: Any, name: str, topics: Mapping[str, Query], run: str | None, indexes: Path
) -> Mapping[str, Sequence[str]]:
    """The documents of every query, best first: of a run, or found by BM25."""
    if run:
        rankings = read_any_run(Path(run)).rankings
        lists = {query_id: of.doc_ids for query_id, of in rankings.items() if query_id in topics}
        if not lists:
            raise UsageError(f"{run} ranks none of the queries of {name}.", RUN_HINT)
        return lists
    count = collection.docs_count() or collection.docs_store().count()
    if count > MOST_INDEXED:
        raise UsageError(
            f"{name} has {count:,} documents, which are not indexed here.",
            "--run FILE: the lists, from the search engine that has them",
        )
    from llmfair.retrieval.bm25 import Bm25Index

    index = Bm25Index(indexes, _documents(collection.docs_iter(), {}))
    return {
        query_id: [hit.doc_id for hit in index.search(query.text, POOL)] for query_id, query in topics.items()
    }


def _documents(rows: Iterable[Any], groups: Mapping[str, Groups]) -> Iterator[Document]:
    for row in rows:
        title = str(getattr(row, "title", "") or "").strip()
        text = str(row.text) if title and hasattr(row, "text") else _words_of(row)
        yield Document(row.doc_id, title or text, text, groups.get(row.doc_id, NO_GROUPS))


def _words_of(row: Any) -> str:
    """What a query or document says."""
    return str(row.default_text()).strip()
