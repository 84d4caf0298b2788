"""What a measure says of one query: a number, a ratio or product with its parts, or why there is none.

Aggregates are made of the parts, so parts travel with the value: a ratio of means is not a mean of ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.nouns import PairVerdict

FEWEST_PAIRS = 10
"""From fewer readable pairs a query gets no ratio of its own."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What no order of a query's items passes (`best`), and what is perfect."""

    best: float
    perfect: float


@dataclass(frozen=True, slots=True)
class Undefined:
    """No value for this query, and why; counted, and left out of every aggregate."""

    reason: str


@dataclass(frozen=True, slots=True)
class Convention:
    """A number that a query has by convention alone, and why: it stands in the query's row.

    `counts` says whether it goes into figures of all queries, too.
    """

    value: float
    reason: str
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with both its sides, since ratios of means are built from them.

    A ratio with a zero side has a `reason` and no value, but its sides still count in a ratio of means. Over 0 there is
    none in any case (`zero_denominator`).
    `controlled` holds what a control variate on the initial order is computed from, over all queries.
    """

    numerator: float
    denominator: float
    reason: str | None = None
    controlled: tuple[ControlledExposures, ...] = ()

    def __post_init__(self) -> None:
        if self.reason is None and self.denominator == 0:
            object.__setattr__(self, "reason", "zero_denominator")

    @property
    def value(self) -> float | None:
        return None if self.reason else self.numerator / self.denominator


@dataclass(frozen=True, slots=True)
class ControlledExposures:
    """Both sides of a ratio from one initial order: in the ranking, in that order, and the order's mean."""

    final: tuple[float, float]
    initial: tuple[float, float]
    mean: float

    def favour(self, side: int) -> float:
        """How far the order favoured a side: over random orders it is 0 on average."""
        return self.initial[side] - self.mean


@dataclass(frozen=True, slots=True)
class Quotient:
    """A ratio over another ratio, each with both its sides: what is left of it beyond the other."""

    ratio: Ratio
    by: Ratio

    @property
    def reason(self) -> str | None:
        return self.ratio.reason or self.by.reason

    @property
    def value(self) -> float | None:
        above, below = self.ratio.value, self.by.value
        return None if above is None or below is None else above / below


@dataclass(frozen=True, slots=True)
class Product:
    """A product with both its factors, since products of means are built from them."""

    left: float
    right: float

    @property
    def value(self) -> float:
        return self.left * self.right


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """What a measure of pairs makes of weighted counts of C things, such as the cells PP, UU, FF, SS.

    `things[a, b, c]` says how often thing c is counted in a pair with answers a and b (`JudgedPairs.answers`).
    `figure` takes cells of shape (C,), real or complex, in + − * / and log alone, so that it can be
    differentiated; it gives the value or, if `logarithmic`, its logarithm. `undefined` gives the reason why
    there is none. `halved` adds ½ to every cell where one is 0. `demanding` figures speak of a preference, and of
    few pairs there is none to speak of.
    """

    things: NDArray[np.int8]
    figure: Callable[[NDArray[Any]], Any]
    undefined: Callable[[NDArray[np.float64]], str | None]
    logarithmic: bool = False
    halved: bool = False
    demanding: bool = False

    def __call__(self, cells: NDArray[Any]) -> Any:
        """The value of these cells, or its logarithm."""
        return self.figure(cells + 0.5 if self.adds_half(cells) else cells)

    def adds_half(self, cells: NDArray[Any]) -> bool:
        return self.halved and not cells.real.all()


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """A query's pairs as a measure counts them: one row of `counts`, shape (n, C), for each verdict.

    A row of zeros does not count. A pair asked `repeats` times has as many verdicts, each of weight 1/repeats.
    """

    formula: Formula
    verdicts: tuple[PairVerdict, ...]
    counts: NDArray[np.int8]
    readable: int
    consistent: int
    repeats: int = 1

    @property
    def cells(self) -> NDArray[np.float64]:
        cells: NDArray[np.float64] = self.counts.sum(axis=0) / self.repeats
        return cells

    @property
    def reason(self) -> str | None:
        """Why there is no value, or what was done to have one (`half_added`)."""
        return self._missing or ("half_added" if self.formula.adds_half(self.cells) else None)

    @property
    def value(self) -> float | None:
        if self._missing:
            return None
        figure = float(self.formula(self.cells))
        return exp(figure) if self.formula.logarithmic else figure

    @property
    def _missing(self) -> str | None:
        if reason := self.formula.undefined(self.cells):
            return reason
        few = self.formula.demanding and self.readable < FEWEST_PAIRS * self.repeats
        return "too_few_pairs" if few else None


@dataclass(frozen=True, slots=True, eq=False)
class QueryComparisons:
    """How often the first of two items was put ahead: `ahead` of `count`, of shape (c,) or one number each.

    `slots`, shape (c, 2), are the places z of both in what was shown, from -1 (first) to 1 (last); None where they
    were not shown side by side. `window`: items shown at once, at most.
    `tied`: how many of them all neither was ahead in, which count half. With `chosen` each of them is a choice among
    several items, and `ahead` says whether one of the first group was chosen: it has which items are of that group,
    shape (r,), the chosen one of every choice first, and where each choice begins, shape (c,); then `slots` has shape
    (r,). A single query has no odds of its own.
    """

    ahead: NDArray[np.float64]
    count: NDArray[np.float64]
    slots: NDArray[np.float64] | None = None
    window: int = 1
    tied: float = 0.0
    chosen: tuple[NDArray[np.float64], NDArray[np.intp]] | None = None


Value = float | Ratio | Quotient | Product | Tally | QueryComparisons | Convention | Undefined
