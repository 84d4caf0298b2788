"""How many queries measure an adapter, and what verdict they allow: known before anything is asked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, prod, sqrt
from statistics import harmonic_mean

from llmfair.audits.pairwise.results import PairFinding
from llmfair.stats.intervals import FEWEST_QUERIES
from llmfair.stats.pair_plan import chance_in_band, plan_pairs
from llmfair.tuning.results import HeldOut

CONSISTENT, ICC = 0.75, 0.05
"""Taken of an adapter at parity: the share of pairs with one answer in both orders, and the intraclass correlation."""
LIKELY = 0.8
MOST_QUERIES = 10_000
LEAST_SHARE, MOST_SHARE = 0.2, 0.5
"""Of the queries that are held out by default."""


@dataclass(frozen=True)
class Precision:
    """Of a stratum: the share of queries that have pairs of it, and the standard deviation of what one of them adds to
    ln odds."""

    share: float
    sd: float


def expected(pairs: Sequence[int]) -> Precision:
    """The precision at parity of a stratum with so many measured pairs in each query."""
    present = [number for number in pairs if number]
    if not present:
        return Precision(0.0, 0.0)
    plan = plan_pairs(FEWEST_QUERIES, round(harmonic_mean(present)), 1.0, 0.5, CONSISTENT, ICC)
    return Precision(len(present) / len(pairs), plan.error * sqrt(FEWEST_QUERIES))


def measured(queries: int, findings: Iterable[PairFinding]) -> list[Precision]:
    """The precision of each stratum on so many test queries; none at all where the odds of one have no error."""
    strata = [
        Precision(finding.queries / queries, finding.error * sqrt(finding.queries))
        if finding.queries and finding.error
        else None
        for finding in findings
    ]
    return [] if None in strata else [stratum for stratum in strata if stratum]


def held_out(queries: int, strata: Sequence[Precision], band: tuple[float, float], level: float) -> HeldOut:
    """What so many test queries allow of odds of 1, and how many allow it in 80 %; nothing is known of no strata."""
    if not strata:
        return HeldOut(queries, None, None)
    counts = range(FEWEST_QUERIES, MOST_QUERIES + 1)
    place = bisect_left(counts, LIKELY, key=lambda of: chance_within(of, strata, band, level))
    needed = counts[place] if place < len(counts) else None
    return HeldOut(queries, chance_within(queries, strata, band, level), needed)


def chance_within(
    queries: int, strata: Sequence[Precision], band: tuple[float, float], level: float
) -> float:
    """How often the intervals of all strata lie in the band where all odds are 1."""
    from scipy.special import stdtrit

    counts = [round(queries * stratum.share) for stratum in strata]
    if min(counts) < FEWEST_QUERIES:
        return 0.0
    edges = log(band[0]), log(band[1])
    return prod(
        chance_in_band(
            0.0, stratum.sd / sqrt(count), count - 1, float(stdtrit(count - 1, (1 + level) / 2)), edges
        )
        for stratum, count in zip(strata, counts, strict=True)
    )


def train_share(usable: int, needed: int | None) -> float:
    """The default: as many queries are held out as are needed, but a fifth of them at least and a half at most."""
    wanted = MOST_SHARE if needed is None else needed / usable
    return 1 - min(max(wanted, LEAST_SHARE), MOST_SHARE)
