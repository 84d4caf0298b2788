"""What measures of retrieval-augmented generation read: what a policy shows, what it showed, what was made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

CERTAIN = 1e-12
"""Exposures this close to 0 or 1 are never, or always."""


def shares(lists: Sequence[Sequence[int]], n: int, weights: ArrayLike | None = None) -> Floats:
    """ε̂: the share of lists that show each item, or the sum of their weights; lists of places; shape (n,) [Eq. 5]."""
    found = np.zeros(n)
    for places, weight in zip(lists, weights_of(len(lists), weights), strict=True):
        found[list(set(places))] += weight
    return found


def weights_of(lists: int, weights: ArrayLike | None) -> Floats:
    """What each list counts: the weights that are given, or one part of so many."""
    if weights is None:
        return np.full(lists, 1 / max(lists, 1))
    return np.asarray(weights, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ShownList:
    """A list that a generator was shown under one condition, and what became of it; each distinct list once.

    `count`: how many of the samples drew it. `output`: the generator's answer, None where it was not asked or did not
    answer; `utility` of that answer against the gold, higher is better. `attributed`: the shown items that the answer
    is credited to; None where nobody asked. `supported`: of those that the answer cites, the ones that a judge says
    support it.
    """

    doc_ids: tuple[str, ...]
    count: int
    output: str | None
    utility: float | None
    attributed: frozenset[str] | None = None
    supported: frozenset[str] | None = None


@dataclass(frozen=True)
class Retrieved:
    """A query under one condition: all its n items, the useful ones, and what the generator was shown.

    `k` items are shown at a time, fewer where there are fewer. `exposure` is the exact expected exposure of the
    policy, by item; None where the policy is unknown, as in a log. `baseline`: mean utility of the same retriever's
    deterministic list. `ceiling`: the best utility of any list of this query with this generator. `uncredited`: why
    there is no attribution where there is none.
    """

    about: ClassVar[str] = "shown items"

    query_id: str
    doc_ids: tuple[str, ...]
    useful: frozenset[str]
    k: int
    exposure: Mapping[str, float] | None
    lists: tuple[ShownList, ...]
    baseline: float | None = None
    ceiling: float | None = None
    uncredited: str = "no_attribution"

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each item stands in arrays."""
        return {doc_id: place for place, doc_id in enumerate(self.doc_ids)}

    @cached_property
    def flags(self) -> NDArray[np.bool_]:
        """Which items are useful; shape (n,)."""
        return np.array([doc_id in self.useful for doc_id in self.doc_ids], dtype=bool)

    @cached_property
    def samples(self) -> int:
        """How many lists were drawn."""
        return sum(shown.count for shown in self.lists)

    @property
    def always_alike(self) -> bool:
        """Whether the policy shows the same items every time."""
        return self.exposure is not None and all(min(e, 1 - e) < CERTAIN for e in self.exposure.values())

    def shown(self, which: ShownList) -> tuple[str, ...]:
        """What was shown of a list: its first k items, each once."""
        return tuple(dict.fromkeys(which.doc_ids))[: self.k]

    def shares(self, counted: Iterable[tuple[int, Iterable[str]]]) -> Floats:
        """The share of samples that each item is in, of the items and counts of lists; shape (n,)."""
        counts, lists = [], []
        for count, doc_ids in counted:
            counts.append(count)
            lists.append([self.places[doc_id] for doc_id in doc_ids])
        return shares(lists, len(self.doc_ids), np.array(counts) / max(sum(counts), 1))
