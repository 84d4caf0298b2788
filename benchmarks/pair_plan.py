"""How pairwise audits end, beside what their plan says: `python -m benchmarks.pair_plan`, half a minute on one core.

Simulated audits on arrays: in both orders the protected item wins with σ(β + b_q + b_k ± (γ + g_q)), b_q and g_q drawn
for each query, b_k for each pair. Verdicts are those of real audits of one stratum; the last rows are of runs with two.
A plan is made of what one long audit without preference shows: how often the first slot wins and pairs do not flip, and
how alike pairs of a query are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot, log, sqrt

import numpy as np

from benchmarks.rows import print_lines
from llmfair.audits.pairwise.design import marginal_odds
from llmfair.audits.pairwise.measure import beside_each_other, concluded
from llmfair.audits.pairwise.results import PairFinding
from llmfair.metrics.pairs import ADJUSTED_ODDS
from llmfair.nouns import Conclusion
from llmfair.stats.pair_plan import plan_pairs
from llmfair.stats.pairs import PairContributions, estimate, intraclass

AUDITS, EDGE_AUDITS, PILOT_QUERIES = 400, 1_000, 20_000
WIDEST = 5.0
BAND, LEVEL = (0.8, 1.25), 0.95
CELLS = np.eye(4)[[[0, 2], [3, 1]]]
"""PP, UU, FF, SS by whether the protected item loses (1) shown first, then second."""


@dataclass(frozen=True)
class Design:
    """Queries of so many pairs; the spreads are standard deviations of log odds, of the slot's over queries."""

    queries: int
    pairs: int
    odds: float = 0.6
    slot: float = 0.5
    query_sd: float = 0.3
    pair_sd: float = 1.5
    slot_sd: float = 0.0


DESIGNS = (
    Design(44, 20, 0.7),
    Design(44, 20, 0.65, slot=1.5),
    Design(15, 20, 0.65, pair_sd=4.0),
    Design(44, 50, 0.7, query_sd=0.0, pair_sd=0.0),
    Design(44, 5, 0.6, query_sd=0.0),
    Design(15, 10, 0.6, slot=2.5),
    Design(100, 20, 0.7, query_sd=0.6),
    Design(44, 20, 0.7, slot_sd=1.5),
)
EDGES = (Design(8, 50, 0.8), Design(44, 5, 0.8), Design(44, 50, 0.8, query_sd=0.6), Design(100, 20, 0.8))


def answered(design: Design, beta: float, rng: np.random.Generator) -> PairContributions:
    """The pairs of an audit, no item of which stands in two pairs."""
    query = np.repeat(np.arange(design.queries), design.pairs)
    quality = beta + rng.normal(0, design.query_sd, design.queries)[query] if design.query_sd else beta
    quality = quality + rng.normal(0, design.pair_sd, len(query)) if design.pair_sd else quality
    slot = design.slot + rng.normal(0, 1, design.queries)[query] * design.slot_sd
    loses = [rng.random(len(query)) > 1 / (1 + np.exp(-(quality + sign * slot))) for sign in (1, -1)]
    cells = CELLS[loses[0].astype(int), loses[1].astype(int)]
    return PairContributions(cells, np.stack([query, np.arange(len(query)), np.arange(len(query))]))


def conclusion(counted: PairContributions, level: float = LEVEL) -> Conclusion:
    """Of one stratum."""
    return concluded(estimate(ADJUSTED_ODDS, counted, level), counted, BAND, level).conclusion


def injected(design: Design) -> float:
    """β that gives the odds over all queries."""
    from scipy.optimize import brentq

    spread = hypot(design.query_sd, design.pair_sd, design.slot_sd)
    return float(brentq(lambda beta: marginal_odds(beta, design.slot, spread) - design.odds, -WIDEST, WIDEST))


def _long(design: Design) -> Design:
    return Design(**{**vars(design), "queries": PILOT_QUERIES})


def planned(design: Design, rng: np.random.Generator) -> tuple[float, float, float]:
    """What a pilot says: how often the first slot wins, pairs do not flip, pairs of a query are alike."""
    pilot = answered(_long(design), 0.0, rng)
    pp, uu, ff, _ = pilot.shares
    alike = intraclass(pilot)
    assert alike is not None
    return float((pp + uu) / 2 + ff), float(pp + uu), max(0.0, alike.correlation)


def former(design: Design, consistent: float, icc: float) -> float:
    """The power that plans gave before: of the balanced ratio, which consistent pairs make less certain."""
    from scipy.special import nctdtr, stdtrit

    p = design.odds / (1 + design.odds)
    variance = (consistent / 4 - (p - 0.5) ** 2) / (p * (1 - p)) ** 2
    error = sqrt(variance * (1 + (design.pairs - 1) * icc) / design.pairs / design.queries)
    t = float(stdtrit(design.queries - 1, 0.975))
    return float(1 - nctdtr(design.queries - 1, abs(log(design.odds)) / error, t))


def at_the_edge(design: Design) -> tuple[float, float]:
    """How often a run of two strata, both at the band's edge, ends in disparity: by strata alone, and among both."""
    rng = np.random.default_rng(9)
    beta = injected(design)
    ends = [_two(design, beta, rng) for _ in range(EDGE_AUDITS)]
    alone, together = np.mean(ends, axis=0).tolist()
    return alone, together


def _two(design: Design, beta: float, rng: np.random.Generator) -> tuple[bool, bool]:
    strata = {name: answered(design, beta, rng) for name in ("relevant", "irrelevant")}
    findings = {
        name: PairFinding(measure="AdjustedOdds", conclusion=conclusion(counted), reason=None)
        for name, counted in strata.items()
    }
    held = beside_each_other(findings, lambda name, level: conclusion(strata[name], level), LEVEL)
    alone, together = (
        any(each.conclusion is Conclusion.OUTSIDE for each in of.values()) for of in (findings, held)
    )
    return alone, together


def row(design: Design, several: int, rng: np.random.Generator) -> str:
    answers, beta = planned(design, rng), injected(design)
    at_odds = plan_pairs(design.queries, design.pairs, design.odds, *answers)
    fair = plan_pairs(design.queries, design.pairs, 1.0, *answers)
    audits = [answered(design, beta, rng) for _ in range(several)]
    limits = [estimate(ADJUSTED_ODDS, counted) for counted in audits]
    real = (
        [each.high is not None and each.high < 1 for each in limits],
        [conclusion(counted) is Conclusion.OUTSIDE for counted in audits],
        [conclusion(answered(design, 0.0, rng)) is Conclusion.WITHIN for _ in range(several)],
    )
    power, disparity, parity = (f"{100 * np.mean(each):.0f}" for each in real)
    spreads = f"{design.query_sd:g}, {design.pair_sd:g}, {design.slot_sd:g}"
    first, consistent, icc = answers
    return (
        f"| {design.queries} × {design.pairs}, {design.odds:g}, {design.slot:g} | {spreads} "
        f"| {first:.2f}, {consistent:.2f}, {icc:.3f} "
        f"| {100 * former(design, consistent, icc):.0f}, {100 * at_odds.power:.0f}, {power} "
        f"| {100 * at_odds.disparity:.0f}, {disparity} | {100 * fair.parity:.0f}, {parity} |"
    )


HEADER = (
    "| queries × pairs, odds, slot | sd of queries, pairs, slots | first slot, consistent, icc "
    "| odds of 1 rejected %: said before, said, real | disparity %: said, real | parity at 1 %: said, real |"
)


def lines(audits: int) -> Iterator[str]:
    yield HEADER
    yield "| --- | --- | --- | --- | --- | --- |"
    for number, design in enumerate(DESIGNS):
        yield row(design, audits, np.random.default_rng(number))
    for design in EDGES:
        alone, together = at_the_edge(design)
        yield (
            f"two strata at {design.odds:g}, {design.queries} × {design.pairs}: disparity in {100 * alone:.1f} % by "
            f"strata alone, in {100 * together:.1f} % among both"
        )


if __name__ == "__main__":
    print_lines(__doc__, AUDITS, lines)
