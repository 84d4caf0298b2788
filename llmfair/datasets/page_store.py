"""Pages of a fetched collection as arrays on disk, looked up without being read whole.

A folder of `ids.npy` (int64, ascending), `codes.npy` (each page's number among the combinations of groups, an integer
as small as they allow), `starts.npy` (int64, where its line begins), `texts.jsonl` (lines `["title", "text"]`, in the
order of the corpus) and `groups.json` (the combinations, each with the first page that has it).
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmfair.jsonbytes import decode, encode
from llmfair.many import ManyDocuments
from llmfair.records import Document
from llmfair.trec import write_whole

KIND = "@ "
"""No page id begins so: `@ 3` is a document of the combination of groups of that number, and of nothing else."""


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
    """The groups of pages: ids ascending, each one's number among the combinations, of which the first is of none."""

    ids: NDArray[np.int64]
    codes: NDArray[np.int32]
    combinations: Sequence[Mapping[str, Any]]

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """The numbers for these pages; 0 for one that is not known."""
        if not len(self.ids):
            return np.zeros(len(ids), dtype=np.int32)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[places] == ids, self.codes[places], 0).astype(np.int32)

    def save(self, path: Path) -> None:
        beside = path.with_name(path.name + ".tmp")
        combinations = np.array(encode(self.combinations).decode())
        with beside.open("wb") as file:
            np.savez(file, ids=self.ids, codes=self.codes, combinations=combinations)
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> GroupsOf:
        with np.load(path) as stored:
            return cls(stored["ids"], stored["codes"], decode(str(stored["combinations"])))


class PageWriter:
    """Writes a folder of pages, in the corpus' order; `written` opens it."""

    def __init__(self, texts: Any) -> None:
        self._texts, self._at = texts, 0
        self.ids, self._starts = array("q"), array("q")

    def add(self, page_id: int, title: str, text: str) -> None:
        self.ids.append(page_id)
        self._starts.append(self._at)
        self._at += self._texts.write(encode([title, text]) + b"\n")

    def save(self, folder: Path, groups: GroupsOf) -> None:
        ids = np.frombuffer(self.ids, dtype=np.int64)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        codes = groups.of(ids)
        present, first = np.unique(codes, return_index=True)
        of_each = zip(ids[first], present, strict=True)
        combinations = [[str(page_id), groups.combinations[code]] for page_id, code in of_each]
        smallest = np.min_scalar_type(len(present))
        arrays = {
            "ids": ids,
            "starts": np.frombuffer(self._starts, dtype=np.int64)[order],
            "codes": np.searchsorted(present, codes).astype(smallest),
        }
        for name, values in arrays.items():
            with (folder / f"{name}.npy.tmp").open("wb") as file:
                np.save(file, values)
            (folder / f"{name}.npy.tmp").replace(folder / f"{name}.npy")
        write_whole(folder / "groups.json", [encode(combinations).decode() + "\n"])


@contextmanager
def written(folder: Path) -> Iterator[PageWriter]:
    """A folder of pages while it is written; whole once `save` was called and the context is left."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / "texts.jsonl.tmp"
    with beside.open("wb") as texts:
        yield PageWriter(texts)
    beside.replace(folder / "texts.jsonl")


class PageStore(ManyDocuments):
    """The pages of a folder: what is not looked at stays on disk."""

    def __init__(self, folder: Path) -> None:
        self._ids, self._starts, self._codes = (
            np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("ids", "starts", "codes")
        )
        self._numbers = memoryview(self._ids)
        with (folder / "texts.jsonl").open("rb") as file:
            self._texts = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        rows = decode((folder / "groups.json").read_text("utf-8"))
        self._firsts = [str(first) for first, _ in rows]
        self._groups = [{name: tuple(of) for name, of in groups.items()} for _, groups in rows]

    def __getitem__(self, doc_id: str) -> Document:
        if doc_id.startswith(KIND):
            return Document(doc_id, "", groups=self._groups[int(doc_id.removeprefix(KIND))])
        place = self._place(doc_id)
        start = self._starts[place]
        title, text = decode(self._texts[start : self._texts.find(b"\n", start)])
        return Document(doc_id, title, text, self._groups[self._codes[place]])

    def _place(self, doc_id: str) -> int:
        if not (doc_id.isascii() and doc_id.isdigit() and (doc_id[0] != "0" or doc_id == "0")):
            raise KeyError(doc_id)
        page_id = int(doc_id)
        place = bisect_left(self._numbers, page_id)
        if place == len(self._numbers) or self._numbers[place] != page_id:
            raise KeyError(doc_id)
        return place

    def __iter__(self) -> Iterator[str]:
        return (str(page_id) for page_id in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, doc_id: object) -> bool:
        try:
            self._place(str(doc_id))
        except KeyError:
            return False
        return True

    def of_each_kind(self) -> Iterable[Document]:
        return [
            Document(first, "", groups=groups)
            for first, groups in zip(self._firsts, self._groups, strict=True)
        ]

    def kinds(self, page_ids: NDArray[np.int64]) -> dict[str, int]:
        """How many of these pages, all known, have each combination of groups, by its document's id."""
        counts = np.bincount(self._codes[np.searchsorted(self._ids, page_ids)], minlength=len(self._groups))
        return {f"{KIND}{code}": count for code, count in enumerate(counts.tolist()) if count}


class JudgedPages(Mapping[str, int]):
    """Pages that are relevant to a topic, all with grade 1; ids ascending."""

    def __init__(self, page_ids: NDArray[np.int64]) -> None:
        self.page_ids = page_ids
        self._numbers = memoryview(page_ids.data)

    def __getitem__(self, doc_id: str) -> int:
        if doc_id.isascii() and doc_id.isdigit():
            place = bisect_left(self._numbers, page_id := int(doc_id))
            if place < len(self._numbers) and self._numbers[place] == page_id:
                return 1
        raise KeyError(doc_id)

    def __iter__(self) -> Iterator[str]:
        return (str(page_id) for page_id in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def items(self) -> ItemsView[str, int]:
        """All at once: one by one each would be looked for."""
        return dict.fromkeys(self, 1).items()

    def values(self) -> ValuesView[int]:
        return dict.fromkeys(self, 1).values()
