"""How often a comparison of two runs claims what is not so, or sees what is: `python -m benchmarks.compare`.

Pairwise audits simulated on arrays: both runs judge the same pairs in both orders, and share what queries and items
have of their own. Estimates and claims are those of real comparisons; beside them what the distances of the estimates
alone would say of a change beyond chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import log, sqrt

import numpy as np

from benchmarks.rows import print_lines
from llmfair.metrics.pairs import ADJUSTED_ODDS
from llmfair.stats.paired import away_from_parity, change_of_pairs
from llmfair.stats.pairs import PairContributions, estimate

AUDITS, PAIRS = 500, 32
QUERY_SD, PAIR_SD, FIRST_SLOT = 0.3, 0.5, 0.5
LEVEL, MARGIN = 0.95, (0.8, 1.25)
ROWS = [
    (0.93, 1.075), (0.95, 1.10), (0.6, 1 / 0.6), (0.42, 1.69), (0.6, 0.8), (0.8, 1.0), (1.0, 0.8), (1.0, 1.0),
    (0.7, 0.7), (0.894, 1.118),
]  # fmt: skip
"""Odds of the base and of the other run."""
WIDER = sqrt(1 + 0.346 * (QUERY_SD**2 + PAIR_SD**2))
"""A pair's log odds are so much farther from 0 than those over all pairs, whose own preferences differ [Zeger 1988]."""
CLAIMS = ("closer", "farther", "open", "equivalent", "none")


def judged(odds: float, shared: np.ndarray, queries: int, rng: np.random.Generator) -> PairContributions:
    """The pairs of one run: who wins when its protected item comes first, and when it comes second."""
    taste = WIDER * log(odds) + shared
    first, second = (
        rng.random(len(taste)) < 1 / (1 + np.exp(-(taste + slot))) for slot in (FIRST_SLOT, -FIRST_SLOT)
    )
    cells = np.stack([first & second, ~first & ~second, first & ~second, ~first & second], axis=1)
    return PairContributions(cells.astype(float), np.repeat(np.arange(queries), PAIRS)[None])


def audit(base: float, other: float, queries: int, seed: int) -> tuple[str, str]:
    """What is claimed, and what the estimates alone would claim of a change beyond chance."""
    rng = np.random.default_rng(seed)
    shared = np.repeat(rng.normal(0, QUERY_SD, queries), PAIRS) + rng.normal(0, PAIR_SD, queries * PAIRS)
    before, after = (judged(odds, shared, queries, rng) for odds in (base, other))
    change = change_of_pairs(ADJUSTED_ODDS, before, after, LEVEL)
    one, two = (estimate(ADJUSTED_ODDS, each, LEVEL) for each in (before, after))
    low, high, p = change.estimate.low, change.estimate.high, change.p
    assert low is not None and high is not None and p is not None and one.value and two.value
    moved = p < 1 - LEVEL
    alone = "none" if not moved else "closer" if abs(log(two.value)) < abs(log(one.value)) else "farther"
    if MARGIN[0] <= low and high <= MARGIN[1]:
        return "equivalent", alone
    claims = {-1: "closer", 0: "open", 1: "farther"}
    return claims[away_from_parity(one, two, change.estimate)] if moved else "none", alone


def lines(audits: int) -> Iterator[str]:
    yield f"{audits:,} audits a row of {PAIRS} pairs a query; shares in %"
    heading = " ".join(f"{claim:>10}" for claim in CLAIMS)
    yield f"{'odds':>15} {'queries':>8} {heading}  by the estimates"
    for base, other in ROWS:
        for queries in (8, 20, 44):
            results = [audit(base, other, queries, seed) for seed in range(audits)]
            claimed, alone = (Counter(result[which] for result in results) for which in (0, 1))
            shares = " ".join(f"{100 * claimed[claim] / audits:10.1f}" for claim in CLAIMS)
            estimates = ", ".join(f"{claim} {100 * alone[claim] / audits:.1f}" for claim in CLAIMS[:2])
            yield f"{base:7.3f} → {other:.3f} {queries:8} {shares}  {estimates}"


if __name__ == "__main__":
    print_lines(__doc__, AUDITS, lines)
