"""What wrong relevance judgements alone would make of a fair ranker: groups of unequal shares of relevant items.

Among items judged relevant, the group that has fewer of them has more that are not. With a share x of all judgements
wrong, of a group's items judged relevant (share o) the share (π(1 − x))/o is, where π = (o − x)/(1 − 2x), and of
those judged irrelevant the share πx/(1 − o).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import mul
from typing import NamedTuple

TOLERANCE = 1e-9


class Judgements(NamedTuple):
    """How many items of a group there are, and how many of them are judged relevant."""

    items: int
    relevant: int

    @property
    def share(self) -> float:
        return self.relevant / self.items


class Strata(NamedTuple):
    """A figure of items judged relevant, and of those judged irrelevant."""

    relevant: float
    irrelevant: float


def largest_wrong(protected: Judgements, other: Judgements) -> float:
    """The share of wrong judgements that the smaller share of relevant items allows: x has to be below it."""
    return min(protected.share, other.share, 1 - protected.share, 1 - other.share, 0.5)


def odds_of_a_fair_ranker(
    protected: Judgements, other: Judgements, better_ahead: float | None, wrong: float
) -> Strata:
    """The odds that a ranker without preference would show in each stratum, with so large a share of labels wrong.

    `better_ahead`: the run's share of pairs of unequal grade in which the better graded is ahead; None where none were
    compared: of a ranker that errs in no pair, whose odds are the farthest from 1. `wrong`: below `largest_wrong`.
    """
    groups = (protected, other)
    true = [(group.share - wrong) / (1 - 2 * wrong) for group in groups]  # what is relevant
    relevant = [share * (1 - wrong) / group.share for share, group in zip(true, groups, strict=True)]
    irrelevant = [share * wrong / (1 - group.share) for share, group in zip(true, groups, strict=True)]
    judged, others = [g.relevant for g in groups], [g.items - g.relevant for g in groups]
    mean = sum(map(mul, relevant, judged)) / sum(judged) - sum(map(mul, irrelevant, others)) / sum(others)
    pull = 0.5 if better_ahead is None else (better_ahead - 0.5) / mean
    pull = max(-0.5, min(pull, 0.5))  # nobody is right more often than always
    chances = (0.5 + (of_protected - of_other) * pull for of_protected, of_other in (relevant, irrelevant))
    return Strata(*(chance / (1 - chance) for chance in chances))


def explaining_share(odds: Callable[[float], float], limit: float, most: float) -> float | None:
    """The least share of wrong judgements at which a fair ranker reads as far from 1 as `limit`; None without one.

    `odds(x)`: of a fair ranker; `most`: x is below it.
    """

    def far(wrong: float) -> bool:
        value = odds(wrong)
        return value <= limit if limit < 1 else value >= limit

    low, high = 0.0, most * (1 - TOLERANCE)
    if not far(high):
        return None
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        low, high = (low, middle) if far(middle) else (middle, high)
    return high
