"""How often odds by strata of relevance are right, and what is concluded of them: `python -m benchmarks.strata`.

Simulated audits on arrays, apart from the product's own simulator: a ranker sorts what it is shown by relevance, an
item's own quality, Gumbel noise and a preference, whose odds differ by stratum. It may leave items out of its answers
and windows as they were; items may recur in other queries' lists. Figures and conclusions are those of real audits.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil, exp, log

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.strata import Comparisons, Figure, Strata, Stratum, figure

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

AUDITS, AT_ONCE = 300, 25
RELEVANCE = 1.5
STEP = 10
ALPHA = 0.025


@dataclass(frozen=True)
class Lists:
    """`relevant`: items of every list; half of each stratum is protected. `step` 0: a partition, every item once.

    `pool`: items that all lists are drawn from, with qualities of their own of a heavy-tailed law. `everywhere`: so
    many protected items are in every list, and all others in one.
    """

    queries: int
    n: int
    relevant: int
    orders: int = 3
    window: int = 20
    step: int = STEP
    pool: int = 0
    everywhere: int = 0


@dataclass(frozen=True)
class Ranker:
    """Odds by stratum. `constant`: an item has the same noise wherever it is shown. `names`: the first so many of a
    window. `drops`: the chance that a protected item of a window's lower half is left out. `leaves`: of windows, as
    they are. `slot`: what the first slot has ahead of the last.
    """

    relevant: float = 1.0
    irrelevant: float = 1.0
    constant: bool = False
    names: int = 0
    drops: float = 0.0
    leaves: float = 0.0
    slot: float = 0.0


@dataclass(frozen=True)
class Items:
    """Of every list: numbers of items, grades, which are protected, and qualities; each of shape (queries, n)."""

    number: Integers
    relevant: NDArray[np.bool_]
    protected: NDArray[np.bool_]
    quality: Floats


def items_of(lists: Lists, rng: np.random.Generator) -> Items:
    shape = lists.queries, lists.n
    if lists.pool:
        number = np.array([rng.choice(lists.pool, lists.n, replace=False) for _ in range(lists.queries)])
        relevant = rng.random(lists.pool) < lists.relevant / lists.n
        protected, quality = rng.permutation(lists.pool) % 2 == 1, rng.standard_t(2, lists.pool)
        return Items(number, relevant[number], protected[number], quality[number])
    place = np.broadcast_to(np.arange(lists.n), shape)
    number = np.arange(lists.queries * lists.n).reshape(shape)
    quality = np.zeros(shape)
    if lists.everywhere:
        number = np.where(place % 2 * (place < 2 * lists.everywhere) == 1, place, number + lists.n)
        quality = rng.standard_t(2, number.max() + 1)[number]
    return Items(number, place < lists.relevant, place % 2 == 1, quality)


def answered(
    items: Items, lists: Lists, ranker: Ranker, rng: np.random.Generator
) -> tuple[Comparisons, float]:
    """All comparisons of an audit, and the share of items that its answers leave out."""
    odds = np.where(items.relevant, log(ranker.relevant), log(ranker.irrelevant))
    taste = RELEVANCE * items.relevant + items.quality + odds * items.protected
    shape = lists.queries, lists.orders, lists.n
    order = rng.permuted(np.broadcast_to(np.arange(lists.n), shape), axis=-1)
    always = rng.gumbel(size=(lists.queries, lists.n))
    query = np.arange(lists.queries)[:, None, None]
    parts, left, asked = [], 0, 0
    for start, end, new in _windows(lists):
        shown = order[..., start:end]
        z = np.linspace(-1, 1, end - start)
        noise = always[query, shown] if ranker.constant else rng.gumbel(size=shown.shape)
        scores = taste[query, shown] + noise - ranker.slot / 2 * z
        stays = rng.random((*shown.shape[:-1], 1)) < ranker.leaves
        scores = np.where(stays, -np.arange(end - start), scores)
        rank = np.argsort(np.argsort(-scores, axis=-1), axis=-1)
        omitted = (rank >= ranker.names) if ranker.names else np.zeros(rank.shape, bool)
        if ranker.drops:
            lower = rank >= (end - start) // 2
            omitted |= lower & items.protected[query, shown] & (rng.random(rank.shape) < ranker.drops)
        left, asked = left + int(omitted.sum()), asked + omitted.size
        placed = np.where(omitted, lists.n + np.arange(end - start), rank)
        parts.append(_encounters(items, shown, placed, omitted, z, new))
        order[..., start:end] = np.take_along_axis(shown, np.argsort(placed, axis=-1), axis=-1)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    numbers, relevant, first, second, ahead, first_slot, second_slot, compared = columns
    shown_pairs = {
        (number, stratum): int(count)
        for stratum, rows in ((Stratum.RELEVANT, relevant), (Stratum.IRRELEVANT, ~relevant))
        for number, count in enumerate(np.bincount(numbers[rows], minlength=lists.queries))
    }
    slots = np.stack([first_slot, second_slot], axis=1)
    every = Comparisons(numbers, relevant, shown_pairs, lists.window, first, second, 1.0 * ahead, slots)
    return every.some(compared), left / asked


def _windows(lists: Lists) -> list[tuple[int, int, int]]:
    """Where windows begin and end, and how many of their first places hold items that come in now."""
    if not lists.step:
        ends = np.cumsum(
            [len(part) for part in np.array_split(np.arange(lists.n), ceil(lists.n / lists.window))]
        )
        return [
            (begin, end, end - begin)
            for begin, end in zip([0, *map(int, ends)], map(int, ends), strict=False)
        ]
    windows, end, seen = [], lists.n, lists.n
    while seen:
        start = max(0, end - lists.window)
        windows.append((start, end, seen - start))
        end, seen = end - lists.step, start
    return windows


def _encounters(
    items: Items, shown: Integers, placed: Integers, omitted: NDArray[np.bool_], z: Floats, new: int
) -> tuple[NDArray[np.generic], ...]:
    """Pairs of equal grade and both groups that meet for the first time: both have just come in."""
    query = np.arange(len(shown))[:, None, None]
    protected, relevant = items.protected[query, shown], items.relevant[query, shown]
    pairs = protected[..., :, None] & ~protected[..., None, :]
    pairs &= relevant[..., :, None] == relevant[..., None, :]
    pairs[..., new:, :] = pairs[..., :, new:] = False
    number, order, first, second = np.nonzero(pairs)
    compared = ~(omitted[number, order, first] & omitted[number, order, second])
    ahead = placed[number, order, first] < placed[number, order, second]
    one, other = shown[number, order, first], shown[number, order, second]
    return (
        number, items.relevant[number, one], items.number[number, one], items.number[number, other], ahead,
        z[first], z[second], compared,
    )  # fmt: skip


@dataclass(frozen=True)
class Row:
    name: str
    lists: Lists
    ranker: Ranker


def rows() -> list[Row]:
    small, large = Lists(8, 40, 20), Lists(44, 60, 6)
    recurring = Lists(44, 40, 12, 2, 20, 0, 60)
    both = [
        Row(f"{name}, both at {odds:g}", lists, Ranker(odds, odds))
        for name, lists in (("8 × 40, half relevant", small), ("44 × 60, a tenth relevant", large))
        for odds in (1.0, 0.8, 0.6)
    ]
    return [
        *both,
        *(
            Row(f"44 × 60, relevant at {odds:g}", large, Ranker(relevant=odds))
            for odds in (0.1, 0.3, 0.5, 0.64, 0.8)
        ),
        Row("8 × 40, .6, constant answers", small, Ranker(0.6, 0.6, constant=True)),
        Row("44 × 60, .8, constant answers", large, Ranker(0.8, 0.8, constant=True)),
        Row("44 × 60, .8, slots", large, Ranker(0.8, 0.8, slot=4)),
        Row("44 × 60, partition, one order, fair", Lists(44, 60, 18, 1, 20, 0), Ranker()),
        Row("44 × 60, windows of 5, .8", Lists(44, 60, 18, 1, 5, 2), Ranker(0.8, 0.8)),
        Row("44 × 60, names 6 of 20, fair", Lists(44, 60, 20), Ranker(names=6)),
        Row("44 × 60, names 6 of 20, .6", Lists(44, 60, 20), Ranker(0.6, 0.6, names=6)),
        Row("44 × 60, .77, drops protected", Lists(44, 60, 20, 1), Ranker(0.77, 0.77, drops=0.8)),
        Row("44 × 40, 85 % as they were, .7", Lists(44, 40, 12), Ranker(0.7, 0.7, leaves=0.85)),
        Row("items recur (44 × 40 of 60), fair", recurring, Ranker()),
        Row("items recur, constant answers", recurring, Ranker(constant=True)),
        Row("3 protected items in all lists", Lists(44, 40, 12, 2, 20, 0, 0, 3), Ranker()),
    ]


def audits(row: Row, seeds: Sequence[int]) -> list[Strata]:
    return [audit(row, seed) for seed in seeds]


def audit(row: Row, seed: int) -> Strata:
    rng = np.random.default_rng(seed)
    items = items_of(row.lists, rng)
    comparisons, left_out = answered(items, row.lists, row.ranker, rng)
    strata = {stratum: figure(comparisons, stratum) for stratum in Stratum}
    return Strata(figure(comparisons), strata, left_out)


HEADER = (
    f"{'':38} {'odds of both, relevant, irrelevant':>34} {'intervals that hold':>20}"
    f" {'disparity, of 3 and 7':>23} {'parity':>6}"
)


def line(row: Row, results: Sequence[Strata]) -> str:
    """Median odds, coverage of the true odds, shares of disparity (with one, three and seven prompts) and parity."""
    true = {Stratum.RELEVANT: row.ranker.relevant, Stratum.IRRELEVANT: row.ranker.irrelevant}
    alike = row.ranker.relevant == row.ranker.irrelevant
    columns: list[tuple[list[Figure], float | None]] = [
        ([each.pooled for each in results], row.ranker.relevant if alike else None),
        *(([each.strata[stratum] for each in results], odds) for stratum, odds in true.items()),
    ]
    medians = " ".join(f"{_median(figures):>11}" for figures, _ in columns)
    held = " ".join(f"{_coverage(figures, odds):>6}" for figures, odds in columns)
    p_values = [each.outside() for each in results]
    disparity = [_share([p is not None and p <= ALPHA / tests for p in p_values]) for tests in (1, 3, 7)]
    several = (100 * (1 - (1 - share) ** tests) for share, tests in zip(disparity, (1, 3, 7), strict=True))
    parity = 100 * _share([each.parity()[0] for each in results])
    return f"{row.name:38} {medians} {held} {' '.join(f'{share:7.1f}' for share in several)} {parity:6.1f}"


def _share(facts: Sequence[bool]) -> float:
    return sum(facts) / len(facts)


def _median(figures: Sequence[Figure]) -> str:
    logs = [each.log_odds for each in figures if each.log_odds is not None]
    return f"{exp(float(np.median(logs))):.3f}" if logs else "–"


def _coverage(figures: Sequence[Figure], odds: float | None) -> str:
    limits = [each.interval() for each in figures if each.log_odds is not None]
    if odds is None or not limits:
        return "–"
    return f"{100 * _share([low <= odds <= high for low, high in filter(None, limits)]):.1f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--audits", type=int, default=AUDITS, help="audits a row")
    options.add_argument("--only", default="", help="rows whose name has this")
    given = options.parse_args()
    began = time.perf_counter()
    print(f"{given.audits:,} audits a row; shares in %, standard errors at most {50 / given.audits**0.5:.1f}")
    print(HEADER)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for row in rows():
            if given.only in row.name:
                seeds = np.array_split(np.arange(given.audits), ceil(given.audits / AT_ONCE))
                results = pool.map(partial(audits, row), [[int(seed) for seed in part] for part in seeds])
                print(line(row, [each for part in results for each in part]), flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
