"""Figures with as many decimals as the words beside them need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from llmfair.results import Figure

MOST_DECIMALS = 6
"""What differs by less is told as the same."""


def interval_text(figure: Figure | None, edges: Collection[float] = ()) -> str:
    """A figure with its interval, as far as it has them, on the right side of the edges: `0.17 [0.10, 0.21]`."""
    if figure is None or (figure.value is None and figure.low is None and figure.high is None):
        return "undefined"
    if (bound := bound_text(figure.low, figure.high, edges)) is not None:
        return bound
    if figure.low is None or figure.high is None or figure.value is None:
        return "{}".format(*numbers([figure.value or 0.0], edges))
    return "{} [{}, {}]".format(*numbers([figure.value, figure.low, figure.high], edges))


def bound_text(low: float | None, high: float | None, edges: Collection[float] = ()) -> str | None:
    """What has one limit alone, as that: `at most 0.16`; None of what has both, or neither."""
    if low is None and high is not None:
        return f"at most {outward(high, True, edges)}"
    if high is None and low is not None:
        return f"at least {outward(low, False, edges)}"
    return None


def outward(value: float, up: bool, edges: Collection[float] = ()) -> str:
    """A limit with two digits, or as many more as keep it on its side of the edges, rounded to where it still holds."""
    told = exact = Decimal(repr(value))
    for digits in range(2, MOST_DECIMALS + 1) if value else ():
        last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        told = exact.quantize(last, ROUND_CEILING if up else ROUND_FLOOR)
        if all((value > edge, value < edge) == (float(told) > edge, float(told) < edge) for edge in edges):
            break
    return f"{told.normalize():f}"


def numbers(values: Sequence[float], edges: Collection[float] = (), decimals: int = 2) -> list[str]:
    """Numbers with so many decimals, or as many more as tell them apart and show on which side of the edges they lie.

    Two digits are told of what would be nothing by them.
    """
    shown = list[str]()
    for places in range(decimals, MOST_DECIMALS + 1):
        small = 0.1 if places else 1.0
        shown = [f"{one:.{places}f}" if abs(one) >= small else f"{one:.{max(places, 2)}g}" for one in values]
        read = [float(one) for one in shown]
        apart = len({*read}) == len({*values})
        if apart and all(
            (one > edge, one < edge) == (told > edge, told < edge)
            for one, told in zip(values, read, strict=True)
            for edge in edges
        ):
            break
    return shown
