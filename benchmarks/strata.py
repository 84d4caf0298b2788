"""How often odds by strata of relevance are right, and what is concluded of them: `python -m benchmarks.strata`.

Simulated audits on arrays, apart from the product's own simulator: a ranker sorts what it is shown by relevance, an
item's own quality, Gumbel noise and a preference, whose odds differ by stratum. It may leave items out of its answers
and windows as they were; items may recur in other queries' lists. *Now* are figures and conclusions of real audits,
*before* those of the rule that they replace, of the same answers: one figure over all pairs of items that an answer
names, every query weighing the same, no sign among the slots' effects, its error that of leaving out queries, outside
or within where its interval is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import print_rows
from llmfair.stats.strata import MOST_POWERS, Comparisons, Figure, Strata, Stratum, figure, fitted

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]

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
    window. `drops`: the chance that a protected item of a window's lower half is left out, `forgets` that any item is.
    `leaves`: of windows, as they are. `slot`: what the first slot has ahead of the last.
    """

    relevant: float = 1.0
    irrelevant: float = 1.0
    constant: bool = False
    names: int = 0
    drops: float = 0.0
    forgets: float = 0.0
    leaves: float = 0.0
    slot: float = 0.0


class Plain(Comparisons):
    """Fitted without the sign of slots."""

    signed = False


class Answers(NamedTuple):
    """Comparisons of an audit, those of items that were both named, and the share of items left out."""

    comparisons: Comparisons
    named: Plain
    left_out: float


@dataclass(frozen=True)
class Items:
    """Of every list: numbers of items, grades, which are protected, and qualities; each of shape (queries, n)."""

    number: Integers
    relevant: Flags
    protected: Flags
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


def answered(items: Items, lists: Lists, ranker: Ranker, rng: np.random.Generator) -> Answers:
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
        omitted |= rng.random(rank.shape) < ranker.forgets
        left, asked = left + int(omitted.sum()), asked + omitted.size
        placed = np.where(omitted, lists.n + np.arange(end - start), rank)
        parts.append(_encounters(items, shown, placed, omitted, z, new))
        order[..., start:end] = np.take_along_axis(shown, np.argsort(placed, axis=-1), axis=-1)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    query, relevant, first, second, ahead, first_slot, second_slot, lacking = columns
    slots = np.stack([first_slot, second_slot], axis=1)
    every = Plain(query, relevant, {}, lists.window, first, second, 1.0 * ahead, slots)
    compared, named = every.some(lacking < 2), every.some(lacking < 1)
    columns = [getattr(compared, name) for name in ("first", "second", "ahead", "slots")]
    pairs = _pairs(query, relevant)
    comparisons = Comparisons(compared.query, compared.relevant, pairs, lists.window, *columns)
    return Answers(comparisons, _plain(named), left / asked)


def _plain(named: Comparisons) -> Plain:
    """A query's comparisons weigh 1 in all."""
    columns = [getattr(named, name) for name in ("first", "second", "ahead", "slots")]
    pairs = _pairs(named.query, named.relevant)
    return Plain(named.query, named.relevant, pairs, named.window, *columns)


def _pairs(query: Integers, relevant: Flags) -> dict[tuple[int, Stratum], int]:
    """How many there are of each query and stratum."""
    strata = (Stratum.RELEVANT, relevant), (Stratum.IRRELEVANT, ~relevant)
    return {
        (number, stratum): int(count)
        for stratum, rows in strata
        for number, count in enumerate(np.bincount(query[rows]))
    }


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
    items: Items, shown: Integers, placed: Integers, omitted: Flags, z: Floats, new: int
) -> tuple[NDArray[np.generic], ...]:
    """Pairs of equal grade and both groups that have just come in, and how many of the two are left out."""
    query = np.arange(len(shown))[:, None, None]
    protected, relevant = items.protected[query, shown], items.relevant[query, shown]
    pairs = protected[..., :, None] & ~protected[..., None, :]
    pairs &= relevant[..., :, None] == relevant[..., None, :]
    pairs[..., new:, :] = pairs[..., :, new:] = False
    number, order, first, second = np.nonzero(pairs)
    lacking = omitted[number, order, first] * 1 + omitted[number, order, second]
    ahead = placed[number, order, first] < placed[number, order, second]
    one, other = shown[number, order, first], shown[number, order, second]
    return (
        number, items.relevant[number, one], items.number[number, one], items.number[number, other], ahead,
        z[first], z[second], lacking,
    )  # fmt: skip


@dataclass(frozen=True)
class Row:
    name: str
    lists: Lists
    ranker: Ranker

    @property
    def of_both(self) -> float | None:
        """The odds of all items; None where those of the strata differ."""
        return self.ranker.relevant if self.ranker.relevant == self.ranker.irrelevant else None


def rows() -> list[Row]:
    small, large = Lists(8, 40, 20), Lists(44, 60, 6)
    third = Lists(44, 60, 20, 1)
    recurring, everywhere = Lists(44, 40, 12, 2, 20, 0, 60), Lists(44, 40, 12, 2, 20, 0, 0, 3)
    return [
        *(
            Row(f"{name}, {odds:g}", lists, Ranker(odds, odds))
            for name, lists in (("8 × 40, half relevant", small), ("44 × 60, a tenth relevant", large))
            for odds in (1.0, 0.8, 0.6)
        ),
        *(
            Row(f"8 × 40, constant answers, {odds:g}", small, Ranker(odds, odds, constant=True))
            for odds in (0.8, 0.6)
        ),
        *(
            Row(f"44 × 60, relevant alone {odds:g}", large, Ranker(relevant=odds))
            for odds in (0.1, 0.3, 0.5, 0.64, 0.8)
        ),
        *(Row(f"44 × 200, {odds:g}", Lists(44, 200, 100), Ranker(odds, odds)) for odds in (1.0, 0.8)),
        Row("44 × 60, partition, one order, 1", Lists(44, 60, 18, 1, 20, 0), Ranker()),
        *(
            Row(f"5 × 40, half relevant, {odds:g}", Lists(5, 40, 20), Ranker(odds, odds))
            for odds in (1.0, 0.8)
        ),
        Row("44 × 60, slots of 4, 0.8", replace(third, orders=3), Ranker(0.8, 0.8, slot=4)),
        Row("44 × 60, windows of 5, 0.8", Lists(44, 60, 18, 1, 5, 2), Ranker(0.8, 0.8)),
        Row("8 × 40, windows of 4, slots of 4, 0.8", Lists(8, 40, 20, 3, 4, 2), Ranker(0.8, 0.8, slot=4)),
        Row("44 × 40, windows of 3, slots of 2, 0.8", Lists(44, 40, 12, 1, 3, 1), Ranker(0.8, 0.8, slot=2)),
        *(
            Row(f"names 6 of 20, {odds:g}", replace(third, orders=3), Ranker(odds, odds, names=6))
            for odds in (1.0, 0.6)
        ),
        Row("drops protected items, 0.77", third, Ranker(0.77, 0.77, drops=0.8)),
        *(
            Row(f"leaves out {100 * forgets:g} % at random, 0.6", third, Ranker(0.6, 0.6, forgets=forgets))
            for forgets in (0.05, 0.3)
        ),
        Row("leaves 85 % of windows, 0.7", Lists(44, 40, 12), Ranker(0.7, 0.7, leaves=0.85)),
        Row("items from 60, 1", recurring, Ranker()),
        Row("items from 60, constant answers, 1", recurring, Ranker(constant=True)),
        Row("items from 60, 0.8", recurring, Ranker(0.8, 0.8)),
        Row("3 protected items in all lists, 1", everywhere, Ranker()),
        Row("8 lists from 60, 1", replace(recurring, queries=8), Ranker()),
    ]


class Audit(NamedTuple):
    before: Figure
    now: Strata


def audits(row: Row, seeds: Sequence[int]) -> list[Audit]:
    return [audit(row, seed) for seed in seeds]


def audit(row: Row, seed: int) -> Audit:
    rng = np.random.default_rng(seed)
    items = items_of(row.lists, rng)
    answers = answered(items, row.lists, row.ranker, rng)
    pooled, *strata = (replace(figure(answers.comparisons, of), fit=None) for of in (None, *Stratum))
    return Audit(
        before(answers.named), Strata(pooled, dict(zip(Stratum, strata, strict=True)), answers.left_out)
    )


def before(named: Plain) -> Figure:
    """All items together; no figure where the highest powers of slots are separated."""
    fit = fitted(named, named.weights(None))
    count, queries = len(named.query), len(np.unique(named.query))
    if fit is None or fit.powers < min(MOST_POWERS, named.window - 1):
        return Figure(count, queries, "separated")
    moved = fit.changes[:, 0]
    error = sqrt((queries - 1) / queries * float(moved @ moved))
    return Figure(count, queries, None, fit.log_odds, error, queries - 1.0)


PROMPTS = (1, 3, 7)
HEADER = (
    "| lists, odds | before: odds | holds | disparity; of 3, 7 | parity "
    "| now: odds of all, relevant, irrelevant | holds | disparity; of 3, 7 | parity |\n"
    f"|{' --- |' * 9}"
)


def line(row: Row, results: Sequence[Audit]) -> str:
    """Median odds, how often intervals hold the true odds, and how often disparity and parity are concluded.

    Of several prompts, as many independent ones at the level of the first step of Holm; before, each by itself.
    """
    old = [each.before for each in results]
    figures = [
        ([each.now.pooled for each in results], row.of_both),
        ([each.now.strata[Stratum.RELEVANT] for each in results], row.ranker.relevant),
        ([each.now.strata[Stratum.IRRELEVANT] for each in results], row.ranker.irrelevant),
    ]
    return (
        f"| {row.name} | {_median(old)} | {_held(old, row.of_both)} | {several(old_disparity(results))} "
        f"| {_percent([each.within() for each in old])} "
        f"| {', '.join(_median(each) for each, _ in figures)} "
        f"| {', '.join(_held(each, odds) for each, odds in figures)} | {several(disparity(results))} "
        f"| {_percent([each.now.parity()[0] for each in results])} |"
    )


def old_disparity(results: Sequence[Audit]) -> list[float]:
    return [_share([_at_most(each.before.outside(), ALPHA) for each in results])] * len(PROMPTS)


def disparity(results: Sequence[Audit]) -> list[float]:
    """Shares at the level that is left to each of so many prompts."""
    return [
        _share([_at_most(each.now.outside(), ALPHA / prompts) for each in results]) for prompts in PROMPTS
    ]


def several(shares: Sequence[float]) -> str:
    """In %, of any of so many prompts whose share is this each."""
    of_any = [100 * (1 - (1 - share) ** prompts) for share, prompts in zip(shares, PROMPTS, strict=True)]
    return "{:.1f}; {:.1f}, {:.1f}".format(*of_any)


def _at_most(p: float | None, level: float) -> bool:
    return p is not None and p <= level


def _share(facts: Sequence[bool]) -> float:
    return sum(facts) / len(facts)


def _percent(facts: Sequence[bool]) -> str:
    return f"{100 * _share(facts):.1f}"


def _median(figures: Sequence[Figure]) -> str:
    logs = [each.log_odds for each in figures if each.log_odds is not None]
    lacking = f" (none in {100 * (1 - len(logs) / len(figures)):.0f} %)" if len(logs) < len(figures) else ""
    return (f"{exp(float(np.median(logs))):.3f}" if logs else "–") + lacking


def _held(figures: Sequence[Figure], odds: float | None) -> str:
    limits = [limits for each in figures if (limits := each.interval()) is not None]
    if odds is None or not limits:
        return "–"
    return _percent([low <= odds <= high for low, high in limits])


def all_at(results: Sequence[tuple[Row, list[Audit]]]) -> Iterator[str]:
    """All audits at odds of 1, and at 0.8."""
    for odds in (1.0, 0.8):
        audits = [audit for row, of_row in results if row.of_both == odds for audit in of_row]
        if audits:
            yield (
                f"\nall {len(audits):,} audits at odds of {odds:g}: disparity before "
                f"{several(old_disparity(audits))}, now {several(disparity(audits))}; parity now "
                f"{_percent([each.now.parity()[0] for each in audits])}"
            )


if __name__ == "__main__":
    print_rows(rows(), audits, line, HEADER, __doc__, all_at)
