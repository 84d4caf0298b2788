"""Aggregates over queries with their confidence intervals: each query is one unit, whatever its length.

Arrays of shape (queries,) in, an `Estimate` out. Source: the delta method with a t quantile on queries − 1
degrees of freedom; the variance of a ratio is its linearisation clustered by query.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

FEWEST_QUERIES = 5
"""Below this many queries no interval is given."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An aggregate over `n` queries with its interval; without one, `reason` says why."""

    value: float
    low: float | None
    high: float | None
    n: int
    reason: str | None = None


def mean(values: ArrayLike, level: float = 0.95) -> Estimate:
    """The mean over queries (of their ratios, if they are ratios), with the t interval mean ± t s/√n."""
    return _estimate(_finite(values), level, exponential=False)


def geometric_mean(ratios: ArrayLike, level: float = 0.95) -> Estimate:
    """The geometric mean of positive ratios, with the t interval on their logarithms."""
    positive = _finite(ratios)
    if (positive <= 0).any():
        raise ValueError("a geometric mean needs positive ratios")
    return _estimate(np.log(positive), level, exponential=True)


def ratio_of_means(numerators: ArrayLike, denominators: ArrayLike, level: float = 0.95) -> Estimate:
    """ln R = ln(Σ a_q / Σ b_q) with the cluster-linear t interval: exp(ln R ± t √V), V = G/(G−1) Σ d_q².

    A query may have a zero on one side; Σ a_q and Σ b_q must be positive (ValueError).
    """
    scores = ratio_scores(numerators, denominators)
    value = float(np.sum(numerators) / np.sum(denominators))
    return _interval(float(np.log(value)), standard_error(scores), len(scores), level, exponential=True)


def ratio_scores(numerators: ArrayLike, denominators: ArrayLike) -> Floats:
    """d_q = a_q/Σa − b_q/Σb: what each query adds to the error of ln(Σa/Σb); shape (queries,), sum 0."""
    over, under = _finite(numerators), _finite(denominators)
    if len(over) != len(under):
        raise ValueError(f"{len(over)} numerators and {len(under)} denominators")
    if (over < 0).any() or (under < 0).any() or not over.any() or not under.any():
        raise ValueError("a ratio of means needs two sides that are not negative and not all 0")
    scores: Floats = over / over.sum() - under / under.sum()
    return scores


def standard_error(scores: Floats) -> float:
    """√V of scores that sum to 0 over G queries, V = G/(G−1) Σ d²; 0 for one query."""
    queries = len(scores)
    return float(np.sqrt(queries / max(queries - 1, 1) * np.sum(scores**2)))


def _estimate(values: Floats, level: float, exponential: bool) -> Estimate:
    """The t interval of a mean, its scores being (x_q − x̄)/n."""
    centre = float(values.mean())
    error = standard_error((values - centre) / len(values))
    return _interval(centre, error, len(values), level, exponential)


def _interval(centre: float, error: float, queries: int, level: float, exponential: bool) -> Estimate:
    """centre ± t·error with t on queries − 1 degrees of freedom, on the scale of the figure."""
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise ValueError(f"a confidence level of {level}")
    shown = np.exp if exponential else float
    if queries < FEWEST_QUERIES:
        return Estimate(float(shown(centre)), None, None, queries, "too_few_queries")
    half = float(stdtrit(queries - 1, (1 + level) / 2)) * error
    return Estimate(float(shown(centre)), float(shown(centre - half)), float(shown(centre + half)), queries)


def _finite(values: ArrayLike) -> Floats:
    """The values as an array of one number per query. Raises ValueError for none, NaN and infinity."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise ValueError("an aggregate needs one finite number per query, and at least one query")
    return array
