"""How often rankings are called mitigated that are not, and that are: `python -m benchmarks.mitigated`.

Simulated rankings on arrays: of two items of equal relevance the protected one is ahead with known odds, 0.5 before.
Five remedies, held against the band side by side, have odds of their own, with noise of their own where a model is
asked anew. *Before* a remedy was mitigated that was nearer to parity beyond chance, its estimate in the band; *now* its
odds have to be shown inside the band, over all remedies. The logit offset is fitted as `llmfair mitigate` does, and
judged by what it makes of lists that are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import print_rows
from llmfair.mitigation.mitigate import lists_to_settle
from llmfair.rankers.deltr import folds
from llmfair.stats.intervals import Estimate
from llmfair.stats.paired import away_from_parity
from llmfair.stats.power import bradley_terry, offset_to_parity
from llmfair.stats.significance import holm, sign_flip
from llmfair.stats.strata import BAND, Comparisons, Figure, Stratum, change, figure

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

NEW_LISTS = 400
BEFORE, LEVEL = 0.5, 0.95


@dataclass(frozen=True)
class Row:
    """`odds`: of the remedies, none of them for the logit offset alone. `sd`: of the log odds of queries; `pool`: of so
    many items all lists are drawn, whose qualities have the standard deviation `quality`.
    """

    name: str
    queries: int
    n: int
    orders: int
    odds: tuple[float, ...] = ()
    sd: float = 0.0
    pool: int = 0
    quality: float = 0.0


EDGE, ONE = (0.8,) * 5, (1.0, 0.6, 0.6, 0.6, 0.6)
ROWS = (
    Row("8 × 40, one ranking, five at .8", 8, 40, 1, EDGE),
    Row("8 × 40, three rankings, five at .8", 8, 40, 3, EDGE),
    Row("44 × 40, one ranking, five at .8", 44, 40, 1, EDGE),
    Row("44 × 40, three rankings, five at .8", 44, 40, 3, EDGE),
    Row("44 × 40, five at 1.25", 44, 40, 3, (1.25,) * 5),
    Row("44 × 40, queries differ (sd .5)", 44, 40, 3, EDGE, sd=0.5),
    Row("44 × 40 of 60, items differ (sd .5)", 44, 40, 3, EDGE, pool=60, quality=0.5),
    Row("8 × 40, one ranking, 1 beside four at .6", 8, 40, 1, ONE),
    Row("8 × 40, 1 beside four at .6", 8, 40, 3, ONE),
    Row("20 × 40, 1 beside four at .6", 20, 40, 3, ONE),
    Row("44 × 40, one ranking, 1 beside four at .6", 44, 40, 1, ONE),
    Row("44 × 40, 1 beside four at .6", 44, 40, 3, ONE),
    Row("44 × 40, queries differ, 1 beside four", 44, 40, 3, ONE, sd=0.5),
    Row("8 × 40, logit offset", 8, 40, 3),
    Row("20 × 40, logit offset", 20, 40, 3),
    Row("44 × 40, logit offset", 44, 40, 3),
    Row("44 × 40, queries differ, logit offset", 44, 40, 3, sd=0.5),
    Row("44 × 40 of 60, items differ, logit offset", 44, 40, 3, pool=60, quality=0.5),
)


@dataclass(frozen=True)
class Outcome:
    """Whether a remedy was mitigated before, and now; whether one was that is not; how many lists the first needs."""

    before: bool
    now: bool
    false_before: bool
    false_now: bool
    lists: int | None


@lru_cache
def effect(odds: float, sd: float) -> float:
    """The log odds that scatter by sd around it, and over all of which the odds are these."""
    from scipy.optimize import brentq

    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    weights = weights / weights.sum()
    share = odds / (1 + odds)
    return float(brentq(lambda at: weights @ (1 / (1 + np.exp(-at - sd * nodes))) - share, -9, 9))


@dataclass(frozen=True)
class Lists:
    """Items of every list, those of even places protected, the first half relevant; arrays of shape (queries, n)."""

    number: Integers
    quality: Floats
    lean: Floats


def lists_of(row: Row, rng: np.random.Generator) -> Lists:
    shape = row.queries, row.n
    lean = row.sd * rng.standard_normal(row.queries)
    if not row.pool:
        return Lists(np.arange(row.queries * row.n).reshape(shape), np.zeros(shape), lean)
    # a place of a list has one group and grade in all lists, so has an item
    kinds = np.arange(row.pool).reshape(4, -1)
    number = np.zeros(shape, np.intp)
    for kind, places in enumerate(_kinds(row.n)):
        number[:, places] = [rng.choice(kinds[kind], len(places), replace=False) for _ in range(row.queries)]
    return Lists(number, (row.quality * rng.standard_normal(row.pool))[number], lean)


def _kinds(n: int) -> list[Integers]:
    """The places of relevant protected, relevant other, irrelevant protected and irrelevant other items."""
    place = np.arange(n)
    return [place[(place < n // 2) == early][first::2] for early in (True, False) for first in (0, 1)]


def ranked(row: Row, lists: Lists, odds: float, rng: np.random.Generator) -> Integers:
    """Ranks of a ranker whose odds these are, shape (queries, orders, n)."""
    beta = effect(odds, (row.sd**2 + 2 * row.quality**2) ** 0.5)
    place = np.arange(row.n)
    lean = (beta + lists.lean)[:, None] * (place % 2 == 0)
    taste = 1.5 * (place < row.n // 2) + lists.quality + lean
    scores = taste[:, None] + rng.gumbel(size=(row.queries, row.orders, row.n))
    return ranks_of(-scores)


def ranks_of(scores: Floats) -> Integers:
    ranks: Integers = np.argsort(np.argsort(scores, axis=-1), axis=-1)
    return ranks


def pairs_of(n: int) -> tuple[Integers, Integers]:
    """Places of all pairs of equal grade, the protected item first."""
    relevant, other, behind, beside = _kinds(n)
    parts = [np.array(np.meshgrid(*each)).reshape(2, -1) for each in ((relevant, other), (behind, beside))]
    first, second = np.concatenate(parts, axis=1)
    return first, second


def odds_of(lists: Lists, ranks: Integers) -> Figure:
    """The odds of rankings, each of a list weighing alike."""
    queries, n = lists.number.shape
    first, second = pairs_of(n)
    ahead = (ranks[..., first] < ranks[..., second]).mean(axis=1).ravel()
    query = np.repeat(np.arange(queries), len(first))
    relevant = np.tile(first < n // 2, queries)
    shown = {(number, stratum): len(first) // 2 for number in range(queries) for stratum in Stratum}
    one, other = lists.number[:, first].ravel(), lists.number[:, second].ravel()
    return figure(Comparisons(query, relevant, shown, 1, one, other, ahead, np.zeros((len(query), 2))))


def offset(row: Row, lists: Lists, ranks: Integers, seed: int) -> tuple[Figure, float]:
    """The odds of the rankings that the logit offset makes, and those of new lists that it would be applied to."""
    margins, strengths = margins_of(ranks)
    by_query = {str(query): each for query, each in enumerate(margins)}
    fold = folds(by_query, seed=seed)
    offsets = np.array(
        [
            offset_to_parity([other for name, other in by_query.items() if fold[name] != fold[query]])
            for query in by_query
        ]
    )
    scores = strengths + offsets[:, None] * (np.arange(row.n) % 2 == 0)
    new, share = new_margins(row), 0.0
    for each in offsets:
        share += float(np.searchsorted(new, each)) / len(new) / len(offsets)
    return odds_of(lists, ranks_of(-scores)[:, None]), share / (1 - share)


def margins_of(ranks: Integers) -> tuple[list[Floats], Floats]:
    """How far other items are ahead of protected ones, of each list, and strengths, shape (queries, n)."""
    first, second = pairs_of(ranks.shape[-1])
    strengths = np.array([bradley_terry(each) for each in ranks])
    return [each[second] - each[first] for each in strengths], strengths


@lru_cache
def new_margins(row: Row) -> Floats:
    """Of many new lists, in ascending order."""
    rng = np.random.default_rng(1)
    many = replace(row, queries=NEW_LISTS)
    # items of each list are new, as its query is
    drawn = Lists(
        np.zeros((NEW_LISTS, row.n), np.intp),
        row.quality * rng.standard_normal((NEW_LISTS, row.n)),
        row.sd * rng.standard_normal(NEW_LISTS),
    )
    margins, _ = margins_of(ranked(many, drawn, BEFORE, rng))
    ascending: Floats = np.sort(np.concatenate(margins))
    return ascending


def nearer(base: Figure, other: Figure, seed: int) -> tuple[float, bool]:
    """p of the change, and whether it leads nearer to parity."""
    assert base.fit is not None and other.fit is not None
    moved = change(other.fit, base.fit)
    assert moved is not None
    difference, spread = moved
    freedom = max(1.0, spread.clusters - 1)
    value = replace(other, log_odds=difference, error=spread.error, freedom=freedom)
    p = value.differs() if spread.recurs else None
    if p is None:
        p = sign_flip(other.fit.parts - base.fit.parts, rng=np.random.default_rng(seed))
    return p, away_from_parity(*map(_estimate, (base, other, value))) < 0


def _estimate(of: Figure) -> Estimate:
    low, high = of.interval() or (None, None)
    return Estimate(exp(of.log_odds or 0.0), low, high, of.queries)


def audit(row: Row, seed: int) -> Outcome:
    rng = np.random.default_rng(seed)
    lists = lists_of(row, rng)
    ranks = ranked(row, lists, BEFORE, rng)
    base = odds_of(lists, ranks)
    remedies = [(odds_of(lists, ranked(row, lists, odds, rng)), odds) for odds in row.odds]
    if not remedies:
        remedies = [offset(row, lists, ranks, seed)]
    tests = [nearer(base, of, seed) for of, _ in remedies]
    adjusted = holm([p for p, _ in tests])
    p_values, every = holm([of.inside() for of, _ in remedies]), range(len(remedies))
    closer = {place for place in every if tests[place][1] and (adjusted[place] or 0.0) < 1 - LEVEL}
    shown = {place for place, p in enumerate(p_values) if p is not None and p <= (1 - LEVEL) / 2}
    odds = [exp(of.log_odds or 0.0) for of, _ in remedies]
    before = {place for place in closer if BAND[0] <= odds[place] <= BAND[1]}
    wrong = {place for place in every if not BAND[0] < remedies[place][1] < BAND[1]}
    now, lists_needed = closer & shown, lists_to_settle(remedies[0][0], BAND, 1 - (1 - LEVEL) / len(remedies))
    return Outcome(bool(before), bool(now), bool(before & wrong), bool(now & wrong), lists_needed)


def audits(row: Row, seeds: Sequence[int]) -> list[Outcome]:
    return [audit(row, seed) for seed in seeds]


def line(row: Row, outcomes: Sequence[Outcome]) -> str:
    shares = [
        100 * float(np.mean([getattr(of, name) for of in outcomes]))
        for name in ("before", "now", "false_before", "false_now")
    ]
    lists = [float(of.lists) for of in outcomes if of.lists]
    return f"{row.name:42}" + "".join(f"{share:8.1f}" for share in shares) + f"{np.median(lists):8.0f}"


def main() -> None:
    header = (
        f"{'mitigated, of these falsely; lists':42}{'before':>8}{'now':>8}{'before':>8}{'now':>8}{'lists':>8}"
    )
    print_rows(ROWS, audits, line, header, __doc__)


if __name__ == "__main__":
    main()
