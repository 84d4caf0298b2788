"""What fairer retrieval costs: quality over exposure disparity, as slope, as area, and by interval of disparity.

An observation is one query under one policy: its normalised exposure disparity (EE-D, 0 to 1) and a quality. Arrays of
shape (observations,) throughout. Source: Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2; the paper defines
neither slope nor area, so the definitions here are ours.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmfair.stats.betting import TOLERANCE, lower_limit, p_value
from llmfair.stats.intervals import Estimate, clustered_mean, mean, two_sided
from llmfair.stats.paired import paired_t
from llmfair.stats.significance import holm

Floats = NDArray[np.float64]

ANCHORS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
INTERVALS = ("[0,.2)", "[.2,.4)", "[.4,.6)", "[.6,.8)", "[.8,1]")
DECIMALS = 9
"""Disparities are compared with edges after rounding, so that 0.2 less a rounding error is 0.2."""
STARRED = 0.05
"""The paper's tables mark p values below this."""


@dataclass(frozen=True, slots=True)
class Line:
    """The least-squares line of quality over disparity."""

    slope: float
    intercept: float


@dataclass(frozen=True, slots=True)
class Area:
    """The mean quality over [0, 1], the ends held constant, and the area over the disparities that were observed."""

    whole: float
    observed: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Anchor:
    """The observations nearest to a disparity: their mean quality, its interval over queries, and their number."""

    disparity: float
    quality: Estimate
    observations: int


def line(disparity: ArrayLike, quality: ArrayLike) -> Line | None:
    """The least-squares line; None for fewer than two different disparities."""
    x, y = _paired(disparity, quality)
    if len(np.unique(x)) < 2:
        return None
    away = x - x.mean()
    slope = float(away @ y / (away @ away))
    return Line(slope, float(y.mean() - slope * x.mean()))


def area(disparity: ArrayLike, quality: ArrayLike) -> Area | None:
    """Trapezoids below the points, those of one disparity averaged first; None without a point.

    Beyond the least and the greatest disparity the quality stays what it is there.
    """
    x, y = _paired(disparity, quality)
    if not len(x):
        return None
    points, of_point = np.unique(x, return_inverse=True)
    means = np.bincount(of_point, y) / np.bincount(of_point)
    observed = float(np.trapezoid(means, points))
    low, high = float(points[0]), float(points[-1])
    return Area(observed + low * float(means[0]) + (1 - high) * float(means[-1]), observed, low, high)


def anchors(
    disparity: ArrayLike, quality: ArrayLike, queries: Sequence[Hashable], level: float = 0.95
) -> list[Anchor]:
    """Means of the observations nearest to 0, 0.2 … 1, halfway ones upwards; anchors without any are absent."""
    x, y = _paired(disparity, quality)
    nearest = np.floor(np.round(x, DECIMALS) * 5 + 0.5).astype(int).clip(0, 5)
    numbers = {query: number for number, query in enumerate(dict.fromkeys(queries))}
    codes = np.array([numbers[query] for query in queries], dtype=np.intp)
    return [
        Anchor(ANCHORS[place], clustered_mean(y[here], codes[here], level), int(here.sum()))
        for place in range(len(ANCHORS))
        if (here := nearest == place).any()
    ]


def averaged(curves: Sequence[Sequence[Anchor]]) -> tuple[Floats, Floats]:
    """The anchors that any curve has, and the mean over the curves that have it: of generators, or of retrievers."""
    qualities: dict[float, list[float]] = {}
    for curve in curves:
        for anchor in curve:
            if anchor.quality.value is not None:
                qualities.setdefault(anchor.disparity, []).append(anchor.quality.value)
    places = sorted(qualities)
    return np.array(places), np.array(
        [math.fsum(qualities[place]) / len(qualities[place]) for place in places]
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """An interval of disparity against the deterministic baseline.

    `difference`: mean utility of the interval's observations less the baseline's mean over all queries, as the paper's
    Table 2 has it, with the p of the unpaired Student test behind its stars and of Welch's. `paired`: the mean over the
    interval's queries of their mean there less their own baseline, with its p and Holm's over the table.
    """

    interval: str
    observations: int
    queries: int
    difference: float | None = None
    p_student: float | None = None
    p_welch: float | None = None
    paired: Estimate | None = None
    p_paired: float | None = None
    p_adjusted: float | None = None

    @property
    def starred(self) -> bool:
        return self.p_student is not None and self.p_student < STARRED


def interval_of(disparity: ArrayLike) -> NDArray[np.intp]:
    """Which of INTERVALS each disparity lies in; the last one is closed."""
    return np.digitize(np.round(np.asarray(disparity, dtype=np.float64), DECIMALS), ANCHORS[1:-1])


def cells(
    disparity: ArrayLike,
    utility: ArrayLike,
    queries: Sequence[str],
    baseline: Mapping[str, float],
    level: float = 0.95,
) -> list[Cell]:
    """Every interval of disparity against the utilities of the deterministic lists, by query; Holm over these cells."""
    x, y = _paired(disparity, utility)
    before, of_interval = np.array(list(baseline.values()), dtype=np.float64), interval_of(x)
    table = []
    for place, name in enumerate(INTERVALS):
        here = np.flatnonzero(of_interval == place).tolist()
        by_query: dict[str, list[float]] = {}
        for observation in here:
            by_query.setdefault(queries[observation], []).append(float(y[observation]))
        cell = Cell(name, len(here), len(by_query))
        if len(here):
            changes = [math.fsum(of) / len(of) - baseline[query] for query, of in by_query.items()]
            cell = replace(
                cell,
                difference=float(y[here].mean() - before.mean()),
                p_student=student_p(y[here], before),
                p_welch=welch_p(y[here], before),
                paired=mean(changes, level),
                p_paired=paired_p(changes),
            )
        table.append(cell)
    return adjusted([table])[0]


def adjusted(tables: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """The cells of all rows of one table, with Holm's p over all of them."""
    p_values = iter(holm([cell.p_paired for row in tables for cell in row]))
    return [[replace(cell, p_adjusted=next(p_values)) for cell in row] for row in tables]


def student_p(first: ArrayLike, other: ArrayLike) -> float | None:
    """Student's two-sided p of equal means, variances taken as equal; None for fewer than two values on a side."""
    a, b = _paired(first, other)
    if min(len(a), len(b)) < 2:
        return None
    degrees = len(a) + len(b) - 2
    pooled = (((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum()) / degrees
    return _two_sided(float(a.mean() - b.mean()), pooled * (1 / len(a) + 1 / len(b)), degrees)


def welch_p(first: ArrayLike, other: ArrayLike) -> float | None:
    """Welch's two-sided p of equal means, each side with its own variance; None for fewer than two values on a side."""
    a, b = _paired(first, other)
    if min(len(a), len(b)) < 2:
        return None
    of_means = [float(side.var(ddof=1)) / len(side) for side in (a, b)]
    spread = math.fsum(part**2 / (len(side) - 1) for part, side in zip(of_means, (a, b), strict=True))
    degrees = math.fsum(of_means) ** 2 / spread if spread else math.inf
    return _two_sided(float(a.mean() - b.mean()), math.fsum(of_means), degrees)


def paired_p(differences: ArrayLike) -> float | None:
    """The two-sided p of a mean difference of 0, t over queries; None for fewer than six of them."""
    tested = paired_t(differences)
    return None if tested is None else tested[1]


Kept = Literal["kept", "lost", "inconclusive"]


def keeping(low: float | None, high: float | None, margin: float) -> Kept | None:
    """Whether the interval of a change of utility says that at most `margin` is lost; None without an interval."""
    if low is None or high is None:
        return None
    return "kept" if low >= -margin else "lost" if high < -margin else "inconclusive"


@dataclass(frozen=True, slots=True)
class Utility:
    """What may change: the largest loss and gain that a query can have, and the mean loss that counts as none."""

    margin: float
    worst_loss: float
    best_gain: float


@dataclass(frozen=True, slots=True)
class Loss:
    """What the changes of a setting's queries say of its mean loss; nothing where there is a `reason` alone.

    `lower`: the mean change is above it with the certainty of the level. `p` of a loss of more than the margin, and
    adjusted: the largest p of the settings tested up to this one. `losers`: queries that lost more than the margin.
    """

    conclusion: Kept | None
    reason: str | None
    lower: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    losers: int | None = None


def losses(changes: Sequence[ArrayLike], utility: Utility, level: float = 0.95) -> list[Loss]:
    """What every setting loses, each array its queries' changes, in the order in which settings are tested.

    Kept are those up to the first whose limit by betting is below −margin, so that with a chance of at most 1 − level
    any is called so that is not. Lost: the same limit from above is below −margin.
    """
    results, largest, alpha, margin = list[Loss](), 0.0, 1 - level, utility.margin
    for values in changes:
        array = np.asarray(values, dtype=np.float64)
        change = mean(array, level) if len(array) else None
        reason = "no_useful_items" if change is None else change.reason if change.low is None else None
        if change is not None and reason is None and array.min() < -utility.worst_loss - TOLERANCE:
            reason = "beyond_worst_loss"
        if change is None or change.low is None or reason is not None:
            results.append(Loss(None, reason))
            largest = 1.0
            continue
        p = p_value(array, utility.worst_loss, -margin)
        largest = max(largest, p)
        conclusion: Kept = "kept" if largest <= alpha else "inconclusive"
        if conclusion != "kept" and p_value(-array, utility.best_gain, margin) <= alpha:
            conclusion = "lost"
        elif conclusion != "kept":
            reason = "larger_alpha" if p <= alpha else "rare_losses" if change.low >= -margin else None
        losers = int((array < -margin - TOLERANCE).sum())
        lower = lower_limit(array, utility.worst_loss, alpha)
        results.append(Loss(conclusion, reason, lower, p, largest, losers))
    return results


def _two_sided(difference: float, variance: float, degrees: float) -> float:
    if variance <= 0:
        return 1.0 if difference == 0 else 0.0
    return two_sided(difference / math.sqrt(variance), degrees)


def _paired(first: ArrayLike, other: ArrayLike) -> tuple[Floats, Floats]:
    return np.asarray(first, dtype=np.float64), np.asarray(other, dtype=np.float64)
