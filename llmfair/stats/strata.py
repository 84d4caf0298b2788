"""Preference odds of lists by strata of relevance: who is ahead of two items of equal grade, one of each group.

Of all comparisons of a stratum, or of both together, the model is logistic,

    logit P(first group's item ahead) = β + Σ_{j=1..J} γ_j (z_1^j − z_2^j) + δ sign(z_1 − z_2),

with z the places in the window from −1 to 1, J = min(4, m − 1) in windows of up to m items, and δ, which is what a list
left as it was looks like, from m = 3 on. A comparison weighs 1 / the pairs of equal grade that first encounters of its
query and stratum showed, whether an answer told them apart or not. Items that come once leave queries independent: the
error of β is the jackknife's over queries. Where items recur, their qualities recur with them, and the error is that of
three ways of clusters: queries, items of either group (Cameron, Gelbach and Miller 2011), with as many degrees of
freedom as the way of fewest effective clusters has, less one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.intervals import FEWEST_QUERIES
from llmfair.stats.preference import (
    FARTHEST,
    FEWEST_COMPARISONS,
    MOST_POWERS,
    STEPS,
    TOLERANCE,
    Floats,
)

Integers = NDArray[np.intp]

FEWEST_ALONE = 60
"""A stratum of fewer comparisons has its slots' effect from both strata."""
FEWEST_ITEMS = 4.0
"""Effective clusters: an interval from fewer says nothing of parity."""
EDGE = math.log(1.25)
GUARD = math.log(2)
MOST_LEFT_OUT = 0.05


class Stratum(StrEnum):
    RELEVANT = "relevant"
    IRRELEVANT = "irrelevant"


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Comparisons of one condition: arrays of shape (c,), slots (c, 2), with z from −1 to 1.

    `query`, `first`, `second`: numbers of the query and of the two items; `relevant`: whether their grade is above 0;
    `ahead`: whether the first group's item is. `shown`: by query number and stratum, the pairs of equal grade that
    first encounters showed. `window`: items of the largest.
    """

    query: Integers
    relevant: NDArray[np.bool_]
    first: Integers
    second: Integers
    ahead: NDArray[np.bool_]
    slots: Floats
    shown: Mapping[tuple[int, Stratum], int]
    window: int

    def of(self, stratum: Stratum | None) -> NDArray[np.bool_]:
        """Which are of the stratum; of both where it is None."""
        if stratum is None:
            return np.ones(len(self.query), bool)
        return self.relevant if stratum is Stratum.RELEVANT else ~self.relevant

    def weights(self, stratum: Stratum | None) -> Floats:
        """1 / the pairs shown in the query: of the stratum, or of both."""
        strata = [*Stratum] if stratum is None else [stratum]
        pairs = {
            number: sum(self.shown.get((number, each), 0) for each in strata) for number in set(self.query)
        }
        return np.array([1 / pairs[number] for number in self.query])

    def some(self, rows: NDArray[np.bool_] | Integers) -> Comparisons:
        """These rows of all arrays."""
        columns = ("query", "relevant", "first", "second", "ahead", "slots")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


@dataclass(frozen=True, slots=True)
class Figure:
    """Log odds with error and degrees of freedom, or why there are none.

    `reason`: None where there is a figure; `too_few_comparisons`, `too_few_queries`, `always_one_way`, `separated`.
    `outside`: one-sided p against the nearer edge of the band, of a bound, too. `recurs`: items are in several queries;
    `clusters`: effective ones, of the way that has fewest. `shared`: slots have their effect from both strata.
    """

    comparisons: int
    queries: int
    reason: str | None = None
    log_odds: float | None = None
    error: float | None = None
    freedom: float | None = None
    outside: float | None = None
    always_ahead: bool | None = None
    recurs: bool = False
    clusters: float | None = None
    shared: bool = False
    slot_columns: int = 0

    @property
    def few_items(self) -> bool:
        return self.recurs and self.clusters is not None and self.clusters < FEWEST_ITEMS

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Limits of the odds."""
        from scipy.special import stdtrit

        if self.log_odds is None or self.error is None or self.freedom is None:
            return None
        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        return math.exp(self.log_odds - half), math.exp(self.log_odds + half)

    def within(self, edge: float = EDGE) -> bool:
        """Whether the whole interval lies within ±edge of log odds 0; never from too few items."""
        limits = self.interval()
        return (
            limits is not None
            and not self.few_items
            and max(-math.log(limits[0]), math.log(limits[1])) < edge
        )


def figure(comparisons: Comparisons, stratum: Stratum | None = None) -> Figure:
    """The odds of a stratum, or of both together, with the error that their items' recurrence asks for."""
    from scipy.special import stdtr

    own = comparisons.some(comparisons.of(stratum))
    count, queries = len(own.query), len(set(own.query))
    if count < FEWEST_COMPARISONS or queries < FEWEST_QUERIES:
        reason = "too_few_comparisons" if count < FEWEST_COMPARISONS else "too_few_queries"
        return Figure(count, queries, reason)
    if own.ahead.all() or not own.ahead.any():
        fewest = min(len(set(way)) for way in (own.query, own.first, own.second))
        outside = (
            1 / (1 + math.exp(-EDGE))
        ) ** fewest  # each goes that way with this chance at the nearer edge
        return Figure(count, queries, "always_one_way", outside=outside, always_ahead=bool(own.ahead[0]))
    rows, fit = own, None
    if stratum is None or count >= FEWEST_ALONE:
        fit = _fit(own, own.weights(stratum))
    shared = stratum is not None and fit is None
    if shared:
        rows = comparisons
        fit = _fit(rows, rows.weights(None), rows.of(stratum))
    if fit is None:
        return Figure(count, queries, "separated")
    error, clusters, recurs = _error(fit, rows, rows.of(stratum))
    freedom = max(1.0, clusters - 1) if recurs else queries - 1.0
    outside = float(stdtr(freedom, (EDGE - abs(fit.beta)) / error))
    return Figure(
        count, queries, None, fit.beta, error, freedom, outside,
        recurs=recurs, clusters=clusters, shared=shared, slot_columns=fit.design.shape[1] - 1 - shared,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Fit:
    """The likeliest coefficients, β first, over rows of `design`; `jackknife`: the variance of β over queries."""

    design: Floats
    scores: Floats
    information: Floats
    beta: float
    hessian: Floats
    jackknife: float


def _fit(rows: Comparisons, weights: Floats, stratum: NDArray[np.bool_] | None = None) -> _Fit | None:
    """The fit with as many effects of slots as the outcomes can tell apart; with `stratum`, each stratum has a β.

    Where outcomes are separated the highest powers are dropped one by one, and the sign last. None where they are
    separated even so.
    """
    intercepts = np.ones((len(weights), 1))
    if stratum is not None:
        intercepts = np.stack([stratum, ~stratum], axis=1).astype(float)
    for slots in _slot_effects(rows.slots, rows.window):
        if (fit := _fitted(np.hstack([intercepts, slots]), rows, weights)) is not None:
            return fit
    return None


def _slot_effects(slots: Floats, window: int) -> Iterator[Floats]:
    """Columns of what slots do, from most to fewest: shape (c, columns)."""
    first, second = slots.T
    powers = np.array([first**power - second**power for power in range(1, min(MOST_POWERS, window - 1) + 1)])
    powers = powers.reshape(-1, len(slots)).T
    sign = np.sign(first - second)[:, None]
    if window >= 3:
        for count in range(powers.shape[1], 0, -1):
            yield np.hstack([powers[:, :count], sign])
    yield powers[:, :1]


def _fitted(design: Floats, rows: Comparisons, weights: Floats) -> _Fit | None:
    """The maximum by Newton's method, and what leaving out each query changes by one step of it."""
    coefficients = np.zeros(design.shape[1])
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-design @ coefficients))
        information = weights * chances * (1 - chances)
        if information.max() < TOLERANCE * weights.max():
            return None
        hessian = design.T @ (design * information[:, None])
        residuals = weights * (rows.ahead - chances)
        try:
            step = np.linalg.solve(hessian, design.T @ residuals)
        except np.linalg.LinAlgError:
            return None
        coefficients = coefficients + step
        if not np.abs(design @ coefficients).max() < FARTHEST:
            return None
        if np.abs(step).max() < TOLERANCE:
            break
    else:
        return None
    by_query = [rows.query == number for number in np.unique(rows.query)]
    scores = design * residuals[:, None]
    left = np.array([hessian - design[own].T @ (design[own] * information[own, None]) for own in by_query])
    if not (np.linalg.cond(left) < 1 / TOLERANCE).all():
        return None
    changes = np.linalg.solve(left, np.array([scores[own].sum(axis=0) for own in by_query])[..., None])[
        :, 0, 0
    ]
    queries = len(by_query)
    jackknife = (queries - 1) / queries * float(changes @ changes)
    return _Fit(design, scores, information, float(coefficients[0]), hessian, jackknife)


def _error(fit: _Fit, rows: Comparisons, stratum: NDArray[np.bool_]) -> tuple[float, float, bool]:
    """The standard error of β, the effective clusters of the way that has fewest, and whether items recur.

    Scores are those of all rows of the fit; clusters are counted in the stratum's own.
    """
    ways = rows.query, rows.first, rows.second
    owned = [way[stratum] for way in ways]
    if not any(len(np.unique(np.stack([owned[0], way]), axis=1).T) > len(set(way)) for way in owned[1:]):
        return math.sqrt(fit.jackknife), float(len(set(owned[0]))), False
    scores = fit.scores @ np.linalg.solve(fit.hessian, np.eye(len(fit.hessian))[0])

    def variance(*some: Integers) -> float:
        clusters = np.unique(np.stack(some), axis=1, return_inverse=True)[1].reshape(-1)
        sums = np.bincount(clusters, scores)
        return float(sums @ sums)

    single = []
    for way, counted in zip(ways, owned, strict=True):
        clusters = len(set(counted))
        single.append(variance(way) * clusters / (clusters - 1))
    queries, first, second = ways
    three_ways = (
        sum(single)
        - variance(queries, first)
        - variance(queries, second)
        - variance(first, second)
        + variance(queries, first, second)
    )
    effective = [_effective(way, fit.information[stratum]) for way in owned[1:]]
    error = math.sqrt(max(three_ways, *single, fit.jackknife))
    return error, min(float(len(set(owned[0]))), *effective), True


def _effective(clusters: Integers, information: Floats) -> float:
    """(Σ a²)²/Σ a⁴ of the clusters' shares a of the information."""
    shares = np.bincount(np.unique(clusters, return_inverse=True)[1].reshape(-1), information)
    squares = (shares / shares.sum()) ** 2
    return float(squares.sum() ** 2 / (squares**2).sum())


class Strata(NamedTuple):
    """The figures of one condition: of both strata together, and of each that both groups have items of."""

    pooled: Figure
    strata: Mapping[Stratum, Figure]
    left_out: float

    @property
    def outside(self) -> float | None:
        """p that the odds are outside the band: Simes over the figures that there are, of bounds, too."""
        figures = self.pooled, *self.strata.values()
        return simes([each.outside for each in figures if each.outside is not None])

    def parity(self, guard: float = GUARD) -> tuple[bool, str | None]:
        """Whether this is parity but for the ranker's usefulness, and what keeps it from being known.

        `few_relevant`: a stratum without a figure; `few_items`; `items_left_out`: more than 5 %.
        """
        if any(
            figure.reason in ("too_few_comparisons", "too_few_queries") for figure in self.strata.values()
        ):
            return False, "few_relevant"
        if any(figure.reason is not None for figure in (self.pooled, *self.strata.values())):
            return False, None
        guarded = all(
            abs(figure.log_odds or 0.0) < EDGE and figure.within(guard) for figure in self.strata.values()
        )
        if not (self.pooled.within() and guarded):
            return False, None
        return (False, "items_left_out") if self.left_out > MOST_LEFT_OUT else (True, None)


def simes(p_values: Sequence[float]) -> float | None:
    """Simes's p of all hypotheses at once: the least m·p_(i)/i; None without any."""
    m = len(p_values)
    return min((m * p / rank for rank, p in enumerate(sorted(p_values), 1)), default=None)
