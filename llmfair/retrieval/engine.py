"""What searches a collection, whatever stands behind it: programs are given an engine and know no more than this."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol


class Hit(NamedTuple):
    """A document that shares a word with the query, and its score."""

    doc_id: str
    score: float


class Engine(Protocol):
    """BM25 over one collection. Text is words, never query syntax; threads may share an engine.

    Scores of two engines may differ by a constant factor (k1 + 1), which changes no order.
    """

    @property
    def identity(self) -> str:
        """All that can change a score, in words."""
        ...

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> Sequence[Hit]:
        """The best k documents, best first, ties by doc id; fewer when fewer share a word with the query.

        The query is the words of `text` and those of `added`, a repeated word as often as it stands there; what a
        word of `added` adds to a score counts `weight` times.
        """
        ...

    def scores(self, text: str, doc_ids: Collection[str]) -> Mapping[str, float]:
        """The score of each of these documents as a search of everything has it; 0 where no word of `text` stands.

        Raises KeyError for an unknown document.
        """
        ...

    def count(self) -> int:
        """How many documents the collection has."""
        ...
