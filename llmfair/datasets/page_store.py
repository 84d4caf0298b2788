"""Pages of a fetched collection as arrays on disk, looked up without being read whole.

A folder of `ids.npy` (int64, ascending), `codes.npy` (each page's number among the combinations of groups, an integer
as small as they allow), `starts.npy` (int64, where its line begins), `titled.npy` (bool, whether its title is known),
`texts.jsonl` (lines `["title", "text"]`, in the order of the corpus, and behind those what is known of a page by
NUMBERS) and `groups.json` (the combinations, each with the first page that has it); `files.json` tells them from files
that were altered since (`io/files.py`).
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple, TypeVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import UsageError, line_of
from llmfair.io import files
from llmfair.io.files import decode, encode, whole, write_whole
from llmfair.nouns import NO_NUMBERS, NUMBERS, Attribute, Document, ManyDocuments, Side

KIND = "@ "
"""No page id begins so: `@ 3` is a document of the combination of groups of that number, and of nothing else."""
FILES = ("ids.npy", "codes.npy", "starts.npy", "titled.npy", "texts.jsonl", "groups.json")
SIDES = (Side.UNPROTECTED, Side.PROTECTED)


@dataclass(frozen=True)
class StoredIndex:
    """An index that was made of a collection when it was fetched: by which analyzer and engine.

    `source` names its documents, `command` makes it anew.
    """

    path: Path
    source: str
    analyzer: str
    engine: str
    command: str


class GroupsOf(NamedTuple):
    """The groups of pages: ids ascending, each one's number among the combinations; of the first are unknown pages.

    `numbers`: what is known of each page besides, a column for each of NUMBERS, NaN where it is not known.
    """

    ids: NDArray[np.int64]
    codes: NDArray[np.int32]
    combinations: Sequence[Mapping[str, Any]]
    numbers: NDArray[np.float64] = np.empty((0, len(NUMBERS)))

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """The numbers for these pages; 0 for one that is not known."""
        if not len(self.ids):
            return np.zeros(len(ids), dtype=np.int32)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[places] == ids, self.codes[places], 0).astype(np.int32)

    def numbers_of(self, page_id: int) -> Mapping[str, float]:
        """What is known of a page by NUMBERS."""
        place = int(np.searchsorted(self.ids, page_id))
        there = place < len(self.numbers) and self.ids[place] == page_id
        return by_name(self.numbers[place].tolist()) if there else NO_NUMBERS

    def save(self, path: Path) -> None:
        combinations = np.array(encode(self.combinations).decode())
        with whole(path) as file:
            np.savez(file, ids=self.ids, codes=self.codes, combinations=combinations, numbers=self.numbers)

    @classmethod
    def load(cls, path: Path) -> GroupsOf:
        """Raises UsageError for a file that is gone or damaged."""
        try:
            with files.opened(path) as file, np.load(file, allow_pickle=False) as stored:
                combinations = decode(str(stored["combinations"]))
                return cls(stored["ids"], stored["codes"], combinations, stored["numbers"])
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            EOFError,
            SyntaxError,
            TokenError,
            BadZipFile,
        ) as error:
            raise damaged(path, error) from None


def by_name(numbers: Iterable[float | None]) -> dict[str, float]:
    """Numbers in the order of NUMBERS by their names; what is None or NaN is not known."""
    named = zip(NUMBERS, numbers, strict=True)
    return {name: number for name, number in named if number is not None and number == number}


class PageWriter:
    """Writes a folder of pages, in the corpus' order; `written` opens it."""

    def __init__(self, texts: Any) -> None:
        self._texts, self._at = texts, 0
        self.ids, self._starts, self._titled = array("q"), array("q"), bytearray()

    def add(self, page_id: int, title: str, text: str, numbers: Mapping[str, float] = NO_NUMBERS) -> None:
        self.ids.append(page_id)
        self._starts.append(self._at)
        self._titled.append(bool(title.strip()))
        line = [title, text, *([numbers.get(name) for name in NUMBERS] if numbers else ())]
        self._at += self._texts.write(encode(line) + b"\n")

    def save(self, folder: Path, groups: GroupsOf) -> None:
        ids = np.frombuffer(self.ids, dtype=np.int64)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        codes = groups.of(ids)
        present, first = np.unique(codes, return_index=True)
        of_each = zip(ids[first], present, strict=True)
        combinations = [[str(page_id), groups.combinations[code]] for page_id, code in of_each]
        arrays = {
            "ids": ids,
            "starts": np.frombuffer(self._starts, dtype=np.int64)[order],
            "titled": np.frombuffer(self._titled, dtype=np.bool_)[order],
            "codes": np.searchsorted(present, codes).astype(np.min_scalar_type(len(present))),
        }
        for name, values in arrays.items():
            with whole(folder / f"{name}.npy") as file:
                np.save(file, values)
        write_whole(folder / "groups.json", [encode(combinations).decode() + "\n"])


@contextmanager
def written(folder: Path) -> Iterator[PageWriter]:
    """A folder of pages while it is written; whole once `save` was called and the context is left."""
    folder.mkdir(parents=True, exist_ok=True)
    with whole(folder / "texts.jsonl") as texts:
        yield PageWriter(texts)
    files.note(folder, FILES)


def damaged(path: Path, why: Exception) -> UsageError:
    """What is said of a file of a fetch that is gone, cut or another."""
    record = path.with_name("fetch.json")
    return UsageError(
        f"{path} cannot be read: {line_of(why)}.", f"remove {record}, then fetch the dataset again"
    )


def mapped(path: Path) -> NDArray[Any]:
    """The whole numbers of an array on disk, which is not read. Raises OSError, ValueError."""
    files.opened(path).close()  # no pipe, which would be waited for
    try:
        found: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (SyntaxError, TokenError) as error:  # its head is read as Python
        raise ValueError(f"{path.name}: {line_of(error)}") from None
    if found.ndim != 1 or found.dtype.kind not in "iub" or not found.dtype.isnative:
        raise ValueError(f"{path.name} is no list of whole numbers")
    return found


class PageStore(ManyDocuments):
    """The pages of a folder: what is not looked at stays on disk.

    Raises OSError or ValueError for a folder that is gone, damaged or altered.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files.check(folder)
        self.ids, self._starts, self.codes = (
            mapped(folder / f"{name}.npy") for name in ("ids", "starts", "codes")
        )
        if not len(self.ids) == len(self._starts) == len(self.codes):
            raise ValueError("its arrays differ in length")
        self._numbers = self.ids.data
        with files.opened(folder / "texts.jsonl") as file:
            self._texts = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if len(self.ids) else b""
        try:
            rows = decode(files.content(folder / "groups.json", files.MOST_RECORDED))
            self._firsts = [str(first) for first, _ in rows]
            self.combinations = [{name: tuple(of) for name, of in groups.items()} for _, groups in rows]
        except (TypeError, AttributeError) as error:
            raise ValueError(f"groups.json: {error}") from None
        if not all(first in self for first in self._firsts):
            raise ValueError("groups.json: names a page that is not there")

    def check(self) -> None:
        """Reads the arrays through. Raises OSError, or ValueError where they do not fit together."""
        if not len(self.ids):
            return
        if np.any(np.diff(self.ids) <= 0) or len(self.titled) != len(self.ids):
            raise ValueError("the ids of its pages are not in order")
        if not 0 <= self.codes.min() <= self.codes.max() < len(self.combinations):
            raise ValueError("a page has groups that groups.json lacks")
        if not 0 <= self._starts.min() <= self._starts.max() < len(self._texts) or self._texts[-1:] != b"\n":
            raise ValueError("texts.jsonl is cut")

    @cached_property
    def titled(self) -> NDArray[np.bool_]:
        """Of each page whether its title is known. Raises OSError, ValueError."""
        return mapped(self.folder / "titled.npy")

    def __getitem__(self, doc_id: str) -> Document:
        of_kind = doc_id.startswith(KIND)
        place = 0 if of_kind else place_of(self._numbers, doc_id)
        try:
            if of_kind:
                return Document(doc_id, "", groups=self.combinations[int(doc_id.removeprefix(KIND))])
            start = self._starts[place]
            title, text, *numbers = decode(self._texts[start : self._texts.find(b"\n", start)])
            groups = self.combinations[self.codes[place]]
            return Document(doc_id, title, text, groups, by_name(numbers) if numbers else NO_NUMBERS)
        except (ValueError, LookupError, TypeError):
            raise self._damaged(f"page {doc_id} cannot be read") from None

    def _damaged(self, why: str) -> UsageError:
        return UsageError(f"{self.folder} is damaged: {why}.", f"remove {self.folder} and repeat the command")

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

    def those_of(self, doc_ids: Iterable[str]) -> dict[str, Document]:
        """Those of these pages that there are, in the order of the corpus."""
        there = [doc_id for doc_id in {*doc_ids} if doc_id in self]
        there.sort(key=lambda doc_id: self._starts[place_of(self._numbers, doc_id)])
        return {doc_id: self[doc_id] for doc_id in there}

    def of_each_kind(self) -> Iterable[Document]:
        return [
            Document(first, "", groups=groups)
            for first, groups in zip(self._firsts, self.combinations, strict=True)
        ]

    def kinds(self, page_ids: NDArray[np.int64], command: str) -> dict[str, int]:
        """How many of these pages have each combination of groups, by its document's id. Raises UsageError."""
        counts = self.counts(self.places(page_ids, command))
        return {f"{KIND}{code}": count for code, count in enumerate(counts) if count}

    def counts(self, places: NDArray[np.intp]) -> list[int]:
        """How many of the pages at these places have each of the combinations of groups. Raises UsageError."""
        codes, known = self.codes[places], len(self.combinations)
        if len(codes) and not 0 <= codes.min() <= codes.max() < known:
            raise self._damaged("a page has groups that groups.json lacks")
        counts: list[int] = np.bincount(codes, minlength=known).tolist()
        return counts

    def places(self, page_ids: NDArray[np.int64], command: str) -> NDArray[np.intp]:
        """Where these pages stand. Raises UsageError where one is missing, with the command that fetches them all."""
        places = np.searchsorted(self.ids, page_ids)
        if len(places) and (places.max() == len(self.ids) or np.any(self.ids[places] != page_ids)):
            raise UsageError(f"{self.folder} lacks relevant pages of the topics beside it.", command)
        return places

    def on(self, attribute: Attribute) -> dict[Side | None, NDArray[np.bool_]]:
        """Which pages are on each side of an attribute, and which on none (None), titled or not."""
        found = [attribute.side(document) for document in self.of_each_kind()]
        return {side: self.where(one is side for one in found) for side in (*Side, None)}

    def where(self, holds: Iterable[bool]) -> NDArray[np.bool_]:
        """Which pages are of combinations of which it holds; said of each in turn."""
        mask: NDArray[np.bool_] = np.fromiter(holds, dtype=np.bool_)[self.codes]
        return mask

    def sides(self, attribute: Attribute) -> PageValues[Side]:
        """The side of every page that has one, and a title."""
        on = self.on(attribute)
        there = self.titled & ~on[None]
        return PageValues(self.ids[there], on[Side.PROTECTED][there].astype(np.uint8), SIDES)


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
        self.page_ids, self.codes = page_ids, codes
        self._numbers, self._values = page_ids.data, values

    __hash__ = object.__hash__  # it never changes: what is made of it can be found again

    def __getitem__(self, doc_id: str) -> V:
        return self._values[int(self.codes[place_of(self._numbers, doc_id)])]

    def __iter__(self) -> Iterator[str]:
        return (str(page_id) for page_id in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def items(self) -> ItemsView[str, V]:
        """All at once: one by one each would be looked for."""
        return dict(zip(self, self._each(), strict=True)).items()

    def values(self) -> ValuesView[V]:
        return dict(enumerate(self._each())).values()

    def _each(self) -> list[V]:
        return list(map(self._values.__getitem__, self.codes.tolist()))


class JudgedPages(PageValues[int]):
    """Pages that are relevant to a topic, all with grade 1; ids ascending."""

    def __init__(self, page_ids: NDArray[np.int64]) -> None:
        super().__init__(page_ids, np.zeros(len(page_ids), dtype=np.uint8), (1,))
