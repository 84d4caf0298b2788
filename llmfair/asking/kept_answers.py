"""Where a journal's answers stand, by key, in 16 bytes each: texts are read when they are asked for."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np

from llmfair.asking.journal_lines import completion_of, row_of
from llmfair.io import files
from llmfair.io.files import decode
from llmfair.nouns import Completion

LATEST = 1 << 14
"""Answers that are kept in a dictionary until they are sorted in, at least; of many, a sixteenth."""


class Places:
    """The place of each answer in its file. Of two answers to one request the first counts."""

    def __init__(self) -> None:
        self._digests, self._offsets = (
            array("Q"),
            array("Q"),
        )  # by digest; of equal ones the first stands first
        self._latest: dict[int, list[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many requests have an answer."""
        return self._count

    def __contains__(self, key: str) -> bool:
        return bool(self._of(_digest(key)))

    def add(self, key: str, offset: int) -> None:
        """Notes an answer that stands behind those noted before."""
        digest = _digest(key)
        self._count += not self._of(digest)
        self._latest.setdefault(digest, []).append(offset)
        if len(self._latest) > max(LATEST, len(self._digests) // 16):
            self._sort_in()

    def answer(self, key: str, file: BinaryIO) -> Completion | None:
        """The answer filed under `key`, or None."""
        for offset in self._of(_digest(key)):
            file.seek(offset)
            row = decode(file.readline())
            if row["key"] == key:
                return completion_of(row)
        return None

    def _of(self, digest: int) -> list[int]:
        begin = end = bisect_left(self._digests, digest)
        while end < len(self._digests) and self._digests[end] == digest:
            end += 1
        return [*self._offsets[begin:end], *self._latest.get(digest, ())]

    def _sort_in(self) -> None:
        for digest, offsets in self._latest.items():
            self._digests.extend([digest] * len(offsets))
            self._offsets.extend(offsets)
        self._latest = {}
        order = np.argsort(np.frombuffer(self._digests, np.uint64), kind="stable")
        self._digests, self._offsets = (
            array("Q", np.frombuffer(numbers, np.uint64)[order].tobytes())
            for numbers in (self._digests, self._offsets)
        )


class KeptAnswers:
    """The first answer to each request of a journal that is not written to meanwhile."""

    def __init__(self, path: Path) -> None:
        self._places, offset = Places(), 0
        self._file = files.opened(path)
        for number, line in enumerate(files.pieces(self._file)):
            row = row_of(line) if number else None
            if row is not None and "key" in row:
                self._places.add(row["key"], offset)
            offset += len(line)

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        """How many requests have an answer."""
        return len(self._places)

    def get(self, key: str) -> Completion | None:
        """The answer filed under `key`, or None."""
        return self._places.answer(key, self._file)


def _digest(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())
