"""Aggregates over queries with their confidence intervals: each query is one unit, whatever its length.

Arrays of shape (queries,) in, an `Estimate` out. Every estimate is a mean, or the logarithm of a ratio of sums,
linearised: query q adds the score d_q to its error. Three intervals: t on queries − 1 degrees of freedom with the
variance clustered by query (`linear-t`); bootstrap-t, for few queries and short lists; and limits by betting, for means
of bounded values nearly all of which are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isfinite, log
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from llmfair.nouns import Conclusion as Conclusion
from llmfair.stats.betting import lower_limit

# What the initial orders did to the exposure of both sides: taken out, and how much is left of it. A ranking keeps
# part of the order it started from. Over random orders that adds noise and no bias, and since the initial orders are
# known, most of that noise can be subtracted: a control variate.


Floats = NDArray[np.float64]
Bounds = tuple[float, float]
Method = Literal["linear-t", "boot-t"]

FEWEST_QUERIES = 5
"""Below this many queries no interval is given."""
RESAMPLES = 2000
MOST_DROPPED = 0.01
SMALLEST_ERROR = 1e-7
UNBOUNDED = (-inf, inf)
FEWEST_UNLIKE = 8
"""Where three quarters of the queries share a value and fewer have another, t is too narrow (Monte Carlo)."""
NEARLY_ALL_SAME = "nearly_all_same"
"""The flag of such a mean, whose limits are by betting."""
SAME = 1e-9
"""Values this close are the same one: rounding makes no spread."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An aggregate over `n` queries with its interval; where one is missing, `reason` says why.

    `error` is the standard error, of a ratio on the log scale. `p` where it is tested, and adjusted for all groups.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    reason: str | None = None
    error: float = 0.0
    method: Method = "linear-t"
    p: float | None = None
    p_adjusted: float | None = None


def mean(values: ArrayLike, level: float = 0.95, bounds: Bounds = UNBOUNDED) -> Estimate:
    """The mean over queries (of their ratios, if they are ratios), with the t interval mean ± t s/√n.

    Where nearly all values are the same their spread says little of the rare others, so both limits come from betting,
    which holds for all laws within `bounds`: those of the values.
    """
    array = _finite(values)
    plain = _of_mean(array, level, exponential=False)
    others = len(array) - int(np.unique(np.round(array / SAME), return_counts=True)[1].max())
    nearly_all_same = others <= len(array) / 4 and others < FEWEST_UNLIKE
    if len(array) < FEWEST_QUERIES or not all(map(isfinite, bounds)) or not nearly_all_same:
        return plain
    least, most = bounds
    inside, alpha = np.clip(array, least, most), (1 - level) / 2
    low = most + lower_limit(inside - most, most - least, alpha)
    high = least - lower_limit(least - inside, most - least, alpha)
    return replace(plain, low=low, high=high, reason=NEARLY_ALL_SAME)


def of_changes(bounds: Bounds) -> Bounds:
    """The bounds of differences of two values that have these."""
    least, most = bounds
    return least - most, most - least


def clustered_mean(values: ArrayLike, queries: NDArray[np.intp], level: float = 0.95) -> Estimate:
    """The mean of observations, several a query, with the t interval over queries, whose numbers `queries` gives.

    A query adds Σ (x − x̄)/N over its observations to the error, so one observation a query gives the plain interval.
    """
    x = _finite(values)
    centre = float(x.mean())
    scores = np.bincount(queries, x - centre)[np.unique(queries)] / len(x)
    return _interval(centre, standard_error(scores), len(scores), level, exponential=False)


def geometric_mean(ratios: ArrayLike, level: float = 0.95) -> Estimate:
    """The geometric mean of positive ratios, with the t interval on their logarithms."""
    positive = _finite(ratios)
    if (positive <= 0).any():
        raise ValueError("a geometric mean needs positive ratios")
    return _of_mean(np.log(positive), level, exponential=True)


def ratio_of_means(
    over: ArrayLike,
    under: ArrayLike,
    level: float = 0.95,
    method: Method = "linear-t",
    rng: Generator | None = None,
) -> Estimate:
    """R = Σ a_q / Σ b_q with its interval on the log scale.

    `over` and `under` have shape (queries,), or (factors, queries) for a product of such ratios: with
    over = [E1, M0] and under = [E0, M1], R is the excess ratio. A query may have a zero on one side, or less,
    as what is left of its exposure without its initial order; every sum has to be positive. `boot-t` draws from `rng`.
    """
    over, under = (np.atleast_2d(np.asarray(of, dtype=np.float64)) for of in (over, under))
    value = float(np.prod(over.sum(axis=-1) / under.sum(axis=-1)))
    logarithm, scores = float(log_ratio(over, under)), ratio_scores(over, under)
    error, queries = standard_error(scores), len(scores)
    linear = replace(_interval(logarithm, error, queries, level, exponential=True), value=value)
    if method == "linear-t" or queries < FEWEST_QUERIES:
        return linear
    assert rng is not None
    deviations = _studentized(over, under, logarithm, rng)
    if len(deviations) < (1 - MOST_DROPPED) * RESAMPLES:
        return replace(linear, reason="linear_t_instead")
    tails = np.quantile(deviations, [(1 + level) / 2, (1 - level) / 2])
    low, high = np.exp(logarithm - tails * error).tolist()
    return replace(linear, low=low, high=high, method="boot-t")


def log_ratio(over: Floats, under: Floats) -> Floats:
    """Σ_j ln Σ_q a_jq − Σ_j ln Σ_q b_jq; shapes (factors, …, queries) give (…)."""
    logarithm: Floats = np.log(over.sum(axis=-1)).sum(axis=0) - np.log(under.sum(axis=-1)).sum(axis=0)
    return logarithm


def ratio_scores(over: Floats, under: Floats) -> Floats:
    """d_q = Σ_j a_jq/Σa_j − Σ_j b_jq/Σb_j: what each query adds to the error of ln R, sum 0.

    Shapes (factors, …, queries) give (…, queries).
    """
    above, below = ((of / of.sum(axis=-1, keepdims=True)).sum(axis=0) for of in (over, under))
    scores: Floats = above - below
    return scores


def standard_error(scores: Floats) -> float:
    """√V of scores that sum to 0 over G queries, V = G/(G−1) Σ d²; 0 for one query."""
    queries = len(scores)
    return float(np.sqrt(queries / max(queries - 1, 1) * np.sum(scores**2)))


def _studentized(over: Floats, under: Floats, logarithm: float, rng: Generator) -> Floats:
    """(est_b − est)/se_b of resamples of queries; those with an empty side or of equal queries are left out."""
    queries = over.shape[-1]
    blocks = []
    chunk = max(1, 2_000_000 // queries)  # bounded memory
    for first in range(0, RESAMPLES, chunk):
        drawn = rng.integers(queries, size=(min(chunk, RESAMPLES - first), queries))
        above, below = over[:, drawn], under[:, drawn]
        usable = ((above.sum(axis=-1) > 0) & (below.sum(axis=-1) > 0)).all(axis=0)
        above, below = above[:, usable], below[:, usable]
        scores = ratio_scores(above, below)
        error = np.sqrt(queries / (queries - 1) * (scores**2).sum(axis=-1))
        deviation = log_ratio(above, below) - logarithm
        stable = (error > SMALLEST_ERROR) | (np.abs(deviation) < SMALLEST_ERROR)
        blocks.append((deviation / np.maximum(error, SMALLEST_ERROR))[stable])
    return np.concatenate(blocks)


def _of_mean(values: Floats, level: float, exponential: bool) -> Estimate:
    """The t interval of a mean, its scores being (x_q − x̄)/n."""
    centre = float(values.mean())
    return _interval(centre, standard_error((values - centre) / len(values)), len(values), level, exponential)


def t_quantile(freedom: float, level: float) -> float:
    """How many standard errors an interval of this level reaches to either side, by Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def two_sided(t: float, degrees: float) -> float:
    """The p of Student's t; of the normal distribution for infinitely many degrees of freedom."""
    from scipy.special import ndtr, stdtr

    return float(2 * (stdtr(degrees, -abs(t)) if isfinite(degrees) else ndtr(-abs(t))))


def _interval(centre: float, error: float, queries: int, level: float, exponential: bool) -> Estimate:
    """centre ± t·error with t on queries − 1 degrees of freedom, on the scale of the figure."""
    scale = np.exp if exponential else float
    if queries < FEWEST_QUERIES:
        return Estimate(float(scale(centre)), None, None, queries, "too_few_queries", error)
    half = t_quantile(queries - 1, level) * error
    low, high = float(scale(centre - half)), float(scale(centre + half))
    return Estimate(float(scale(centre)), low, high, queries, None, error)


def _finite(values: ArrayLike) -> Floats:
    """The values as an array of one number per query. Raises ValueError for none, NaN and infinity."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise ValueError("an aggregate needs one finite number per query, and at least one query")
    return array


def without_favour(sides: Sequence[Floats], favour: Sequence[Floats]) -> list[Floats]:
    """E* = E − λ x for each query's runs, λ = Σ x (E − Ē)/Σ x² over all queries' runs (0 where no x varies).

    `sides` holds, per query, a side's mean exposure in every run, shape (runs,); `favour` x, alike, that side's
    exposure in the initial order minus the list's mean.
    """
    x, e = np.concatenate(favour), np.concatenate(sides)
    spread = float(x @ x)
    slope = float(x @ (e - e.mean())) / spread if spread else 0.0
    return [final - slope * initial for final, initial in zip(sides, favour, strict=True)]


# What an interval allows to be said about a band around parity: within, outside, or neither. The band is laid on
# preference odds, never on an exposure ratio, which depends on the lengths of lists and windows.


SAME_ANSWERS, OTHER_REACH, OTHER_DESIGN = "same_answers", "other_reach", "other_design"
"""Why figures of two runs are not tested against each other: there is but one set of answers, or no one scale."""
CERTAIN, LIKELY = 1.96, 0.84
"""Standard errors on either side of a 95 % interval, and those that make 80 % power of half."""


def conclude(low: float | None, high: float | None, band: Bounds) -> Conclusion:
    """Where the interval [low, high] lies; without one nothing can be assessed. All on one scale."""
    if low is None or high is None:
        return Conclusion.NOT_ASSESSABLE
    if high < band[0] or low > band[1]:
        return Conclusion.OUTSIDE
    if band[0] <= low and high <= band[1]:
        return Conclusion.WITHIN
    return Conclusion.INCONCLUSIVE


def queries_to_settle(value: float, low: float, high: float, queries: int, band: Bounds) -> int | None:
    """About how many queries leave the interval within the band, or outside it, with 80 % power.

    If the estimate stays where it is and queries vary as these do, so that the interval of logarithms shrinks with the
    root of their number. None at the very edge of the band, and where there is no logarithm.
    """
    if not 0 < low < high:
        return None
    distance = min(abs(log(value / edge)) for edge in band)
    if not distance:
        return None
    half = log(high / low) / 2
    return ceil(queries * (half / distance * (1 + LIKELY / CERTAIN)) ** 2)
