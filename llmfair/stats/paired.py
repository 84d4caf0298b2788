"""What changed between two runs that asked the same, paired by query: never two intervals laid side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import ArrayLike

from llmfair.stats.intervals import UNBOUNDED, Bounds, Estimate, geometric_mean, mean, of_changes, two_sided
from llmfair.stats.pairs import Figure, PairContributions, clustered_variance, t_interval, t_p
from llmfair.stats.power import FEWEST_TESTED
from llmfair.stats.significance import sign_flip


@dataclass(frozen=True, slots=True)
class Change:
    """The other run less the base, or over it where both lie on a log scale; `p` is two-sided.

    `p` is None for fewer than six queries, the interval of `estimate` for fewer than five.
    """

    estimate: Estimate
    p: float | None


def change_by_query(
    base: ArrayLike,
    other: ArrayLike,
    on_log_scale: bool,
    level: float,
    rng: np.random.Generator,
    bounds: Bounds = UNBOUNDED,
) -> Change:
    """The mean change of the queries' own values, shapes (queries,) and within `bounds`, its interval and sign flip.

    On a log scale, of positive values, the geometric mean of other/base.
    """
    before, after = np.asarray(base, dtype=np.float64), np.asarray(other, dtype=np.float64)
    changes = np.log(after / before) if on_log_scale else after - before
    within = of_changes(bounds)
    estimate = geometric_mean(after / before, level) if on_log_scale else mean(changes, level, within)
    return Change(estimate, sign_flip(changes, rng=rng) if len(before) >= FEWEST_TESTED else None)


def at_figure(values: Sequence[float], figure: float | None) -> list[float]:
    """The queries' positive values, each times the same, so that their geometric mean is the run's own figure.

    A figure over all queries need be no mean of theirs: runs are compared by the figure, and how much it varies the
    queries say. As they are where there is no such figure.
    """
    if not figure or figure < 0:
        return [*values]
    factor = figure / math.exp(fsum(map(math.log, values)) / len(values))
    return [value * factor for value in values]


def away_from_parity(base: Estimate, other: Estimate, change: Estimate) -> int:
    """1 where `other` is shown to lie farther from 1 than `base`, -1 nearer, 0 where that is open; `change` excludes 1.

    |ln o| > |ln b| where ln o − ln b, which is the change, and ln o + ln b agree in sign: the interval of the sum has
    to exclude 0, too. It follows from the three, since V(o + b) + V(o − b) = 2 V(o) + 2 V(b).
    """
    if not all(
        0 < (estimate.low or 0) <= (estimate.high or 0) < math.inf for estimate in (base, other, change)
    ):
        return 0
    assert base.value is not None and other.value is not None
    before, after = math.log(base.value), math.log(other.value)
    squared = 2 * _half(base) ** 2 + 2 * _half(other) ** 2 - _half(change) ** 2
    if (before + after) ** 2 <= max(squared, 0.0):
        return 0
    return 1 if abs(after) > abs(before) else -1


def _half(ratio: Estimate) -> float:
    """Half the width of the interval of a ratio, on the log scale."""
    assert ratio.low is not None and ratio.high is not None
    return math.log(ratio.high / ratio.low) / 2


def paired_t(differences: ArrayLike) -> tuple[float, float] | None:
    """t and its two-sided p of a mean difference of 0, n − 1 degrees of freedom; None for fewer than six differences.

    Where all are equal p is 0, or 1 of zeros.
    """
    values = np.asarray(differences, dtype=np.float64)
    n = len(values)
    if n < FEWEST_TESTED:
        return None
    centre, error = float(values.mean()), math.sqrt(float(values.var(ddof=1)) / n)
    t = centre / error if error else math.copysign(math.inf, centre) if centre else 0.0
    return t, two_sided(t, n - 1)


def change_of_pairs(
    figure: Figure,
    base: PairContributions,
    other: PairContributions,
    level: float = 0.95,
    logarithmic: bool = True,
) -> Change:
    """f(other) − f(base), with a t interval and test on the scores of both runs: d_k(other) − d_k(base).

    Clusters must be coded alike in both. Scores of one cluster are summed over both runs before they are squared,
    so what a query or an item does to both alike cancels. Where items recur over queries all three ways count;
    where they do not, the query's does. The quotient if `logarithmic`.
    """
    scores = np.concatenate([other.scores(figure), -base.scores(figure)])
    variance = clustered_variance(scores, np.concatenate([other.clusters, base.clusters], axis=1))
    centre = float(figure(other.cells)) - float(figure(base.cells))
    return Change(t_interval(centre, variance, level, logarithmic), t_p(centre, variance))
