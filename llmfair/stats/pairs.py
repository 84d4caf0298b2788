"""Estimates from pairs asked in both orders, with intervals that know that queries and items recur.

Every figure is one function f of weighted counts, written with + − * / and log. Its derivatives come from a
complex step, f(c + ih).imag/h, which loses nothing to rounding; they give every pair's score, what it adds to
the error. So no measure needs a variance of its own. Arrays of shape (n,) have one entry per pair that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import exp, fsum, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.intervals import FEWEST_QUERIES, Estimate, t_quantile, two_sided
from llmfair.stats.power import FEWEST_TESTED
from llmfair.stats.significance import sign_flip

# The variance of a sum whose terms share clusters in several ways at once: a query, one item, the other item. V = Σ_S
# (−1)^(|S|+1) V_S over the non-empty sets S of ways, V_S = Σ (Σ d_k)² over the clusters that agree in all ways of S;
# a single way carries G/(G − 1). Three ways: V_q + V_p + V_u − V_qp − V_qu − V_pu + V_qpu. Source: Cameron, Gelbach,
# Miller (2011), Robust inference with multiway clustering.


Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

DENSE = 8
"""Up to so many possible clusters per term are counted in place, without sorting."""


@dataclass(frozen=True, slots=True)
class Variance:
    """V_S by the ways S that are crossed, such as (0,) or (0, 1), and how many clusters each single way has."""

    components: Mapping[tuple[int, ...], float]
    clusters: tuple[int, ...]

    @property
    def raw(self) -> float:
        """Singles less pairs plus triples, which may come out too small, even negative."""
        return fsum(value if len(ways) % 2 else -value for ways, value in self.components.items())

    @property
    def used(self) -> float:
        """At least the variance by any single way."""
        singles = (value for ways, value in self.components.items() if len(ways) == 1)
        return max(self.raw, *singles)

    @property
    def degrees(self) -> int:
        """Degrees of freedom of a t on it."""
        return min(self.clusters) - 1


def clustered_variance(scores: Floats, clusters: Codes) -> Variance:
    """The variance of Σ d_k; scores of shape (n,) that sum to 0, clusters (ways, n): codes 0, 1, … of each way."""
    ways = range(len(clusters))
    of_ways: dict[tuple[int, ...], Codes] = {(way,): clusters[way] for way in ways}
    components: dict[tuple[int, ...], float] = {}
    numbers: list[int] = []
    for size in range(1, len(clusters) + 1):
        for chosen in combinations(ways, size):
            if size > 1:
                of_ways[chosen] = crossed(of_ways[chosen[:-1]], clusters[chosen[-1]])
            components[chosen] = float(np.sum(np.bincount(of_ways[chosen], scores) ** 2))
            if size == 1:
                number = count(of_ways[chosen])
                components[chosen] *= number / max(number - 1, 1)
                numbers.append(number)
    return Variance(components, tuple(numbers))


def count(codes: Codes) -> int:
    """How many clusters there are."""
    return int(np.count_nonzero(np.bincount(codes)))


def crossed(first: Codes, other: Codes) -> Codes:
    """Codes of the clusters that agree in both, shape (n,), with few gaps."""
    codes = first * (int(other.max()) + 1) + other
    if codes.max() < DENSE * len(codes):
        return codes
    fewer: Codes = np.unique(codes, return_inverse=True)[1]
    return fewer


Figure = Callable[[NDArray[Any]], Any]
"""Cells of shape (C,), real or complex, to a number; or to the logarithm of one."""
Weights = Literal["macro", "pooled"]

ROUNDING = 1e-12
"""A figure no farther from 0 is 0: the error of such a one may be nothing but rounding too."""
STEP = 1e-30
WIDEST = 700.0
"""On the log scale, limits further out than this are beyond any number."""
X_OF_CELLS = np.array([1, 0, 0.5, 0.5])
"""What the cells PP, UU, FF, SS say for the protected item."""


@dataclass(frozen=True, slots=True, eq=False)
class PairContributions:
    """What n pairs add to the C things that are counted, shape (n, C), and their clusters, (3, n).

    Most often the things are the cells PP, UU, FF, SS, and a pair adds 1 to one of them; no pair adds nothing.
    Clusters are codes 0, 1, … of the query, the protected item and the unprotected item; the query alone, shape
    (1, n), clusters by query. `macro` lets every query weigh the same, `pooled` every pair. With `repeats` R a
    pair has up to R entries and counts 1/R in each.
    """

    counts: Floats
    clusters: Codes
    weights: Weights = "macro"
    repeats: int = 1

    @property
    def sizes(self) -> Floats:
        """How much each pair counts in all; shape (n,)."""
        sizes: Floats = self.counts.sum(axis=1)
        return sizes

    @property
    def shares(self) -> Floats:
        """The weighted shares of the C things, sum 1; shape (C,)."""
        totals = self.each @ self.counts
        shares: Floats = totals / totals.sum()
        return shares

    @property
    def cells(self) -> Floats:
        """The shares as counts of pairs; shape (C,)."""
        return self.shares * float(self.counts.sum()) / self.repeats

    @property
    def each(self) -> Floats:
        """The weight w_k of each pair; shape (n,)."""
        if self.weights == "pooled":
            return np.ones(len(self.counts))
        each: Floats = 1 / np.bincount(self.clusters[0], self.sizes)[self.clusters[0]]
        return each

    def scores(self, figure: Figure) -> Floats:
        """d_k = w_k Σ_c ∂f/∂s_c (x_kc − s_c x_k)/W: what each pair adds to the error of f; shape (n,), sum 0."""
        each, shares, sizes = self.each, self.shares, self.sizes
        slopes = gradient(figure, self.cells) * float(sizes.sum()) / self.repeats
        return each * (self.counts @ slopes - sizes * (shares @ slopes)) / (each @ sizes)

    def variance(self, figure: Figure) -> Variance:
        """The clustered variance of f."""
        return clustered_variance(self.scores(figure), self.clusters)

    @property
    def items_recur(self) -> bool:
        """Whether an item stands in pairs of several queries."""
        query = self.clusters[0]
        return any(count(items) < count(crossed(query, items)) for items in self.clusters[1:])


def gradient(figure: Figure, cells: Floats) -> Floats:
    """∂f/∂c at the cells, shape (C,), by complex steps [Squire and Trapp 1998]."""
    return np.array([figure(cells + 1j * STEP * unit).imag / STEP for unit in np.eye(len(cells))])


def estimate(
    figure: Figure, counted: PairContributions, level: float = 0.95, logarithmic: bool = True
) -> Estimate:
    """f with its t interval."""
    return t_interval(float(figure(counted.cells)), counted.variance(figure), level, logarithmic)


def t_interval(centre: float, variance: Variance, level: float, logarithmic: bool) -> Estimate:
    """centre ± t √V, t on the fewest clusters of any way less 1; of a logarithm, on its own scale.

    Fewer than five queries, or a single item on a side, leave the value without interval (`too_few_queries`); so do
    limits that are no numbers, such as odds at a very high level on two items (`interval_too_wide`).
    """
    scale = exp if logarithmic else float
    queries, error = variance.clusters[0], sqrt(variance.used)
    if queries < FEWEST_QUERIES or variance.degrees < 1:
        return Estimate(scale(centre), None, None, queries, "too_few_queries", error)
    half = t_quantile(variance.degrees, level) * error
    if not abs(centre) + half <= WIDEST:
        return Estimate(scale(centre), None, None, queries, "interval_too_wide", error)
    return Estimate(scale(centre), scale(centre - half), scale(centre + half), queries, None, error)


def t_p(centre: float, variance: Variance) -> float | None:
    """The two-sided p of 0; None for fewer than six queries or a single item on a side."""
    if variance.clusters[0] < FEWEST_TESTED or variance.degrees < 1:
        return None
    if abs(centre) <= ROUNDING:
        return 1.0
    if not variance.used:
        return 0.0
    return two_sided(centre / sqrt(variance.used), variance.degrees)


def pair_p(figure: Figure, counted: PairContributions, rng: np.random.Generator) -> float | None:
    """The two-sided p of no mean effect, from the cells PP, UU, FF, SS; None for fewer than six queries.

    Signs are flipped by query, x_q = Σ w_k (PP_k − UU_k); where items recur over queries, whose values then move
    together, it is the t test of f = 0 instead.
    """
    if counted.items_recur:
        return t_p(float(figure(counted.cells)), counted.variance(figure))
    each, queries = counted.each, counted.clusters[0]
    present = np.unique(queries)
    if len(present) < FEWEST_TESTED:
        return None
    effects = np.bincount(queries, each * (counted.counts[:, 0] - counted.counts[:, 1]))[present]
    return sign_flip(effects, rng=rng)


@dataclass(frozen=True, slots=True)
class Intraclass:
    """How alike the pairs of a query are: the correlation ρ and, of m pairs per query on average, 1 + (m − 1)ρ."""

    correlation: float
    design_effect: float


def intraclass(counted: PairContributions) -> Intraclass | None:
    """ρ = (MSB − MSW)/(MSB + (m − 1) MSW) of X = 1 for PP, 0 for UU, ½ for FF and SS.

    A pair asked several times is one pair, X the mean of its draws: else they would pass for pairs of the query that
    are alike. None where it has no value: one query, one pair in every query, or no two pairs that differ.
    """
    x, clusters = counted.counts @ X_OF_CELLS, counted.clusters
    if counted.repeats > 1:
        _, first, pair = np.unique(clusters, axis=1, return_index=True, return_inverse=True)
        draws = np.bincount(pair.ravel())
        x, clusters = np.bincount(pair.ravel(), x) / draws, clusters[:, first]
    _, queries = np.unique(clusters[0], return_inverse=True)
    sizes = np.bincount(queries)
    means = np.bincount(queries, x) / sizes
    if len(sizes) < 2 or len(sizes) == len(x):
        return None
    between = float(sizes @ (means - x.mean()) ** 2) / (len(sizes) - 1)
    within = float(np.sum((x - means[queries]) ** 2)) / (len(x) - len(sizes))
    pairs = len(x) / len(sizes)
    spread = between + (pairs - 1) * within
    if not spread:
        return None
    correlation = (between - within) / spread
    return Intraclass(correlation, 1 + (pairs - 1) * correlation)
