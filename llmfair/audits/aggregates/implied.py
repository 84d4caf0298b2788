"""The pair odds behind exposure ratios of lists: one figure, and the curve that it is read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmfair.audits.aggregates.control import controlled
from llmfair.audits.aggregates.means import ratio_of_means
from llmfair.audits.summary import Inference
from llmfair.metrics.values import Quotient, Value
from llmfair.registry import register
from llmfair.stats.implied import OddsCurve
from llmfair.stats.intervals import Estimate


@register("aggregate", "implied-odds")
def _implied_odds(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """The pair odds behind the ratio of means."""
    excess = ratio_of_means(values, inference)
    return None if excess is None else _implied(excess, implied_curve(values, inference))


def implied_curve(values: Sequence[Value], inference: Inference) -> OddsCurve | None:
    """What pair odds would show on these lists, from rankers as useful as the one that gave these values."""
    values = controlled(values)
    excess = ratio_of_means(values, replace(inference, ci="linear-t"))  # of which only the value is read
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
