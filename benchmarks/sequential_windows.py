"""What `--sequential` saves of a partition, how often it errs: `python -m benchmarks.sequential --design partition`.

Rankers and lists are those of `benchmarks.preference`: uneven groups and grades, queries that differ, noise that is
fresh in every window or always the same. Three orders of 60 items a query, cut into windows of 20, are asked in rounds
and decided by the audit's own functions. Beside it the same windows all asked, and the interval at the ordinary level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import sqrt

import numpy as np

from benchmarks.preference import BAND, LEVEL, WINDOW, Row, compared, comparisons
from benchmarks.sequential import Stop
from llmfair.audits.aggregates import preference
from llmfair.audits.listwise.measure import HowRanked, WindowShare, joined_windows, look, share
from llmfair.metrics.base import QueryComparisons, Undefined
from llmfair.stats.intervals import Conclusion, conclude
from llmfair.stats.sequential import Decision, EProcess, rounds

AUDITS, AT_ONCE, N, ORDERS = 200, 50, 60, 3
NOISES, QUERIES, ODDS = ("fresh", "the same"), (8, 44), (1.25, 0.8, 1.0, 0.6)
SLOTS = ("none", "first")
Windows = Sequence[WindowShare]
"""An audit's windows in schedule order."""


def audits(row: Row, runs: int) -> Iterator[Windows]:
    """Audits of a ranker, each with its own lists, schedule and answers."""
    for first in range(0, runs, AT_ONCE):
        rng = np.random.default_rng([first, row.queries])
        several = min(AT_ONCE, runs - first)
        by_query = [list(_windows_of(row, query, several, rng)) for query in range(row.queries)]
        for audit in range(several):
            schedule = rounds([len(of_it) for of_it in by_query], rng)
            yield [WindowShare(f"q{query}", by_query[query][number][audit]) for query, number in schedule]


def _windows_of(
    row: Row, query: int, several: int, rng: np.random.Generator
) -> Iterator[list[QueryComparisons | Undefined]]:
    """The windows of a query's orders, each as so many audits have it."""
    found = [*comparisons(row, query, several, rng)]
    for order in range(row.orders):
        for audit, orders, ahead, first, second in found:
            here = orders == order
            yield [
                _compared(query, order, here & (audit == one), ahead, first, second) for one in range(several)
            ]


def _compared(
    query: int, number: int, which: np.ndarray, ahead: np.ndarray, first: np.ndarray, second: np.ndarray
) -> QueryComparisons | Undefined:
    if not which.any():
        return Undefined("no_encounter")
    slots = np.stack([first[which], second[which]], axis=1)
    outcomes = compared(np.zeros(len(slots), np.intp), ahead[which].astype(float), slots)
    return QueryComparisons(outcomes, [f"{query} {number} {item}" for item in range(2 * len(slots))])


def stopping(windows: Windows) -> Stop:
    """The audit's own rule."""
    process = EProcess(BAND, LEVEL, len(windows)).after(
        [share(met) for met in windows], lambda units: look(windows[:units], HowRanked(BAND), LEVEL)
    )
    return process.decision, process.units


def all_asked(windows: Windows) -> Stop:
    """All windows, then the interval at the ordinary level."""
    found = preference(joined_windows(windows), LEVEL)
    assert found is not None
    low, high = found.estimate.low, found.estimate.high
    if low is None or high is None:
        return None, len(windows)
    beyond = Decision.BELOW if low < BAND[0] else Decision.ABOVE
    where = {Conclusion.WITHIN: Decision.INSIDE, Conclusion.OUTSIDE: beyond}
    return where.get(conclude(low, high, BAND)), len(windows)


def main(runs: int = AUDITS) -> None:
    cap = N // WINDOW * ORDERS
    print(
        f"{runs} audits a row, {ORDERS} orders of {N} items in windows of {WINDOW}, band {BAND[0]:g}–{BAND[1]:g}"
    )
    print("odds  noise     slots  queries  rule       mean windows  calls saved  within  outside  ± (of 5 %)")
    error = sqrt(0.05 * 0.95 / runs)
    rules: dict[str, Callable[[Windows], Stop]] = {"stopping": stopping, "all asked": all_asked}
    for odds, noise, slots, queries in product(ODDS, NOISES, SLOTS, QUERIES):
        asked = list(audits(Row(queries, N, False, noise, slots, odds, ORDERS), runs))
        for name, rule in rules.items():
            stops = [rule(windows) for windows in asked]
            decisions = [decision for decision, _ in stops]
            mean = float(np.mean([units for _, units in stops]))
            inside = decisions.count(Decision.INSIDE) / runs
            outside = 1 - inside - decisions.count(None) / runs
            print(
                f"{odds:4.2f}  {noise:<8}  {slots:<5}  {queries:7}  {name:<9}  {mean:12.0f}"
                f"  {1 - mean / (queries * cap):11.1%}  {inside:6.1%}  {outside:7.1%}  {error:10.1%}",
                flush=True,
            )
