"""Columns of values become tidy rows: one per query, then the aggregate with its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from llmfair import registry
from llmfair.audits.tallies import tallied
from llmfair.metrics.columns import Column
from llmfair.metrics.values import Product, Quotient, Ratio, Tally, Undefined, Value
from llmfair.records import Measurement
from llmfair.registry import register
from llmfair.stats import intervals
from llmfair.stats.control import without_favour
from llmfair.stats.implied import OddsCurve, OddsSurface
from llmfair.stats.intervals import Estimate, Method

ALL = "all"
"""The query_id of an aggregate row."""
ENOUGH_QUERIES, ENOUGH_DOCUMENTS = 20, 50
"""From these numbers on, the plain interval of a ratio of means covers as it says (statistics.md 2)."""
FEWEST_RUNS = 15
"""From fewer runs the slope on the initial orders is not taken: fitted to so few, it feigns certainty."""
Intervals = Literal["auto", "linear-t", "boot-t"]


@dataclass(frozen=True)
class Inference:
    """How figures of all queries are inferred from theirs.

    `documents` is the median length of the lists. `surface` gives the pair odds behind a ratio; None where
    initial orders were not random, since nothing is known of the odds behind a ratio that they made.
    """

    level: float = 0.95
    ci: Intervals = "auto"
    seed: int = 0
    documents: float = ENOUGH_DOCUMENTS
    surface: Callable[[], OddsSurface] | None = None

    def method(self, queries: int) -> Method:
        """The interval of a ratio of means over so many queries."""
        if self.ci != "auto":
            return self.ci
        enough = queries >= ENOUGH_QUERIES and self.documents >= ENOUGH_DOCUMENTS
        return "linear-t" if enough else "boot-t"

    def curve(self, usefulness: float | None = None, ratio: float = 1.0) -> OddsCurve | None:
        """What pair odds show on these lists, by rankers as useful as one with this ratio."""
        return None if self.surface is None else self.surface().curve(usefulness, ratio)

    def ratio(self, over: Sequence[Sequence[float]], under: Sequence[Sequence[float]]) -> Estimate:
        """A product of ratios of sums, `over` and `under` having one sequence a factor."""
        rng = np.random.default_rng(self.seed)
        return intervals.ratio_of_means(over, under, self.level, self.method(len(over[0])), rng)


Aggregate = Callable[[Sequence[Value], Inference], Estimate | None]
"""Makes one figure of the queries' values with its interval; None when nothing is defined.

Registered by `@register("aggregate", NAME)`, or an entry point `llmfair.aggregates`; a measure names it.
"""


def value_of(value: Value) -> tuple[float | None, str | None]:
    """The number of a value, or None, and the reason; a number with a reason was had by a makeshift."""
    if isinstance(value, Undefined):
        return None, value.reason
    if isinstance(value, Product):
        return value.value, None
    return (value.value, value.reason) if isinstance(value, Ratio | Quotient | Tally) else (value, None)


def summarise(columns: Sequence[Column], inference: Inference = Inference()) -> list[Measurement]:
    """The rows of every column: its queries, then all of them together.

    In an aggregate row `n` counts the queries it is built from. Without any, `value` is None and `reason` the
    most frequent one; with fewer than five the value stands without interval (`too_few_queries`).
    """
    rows = []
    for column in columns:
        measure, variant, group = str(column.measure), column.variant, column.group
        for query_id, value in column.values.items():
            if not column.measure.of_all:
                number, reason = value_of(value)
                rows.append(Measurement(query_id, measure, number, variant, group, reason=reason))
        rows.append(_aggregate_row(column, inference))
    return rows


def _aggregate_row(column: Column, inference: Inference) -> Measurement:
    measure, values = column.measure, list(column.values.values())
    estimate = aggregate(measure.aggregate, values, inference)
    if estimate is None:
        reason = _most_frequent(reason for value in values if (reason := value_of(value)[1]))
        return Measurement(ALL, str(measure), None, column.variant, column.group, n=0, reason=reason)
    if estimate.low is not None and estimate.high is not None:
        least, most = measure.definition.bounds
        estimate = replace(estimate, low=max(estimate.low, least), high=min(estimate.high, most))
    return row_of(str(measure), column.variant, estimate, column.group)


def row_of(measure: str, variant: str, estimate: Estimate, group: str = "") -> Measurement:
    """The aggregate row of an estimate."""
    return Measurement(
        query_id=ALL,
        measure=measure,
        value=estimate.value,
        variant=variant,
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


@register("aggregate", "mean")
@register("aggregate", "mean-of-ratios")
@register("aggregate", "mean-of-products")
def _mean(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """The mean of the defined queries."""
    defined = _defined(values)
    return intervals.mean(defined, inference.level) if defined else None


@register("aggregate", "geometric")
def _geometric(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """The geometric mean of the defined queries."""
    defined = _defined(values)
    return intervals.geometric_mean(defined, inference.level) if defined else None


def _defined(values: Iterable[Value]) -> list[float]:
    return [number for value in values if (number := value_of(value)[0]) is not None]


@register("aggregate", "product-of-means")
def _product_of_means(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """Without interval: its two means move together, and no coverage is known (a mean of products has one)."""
    products = [value for value in values if isinstance(value, Product)]
    if not products:
        return None
    left, right = (intervals.mean([getattr(p, side) for p in products]) for side in ("left", "right"))
    assert left.value is not None and right.value is not None
    return Estimate(left.value * right.value, None, None, len(products), "no_interval")


@register("aggregate", "ratio-of-means")
def _ratio_of_means(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """Ratios, or quotients of ratios, of the queries' sums: a query with a zero side still counts."""
    factors = [
        ((value.ratio, value.by) if isinstance(value, Quotient) else (value,))
        for value in values
        if isinstance(value, Ratio | Quotient)
    ]
    over = [[ratio.numerator for ratio in factor] for factor in zip(*factors, strict=True)]
    under = [[ratio.denominator for ratio in factor] for factor in zip(*factors, strict=True)]
    if not over or not all(map(any, [*over, *under])):
        return None
    # the second ratio divides
    return inference.ratio([over[0], *under[1:]], [under[0], *over[1:]])


@register("aggregate", "implied-odds")
def _implied_odds(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """The pair odds behind the ratio of means."""
    excess = _ratio_of_means(values, inference)
    return None if excess is None else _implied(excess, implied_curve(values, inference))


@register("aggregate", "macro")
def _macro(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """Pairs, every query weighing the same."""
    return tallied(values, "macro", inference.level)


@register("aggregate", "pooled")
def _pooled(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """Pairs, each weighing the same."""
    return tallied(values, "pooled", inference.level)


def controlled(values: Sequence[Value]) -> list[Value]:
    """The values with what the initial orders explain of their ratios taken out, where they know those orders.

    The slope is fitted over all queries, so this is no value of a single query. Over fewer than FEWEST_RUNS runs
    in all, nothing is taken out.
    """
    ratios = {
        place: ratio
        for place, value in enumerate(values)
        if isinstance(ratio := value.ratio if isinstance(value, Quotient) else value, Ratio)
        and ratio.controlled
    }
    if sum(len(ratio.controlled) for ratio in ratios.values()) < FEWEST_RUNS:
        return list(values)
    sides = []
    for side in (0, 1):
        final = [np.array([run.final[side] for run in ratio.controlled]) for ratio in ratios.values()]
        favour = [np.array([run.favour(side) for run in ratio.controlled]) for ratio in ratios.values()]
        sides.append([float(runs.mean()) for runs in without_favour(final, favour)])
    changed = list(values)
    for place, over, under in zip(ratios, *sides, strict=True):
        value, ratio = values[place], Ratio(over, under, ratios[place].reason)
        changed[place] = replace(value, ratio=ratio) if isinstance(value, Quotient) else ratio
    return changed


def implied_curve(values: Sequence[Value], inference: Inference) -> OddsCurve | None:
    """What pair odds would show on these lists, from rankers as useful as the one that gave these values."""
    values = controlled(values)
    excess = _ratio_of_means(values, replace(inference, ci="linear-t"))  # of which only the value is read
    useful = [value.useful for value in values if isinstance(value, Quotient) and value.useful]
    over, under = sum(ratio.numerator for ratio in useful), sum(ratio.denominator for ratio in useful)
    if excess is None or excess.value is None:
        return None
    return inference.curve(over / under if over and under else None, excess.value)


def _implied(estimate: Estimate, curve: OddsCurve | None) -> Estimate:
    """The pair odds behind an excess ratio and its limits; beyond what any odds could show there are none."""
    if curve is None:
        return Estimate(None, None, None, estimate.n, "order_not_random")
    if curve.flat:
        return Estimate(None, None, None, estimate.n, "no_common_grade")
    ratios = (estimate.value, estimate.low, estimate.high)
    value, low, high = odds = [None if ratio is None else curve.odds(ratio) for ratio in ratios]
    beyond = any(one is None and ratio is not None for one, ratio in zip(odds, ratios, strict=True))
    reason = "out_of_reach" if beyond else estimate.reason
    return replace(estimate, value=value, low=low, high=high, reason=reason)


def undefined_counts(columns: Sequence[Column]) -> dict[str, dict[str, dict[str, int]]]:
    """Queries without a value, `{measure: {variant: {reason: count}}}`; measures without any are left out.

    A query counts once per reason, however many groups the measure speaks of.
    """
    queries: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for column in columns:
        undefined = queries.setdefault((str(column.measure), column.variant), set())
        undefined |= {
            (reason, query_id)
            for query_id, value in column.values.items()
            for number, reason in [value_of(value)]
            if number is None and reason
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
