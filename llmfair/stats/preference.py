"""Preference odds: how likely one of two items is put ahead of the other, whatever their places when shown.

Of every query come comparisons of two items, each with its outcome and, where the items were shown at once, the
slots they stood in. The model of them all is logistic,

    logit P(first item ahead) = β + Σ_{j=1..J} γ_j (z_1^j − z_2^j),    z = 2·slot/(m − 1) − 1 in a window of m,

fitted by maximum likelihood with every query's comparisons weighing 1 in all. e^β are the odds of the first item,
and slots may have any smooth effect. Its error is that of leaving out one query at a time, by one Newton step each:
d_q = (H − H_q)⁻¹ S_q, V = (Q−1)/Q Σ d_q d_qᵀ, with t on Q − 1 degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


class Comparisons(NamedTuple):
    """One query's comparisons, of shape (c,): how often the first item was ahead, of how many, and both slots z.

    `slots` has shape (c, 2); None where items were not shown side by side.
    """

    ahead: Floats
    total: Floats
    slots: Floats | None = None


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
    whole, ahead, weights, starts = _joined(known, powers)
    while powers and not _told_apart(whole[:, : 1 + powers], starts):
        powers -= 1
    design = whole[:, : 1 + powers]
    free = _maximum(design, ahead, weights)
    if free is None:
        return None
    scores, information = _by_query(design, ahead, weights, free, starts)
    left = information.sum(axis=0) - information
    if not (np.linalg.cond(left) < 1 / TOLERANCE).all():
        return None
    changes = np.linalg.solve(left, scores[..., None])[..., 0]
    return Fit(
        free.round(DECIMALS),
        changes.round(DECIMALS),
        _null_scores(design, ahead, weights, starts).round(DECIMALS),
        round(sum(float(query.total.sum()) for query in known)),
    )


def slots_decide(queries: Sequence[Comparisons], window: int) -> bool:
    """Whether the slots alone separate the outcomes, whatever the items: no finite effect of them is the likeliest."""
    known = [query for query in queries if query.total.sum() > 0]
    powers = max(0, min(MOST_POWERS, window - 1))
    if not known or not powers:
        return False
    design, ahead, weights, _ = _joined(known, powers)
    return _maximum(design[:, 1:], ahead, weights) is None


def _joined(queries: Sequence[Comparisons], powers: int) -> tuple[Floats, Floats, Floats, NDArray[np.intp]]:
    """The design, outcomes and weights of all comparisons, and where each query's begin."""
    return (
        np.concatenate([_design(query, powers) for query in queries]),
        np.concatenate([query.ahead / query.total.sum() for query in queries]),
        np.concatenate([query.total / query.total.sum() for query in queries]),
        np.cumsum([0, *(len(query.total) for query in queries[:-1])]),
    )


def _told_apart(design: Floats, starts: NDArray[np.intp]) -> bool:
    """Whether the columns stay independent with any one query left out."""
    products = [some.T @ some for some in np.split(design, starts[1:])]
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


def _maximum(design: Floats, ahead: Floats, weights: Floats) -> Floats | None:
    """The coefficients of greatest likelihood, by Newton's method; None where there are no finite ones."""
    coefficients = np.zeros(design.shape[1])
    if not len(coefficients):
        return coefficients
    log_odds = np.zeros(len(design))
    for _ in range(STEPS):
        chances = _chances(log_odds)
        score = design.T @ (ahead - weights * chances)
        information = (design * (weights * chances * (1 - chances))[:, None]).T @ design
        try:
            step = np.linalg.solve(information, score)
        except np.linalg.LinAlgError:
            return None
        coefficients = coefficients + step
        log_odds = design @ coefficients
        if not np.abs(log_odds).max() < FARTHEST:
            return None
        if np.abs(step).max() < TOLERANCE:
            return coefficients
    return None


def _by_query(
    design: Floats, ahead: Floats, weights: Floats, coefficients: Floats, starts: NDArray[np.intp]
) -> tuple[Floats, Floats]:
    """S_q and H_q of every query; shapes (queries, k) and (queries, k, k)."""
    chances = _chances(design @ coefficients)
    scores: Floats = np.add.reduceat(design * (ahead - weights * chances)[:, None], starts)
    curved = design * (weights * chances * (1 - chances))[:, None]
    by_query = zip(np.split(curved, starts[1:]), np.split(design, starts[1:]), strict=True)
    information = np.array([some.T @ all_of for some, all_of in by_query])
    return scores, information


def _null_scores(design: Floats, ahead: Floats, weights: Floats, starts: NDArray[np.intp]) -> Floats:
    """The queries' scores for β at β = 0 and the γ likeliest there, less what γ accounts for; shape (queries,).

    Without finite γ they are those at γ = 0.
    """
    gamma = _maximum(design[:, 1:], ahead, weights)
    coefficients = np.concatenate([[0.0], np.zeros(design.shape[1] - 1) if gamma is None else gamma])
    scores, by_query = _by_query(design, ahead, weights, coefficients, starts)
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
