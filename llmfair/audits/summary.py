"""Columns of values become tidy rows: one per query, then the aggregate with its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from llmfair.metrics.base import Aggregate, Column, Judged, Measure, Product, Ratio, Undefined, Value
from llmfair.records import Measurement
from llmfair.stats import intervals

ALL = "all"
"""The query_id of an aggregate row."""


def value_of(value: Value) -> tuple[float | None, str | None]:
    """The number of a value, or None and the reason."""
    if isinstance(value, Undefined):
        return None, value.reason
    if isinstance(value, Product):
        return value.value, None
    return (value.value, value.reason) if isinstance(value, Ratio) else (value, None)


def summarise(columns: Sequence[Column], level: float = 0.95) -> list[Measurement]:
    """The rows of every column: its queries, then all of them together.

    In an aggregate row `n` counts the queries it is built from. Without any, `value` is None and `reason` the
    most frequent one; with fewer than five the value stands without interval (`too_few_queries`).
    """
    rows = []
    for column in columns:
        measure, variant, group = str(column.measure), column.variant, column.group
        for query_id, value in column.values.items():
            number, reason = value_of(value)
            rows.append(Measurement(query_id, measure, number, variant, group, reason=reason))
        rows.append(_aggregate_row(column, level))
    return rows


def _aggregate_row(column: Column, level: float) -> Measurement:
    measure, values = column.measure, list(column.values.values())
    estimate = aggregate(measure.aggregate, values, level)
    if estimate is None:
        reason = _most_frequent(reason for value in values if (reason := value_of(value)[1]))
        return Measurement(ALL, str(measure), None, column.variant, column.group, n=0, reason=reason)
    return Measurement(
        query_id=ALL,
        measure=str(measure),
        value=estimate.value,
        variant=column.variant,
        group=column.group,
        low=estimate.low,
        high=estimate.high,
        n=estimate.n,
        reason=estimate.reason,
    )


def aggregate(how: Aggregate, values: Iterable[Value], level: float = 0.95) -> intervals.Estimate | None:
    """One figure of the queries' values with its interval; None when nothing is defined.

    A ratio of means is built from numerators and denominators, so a query whose own ratio has a zero side
    still counts; every other aggregate speaks of the defined queries only. A product of means has no interval:
    its two means move together, and no coverage is known (`no_interval`; a mean of products has one).
    """
    values = list(values)
    if how == "ratio-of-means":
        ratios = [value for value in values if isinstance(value, Ratio)]
        numerators, denominators = [r.numerator for r in ratios], [r.denominator for r in ratios]
        if not any(numerators) or not any(denominators):
            return None
        return intervals.ratio_of_means(numerators, denominators, level)
    if how == "product-of-means":
        products = [value for value in values if isinstance(value, Product)]
        if not products:
            return None
        left, right = (intervals.mean([getattr(p, side) for p in products]) for side in ("left", "right"))
        return intervals.Estimate(left.value * right.value, None, None, len(products), "no_interval")
    defined = [number for value in values if (number := value_of(value)[0]) is not None]
    if not defined:
        return None
    return (intervals.geometric_mean if how == "geometric" else intervals.mean)(defined, level)


def reach(measure: Measure, queries: Sequence[Judged]) -> tuple[float, float] | None:
    """The lowest and highest figure of all queries that a ranker can have, aggregated like the measure.

    None where no closed form is known, or nothing is defined.
    """
    ends = [end for query in queries if (end := measure.reach(query)) is not None]
    low = aggregate(measure.aggregate, (low for low, _ in ends))
    high = aggregate(measure.aggregate, (high for _, high in ends))
    return (low.value, high.value) if low and high else None


def undefined_counts(columns: Sequence[Column]) -> dict[str, dict[str, dict[str, int]]]:
    """Queries without a value, `{measure: {variant: {reason: count}}}`; measures without any are left out.

    A query counts once per reason, however many groups the measure speaks of.
    """
    queries: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for column in columns:
        undefined = queries.setdefault((str(column.measure), column.variant), set())
        undefined |= {
            (reason, query_id) for query_id, value in column.values.items() if (reason := value_of(value)[1])
        }
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for (measure, variant), undefined in queries.items():
        if undefined:
            reasons = Counter(reason for reason, _ in sorted(undefined))
            counts.setdefault(measure, {})[variant] = dict(reasons)
    return counts


def _most_frequent(reasons: Iterable[str]) -> str | None:
    """The reason given most often, the alphabetically first of equals."""
    counted = Counter(sorted(reasons)).most_common(1)
    return counted[0][0] if counted else None
