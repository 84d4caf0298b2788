"""Pages of a fetched collection in one SQLite file, of which what is not looked at stays on disk.

Table `pages`: title, text and NUMBERS by id. `columns`: of all pages `ids` (int64, ascending), `codes` (int32, the
number of each one's combination of groups) and `titled` (bool, whether its title is known), as arrays. `groups`: the
combinations in the order of their numbers, each with the first page that has it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import UsageError, line_of
from llmfair.io import files
from llmfair.io.files import decode, encode, whole
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


def judged(page_ids: NDArray[np.int64]) -> PageValues[int]:
    """Pages, ids ascending, that are relevant to a topic, all with grade 1."""
    return PageValues(page_ids, np.zeros(len(page_ids), dtype=np.uint8), (1,))
