"""Pages of a fetched collection: what is kept of the source files of TREC Fair, and where it is looked up.

A file of pages is SQLite, of which what is not looked at stays on disk. Table `pages`: title, text and NUMBERS by id.
`columns`: of all pages `ids` (int64, ascending), `codes` (int32, the number of each one's combination of groups) and
`titled` (bool, whether its title is known), as arrays. `groups`: the combinations in the order of their numbers, each
with the first page that has it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sqlite3
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from msgspec import Meta, Struct, defstruct
from numpy.typing import NDArray

from llmfair.datasets.files import keywords_of
from llmfair.errors import MissingExtra, UsageError, line_of
from llmfair.io import files
from llmfair.io.files import decode, encode, field_of, whole, write_whole, wrong
from llmfair.nouns import NO_NUMBERS, NUMBERS, Attribute, Document, ManyDocuments, Side

KIND = "@ "
"""No page id begins so: `@ 3` is a document of the combination of groups of that number, and of nothing else."""
SCHEMA = f"""
    PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -64000;
    CREATE TABLE pages (id INTEGER PRIMARY KEY, title TEXT, text TEXT, {", ".join(NUMBERS)});
    CREATE TABLE columns (name TEXT PRIMARY KEY, content BLOB);
    CREATE TABLE groups (first INTEGER, groups BLOB);
    BEGIN;
"""
INSERT = f"INSERT OR IGNORE INTO pages VALUES (?, ?, ?{', ?' * len(NUMBERS)})"
SELECT = f"SELECT title, text, {', '.join(NUMBERS)} FROM pages WHERE id = ?"


class PageWriter:
    """Adds pages in any order; combinations of groups are numbered as they come."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._codes: dict[bytes, int] = {}
        self.ids, self._code_of, self._titled = array("q"), array("i"), bytearray()

    def add(
        self,
        page_id: int,
        title: str = "",
        text: str = "",
        groups: Mapping[str, Any] = {},
        numbers: Mapping[str, float] = NO_NUMBERS,
    ) -> bool:
        """Whether the page is new: the first of an id counts."""
        row = (page_id, _writable(title), _writable(text), *map(numbers.get, NUMBERS))
        if not self._db.execute(INSERT, row).rowcount:
            return False
        self.ids.append(page_id)
        self._code_of.append(self._codes.setdefault(encode(groups), len(self._codes)))
        self._titled.append(bool(title.strip()))
        return True

    def save(self) -> None:
        """Writes columns and groups."""
        ids, codes = np.array(self.ids, dtype=np.int64), np.array(self._code_of, dtype=np.int32)
        order = np.argsort(ids)
        columns: dict[str, NDArray[Any]] = {
            "ids": ids[order],
            "codes": codes[order],
            "titled": np.array(self._titled, dtype=np.bool_)[order],
        }
        firsts = ids[order][np.unique(codes[order], return_index=True)[1]].tolist()
        self._db.executemany("INSERT INTO groups VALUES (?, ?)", zip(firsts, self._codes, strict=True))
        rows = ((name, of.tobytes()) for name, of in columns.items())
        self._db.executemany("INSERT INTO columns VALUES (?, ?)", rows)
        self._db.execute("COMMIT")


def _writable(text: str) -> str:
    """A text without half of a surrogate pair, which becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


@contextmanager
def written(path: Path) -> Iterator[PageWriter]:
    """A file of pages while it is written; there once the context is left. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with whole(path) as file, closing(sqlite3.connect(file.name, isolation_level=None)) as db:
            db.executescript(SCHEMA)
            writer = PageWriter(db)
            yield writer
            writer.save()
    except sqlite3.OperationalError as error:
        number = errno.ENOSPC if error.sqlite_errorcode == sqlite3.SQLITE_FULL else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from None


class PageStore(ManyDocuments):
    """The pages of a file. Raises UsageError for one that is gone or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            files.opened(path).close()  # no pipe, which would be waited for
            address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
            self._db = sqlite3.connect(address, uri=True, check_same_thread=False)
            columns = dict(self._db.execute("SELECT * FROM columns"))
            self.ids = np.frombuffer(columns["ids"], np.int64)
            self.codes = np.frombuffer(columns["codes"], np.int32)
            self.titled = np.frombuffer(columns["titled"], np.bool_)
            rows = self._db.execute("SELECT * FROM groups").fetchall()
            self._firsts = [str(first) for first, _ in rows]
            self.combinations = [
                {name: tuple(of) for name, of in decode(groups).items()} for _, groups in rows
            ]
        except (OSError, sqlite3.Error, ValueError, LookupError, TypeError, AttributeError) as error:
            raise damaged(path, error) from None
        self._numbers = self.ids.data

    def __getitem__(self, doc_id: str) -> Document:
        if doc_id.startswith(KIND):
            return Document(doc_id, "", groups=self.combinations[int(doc_id.removeprefix(KIND))])
        place = place_of(self._numbers, doc_id)
        try:
            ((title, text, *numbers),) = self._db.execute(SELECT, (int(doc_id),))
        except (sqlite3.Error, ValueError) as error:
            raise damaged(self.path, error) from None
        named = {name: number for name, number in zip(NUMBERS, numbers, strict=True) if number is not None}
        return Document(doc_id, title, text, self.combinations[self.codes[place]], named or NO_NUMBERS)

    def __iter__(self) -> Iterator[str]:
        return (str(page_id) for page_id in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, doc_id: object) -> bool:
        try:
            place_of(self._numbers, str(doc_id))
        except KeyError:
            return False
        return True

    def of_each_kind(self) -> Iterable[Document]:
        return [
            Document(first, "", groups=groups)
            for first, groups in zip(self._firsts, self.combinations, strict=True)
        ]

    def places(self, page_ids: NDArray[np.int64]) -> NDArray[np.intp]:
        """Where these pages, all of which are there, stand among all."""
        return np.searchsorted(self.ids, page_ids)

    def counts(self, places: NDArray[np.intp]) -> list[int]:
        """How many of the pages at these places have each of the combinations of groups."""
        counts: list[int] = np.bincount(self.codes[places], minlength=len(self.combinations)).tolist()
        return counts

    def on(self, attribute: Attribute) -> dict[Side | None, NDArray[np.bool_]]:
        """Which pages are on each side of an attribute, and which on none (None), titled or not."""
        sides = [attribute.side(document) for document in self.of_each_kind()]
        return {
            side: np.array([of is side for of in sides], dtype=np.bool_)[self.codes] for side in (*Side, None)
        }

    def sides(self, attribute: Attribute) -> PageValues[Side]:
        """The side of every page that has one, and a title."""
        on = self.on(attribute)
        there = self.titled & ~on[None]
        protected = on[Side.PROTECTED][there].astype(np.uint8)
        return PageValues(self.ids[there], protected, (Side.UNPROTECTED, Side.PROTECTED))


def damaged(path: Path, why: Exception) -> UsageError:
    """Of a file of a fetch that is gone, cut or another."""
    return UsageError(
        f"{path} cannot be read: {line_of(why)}.", "remove the folder, then fetch the dataset again"
    )


V = TypeVar("V")


def place_of(numbers: Sequence[int] | memoryview, doc_id: str) -> int:
    """Where a page stands among ids that ascend. Raises KeyError."""
    if not (doc_id.isascii() and doc_id.isdigit() and (doc_id[0] != "0" or doc_id == "0")):
        raise KeyError(doc_id)
    page_id = int(doc_id)
    place = bisect_left(numbers, page_id)
    if place == len(numbers) or numbers[place] != page_id:
        raise KeyError(doc_id)
    return place


class PageValues(Mapping[str, V]):
    """A value of each page: ids ascending (int64), the number of each one's among `values`."""

    def __init__(
        self, page_ids: NDArray[np.int64], codes: NDArray[np.unsignedinteger], values: Sequence[V]
    ) -> None:
        self._codes, self._numbers, self._values = codes, page_ids.data, values

    __hash__ = object.__hash__  # it never changes: what is made of it can be found again

    def __getitem__(self, doc_id: str) -> V:
        return self._values[int(self._codes[place_of(self._numbers, doc_id)])]

    def __iter__(self) -> Iterator[str]:
        return (str(page_id) for page_id in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def items(self) -> ItemsView[str, V]:
        """Pages with their values, all at once: one by one each would be looked for."""
        return dict(zip(self, self._each(), strict=True)).items()

    def values(self) -> ValuesView[V]:
        return dict(enumerate(self._each())).values()

    def _each(self) -> list[V]:
        return list(map(self._values.__getitem__, self._codes.tolist()))


# What is kept: relevance, and of the relevant pages groups, numbers and titles. Each pass reads lines once and holds
# the ids of pages alone, so its memory does not grow with texts. A line is parsed only when its page is wanted. Files
# join by page id: ir_datasets' own document iterators hand a page without metadata the labels of the page before it.
# Where an id repeats, the first line counts.

TextOf = tuple[str, Callable[[str], str]]
"""Which field of a line has the text, and what makes it plain."""
Fill = Callable[[Path, Iterable[Document]], None]
"""Takes all documents, in their order, into an index below a folder."""
TOPICS, GROUPS, PAGES = "topics.json", "groups.db", "pages.db"
Characters = Annotated[str, Meta(pattern=r"^[^\ud800-\udfff]*$")]
"""A text without half of a character, which no file of ours holds."""
Pages = NDArray[np.int64]
"""Ids of pages, ascending."""


class TopicLine(Struct):
    """A line of a topics file."""

    id: int | Annotated[str, Meta(pattern=r"^[^\s\ud800-\udfff]+$")]
    title: Characters = ""
    rel_docs: list[PageId] = []
    keywords: list[Characters] | str | None = None


class Topic(Struct, omit_defaults=True):
    """One of `topics.json`."""

    query_id: str
    text: str
    relevant: list[int]
    keywords: list[str] = []


# Step 1: topics and relevance


def keep_topics(folder: Path, sources: Iterable[tuple[str, Iterable[bytes]]]) -> dict[str, Any]:
    """Writes topics.json: each topic with its relevant page ids, without repeats.

    `sources`: files by name with their lines, which may have the topics apart from their relevant pages. Raises
    UsageError for a malformed line, a second one of a topic in a file, and a topic without relevant pages.
    """
    topics: dict[str, Topic] = {}
    name = ""
    for name, lines in sources:
        ids = set[str]()
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row = fields_of(line, TopicLine, name, number)
            query_id = str(row.id)
            if query_id in ids:
                raise wrong(name, number, "id", f"topic '{query_id}' is there already", "one line a topic")
            ids.add(query_id)
            topic = Topic(query_id, row.title, [], [*keywords_of(row.keywords or ())])
            topics.setdefault(query_id, topic).relevant += map(int, row.rel_docs)
    for topic in topics.values():
        topic.relevant = sorted({*topic.relevant})
    count = sum(len(topic.relevant) for topic in topics.values())
    if not count:
        raise wrong(name, 0, "rel_docs", "no topic has any", HINT)
    text = json.dumps(files.plain([*topics.values()]), ensure_ascii=False) + "\n"
    write_whole(folder / TOPICS, [text])
    return {"queries": len(topics), "relevance_rows": count, "pages": len(pages_of(topics.values()))}


def pages_of(topics: Iterable[Topic]) -> Pages:
    """All pages relevant to some topic."""
    relevant = [np.array(topic.relevant, dtype=np.int64) for topic in topics]
    return np.unique(np.concatenate([*relevant, np.empty(0, dtype=np.int64)]))


# Step 2: groups


def keep_groups(
    folder: Path,
    wanted: Pages,
    lines: Iterable[bytes],
    name: str,
    labels: Mapping[str, str],
    full: bool = False,
) -> dict[str, Any]:
    """Writes groups.db: every wanted page with canonical groups and numbers; all other pages too, if `full`.

    `labels` names the field of each attribute. Raises UsageError for a broken line.
    """
    relevant, labelled = frozenset(wanted.tolist()), 0
    kinds = [(key, list[Characters] | None, None) for key in dict.fromkeys(labels.values())]
    metadata = defstruct("Metadata", [*kinds, *((key, float | None, None) for key in NUMBERS)])
    with written(folder / GROUPS) as pages:
        for page_id, number, line in by_id(lines, "page_id", name):
            if not (full or page_id in relevant):
                continue
            row = fields_of(line, metadata, name, number)
            groups = {
                of: names for of, key in labels.items() if (names := canonical_groups(of, getattr(row, key)))
            }
            numbers = {
                key: n for key in NUMBERS if (n := getattr(row, key)) is not None and 0 <= n < math.inf
            }
            if pages.add(page_id, groups=groups, numbers=numbers):
                labelled += page_id in relevant
        for page_id in np.setdiff1d(wanted, pages.ids).tolist():
            pages.add(page_id)
    return {**({"full": True} if full else {}), "pages_without_metadata": len(wanted) - labelled}


# Step 3: titles


def keep_pages(
    folder: Path,
    wanted: Pages,
    lines: Iterable[bytes],
    name: str,
    text_of: TextOf,
    words: int = 0,
    index: Path | None = None,
    full: bool = False,
    fill: Fill | None = None,
    titles: bool = False,
) -> dict[str, Any]:
    """Writes pages.db from a corpus: the wanted pages with titles, groups, numbers and first words.

    With `titles` from lines `page_id<TAB>title` instead, where an underscore is a space. Pages that the source lacks
    have a blank title. `fill` indexes them in the same pass below the folder `index`; of a `full` index those of all
    pages, beside a pages.db of them.
    Raises UsageError for a broken line.
    """
    counts = Counter[str]()
    key_of_text, plain = text_of
    article = defstruct("Article", [(key, str | None, None) for key in ("title", key_of_text)])
    keyed = _titles(lines, name) if titles else by_id(lines, "id", name)
    metadata, relevant, unknown = PageStore(folder / GROUPS), frozenset(wanted.tolist()), Document("", "")

    def documents(pages: PageWriter, every: PageWriter | None) -> Iterator[Document]:
        """Adds the wanted pages to `pages`, and all to `every`; those that are added, with whole texts."""
        for page_id, number, line in keyed:
            writers = [writer for writer in (every, page_id in relevant and pages) if writer]
            if not writers:
                continue
            if titles:
                title, text = line.decode("utf-8", "replace").replace("_", " "), ""
            else:
                row = fields_of(line, article, name, number)
                title, text = (getattr(row, key) or "" for key in ("title", key_of_text))
                text = plain(text)
            page = metadata.get(str(page_id), unknown)
            first = " ".join(text.split(maxsplit=words)[:words]) if words else ""
            fields = (page_id, title, first, page.groups, page.numbers)
            if not all(writer.add(*fields) for writer in writers):
                continue
            counts["titled"] += page_id in relevant and bool(title.strip())
            counts["indexed"] += 1
            yield Document(str(page_id), title, text)
        for page_id in np.setdiff1d(wanted, pages.ids).tolist():
            page = metadata[str(page_id)]
            for writer in filter(None, (pages, every)):
                writer.add(page_id, "", "", page.groups, page.numbers)

    with ExitStack() as writers:
        pages, every = writers.enter_context(written(folder / PAGES)), None
        if index and full:
            every = writers.enter_context(written(index / PAGES))
        added = documents(pages, every)
        if index and fill:
            fill(index, added)
        for _ in added:  # an index that was whole looks at none
            pass
    return {
        "pages": len(wanted),
        "pages_without_title": len(wanted) - counts["titled"],
        "indexed": counts["indexed"],
    }


def _titles(lines: Iterable[bytes], name: str) -> Iterator[Keyed]:
    """Titles with their page id; the first line may name columns. Raises UsageError for any other that is no title."""
    for number, line in enumerate(lines, start=1):
        page_id, tab, title = line.rstrip(b"\r\n").partition(b"\t")
        if tab and page_id.strip().isdigit() and len(page_id) < 20:
            yield int(page_id), number, title
        elif line.strip() and number > 1:
            raise UsageError(f"{name}:{number}: expected page_id, a tab, title.", "one page a line")


PLAIN_TEXT: TextOf = ("plain", str)
"""A 2022 article."""


def wikitext() -> TextOf:
    """A 2021 article, which is wikitext. Raises MissingExtra without the package that makes plain text of it.

    An unclosed comment ends the article, as Wikipedia shows it (and ir_datasets reads it); the error names the byte.
    """
    try:
        import pyautocorpus
    except ImportError:
        raise MissingExtra(
            "the articles of 2021 are wikitext; plain text of them needs pyautocorpus.",
            "pip install 'ir_datasets[pyautocorpus]'    titles alone need nothing: leave --text-words and --index out",
        ) from None
    textify = pyautocorpus.Textifier().textify

    def plain(markup: str) -> str:
        try:
            return str(textify(markup))
        except ValueError as error:
            message, position = (*error.args, None)[:2]
            if message != "Expected markup type 'comment'" or position is None:
                raise
            return str(textify(markup.encode()[:position].decode()))

    return "text", plain


PageId = Annotated[int, Meta(ge=0, le=2**63 - 1)] | Annotated[str, Meta(pattern=r"^[0-9]{1,18}$")]
"""As lines have it."""
HINT = 'topics: {"id": 84, "title": "…", "rel_docs": [12, 307]}; pages: {"page_id": 12, "gender": ["female"]}'

T = TypeVar("T")
Keyed = tuple[int, int, bytes]
"""Page id, number of the line, the line."""


def by_id(lines: Iterable[bytes], key: str, name: str) -> Iterator[Keyed]:
    """Lines of JSON with their page id, which is read without parsing the line where it stands first, as it does."""
    first = re.compile(rb'\s*\{\s*"%s"\s*:\s*"?(\d{1,18})"?\s*[,}]' % key.encode())
    keyed = defstruct("Line", [(key, PageId)])
    for number, line in enumerate(lines, start=1):
        if match := first.match(line):
            yield int(match[1]), number, line
        elif line.strip():
            yield int(getattr(fields_of(line, keyed, name, number), key)), number, line


def fields_of(line: bytes, of: type[T], name: str, number: int) -> T:
    """A line as this class. Raises UsageError."""
    try:
        return files.parsed(line, of)
    except ValueError as error:
        raise wrong(name, number, *field_of(error), HINT) from None


GENDERS = {
    **dict.fromkeys(("female", "cisgender female", "transgender female"), "female"),
    **dict.fromkeys(("male", "cisgender male", "transgender male"), "male"),
}
CONTINENTS = (
    "Africa", "Antarctica", "Asia", "Europe", "Latin America and the Caribbean", "Northern America", "Oceania",
)  # fmt: skip
SUBREGIONS = (
    "Antarctica", "Caribbean", "Central America", "Central Asia", "Eastern Africa", "Eastern Asia", "Eastern Europe",
    "Middle Africa", "Northern Africa", "Northern America", "Northern Europe", "Oceania", "South America",
    "South-eastern Asia", "Southern Africa", "Southern Asia", "Southern Europe", "Western Africa", "Western Asia",
    "Western Europe",
)  # fmt: skip
REGIONS = {
    **{region: region for region in (*CONTINENTS, *SUBREGIONS)},
    **dict.fromkeys(("Australia and New Zealand", "Melanesia", "Micronesia", "Polynesia"), "Oceania"),
}
GROUP_OF: Mapping[str, Callable[[str], str | None]] = {
    "gender": lambda label: GENDERS.get(label, "nonbinary"),  # the organisers' rule: every other label
    "location": REGIONS.get,
}
UNKNOWN = frozenset({"", "@UNKNOWN", "Unknown", "UNK"})


def canonical_groups(attribute: str, labels: Sequence[str] | None) -> tuple[str, ...]:
    """The groups of raw labels in file order without repeats; none, `[]` and unknown places are the empty tuple."""
    groups = (GROUP_OF[attribute](label) for label in labels or () if label not in UNKNOWN)
    return tuple(dict.fromkeys(group for group in groups if group is not None))
