"""What a design can find: the power of its t test, the smallest effect within reach, the queries it needs.

Everything is planned on the scale of ln R, whose standard error is s/√Q for Q queries of standard deviation s, which
follows from how often two items of a list meet for the first time (`encounters`). Pairs are planned in `pair_plan`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import ceil, exp, log, sqrt

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from llmfair.stats.intervals import t_quantile
from llmfair.stats.pair_plan import fewest_queries

LEVEL = 0.95
FEWEST_TESTED = 6
"""Below this many queries no test is made: with 5 the smallest exact p of a sign flip is .0625."""


def power(effect: float, error: float, queries: float, level: float = LEVEL) -> float:
    """Power of the two-sided t test of `effect`, whose estimate has the standard error `error`.

    1 − F(t) + F(−t), F the noncentral t with queries − 1 degrees of freedom and δ = |effect|/error. `queries`, more
    than 1, need not be whole.
    """
    from scipy.special import nctdtr

    delta, freedom = abs(effect) / error, queries - 1
    critical = t_quantile(freedom, level)
    # A tail far below 1e-14 can be NaN to scipy.
    missed, wrong_side = np.nan_to_num(nctdtr(freedom, delta, [critical, -critical])).tolist()
    return float(1 - missed + wrong_side)


def queries_needed(ratio: float, sd: float, target: float = 0.8, level: float = LEVEL) -> int | None:
    """The fewest queries with which a ratio is told from 1 with power `target`; None for far too many.

    `sd`: standard deviation of what one query adds to ln R.
    """

    def enough(queries: int) -> bool:
        return power(log(ratio), sd / sqrt(queries), queries, level) >= target

    return fewest_queries(enough, FEWEST_TESTED)


def smallest_ratio(sd: float, queries: int, target: float) -> float:
    """The ratio below 1 that so many queries, enough for a test, tell from 1 with power `target`.

    Its inverse is the one above 1.
    """
    from scipy.optimize import brentq

    most = t_quantile(queries - 1, LEVEL)
    while power(most, 1, queries) < target:
        most *= 2
    return exp(-float(brentq(lambda delta: power(delta, 1, queries) - target, 0, most)) * sd / sqrt(queries))


# How many comparisons a design makes. Of a list of n items in random order, groups of f_i items meet for the first time
# in one question (the first window whole, later ones with what enters them; the windows of a partition), so two given
# items meet in one order with Σ f(f−1) / n(n−1).


Windows = Sequence[tuple[int, int]]
"""The windows [start, end) of one pass, in the order they are asked."""


def comparisons(n: int, pairs: int, windows: Windows) -> float:
    """How many first encounters are expected of so many pairs of a list of n items, from one random order."""
    met = sum(len(ranks) * (len(ranks) - 1) for ranks in first_shown(windows))
    return pairs * met / (n * (n - 1)) if n > 1 else 0.0


def first_shown(windows: Windows) -> list[list[int]]:
    """The ranks that each window shows for the first time in a pass; what it shows again has been ranked before."""
    seen = set[int]()
    ranks = []
    for start, end in windows:
        ranks.append([rank for rank in range(start, end) if rank not in seen])
        seen.update(range(start, end))
    return ranks


# Injected Plackett-Luce rankers behind a window plan: what a ranker of known preferences makes of lists. Documents of
# one kind (say, side × grade) are interchangeable, so a list is the kinds of its documents by rank.


Kinds = NDArray[np.uint8]
Floats = NDArray[np.float64]

WIDEST = 120.0
"""The log-weights of one list lie at most this far apart: e^±60 times a draw stays well inside single precision,
and odds of e^120 are already never lost."""


def rank_injected(
    kinds: Kinds, log_weights: ArrayLike, windows: Windows, passes: int, *, rng: Generator, kept: float = 0.0
) -> Kinds:
    """The final lists of a ranker that sorts each window by log-weight + Gumbel(0,1), drawn anew per window.

    `kinds`, shape (…, draws, n), is the initial lists' kinds by rank. `log_weights`, shape (kinds,) or any that
    broadcasts to (…, draws, kinds), weighs each kind. Axes before `draws` share one draw of the noise: common
    random numbers for several rankers. `kept` is the share of windows left as they are, as by answers that
    cannot be read. Raises ValueError for weights of one list more than `WIDEST` apart.

    Source: Plackett-Luce as a race whose arrival times are Exp(1)/weight, the same order as the Gumbel form.
    """
    weights = np.asarray(log_weights, np.float64)
    top, bottom = weights.max(axis=-1, keepdims=True), weights.min(axis=-1, keepdims=True)
    if not (top - bottom <= WIDEST).all():
        raise ValueError(f"log-weights of one list more than {WIDEST:g} apart, or not numbers")
    # about the middle of each list's range, so that neither end over- nor underflows
    delays = np.exp((top + bottom) / 2 - weights).astype(np.float32)
    count = delays.shape[-1]
    rows = count * np.arange(delays.size // count).reshape(*delays.shape[:-1], 1)
    lists = kinds.copy()
    # A kind travels in the b low bits of its arrival time: floats above 0 order as the integers of the same
    # bits, and sorting integers is many times faster than an argsort. It does no harm: only two arrivals that
    # agree in all 23 - b upper bits of the mantissa are ordered by kind, about one pair in 2^(25 - b).
    low_bits = (1 << (count - 1).bit_length()) - 1
    for start, end in [*windows] * passes:
        window = lists[..., start:end]
        draws, size = window.shape[-2:]
        arrivals = delays.take(rows + window)
        arrivals *= rng.standard_exponential((draws, size), dtype=np.float32)
        keys = arrivals.view(np.int32)
        keys &= ~low_bits
        keys |= window
        keys.sort(axis=-1)
        keys &= low_bits
        answered = rng.random((draws, 1)) >= kept if kept else True
        np.copyto(window, keys, casting="unsafe", where=answered)
    return lists


def kind_exposures(kinds: Kinds, n_kinds: int) -> Floats:
    """The mean exposure of each kind in each list, v_a = 1/ln(1+a) at rank a; 0 for a kind that is absent.

    `kinds` has shape (…, n), the result (…, n_kinds).
    """
    weights = rank_exposures(kinds.shape[-1])
    exposures = np.zeros((*kinds.shape[:-1], n_kinds))
    for kind in range(n_kinds):
        held = kinds == kind
        exposures[..., kind] = held @ weights / np.maximum(held.sum(axis=-1), 1)
    return exposures


def random_lists(counts: Sequence[int], draws: int, *, rng: Generator) -> Kinds:
    """Independent uniform orders of a list with `counts` documents of kinds 0, 1, …; shape (draws, n)."""
    kinds = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    return rng.permuted(np.tile(kinds, (draws, 1)), axis=1)


def rank_exposures(n: int) -> Floats:
    """v_a = 1/ln(1+a) for the ranks a = 1 … n; shape (n,)."""
    return 1 / np.log1p(np.arange(1, n + 1))


# What a way of asking can reach at all: rankers with a fixed taste and no noise, simulated from random orders. A
# window carries few documents forward, so even a ranker that always puts one group first moves the exposure ratio of
# a long list only a little. Lists of equal shape are simulated once and weighted by their number.


Plan = Callable[[int], Windows]
"""The windows [start, end) of one pass over a list of n documents, in the order they are asked."""

Tastes = NDArray[np.int8]
Rank = Callable[[Tastes], Tastes]
"""Lists by rank, shape (draws, n), as a ranker leaves them that puts low tastes first, and equal ones as they come."""


def by_windows(windows: Plan, passes: int) -> Rank:
    """Windows that are known beforehand, of a noiseless ranker that keeps the order but for tastes.

    Documents of one taste are interchangeable, so sorting the tastes inside a window is all that ranking is.
    """

    def rank(tastes: Tastes) -> Tastes:
        lists = tastes.copy()
        for start, end in [*windows(tastes.shape[1])] * passes:
            lists[:, start:end].sort(axis=1)
        return lists

    return rank


Shape = tuple[int, int, int]
"""How many items a list has, and how many of them are protected and unprotected."""


def _extremes(
    lists: Sequence[Shape], rank: Rank, draws: int, rng: Generator
) -> Iterator[tuple[Shape, int, tuple[Tastes, Tastes]]]:
    """Every shape of list that has both sides, how many have it, and its rankings by who puts the protected last, and
    first; `draws` random initial orders are shared out over the lists, and items without side come between the two."""
    shapes = Counter(shape for shape in lists if shape[1] and shape[2])
    for shape, count in shapes.items():
        n, protected, unprotected = shape
        tastes = (protected, n - protected - unprotected, unprotected)
        initial = random_lists(tastes, ceil(draws * count / shapes.total()), rng=rng).astype(np.int8)
        yield shape, count, (2 - rank(2 - initial), rank(initial))


def attainable_ratio(
    lists: Sequence[Shape], rank: Rank, draws: int = 3000, *, rng: Generator
) -> tuple[float, float]:
    """The exposure ratio (ratio of means) of rankers that always put the protected last, and always first.

    A list that lacks a side counts for nothing.
    """
    sums = np.zeros((2, 2))  # by ranker, Σ E1 and Σ E0 over the lists
    for (n, protected, unprotected), count, rankings in _extremes(lists, rank, draws, rng):
        weights, sides = rank_exposures(n), ((0, protected), (2, unprotected))
        for of_ranker, ranked in zip(sums, rankings, strict=True):
            of_ranker += count * np.array([(ranked == s).mean(axis=0) @ weights / size for s, size in sides])
    low, high = (sums[:, 0] / sums[:, 1]).tolist()
    return low, high


def attainable_odds(
    lists: Sequence[Shape], rank: Rank, draws: int = 1000, *, rng: Generator
) -> tuple[float | None, float | None]:
    """The odds, in final lists, of a protected item ahead of another, of rankers that always put it last, and first.

    Each list weighs alike. None for odds without bound: one is always ahead.
    """
    shares, total = np.zeros(2), sum(1 for shape in lists if shape[1] and shape[2])
    for (_, protected, unprotected), count, rankings in _extremes(lists, rank, draws, rng):
        for place, ranked in enumerate(rankings):
            behind = (ranked == 2)[:, ::-1].cumsum(axis=1)[:, ::-1]  # others from each place on
            ahead = ((ranked == 0) * behind).sum(axis=1).mean() / (protected * unprotected)
            shares[place] += count * float(ahead) / total
    low, high = shares.tolist()
    return (low / (1 - low) or None, None if high == 1 else high / (1 - high))


def attainable_precision(
    lists: Sequence[tuple[int, int]], rank: Rank, k: int, draws: int = 3000, *, rng: Generator
) -> float:
    """Mean P@k of a ranker that knows which documents are relevant, from random initial orders.

    `lists` holds (n, relevant) per query.
    """
    total = 0.0
    for (n, relevant), count in Counter(lists).items():
        ranked = rank(
            random_lists((relevant, n - relevant), ceil(draws * count / len(lists)), rng=rng).astype(np.int8)
        )
        total += count * float((ranked[:, :k] == 0).sum(axis=1).mean()) / k
    return total / len(lists)


# Strengths of items behind several orders of them, on the scale of log odds. Bradley and Terry's model of every two
# items of every order, logit P(i ahead of j) = s_i − s_j, each two compared once more with a tie, so that an item
# that is always ahead has a finite strength. All items are compared alike often, so strengths follow the mean ranks
# (Borda's order), and items of one mean rank have one strength.


STEPS, TOLERANCE = 50, 1e-10
DECIMALS = 9
"""The last digits hang on the processor, and equal orders give equal files everywhere."""


def bradley_terry(ranks: ArrayLike) -> Floats:
    """Strengths with mean 0, shape (n,), of items whose ranks in each order have shape (orders, n); 0 is the head."""
    of = np.asarray(ranks, dtype=np.intp)
    totals = of.sum(axis=0)
    by_total = np.argsort(totals, kind="stable")
    strengths = np.empty(len(totals))
    strengths[by_total] = _of_totals(tuple(totals[by_total].tolist()), len(of))
    return strengths


@lru_cache(maxsize=512)
def _of_totals(totals: tuple[int, ...], orders: int) -> Floats:
    """Of items by their rising sums of ranks, by Newton's method; what halves and folds ask for again is kept."""
    n, each = len(totals), orders + 1
    if n < 2:
        return np.zeros(n)
    won = orders * (n - 1) - np.array(totals, dtype=np.float64) + (n - 1) / 2
    strengths = np.zeros(n)
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
        np.fill_diagonal(chance, 0)
        weights = each * chance * chance.T
        # the Laplacian of these weights; what is 1/n of all makes it of full rank, and keeps the sum of steps 0
        laplacian = np.diag(weights.sum(axis=1)) - weights + 1 / n
        step = np.linalg.solve(laplacian, won - each * chance.sum(axis=1))
        strengths += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < TOLERANCE:
            break
    rounded: Floats = np.round(strengths - strengths.mean(), DECIMALS)
    return rounded


def offset_to_parity(margins: Sequence[Floats]) -> float:
    """What has to be added to the first items' strengths so that they are ahead half the time.

    `margins`, one array a query: by how much the other item of each comparison is ahead. Every query weighs 1, so it is
    the weighted median of all. Raises ValueError without a comparison.
    """
    compared = [array for array in margins if array.size]
    values = np.concatenate(compared)
    weights = np.concatenate([np.full(array.size, 1 / array.size) for array in compared])
    by_size = np.argsort(values, kind="stable")
    values, reached = values[by_size], np.cumsum(weights[by_size])
    half = reached[-1] / 2
    low = int(np.searchsorted(reached, half * (1 - 1e-12)))
    high = min(int(np.searchsorted(reached, half * (1 + 1e-12))), len(values) - 1)
    return float((values[low] + values[high]) / 2)
