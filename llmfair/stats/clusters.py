"""The variance of a sum whose terms share clusters in several ways at once: a query, one item, the other item.

V = Σ_S (−1)^(|S|+1) V_S over the non-empty sets S of ways, V_S = Σ (Σ d_k)² over the clusters that agree in all
ways of S; a single way carries G/(G − 1). Three ways: V_q + V_p + V_u − V_qp − V_qu − V_pu + V_qpu.
Source: Cameron, Gelbach, Miller (2011), Robust inference with multiway clustering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import fsum

import numpy as np
from numpy.typing import NDArray

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
    """The variance of Σ d_k; scores of shape (n,) that sum to 0, clusters (ways, n): codes 0, 1, … of each way.

    Raises ValueError for other shapes and for none.
    """
    if clusters.ndim != 2 or not scores.size or clusters.shape[1:] != scores.shape:
        raise ValueError(f"scores of shape {scores.shape} in clusters of shape {clusters.shape}")
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


def crossed(one: Codes, other: Codes) -> Codes:
    """Codes of the clusters that agree in both, shape (n,), with few gaps."""
    codes = one * (int(other.max()) + 1) + other
    if codes.max() < DENSE * len(codes):
        return codes
    fewer: Codes = np.unique(codes, return_inverse=True)[1]
    return fewer
