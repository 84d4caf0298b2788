"""Preference odds: how likely one of two items is put ahead of the other, whatever their places when shown.

Of every query come comparisons of two items, each with its outcome and, where the items were shown at once, the
slots they stood in. The model of them all is logistic,

    logit P(first item ahead) = β + Σ_{j=1..J} γ_j (z_1^j − z_2^j),    z = 2·slot/(m − 1) − 1 in a window of m,

fitted by maximum likelihood with every query's comparisons weighing 1 in all. e^β are the odds of the first item,
and slots may have any smooth effect. Its error is that of leaving out one query at a time, by one Newton step each:
d_q = (H − H_q)⁻¹ S_q, V = (Q−1)/Q Σ d_q d_qᵀ, with t on Q − 1 degrees of freedom.

Where the best of several items was chosen, the same coefficients are those of a conditional logit (McFadden 1974): an
item is chosen with a chance in proportion to exp(β [of the first group] + Σ_j γ_j z^j). Of two items it is the above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.intervals import FEWEST_QUERIES, Estimate

Floats = NDArray[np.float64]

MOST_POWERS = 4
"""Slots have a polynomial effect of this degree at most: enough for what is lost in the middle, and still smooth."""
FEWEST_COMPARISONS = 20
"""From fewer comparisons, over all queries, no preference has an interval."""
STEPS, TOLERANCE = 50, 1e-12
DECIMALS = 10
"""Of all that is fitted: the last digits hang on the processor, and equal answers give equal files everywhere."""
FARTHEST = 500.0
"""Log odds beyond this are no longer numbers that can be told apart: nothing is fitted."""


class Alternatives(NamedTuple):
    """Items that were chosen among, set after set, the chosen one of each first; arrays of shape (r,).

    `first`: 1 for an item of the first group, else 0. `slots`: their places z; None leaves slots out. `starts`, shape
    (c,): where each set begins.
    """

    first: Floats
    slots: Floats | None
    starts: NDArray[np.intp]


class Comparisons(NamedTuple):
    """One query's comparisons, of shape (c,): how often the first item was ahead, of how many, and both slots z.

    `slots` has shape (c, 2); None where items were not shown side by side. With `chosen` comparisons are choices among
    these alternatives, and `ahead` says whether an item of the first group was chosen.
    """

    ahead: Floats
    total: Floats
    slots: Floats | None = None
    chosen: Alternatives | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """β and γ, shape (1 + J,), and what each query moves them by: its leave-one-out change, shape (queries, 1 + J).

    `comparisons`: of all queries. `null_scores`: the queries' scores for β where it is 0, shape (queries,).
    """

    coefficients: Floats
    changes: Floats
    null_scores: Floats
    comparisons: int

    @property
    def queries(self) -> int:
        return len(self.changes)

    @property
    def log_odds(self) -> float:
        """β."""
        return float(self.coefficients[0])

    @property
    def error(self) -> float:
        """The standard error of β."""
        return jackknife_error(self.changes[:, 0])

    def odds(self, level: float = 0.95) -> Estimate:
        """e^β with its interval: without one from fewer than 5 queries, or 20 comparisons."""
        return self._of(np.eye(len(self.coefficients))[0], level)

    def slot_odds(self, level: float = 0.95) -> Estimate:
        """The odds that of two alike items the one in the first slot is put ahead of the one in the last."""
        odd = np.arange(len(self.coefficients)) % 2 == 1  # z^j differs between the ends where j is odd
        return self._of(-2.0 * odd, level)

    def _of(self, contrast: Floats, level: float) -> Estimate:
        error = jackknife_error(self.changes @ contrast)
        estimate = log_interval(float(self.coefficients @ contrast), error, self.queries, level)
        if estimate.reason is None and self.comparisons < FEWEST_COMPARISONS:
            return Estimate(estimate.value, None, None, self.queries, "too_few_comparisons", error)
        return estimate


def jackknife_error(changes: Floats) -> float:
    """√((Q−1)/Q Σ d_q²) of what leaving out each of Q queries changes; shape (queries,)."""
    return float(np.sqrt((len(changes) - 1) / len(changes) * np.sum(changes**2)))


def log_interval(centre: float, error: float, queries: int, level: float) -> Estimate:
    """exp(centre ± t·error) with t on queries − 1 degrees of freedom; no interval from fewer than 5 queries."""
    from scipy.special import stdtrit

    value = float(np.exp(centre))
    if queries < FEWEST_QUERIES:
        return Estimate(value, None, None, queries, "too_few_queries", error)
    half = float(stdtrit(queries - 1, (1 + level) / 2)) * error
    return Estimate(value, float(np.exp(centre - half)), float(np.exp(centre + half)), queries, None, error)


def preference_fit(queries: Sequence[Comparisons], window: int = 1) -> Fit | None:
    """The fit over queries that have comparisons, slots with powers up to min(4, window − 1).

    `window`: of the largest window; 1 fits no slots. Fewer powers are fitted where the queries' slots do not tell
    more apart, one query or another left out. None where the outcomes are separated, so that no finite odds are the
    likeliest, and without two queries. Source: Firth (1993) on separation; Miller (1974), The jackknife.
    """
    known = [query for query in queries if query.total.sum() > 0]
    if len(known) < 2:
        return None
    powers = max(0, min(MOST_POWERS, window - 1))
    whole = _joined(known, powers)
    while powers and not _told_apart(whole.columns(slice(1 + powers))):
        powers -= 1
    rows = whole.columns(slice(1 + powers))
    free = _maximum(rows)
    if free is None:
        return None
    scores, information = _by_query(rows, free)
    left = information.sum(axis=0) - information
    if not (np.linalg.cond(left) < 1 / TOLERANCE).all():
        return None
    changes = np.linalg.solve(left, scores[..., None])[..., 0]
    return Fit(
        free.round(DECIMALS),
        changes.round(DECIMALS),
        _null_scores(rows).round(DECIMALS),
        round(sum(float(query.total.sum()) for query in known)),
    )


def slots_decide(queries: Sequence[Comparisons], window: int) -> bool:
    """Whether the slots alone separate the outcomes, whatever the items: no finite effect of them is the likeliest."""
    known = [query for query in queries if query.total.sum() > 0]
    powers = max(0, min(MOST_POWERS, window - 1))
    if not known or not powers:
        return False
    return _maximum(_joined(known, powers).columns(slice(1, None))) is None


class _Slopes(NamedTuple):
    """At some coefficients: the rows' scores, shape (rows, k), and two factors whose product is the information."""

    scores: Floats
    left: Floats
    right: Floats


@dataclass(frozen=True)
class _Pairs:
    """Comparisons of two: what differs between them, how often the first was ahead, weights; `starts` of queries."""

    design: Floats
    ahead: Floats
    weights: Floats
    starts: NDArray[np.intp]

    def columns(self, some: slice) -> _Pairs:
        return replace(self, design=self.design[:, some])

    @property
    def spread(self) -> Floats:
        """What the coefficients are told from."""
        return self.design

    def slopes(self, coefficients: Floats) -> _Slopes:
        log_odds = self.design @ coefficients
        chances = _chances(log_odds)
        return _Slopes(
            self.design * (self.ahead - self.weights * chances)[:, None],
            self.design * (self.weights * chances * (1 - chances))[:, None],
            self.design,
        )

    def far(self, coefficients: Floats) -> float:
        """The largest log odds."""
        return float(np.abs(self.design @ coefficients).max())


@dataclass(frozen=True)
class _Choices:
    """Alternatives, each with what its chance hangs on; whether it was `chosen`, and of which set of them."""

    design: Floats
    chosen: Floats
    weights: Floats
    sets: NDArray[np.intp]
    starts: NDArray[np.intp]

    def columns(self, some: slice) -> _Choices:
        return replace(self, design=self.design[:, some])

    @property
    def spread(self) -> Floats:
        return self.slopes(np.zeros(self.design.shape[1])).right

    def slopes(self, coefficients: Floats) -> _Slopes:
        odds = np.exp(self._behind(coefficients))
        chances = odds / self._each(np.add.reduceat(odds, self.sets))
        centred = self.design - self._each(np.add.reduceat(self.design * chances[:, None], self.sets))
        return _Slopes(
            self.design * (self.weights * (self.chosen - chances))[:, None],
            centred * (self.weights * chances)[:, None],
            centred,
        )

    def far(self, coefficients: Floats) -> float:
        return float(-self._behind(coefficients).min())

    def _behind(self, coefficients: Floats) -> Floats:
        """The log odds of every alternative against the best of its set."""
        logs: Floats = self.design @ coefficients
        return logs - self._each(np.maximum.reduceat(logs, self.sets))

    def _each(self, of_sets: Floats) -> Floats:
        """A set's figure for each of its alternatives."""
        sizes = np.diff([*self.sets, len(self.design)])
        return of_sets.repeat(sizes, axis=0)


def _joined(queries: Sequence[Comparisons], powers: int) -> _Pairs | _Choices:
    """All comparisons, every query's weighing 1 in all."""
    if any(query.chosen is not None for query in queries):
        return _joined_choices(queries, powers)
    return _Pairs(
        np.concatenate([_design(query, powers) for query in queries]),
        np.concatenate([query.ahead / query.total.sum() for query in queries]),
        np.concatenate([query.total / query.total.sum() for query in queries]),
        np.cumsum([0, *(len(query.total) for query in queries[:-1])]),
    )


def _joined_choices(queries: Sequence[Comparisons], powers: int) -> _Choices:
    found = [query.chosen for query in queries if query.chosen is not None]
    sizes = [len(one.first) for one in found]
    begins = np.cumsum([0, *sizes[:-1]])
    sets = np.concatenate([one.starts + begin for one, begin in zip(found, begins, strict=True)])
    first = np.concatenate([one.first for one in found])
    places = [np.zeros(len(one.first)) if one.slots is None else one.slots for one in found]
    design = np.vander(np.concatenate(places), 1 + powers, increasing=True)
    design[:, 0] = first
    chosen = np.zeros(len(first))
    chosen[sets] = 1
    weights = np.repeat([1 / len(one.starts) for one in found], sizes)
    return _Choices(design, chosen, weights, sets, begins)


def _told_apart(rows: _Pairs | _Choices) -> bool:
    """Whether the columns stay independent with any one query left out."""
    products = [some.T @ some for some in np.split(rows.spread, rows.starts[1:])]
    whole = sum(products, np.zeros_like(products[0]))
    return bool((np.linalg.cond(np.array([whole - one for one in products])) < 1 / TOLERANCE).all())


def _design(query: Comparisons, powers: int) -> Floats:
    """1 and z_1^j − z_2^j of every comparison; shape (c, 1 + powers)."""
    if not powers or query.slots is None:
        return np.eye(1, 1 + powers).repeat(len(query.total), axis=0)
    first, second = (np.vander(places, 1 + powers, increasing=True) for places in query.slots.T)
    rows: Floats = first - second
    rows[:, 0] = 1
    return rows


def _maximum(rows: _Pairs | _Choices) -> Floats | None:
    """The coefficients of greatest likelihood, by Newton's method; None where there are no finite ones."""
    coefficients = np.zeros(rows.design.shape[1])
    if not len(coefficients):
        return coefficients
    least = 0.0
    for _ in range(STEPS):
        slopes = rows.slopes(coefficients)
        information = slopes.left.T @ slopes.right
        least = least or TOLERANCE * float(information.max())
        if information.max() < least:  # every outcome is certain
            return None
        try:
            step = np.linalg.solve(information, slopes.scores.sum(axis=0))
        except np.linalg.LinAlgError:
            return None
        coefficients = coefficients + step
        if not rows.far(coefficients) < FARTHEST:
            return None
        if np.abs(step).max() < TOLERANCE:
            return coefficients
    return None


def _by_query(rows: _Pairs | _Choices, coefficients: Floats) -> tuple[Floats, Floats]:
    """S_q and H_q of every query; shapes (queries, k) and (queries, k, k)."""
    slopes = rows.slopes(coefficients)
    scores: Floats = np.add.reduceat(slopes.scores, rows.starts)
    by_query = zip(
        np.split(slopes.left, rows.starts[1:]), np.split(slopes.right, rows.starts[1:]), strict=True
    )
    information = np.array([some.T @ all_of for some, all_of in by_query])
    return scores, information


def _null_scores(rows: _Pairs | _Choices) -> Floats:
    """The queries' scores for β at β = 0 and the γ likeliest there, less what γ accounts for; shape (queries,).

    Without finite γ they are those at γ = 0.
    """
    gamma = _maximum(rows.columns(slice(1, None)))
    coefficients = np.concatenate([[0.0], np.zeros(rows.design.shape[1] - 1) if gamma is None else gamma])
    scores, by_query = _by_query(rows, coefficients)
    information = by_query.sum(axis=0)
    shared = np.linalg.lstsq(information[1:, 1:], information[1:, 0], rcond=None)[0]
    found: Floats = scores[:, 0] - scores[:, 1:] @ shared
    return found


def _chances(log_odds: Floats) -> Floats:
    chances: Floats = 1 / (1 + np.exp(-log_odds))
    return chances


def one_way_bound(queries: int, level: float = 0.95) -> float:
    """The odds above which every one of so many queries having no item ahead at all is too unlikely.

    A query has a mean share μ of its comparisons ahead, so P(none ahead) ≤ 1 − μ: μ < 1 − ((1 − level)/2)^(1/Q).
    """
    missed: float = ((1 - level) / 2) ** (1 / queries)
    return (1 - missed) / missed
