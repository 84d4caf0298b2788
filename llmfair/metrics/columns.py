"""Measures of all queries: a column of values for each measure, condition and group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from llmfair.errors import LlmfairError
from llmfair.metrics.base import Measure, Observation
from llmfair.metrics.values import (
    Convention,
    Limit,
    Product,
    QueryComparisons,
    Quotient,
    Ratio,
    Tally,
    Undefined,
    Value,
)

SHOWN = 0.0005
"""Less than this does not show in three digits."""


@dataclass(frozen=True, slots=True)
class Column:
    """A measure's values under one condition, of one group ("" for none), by query_id (sorted)."""

    measure: Measure
    condition: str
    group: str
    values: Mapping[str, Value]


def measure_all(measures: Sequence[Measure], observed: Mapping[str, Sequence[Observation]]) -> list[Column]:
    """Every measure of every query: measures and conditions in the order given, groups as measures name them.

    Raises as `measure_each` does.
    """
    each = ((condition, query) for condition, queries in observed.items() for query in queries)
    return measure_each(measures, each)


def measure_each(measures: Sequence[Measure], observed: Iterable[tuple[str, Observation]]) -> list[Column]:
    """The same of queries that come one by one, each with its condition; none is held longer than it is measured.

    Raises ValueError when a query comes twice in a condition or a measure's value is not finite, LlmfairError
    naming measure and query where a measure breaks off.
    """
    found: dict[Measure, dict[str, dict[str, dict[str, Value]]]] = {measure: {} for measure in measures}
    for condition, query in observed:
        for measure, by_condition in found.items():
            groups = by_condition.setdefault(condition, {})
            for group, value in _values(measure, query).items():
                values = groups.setdefault(group, {})
                if query.query_id in values:
                    raise ValueError(f"query {query.query_id} comes twice in {condition}")
                if not all(math.isfinite(part) for part in _parts(value)):
                    raise ValueError(f"{measure} of query {query.query_id} is not finite: {value}")
                values[query.query_id] = value
    return [
        Column(measure, condition, group, dict(sorted(values.items())))
        for measure, by_condition in found.items()
        for condition, groups in by_condition.items()
        for group, values in groups.items()
    ]


def limit_notes(measures: Sequence[Measure], observed: Sequence[Observation]) -> dict[str, str]:
    """By measure, what no order of these lists passes on average, and why; those without such a limit are absent."""
    found = {
        str(measure): limit_note(measure, [limit for one in observed if (limit := measure.limit(one))])
        for measure in measures
    }
    return {measure: note for measure, note in found.items() if note}


def limit_note(measure: Measure, limits: Sequence[Limit]) -> str:
    """What no order passes of the queries with these limits, on average; nothing where that is perfect."""
    if not limits:
        return ""
    best, perfect = (
        fmean(values) for values in zip(*((one.best, one.perfect) for one in limits), strict=True)
    )
    if abs(best - perfect) < SHOWN:
        return ""
    return (
        f"no order of these lists goes {'above' if best < perfect else 'below'} {best:.3f} on average, since "
        f"{measure.definition.limited_by}"
    )


def _values(measure: Measure, query: Observation) -> Mapping[str, Value]:
    try:
        return measure.values(query)
    except LlmfairError:
        raise
    except Exception as error:  # of somebody's own measure; what was asked is kept
        raise LlmfairError(
            f"{measure} of query {query.query_id} breaks off: {type(error).__name__}: {error}.",
            "-v shows where; once it is mended the same command measures the answers that are there",
        ) from error


def _parts(value: Value) -> tuple[float, ...]:
    """The numbers a value is made of."""
    match value:
        case Undefined() | Tally() | QueryComparisons():  # counts are whole numbers
            return ()
        case Ratio():
            runs = [number for run in value.controlled for number in (*run.final, *run.initial, run.mean)]
            return value.numerator, value.denominator, *runs
        case Quotient():
            return *_parts(value.ratio), *_parts(value.by)
        case Product():
            return value.left, value.right
        case Convention():
            return (value.value,)
    return (value,)
