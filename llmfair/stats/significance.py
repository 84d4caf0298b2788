"""Tests of no group effect: sign flips over queries, shuffled group labels within queries, Holm's adjustment.

Two nulls. `sign_flip`: no mean effect over queries. `permutation`: no effect in any query, within the strata
(relevance grades) that a ranker may rightly treat unlike; it needs independent random initial orders.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from math import erfc, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

MOST_ENUMERATED = 14
"""Up to this many queries all sign vectors are tried."""

TIE = 1e-12
"""Statistics this close to the observed one count as equal to it: rounding must not decide."""

BLOCK = 2**18
"""Random numbers held at once."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledItems:
    """The documents of one query that have a side: arrays of shape (documents,), both sides present.

    `exposures` are means over the initial orders, `strata` relevance grades.
    """

    exposures: Floats
    protected: NDArray[np.bool_]
    strata: NDArray[np.integer]

    def labels(self) -> tuple[bytes, bytes]:
        """Equal where groups and strata are."""
        return self.protected.tobytes(), self.strata.tobytes()


@dataclass(frozen=True, slots=True)
class Null:
    """What the strata alone give a query: E E1 = M1, E E0 = M0, and Var(E1 − E0), under shuffled labels."""

    protected: float
    unprotected: float
    variance: float


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """The stratified permutation test of T = Σ_q (E1 − E0) − (M1 − M0).

    `p` and the null 95 % range of R = Σ E1/Σ E0 come from `draws` shuffles (None without), `z` and `p_z` (two
    sides of the normal) from the closed form. Where no shuffle can change anything, z is 0 and p is 1.
    """

    statistic: float
    z: float
    p_z: float
    p: float | None
    ratio_low: float | None
    ratio_high: float | None
    draws: int


def sign_flip(values: ArrayLike, *, rng: np.random.Generator, draws: int = 9999) -> float:
    """The two-sided p of Σ x_q = 0 under random signs of the queries' values, shape (queries,).

    Up to 14 queries: the share of all sign vectors whose |Σ s_q x_q| reaches |Σ x_q|; beyond, `draws` random
    ones and p = (1 + #)/(draws + 1).
    """
    array = np.asarray(values, dtype=np.float64)
    queries, total = len(array), float(array.sum())
    least = abs(total) - TIE * float(np.abs(array).sum())

    def extreme(kept: NDArray[np.bool_]) -> int:
        """How many sign vectors, True for +, reach the observed sum; `kept` has shape (vectors, queries)."""
        return int(np.count_nonzero(np.abs(2 * (kept @ array) - total) >= least))

    if queries <= MOST_ENUMERATED:
        vectors = np.arange(2**queries)[:, None] >> np.arange(queries) & 1
        return extreme(vectors.astype(bool)) / len(vectors)
    reached = sum(
        extreme(rng.integers(0, 2, (size, queries), dtype=np.bool_)) for size in _blocks(draws, queries)
    )
    return (1 + reached) / (draws + 1)


def sign_test(values: ArrayLike) -> float:
    """The two-sided p of as many values below 0 as above, shape (queries,); those that are 0 do not count.

    Exact: twice the binomial tail of the rarer sign, at most 1; 1 without any.
    """
    array = np.asarray(values, dtype=np.float64)
    above, below = int(np.count_nonzero(array > 0)), int(np.count_nonzero(array < 0))
    signs = above + below
    tail = sum(math.comb(signs, rarer) for rarer in range(min(above, below) + 1))
    return min(1.0, tail / 2 ** (signs - 1)) if signs else 1.0


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p values in the order given: p_(i) becomes max_{j≤i} min(1, (m − j + 1) p_(j)).

    None is a test that was not made: it stays None and does not count in m.
    Source: Holm (1979), A simple sequentially rejective multiple test procedure.
    """
    made = {place: p for place, p in enumerate(p_values) if p is not None}
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(made, key=made.__getitem__)):
        largest = max(largest, min(1.0, (len(made) - rank) * made[place]))
        adjusted[place] = largest
    return adjusted


def means(query: LabelledItems) -> tuple[float, float]:
    """E1 and E0, the mean exposures of the protected and of the unprotected documents."""
    return _sides(query, query.exposures)


def null_of(query: LabelledItems) -> Null:
    """The closed form of shuffling labels within strata: sampling a_r of n_r documents without replacement.

    With the stratum's mean ē_r and sample variance s²_r: M1 = Σ a_r ē_r/n1, M0 = Σ (n_r − a_r) ē_r/n0,
    Var(E1 − E0) = (1/n1 + 1/n0)² Σ a_r (n_r − a_r)/n_r s²_r.
    """
    expected, scatter = np.empty(len(query.exposures)), 0.0
    for members in _strata(query):
        exposures, size = query.exposures[members], len(members)
        chosen = np.count_nonzero(query.protected[members])
        expected[members] = exposures.mean()
        if size > 1:
            scatter += chosen * (size - chosen) / size * float(exposures.var(ddof=1))
    protected = np.count_nonzero(query.protected)
    scale = 1 / protected + 1 / (len(expected) - protected)
    return Null(*_sides(query, expected), scale**2 * scatter)


def permutations(
    rankers: Sequence[Sequence[LabelledItems]], rngs: Sequence[np.random.Generator], draws: int = 9999
) -> list[PermutationTest]:
    """Shuffles the group labels within query × stratum; two-sided p = (1 + #{|T_b| ≥ |T|})/(draws + 1).

    Several rankers of the same queries and labels are tested, with shuffles that are drawn once for all of them, by
    one generator per query, so that no query's draws depend on the others. `draws` 0: z alone.
    """
    queries = list(zip(*rankers, strict=True))
    with ThreadPoolExecutor(
        os.cpu_count()
    ) as pool:  # numpy draws and partitions without the interpreter's lock
        sums = list(pool.map(_shuffled_sums, queries, rngs, repeat(draws)))
    return [
        _tested(ranker, [of_query[place] for of_query in sums], draws) for place, ranker in enumerate(rankers)
    ]


def _tested(queries: Sequence[LabelledItems], shuffled: Iterable[Floats], draws: int) -> PermutationTest:
    """The test of one ranker from the protected documents' summed exposure in each query's shuffles."""
    expected = variance = statistic = 0.0
    over, under = np.zeros(draws), np.zeros(draws)  # Σ E1 and Σ E0 of every shuffle
    for query, sums in zip(queries, shuffled, strict=True):
        null, (protected, unprotected) = null_of(query), means(query)
        expected += null.protected - null.unprotected
        statistic += (protected - unprotected) - (null.protected - null.unprotected)
        variance += null.variance
        chosen = np.count_nonzero(query.protected)
        over += sums / chosen
        under += (query.exposures.sum() - sums) / (len(query.exposures) - chosen)
    z = statistic / sqrt(variance) if sqrt(variance) > TIE else 0.0
    p_z = erfc(abs(z) / sqrt(2))
    if not draws:
        return PermutationTest(statistic, z, p_z, None, None, None, draws)
    reached = int(np.count_nonzero(np.abs(over - under - expected) >= abs(statistic) - TIE))
    low, high = np.quantile(over / under, [0.025, 0.975])
    return PermutationTest(statistic, z, p_z, (1 + reached) / (draws + 1), float(low), float(high), draws)


def _shuffled_sums(rankers: Sequence[LabelledItems], rng: np.random.Generator, draws: int) -> Floats:
    """The protected documents' summed exposure in every shuffle of one query; shape (rankers, draws)."""
    query, sums = rankers[0], np.zeros((len(rankers), draws))
    for members in _strata(query):
        labels, exposures = query.protected[members], [ranker.exposures[members] for ranker in rankers]
        # The smaller side is drawn; of equal ones that of the first document: swapping the sides keeps p.
        smaller = labels if 2 * labels.sum() < len(labels) + labels[0] else ~labels
        drawn = _subset_sums(exposures, int(smaller.sum()), rng, draws)
        for place, found in enumerate(drawn):
            sums[place] += found if smaller is labels else exposures[place].sum() - found
    return sums


def _subset_sums(exposures: Sequence[Floats], size: int, rng: np.random.Generator, draws: int) -> Floats:
    """Sums over uniform random subsets of `size` documents, for each of several exposures; shape (exposures, draws).

    A subset are the documents with the smallest random keys. The lowest bits of a key name its document: no two are
    equal, and a partition leaves the subset in front.
    """
    sums = np.zeros((len(exposures), draws))
    if size == 0:
        return sums
    count, first = len(exposures[0]), 0
    names = np.arange(count, dtype=np.uint64)
    name_bits = np.uint64(2 ** (count - 1).bit_length() - 1)
    for rows in _blocks(draws, count):
        keys = rng.integers(0, 2**64, (rows, count), dtype=np.uint64)
        keys &= ~name_bits
        keys |= names
        keys.partition(size - 1, axis=1)
        chosen = (keys[:, :size] & name_bits).astype(np.intp)
        for place, of_documents in enumerate(exposures):
            sums[place, first : first + rows] = of_documents[chosen].sum(axis=1)
        first += rows
    return sums


def _sides(query: LabelledItems, exposures: Floats) -> tuple[float, float]:
    return float(exposures[query.protected].mean()), float(exposures[~query.protected].mean())


def _strata(query: LabelledItems) -> list[NDArray[np.intp]]:
    """The documents of each stratum, by their places."""
    return [np.flatnonzero(query.strata == stratum) for stratum in np.unique(query.strata)]


def _blocks(draws: int, width: int) -> Iterator[int]:
    """Splits the draws, of `width` random numbers each, so that memory stays small."""
    step = max(1, BLOCK // width)
    return (min(step, draws - start) for start in range(0, draws, step))
