"""What a way of asking can reach at all: rankers with a fixed taste and no noise, simulated from random orders.

A window carries few documents forward, so even a ranker that always puts one group first moves the exposure
ratio of a long list only a little. Lists of equal shape are simulated once and weighted by their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.injected import rank_exposures

Plan = Callable[[int], Sequence[tuple[int, int]]]
"""The windows [start, end) of one pass over a list of n documents, in the order they are asked."""

Tastes = NDArray[np.int8]
Rank = Callable[[Tastes], Tastes]
"""Lists by rank, shape (draws, n), as a ranker leaves them that puts low tastes first, and equal ones as they come."""


@dataclass(frozen=True, slots=True)
class Range:
    """The lowest and the highest value within reach."""

    low: float
    high: float


def by_windows(windows: Plan, passes: int) -> Rank:
    """Windows that are known beforehand."""
    return lambda tastes: rank_by_taste(tastes, windows(tastes.shape[1]), passes)


def rank_by_taste(tastes: Tastes, windows: Sequence[tuple[int, int]], passes: int) -> Tastes:
    """The final lists of a noiseless ranker that puts low tastes first and keeps the order otherwise.

    `tastes`, shape (draws, n), is each list's taste by rank; documents of one taste are interchangeable, so
    sorting the tastes inside a window is all that ranking is.
    """
    lists = tastes.copy()
    for start, end in [*windows] * passes:
        lists[:, start:end].sort(axis=1)
    return lists


def attainable_ratio(
    lists: Sequence[tuple[int, int, int]],
    rank: Rank,
    draws: int = 3000,
    *,
    rng: np.random.Generator,
) -> Range:
    """The exposure ratio (ratio of means) of rankers that always put the protected last, and always first.

    `lists` holds (n, protected, unprotected) per query; documents without side come between the two, and a
    list that lacks a side counts for nothing (no list left: ValueError). `draws` random initial orders are
    shared out over the lists.
    """
    shapes = Counter(shape for shape in lists if shape[1] and shape[2])
    if not shapes:
        raise ValueError("no list has documents of both groups")
    first, last = np.zeros(2), np.zeros(2)  # Σ E1 and Σ E0 over the lists
    for (n, protected, unprotected), count in shapes.items():
        tastes = np.repeat(
            np.array([0, 1, 2], np.int8), [protected, n - protected - unprotected, unprotected]
        )
        initial = _random_orders(tastes, ceil(draws * count / shapes.total()), rng)
        weights = rank_exposures(n)
        for sums, ranked in (
            (first, rank(initial)),
            (last, 2 - rank(2 - initial)),
        ):
            sums += count * np.array(
                [
                    ((ranked == 0).mean(axis=0) @ weights) / protected,
                    ((ranked == 2).mean(axis=0) @ weights) / unprotected,
                ]
            )
    return Range(float(last[0] / last[1]), float(first[0] / first[1]))


def attainable_precision(
    lists: Sequence[tuple[int, int]],
    rank: Rank,
    k: int,
    draws: int = 3000,
    *,
    rng: np.random.Generator,
) -> float:
    """Mean P@k of a ranker that knows which documents are relevant, from random initial orders.

    `lists` holds (n, relevant) per query. Raises ValueError without lists.
    """
    if not lists:
        raise ValueError("no list to rank")
    total = 0.0
    for (n, relevant), count in Counter(lists).items():
        tastes = np.repeat(np.array([0, 1], np.int8), [relevant, n - relevant])
        initial = _random_orders(tastes, ceil(draws * count / len(lists)), rng)
        ranked = rank(initial)
        total += count * float((ranked[:, :k] == 0).sum(axis=1).mean()) / k
    return total / len(lists)


def _random_orders(tastes: Tastes, draws: int, rng: np.random.Generator) -> Tastes:
    """Independent uniform orders of one list; shape (draws, n)."""
    return rng.permuted(np.tile(tastes, (draws, 1)), axis=1)
