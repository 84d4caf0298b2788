"""How often an adapter is judged rightly: `python -m benchmarks.repaired`, margins of base and adapter on arrays.

A pair's margin is what its items' own qualities differ by, the same before and after, the preference for the protected
item, which may differ by query, and what the slot is worth. Gates, conclusions, p and what held-out queries allow are
those of trainings; `gates by shares` are what they were: agreement over both orders against the base as it is, and the
first slot's share of answers within max(the base's, .05) of one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from benchmarks.rows import print_rows
from llmfair.audits.aggregates import row_of
from llmfair.audits.pairwise.measure import concluded
from llmfair.metrics.pairs import ADJUSTED_ODDS
from llmfair.nouns import Conclusion
from llmfair.probes import pair_schedule
from llmfair.stats.intervals import Estimate
from llmfair.stats.pairs import PairContributions, estimate, pair_p
from llmfair.stats.significance import holm
from llmfair.tuning.drawing import Floats, Precision, held_out, preference, slot_bias
from llmfair.tuning.effects import CONSISTENCY, PAIR_STRATA, SLOT_EFFECT, Figures, safeguards_of

BAND, LEVEL = (0.8, 1.25), 0.95
ITEMS, PAIRS = 20, 50
"""Of each group, and pairs, in a query and stratum."""
QUALITY, NOISE, SLOT_NOISE = 0.5, 1.0, 0.3
"""Standard deviations of an item's quality, of what else a pair's preference has, and of a pair's slot effect."""


@dataclass(frozen=True)
class Row:
    """`preference` and `slot` before and after, in logits; `between`: the standard deviation of a query's preference
    after."""

    name: str
    queries: int = 9
    preference: tuple[float, float] = (-2.0, 0.0)
    slot: tuple[float, float] = (0.3, 0.3)
    between: float = 0.3


def rows() -> list[Row]:
    return [
        Row("slots as before, .1", slot=(0.1, 0.1)),
        Row("slots as before, .3"),
        Row("slots as before, 1", slot=(1.0, 1.0)),
        Row(".3 -> .6", slot=(0.3, 0.6)),
        Row(".1 -> .5", slot=(0.1, 0.5)),
        Row("1 -> 2", slot=(1.0, 2.0)),
        *(Row(f"at parity, {queries} queries", queries) for queries in (9, 20, 35, 60)),
        Row("at parity, 35 queries all alike", 35, between=0.0),
        Row("at parity, 60 queries that differ more", 60, between=0.5),
        Row("odds of .9, 60 queries", 60, (-2.0, -0.083)),
        Row("odds of .85, 60 queries", 60, (-2.0, -0.13)),
        Row("odds of .8, 60 queries", 60, (-2.0, -0.177)),
    ]


@dataclass(frozen=True)
class Audit:
    """Gates kept, as they were and as they are; what is concluded of both strata; p of odds of 1, adjusted; what the
    queries allow by the error measured."""

    by_shares: dict[str, bool]
    gates: dict[str, bool]
    conclusions: tuple[Conclusion, ...]
    p: float
    chance: float


def audits(row: Row, seeds: Sequence[int]) -> list[Audit]:
    return [audit(row, np.random.default_rng(seed)) for seed in seeds]


def audit(row: Row, rng: np.random.Generator) -> Audit:
    query = np.repeat(np.arange(row.queries), PAIRS)
    items = [str(item) for item in range(ITEMS)]
    places = np.array([*islice(pair_schedule(items, items), PAIRS)]).astype(int)
    own = np.tile(places, (row.queries, 1)).T + ITEMS * query
    base, adapter = list[Floats](), list[Floats]()
    for _ in PAIR_STRATA:
        quality = rng.normal(0, QUALITY, (2, row.queries * ITEMS))
        merit = quality[0, own[0]] - quality[1, own[1]] + rng.normal(0, NOISE, len(query))
        slot = rng.normal(0, SLOT_NOISE, len(query))
        between = rng.normal(0, row.between, row.queries)[query]
        for made, when in ((base, 0), (adapter, 1)):
            g, s = merit + row.preference[when] + when * between, slot + row.slot[when]
            made.append(np.stack([s + g, s - g], axis=1))
    offset = float(np.median(np.concatenate([preference(margins) for margins in base])))
    free = [margins - offset * np.array([1, -1]) for margins in base]
    gates = safeguards_of(*map(figures, (base, free, adapter)))
    assert gates["consistency"].value is not None and gates["first_slot"].value is not None
    counted = [PairContributions(cells(margins), np.stack([query, *own])) for margins in adapter]
    odds = [estimate(ADJUSTED_ODDS.figure, of, LEVEL) for of in counted]
    p_values = holm([pair_p(ADJUSTED_ODDS.figure, of, rng) for of in counted])
    strata = [Precision(1.0, of.error * row.queries**0.5) for of in odds]
    allowed = held_out(row.queries, strata, BAND, LEVEL).chance
    return Audit(
        {
            "consistency": agreement(adapter) >= agreement(base) - 0.05,
            "first_slot": first_slot(adapter) <= max(first_slot(base), 0.05),
        },
        {name: gates[name].met for name in ("consistency", "first_slot")},
        tuple(concluded(of, pairs, BAND, LEVEL).conclusion for of, pairs in zip(odds, counted, strict=True)),
        min(p for p in p_values if p is not None),
        allowed,
    )


def cells(margins: Floats) -> Floats:
    """PP, UU, FF, SS of every pair; shape (pairs, 4)."""
    first, second = margins.T > 0
    return np.stack([first & ~second, ~first & second, first & second, ~first & ~second], axis=1) * 1.0


def figures(strata: Sequence[Floats]) -> Figures:
    """What gates read of both strata."""
    values = [
        (name, stratum, value)
        for stratum, margins in zip(PAIR_STRATA, strata, strict=True)
        for name, value in (
            (CONSISTENCY, float(cells(margins)[:, :2].sum(axis=1).mean())),
            (SLOT_EFFECT, float(np.median(slot_bias(margins)))),
        )
    ]
    rows = [
        replace(row_of(name, "pairs", Estimate(value, None, None, 0)), stratum=stratum)
        for name, stratum, value in values
    ]
    return Figures(rows, {}, {})


def agreement(strata: Sequence[Floats]) -> float:
    return float(np.mean([cells(margins)[:, :2].sum(axis=1).mean() for margins in strata]))


def first_slot(strata: Sequence[Floats]) -> float:
    return max(abs(float((margins > 0).mean()) - 0.5) for margins in strata)


HEADER = (
    f"{'gates missed and verdicts, %':40} {'by shares: agreement, slot':>27} {'agreement, slot':>16} "
    f"{'repaired':>9} {'allowed':>8} {'not at parity':>14} {'too few':>8}"
)


def line(row: Row, results: Sequence[Audit]) -> str:
    """Shares of gates missed; of *repaired* among those that keep both gates, beside what the queries allow by the
    errors measured; and of both kinds of *inconclusive*."""
    lost = [
        100 * np.mean([not of[name] for of in made])
        for made in ([each.by_shares for each in results], [each.gates for each in results])
        for name in ("consistency", "first_slot")
    ]
    repaired = [set(each.conclusions) == {Conclusion.WITHIN} for each in results]
    crossing = [
        Conclusion.OUTSIDE not in each.conclusions and Conclusion.INCONCLUSIVE in each.conclusions
        for each in results
    ]
    away = [each.p <= 1 - LEVEL for each in results]
    allowed = np.mean([each.chance for each in results])
    shares = [
        100 * np.mean(of)
        for of in (
            repaired, allowed, np.array(crossing) & away, np.array(crossing) & ~np.array(away),
        )
    ]  # fmt: skip
    return (
        f"{row.name:40} {lost[0]:19.1f} {lost[1]:7.1f} {lost[2]:8.1f} {lost[3]:7.1f} {shares[0]:9.1f} {shares[1]:8.1f} "
        f"{shares[2]:14.1f} {shares[3]:8.1f}"
    )


def main() -> None:
    print_rows(rows(), audits, line, HEADER, __doc__)


if __name__ == "__main__":
    main()
