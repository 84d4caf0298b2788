"""Which remedies are not dominated: none other is nearer to parity at no less utility."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

ROUNDING = 1e-9
Point = tuple[float, float]
"""A distance from parity, |ln odds|, and a utility."""


def distance(odds: float | None) -> float | None:
    """|ln odds|: 0 at parity, the same for odds and their inverse; None where it has no size."""
    return None if odds is None or odds <= 0 else abs(log(odds))


def front(points: Mapping[str, Point]) -> set[str]:
    """The names of the points that no other dominates: of equal ones all."""
    return {
        name
        for name, (far, useful) in points.items()
        if not any(
            other_far <= far + ROUNDING
            and other_useful >= useful - ROUNDING
            and (other_far < far - ROUNDING or other_useful > useful + ROUNDING)
            for other_far, other_useful in points.values()
        )
    }
