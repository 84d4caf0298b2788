"""Means of the queries' values, and ratios of means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmfair.audits.summary import Inference, value_of
from llmfair.metrics.base import Product, Quotient, Ratio, Value
from llmfair.registry import register
from llmfair.stats import intervals
from llmfair.stats.intervals import Estimate


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
def ratio_of_means(values: Sequence[Value], inference: Inference) -> Estimate | None:
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
