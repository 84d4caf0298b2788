"""Columns of values become tidy rows: one per query, then the aggregate with its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from llmfair import registry
from llmfair.audits.aggregates.control import controlled
from llmfair.metrics.base import (
    Column,
    Convention,
    Product,
    QueryComparisons,
    Quotient,
    Ratio,
    Tally,
    Undefined,
    Value,
)
from llmfair.nouns import Measurement
from llmfair.stats import intervals
from llmfair.stats.intervals import Estimate, Method

ALL = "all"
"""The query_id of an aggregate row."""
ENOUGH_QUERIES, ENOUGH_DOCUMENTS = 20, 50
"""From these numbers on, the plain interval of a ratio of means covers as it says (statistics.md 2)."""
Intervals = Literal["auto", "linear-t", "boot-t"]


@dataclass(frozen=True)
class Inference:
    """How figures of all queries are inferred from theirs.

    `documents` is the median length of the lists.
    """

    level: float = 0.95
    ci: Intervals = "auto"
    seed: int = 0
    documents: float = ENOUGH_DOCUMENTS

    def method(self, queries: int) -> Method:
        """The interval of a ratio of means over so many queries."""
        if self.ci != "auto":
            return self.ci
        enough = queries >= ENOUGH_QUERIES and self.documents >= ENOUGH_DOCUMENTS
        return "linear-t" if enough else "boot-t"

    def ratio(self, over: Sequence[Sequence[float]], under: Sequence[Sequence[float]]) -> Estimate:
        """A product of ratios of sums, `over` and `under` having one sequence a factor."""
        rng = np.random.default_rng(self.seed)
        return intervals.ratio_of_means(over, under, self.level, self.method(len(over[0])), rng)


Aggregate = Callable[[Sequence[Value], Inference], Estimate | None]
"""Makes one figure of the queries' values with its interval; None when nothing is defined.

Registered by `@register("aggregate", NAME)`, here in `aggregates/`, or an entry point `llmfair.aggregates`; a measure
names it.
"""


def value_of(value: Value) -> tuple[float | None, str | None]:
    """The number of a value, or None, and the reason; a number with a reason was had by a makeshift."""
    if isinstance(value, Undefined):
        return None, value.reason
    if isinstance(value, QueryComparisons):
        return None, None
    if isinstance(value, Product):
        return value.value, None
    if isinstance(value, Convention):
        return value.value if value.counts else None, value.reason
    return (value.value, value.reason) if isinstance(value, Ratio | Quotient | Tally) else (value, None)


def summarise(columns: Sequence[Column], inference: Inference = Inference()) -> list[Measurement]:
    """The rows of every column: its queries, then all of them together.

    In an aggregate row `n` counts the queries it is built from. Without any, `value` is None and `reason` the
    most frequent one; with fewer than five the value stands without interval (`too_few_queries`).
    """
    rows = []
    for column in columns:
        measure, condition, group = str(column.measure), column.condition, column.group
        for query_id, value in column.values.items():
            if not column.measure.of_all:
                number, reason = value_of(value)
                number = value.value if isinstance(value, Convention) else number
                rows.append(Measurement(query_id, measure, number, condition, group, reason=reason))
        rows.append(_aggregate_row(column, inference))
    return rows


def _aggregate_row(column: Column, inference: Inference) -> Measurement:
    measure, values = column.measure, list(column.values.values())
    estimate = aggregate(measure.aggregate, values, inference)
    if estimate is None:
        reason = most_frequent(reason for value in values if (reason := value_of(value)[1]))
        return Measurement(ALL, str(measure), None, column.condition, column.group, n=0, reason=reason)
    if estimate.low is not None and estimate.high is not None:
        least, most = measure.definition.bounds
        estimate = replace(estimate, low=max(estimate.low, least), high=min(estimate.high, most))
    return row_of(str(measure), column.condition, estimate, column.group)


def row_of(measure: str, condition: str, estimate: Estimate, group: str = "") -> Measurement:
    """The aggregate row of an estimate."""
    return Measurement(
        query_id=ALL,
        measure=measure,
        value=estimate.value,
        condition=condition,
        group=group,
        low=estimate.low,
        high=estimate.high,
        n=estimate.n,
        reason=estimate.reason,
    )


def aggregate(how: str, values: Iterable[Value], inference: Inference = Inference()) -> Estimate | None:
    """One figure of the queries' values with its interval; None when nothing is defined.

    `how` names a function that is registered as an `Aggregate`. It gets the values with what the initial orders
    explain taken out.
    """
    make: Aggregate = registry.lookup("aggregate", how)
    return make(controlled(list(values)), inference)


def undefined_counts(columns: Sequence[Column]) -> dict[str, dict[str, dict[str, int]]]:
    """Queries without a value, `{measure: {condition: {reason: count}}}`; measures without any are left out.

    A query counts once per reason, however many groups the measure speaks of.
    """
    queries: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for column in columns:
        undefined = queries.setdefault((str(column.measure), column.condition), set())
        undefined |= {
            (reason, query_id)
            for query_id, value in column.values.items()
            for number, reason in [value_of(value)]
            if number is None and reason
        }
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for (measure, condition), undefined in queries.items():
        if undefined:
            reasons = Counter(reason for reason, _ in sorted(undefined))
            counts.setdefault(measure, {})[condition] = dict(reasons)
    return counts


def most_frequent(reasons: Iterable[str]) -> str | None:
    """The reason given most often, the alphabetically first of equals."""
    counted = Counter(sorted(reasons)).most_common(1)
    return counted[0][0] if counted else None
