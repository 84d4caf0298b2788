"""Injected preference odds against those measured of every strategy, each by its own program.

    python -m benchmarks.strategies [--audits 200] [--queries 24] [--items 20,40] [--orders 1] [--slots 2] [STRATEGY …]

Lists of uneven length, groups and grades; a ranker with these log odds for the protected items, a log-weight of 2 for
each grade, and a preference for first slots; its noise fresh in every question, or each item's own. `covered`: the
share of intervals that hold the injected odds; `within`: those that would be called parity.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from math import exp, log, sqrt

import numpy as np

from llmfair.audits.aggregates import preference
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.listwise.simulate import AuditSimulation, Items, Noise
from llmfair.rankers.strategies import Strategy, strategy_of

STRATEGIES = (
    "windows", "pointwise", "pointwise yes or no", "pairwise-sort", "pairwise-sort:method=allpairs", "setwise", "first",
    "tournament",
)  # fmt: skip
ODDS = (0.5, 1.0, 2.0)
BAND = (0.8, 1.25)


def strategy(spec: str) -> Strategy:
    return strategy_of(spec.partition(" ")[0], vars(ListwiseSettings()))


def lists(queries: int, least: int, most: int, rng: np.random.Generator) -> list[Items]:
    """Lists of uneven length; a third to two thirds are protected, and of three grades 0 is the commonest."""
    found = []
    for number in range(queries):
        n = int(rng.integers(least, most + 1))
        share = rng.uniform(1 / 3, 2 / 3)
        groups = np.where(rng.random(n) < share, 1, -1)
        found.append(Items(str(number), groups, rng.choice(3, n, p=[0.6, 0.3, 0.1])))
    return found


def row(
    spec: str, odds: float, noise: Noise, audits: int, queries: int, sizes: tuple[int, int], orders: int
) -> tuple[list[float], list[bool], list[bool]]:
    """The odds of every audit, whether its interval holds the injected ones, and whether it lies within the band."""
    listed = lists(queries, *sizes, np.random.default_rng(11))
    played = [
        AuditSimulation(
            one, strategy(spec), orders, 1, noise, (int(100 * odds), k), 2.0, spec.endswith("yes or no")
        )
        for k, one in enumerate(listed)
    ]
    values, covered, within = [], [], []
    for audit in range(audits):
        found = preference([one.value(log(odds), audit) for one in played])
        if found is None or found.bound or found.estimate.low is None or found.estimate.high is None:
            continue
        low, high = found.estimate.low, found.estimate.high
        values.append(found.estimate.value or 0.0)
        covered.append(low <= odds <= high)
        within.append(low > BAND[0] and high < BAND[1])
    return values, covered, within


def table(
    specs: tuple[str, ...], audits: int, queries: int, sizes: tuple[int, int], orders: int, slots: float
) -> Iterator[str]:
    yield (
        f"{'strategy':32} {'noise':8} {'odds':>5} {'found':>6} {'sd ln':>6} {'covered':>8} {'error':>6} {'within':>7} "
        f"{'s':>6}"
    )
    for spec in specs:
        for alike in (0.0, 1.0):
            for odds in ODDS:
                began = time.perf_counter()
                found, covered, within = row(spec, odds, Noise(alike, slots), audits, queries, sizes, orders)
                logs, share = np.log(found), sum(covered) / max(1, len(covered))
                error = sqrt(max(share * (1 - share), 0.01) / max(1, len(covered)))
                yield (
                    f"{spec:32} {'constant' if alike else 'fresh':8} {odds:5g} {exp(float(logs.mean())):6.3f} "
                    f"{float(logs.std()):6.3f} {share:8.3f} {error:6.3f} {sum(within) / max(1, len(within)):7.3f} "
                    f"{time.perf_counter() - began:6.1f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("strategies", nargs="*", default=STRATEGIES)
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--queries", type=int, default=24)
    parser.add_argument("--items", default="20,40")
    parser.add_argument("--orders", type=int, default=1)
    parser.add_argument("--slots", type=float, default=2.0)
    given = parser.parse_args()
    least, most = map(int, given.items.split(","))
    specs = tuple(given.strategies)
    for line in table(specs, given.audits, given.queries, (least, most), given.orders, given.slots):
        print(line, flush=True)


if __name__ == "__main__":
    main()
