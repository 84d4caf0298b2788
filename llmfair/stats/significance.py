"""Tests of no group effect: sign flips over queries, shuffled group labels of items, adjustments, groups by name.

Two nulls. `sign_flip`: no mean effect over queries. `permutation`: no effect in any query, within the strata
(relevance grades) that a ranker may rightly treat unlike; it needs independent random initial orders.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import erfc, sqrt

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from llmfair.stats.intervals import SAME

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Parts = NDArray[np.complex128]

MOST_ENUMERATED = 14
"""Up to this many queries all sign vectors are tried."""

TIE = 1e-12
"""Statistics this close to the observed one count as equal to it: rounding must not decide."""

BLOCK = 2**18
"""Random numbers held at once."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledItems:
    """The documents of one query that have a side: arrays of shape (documents,), both sides present.

    `exposures` are means over the initial orders, `strata` relevance grades. `doc_ids` tell which of them are in other
    lists, too; without, none is.
    """

    exposures: Floats
    protected: NDArray[np.bool_]
    strata: NDArray[np.integer]
    doc_ids: tuple[str, ...] = ()

    def labels(self) -> tuple[Hashable, ...]:
        """Equal where items, groups and strata are."""
        return self.doc_ids, self.protected.tobytes(), self.strata.tobytes()


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """The stratified permutation test of T = Σ_q (E1 − E0) − (M1 − M0), less what shuffles give on average.

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


def sign_flip(values: ArrayLike, *, rng: Generator, draws: int = 9999) -> float:
    """The two-sided p of Σ x_q = 0 under random signs of the queries' values, shape (queries,).

    Up to 14 queries: the share of all sign vectors whose |Σ s_q x_q| reaches |Σ x_q|; beyond, `draws` random
    ones and p = (1 + #)/(draws + 1).
    """
    array = np.asarray(values, dtype=np.float64)
    queries, total = len(array), float(array.sum())
    least = abs(total) - TIE * float(np.abs(array).sum())

    def extreme(signs: NDArray[np.bool_]) -> int:
        """How many sign vectors, True for +, reach the observed sum; `kept` has shape (vectors, queries)."""
        return int(np.count_nonzero(np.abs(2 * (signs @ array) - total) >= least))

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
    tested = {place: p for place, p in enumerate(p_values) if p is not None}
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(tested, key=tested.__getitem__)):
        largest = max(largest, min(1.0, (len(tested) - rank) * tested[place]))
        adjusted[place] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p values in the order given, by the share of false ones among all: p_(i) becomes min_{j≥i} m p_(j)/j.

    None is a test that was not made: it stays None and does not count in m.
    Source: Benjamini and Hochberg (1995), Controlling the false discovery rate.
    """
    tested = {place: p for place, p in enumerate(p_values) if p is not None}
    adjusted: list[float | None] = [None] * len(p_values)
    least = 1.0
    for rank, place in reversed([*enumerate(sorted(tested, key=tested.__getitem__), 1)]):
        least = adjusted[place] = min(least, len(tested) / rank * tested[place])
    return adjusted


def p_outside(groups: Sequence[Floats], band: tuple[float, float]) -> list[float]:
    """One-sided p of each group's ratio of sums over queries against the nearer edge of the band, 1 in the band.

    Of each group the numerators and denominators of its queries, shares of a whole; shape (queries, 2). The tail is
    that of a Poisson count of the same variance: of numerators less the edge times denominators, and of the portions
    that are amiss at the edge. A group that got few by chance shows too little of what chance does, so portions are as
    large as its own (Σ a²/Σ a) or those of all groups (Σ var a/Σ ā(1 − ā)), a whole where no group varies.
    """
    from scipy.special import gammainc, gammaincc

    spread, most = (
        sum(len(of) * float(part(of[:, 0])) for of in groups)
        for part in (np.var, lambda over: over.mean() * (1 - over.mean()))
    )
    p_values = list[float]()
    for of in groups:
        (over, under), (seen, worth) = of.T, of.sum(axis=0).tolist()
        expected = min(max(seen, band[0] * worth), band[1] * worth)
        if expected in (seen, 0.0) or len(of) == 1:
            p_values.append(1.0)
            continue
        portion = max(spread / most if spread else 1.0, float(over @ over) / seen if seen else 0.0)
        variance = len(of) * float((over - expected / worth * under).var(ddof=1))
        variance = max(variance + portion * max(expected - seen, 0.0), SAME)
        size, count = expected**2 / variance, expected * seen / variance
        p_values.append(float(gammaincc(count + 1, size) if seen < expected else gammainc(count, size)))
    return p_values


def named_groups(outside: Mapping[tuple[str, str], int]) -> tuple[list[str], list[str]]:
    """Groups that are put behind, and those put ahead of, more than half of those that they are compared with.

    `outside`: by pair of groups, whether its odds lie outside the band: -1 below, the first being behind, 1 above, else
    0. A pair that could not be tested counts as one that is not outside.
    """
    pairs, sums = Counter[str](), {-1: Counter[str](), 1: Counter[str]()}
    for (first, second), sign in outside.items():
        pairs.update((first, second))
        if sign:
            sums[sign][first] += 1
            sums[-sign][second] += 1
    behind, ahead = ([g for g in pairs if 2 * sums[sign][g] > pairs[g]] for sign in (-1, 1))
    return behind, ahead


def stratum_means(query: LabelledItems) -> tuple[float, float]:
    """M1 and M0: the sides' mean exposures if every document had its stratum's mean."""
    means = query.exposures - _beyond_stratum(query)
    return float(means[query.protected].mean()), float(means[~query.protected].mean())


def permutations(
    rankers: Sequence[Sequence[LabelledItems]], rngs: Sequence[Generator], draws: int = 9999
) -> list[PermutationTest]:
    """Shuffles the group labels, one an item over all lists; two-sided p = (1 + #{|T_b| ≥ |T|})/(draws + 1).

    An item of a single list changes labels with others of that query and stratum. An item of several is not as many
    items: its own quality goes with it, so it changes labels with all such items of the same highest stratum.
    Several rankers of the same queries and labels are tested, with shuffles that are drawn once for all of them, by
    one generator per query for items of that list alone. `draws` 0: z alone.
    """
    names = dict[Hashable, int]()
    numbers = list[Places]()  # of the items of every list, over all lists
    for place, query in enumerate(rankers[0]):
        ids = query.doc_ids or [(place, i) for i in range(len(query.strata))]
        labelled = zip(ids, query.protected.tolist(), strict=True)  # with another label an item is another
        numbers.append(np.array([names.setdefault(name, len(names)) for name in labelled]))
    protected, grade = np.zeros(len(names), np.bool_), np.full(len(names), np.iinfo(np.intp).min)
    lists = np.bincount(np.concatenate(numbers), minlength=len(names))
    for query, items in zip(rankers[0], numbers, strict=True):
        protected[items] = query.protected
        grade[items] = np.maximum(grade[items], query.strata)
    # for each list those items that are in no other, last those of several
    pools = [*(items[lists[items] == 1] for items in numbers), np.flatnonzero(lists > 1)]
    strata = [[pool[grade[pool] == each] for each in np.unique(grade[pool])] for pool in pools]
    parts = np.zeros((len(rankers), len(protected)), np.complex128)
    for of_items, ranker in zip(parts, rankers, strict=True):
        for query, items in zip(ranker, numbers, strict=True):
            # added to Σ E1 − M1 if protected, and (imaginary) taken from Σ E0 − M0
            beyond, size = _beyond_stratum(query), np.count_nonzero(query.protected)
            of_items[items] += beyond / size + 1j * beyond / (len(beyond) - size)
    generators = [*rngs, rngs[0].spawn(1)[0]]
    sums = np.zeros((len(parts), draws), np.complex128)
    if draws:
        # numpy draws and partitions without the interpreter's lock
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for of_list in pool.map(
                partial(_shuffled_sums, parts, protected, draws=draws), strata, generators
            ):
                sums += of_list
    every = [*chain.from_iterable(strata)]
    return [_tested(*ranker, protected, every) for ranker in zip(rankers, parts, sums, strict=True)]


def _tested(
    queries: Sequence[LabelledItems],
    parts: Parts,
    shuffled: Parts,
    protected: NDArray[np.bool_],
    strata: Sequence[Places],
) -> PermutationTest:
    """The test of one ranker from its items' parts and the protected items' sum of them in every shuffle."""
    both, centre, variance = parts.real + parts.imag, 0.0, 0.0
    for members in strata:
        size, chosen = len(members), int(np.count_nonzero(protected[members]))
        centre += chosen * float(both[members].mean())
        if size > 1:
            variance += chosen * (size - chosen) / size * float(both[members].var(ddof=1))
    statistic = float(both[protected].sum()) - centre
    z = statistic / sqrt(variance) if sqrt(variance) > TIE else 0.0
    p_z = erfc(abs(z) / sqrt(2))
    draws = len(shuffled)
    if not draws:
        return PermutationTest(statistic, z, p_z, None, None, None, draws)
    reached = int(np.count_nonzero(np.abs(shuffled.real + shuffled.imag - centre) >= abs(statistic) - TIE))
    over, under = np.sum([stratum_means(query) for query in queries], axis=0)
    low, high = np.quantile((over + shuffled.real) / (under - shuffled.imag), [0.025, 0.975])
    return PermutationTest(statistic, z, p_z, (1 + reached) / (draws + 1), float(low), float(high), draws)


def _shuffled_sums(
    parts: Parts, protected: NDArray[np.bool_], strata: Sequence[Places], rng: Generator, draws: int
) -> Parts:
    """The protected items' sum of parts in each shuffle of these strata; shape (rankers, draws)."""
    sums = np.zeros((len(parts), draws), np.complex128)
    for members in strata:
        labels, of_members = protected[members], np.ascontiguousarray(parts[:, members])
        # The smaller side is drawn; of equal ones that of the first document: swapping the sides keeps p.
        smaller = labels if 2 * labels.sum() < len(labels) + labels[0] else ~labels
        drawn = _subset_sums(of_members, int(smaller.sum()), rng, draws)
        sums += drawn if smaller is labels else of_members.sum(axis=1, keepdims=True) - drawn
    return sums


def _subset_sums(parts: Parts, size: int, rng: Generator, draws: int) -> Parts:
    """Sums over uniform random subsets of `size` documents, for each of several rankers; shape (rankers, draws).

    A subset are the documents with the smallest random keys. The lowest bits of a key name its document: no two are
    equal, and a partition leaves the subset in front.
    """
    sums = np.zeros((len(parts), draws), np.complex128)
    if size == 0:
        return sums
    count, first = parts.shape[1], 0
    names = np.arange(count, dtype=np.uint64)
    name_bits = np.uint64(2 ** (count - 1).bit_length() - 1)
    for rows in _blocks(draws, count):
        keys = rng.integers(0, 2**64, (rows, count), dtype=np.uint64)
        keys &= ~name_bits
        keys |= names
        keys.partition(size - 1, axis=1)
        chosen = (keys[:, :size] & name_bits).astype(np.intp)
        for place, of_documents in enumerate(parts):
            sums[place, first : first + rows] = of_documents[chosen].sum(axis=1)
        first += rows
    return sums


def _beyond_stratum(query: LabelledItems) -> Floats:
    """Each document's exposure less the mean of its stratum; shape (documents,)."""
    _, stratum = np.unique(query.strata, return_inverse=True)
    means = np.bincount(stratum, query.exposures) / np.bincount(stratum)
    return query.exposures - means[stratum]


def _blocks(draws: int, width: int) -> Iterator[int]:
    """Splits the draws, of `width` random numbers each, so that memory stays small."""
    step = max(1, BLOCK // width)
    return (min(step, draws - start) for start in range(0, draws, step))
