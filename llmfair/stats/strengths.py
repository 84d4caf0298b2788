"""Strengths of items behind several orders of them, on the scale of log odds.

Bradley and Terry's model of every two items of every order, logit P(i ahead of j) = s_i − s_j, each two compared once
more with a tie, so that an item that is always ahead has a finite strength. All items are compared alike often, so
strengths follow the mean ranks (Borda's order), and items of one mean rank have one strength.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

STEPS, TOLERANCE = 50, 1e-10
DECIMALS = 9
"""The last digits hang on the processor, and equal orders give equal files everywhere."""
Floats = NDArray[np.float64]


def bradley_terry(ranks: ArrayLike) -> Floats:
    """Strengths with mean 0, shape (n,), of items whose ranks in each order have shape (orders, n); 0 is the head."""
    of = np.asarray(ranks, dtype=np.intp)
    totals = of.sum(axis=0)
    by_total = np.argsort(totals, kind="stable")
    strengths = np.empty(len(totals))
    strengths[by_total] = _of_totals(tuple(totals[by_total].tolist()), len(of))
    return strengths


@lru_cache(maxsize=512)
def _of_totals(totals: tuple[int, ...], orders: int) -> Floats:
    """Of items by their rising sums of ranks, by Newton's method; what halves and folds ask for again is kept."""
    n, each = len(totals), orders + 1
    if n < 2:
        return np.zeros(n)
    won = orders * (n - 1) - np.array(totals, dtype=np.float64) + (n - 1) / 2
    strengths = np.zeros(n)
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
        np.fill_diagonal(chance, 0)
        step = _solved(each * chance * chance.T, won - each * chance.sum(axis=1))
        strengths += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < TOLERANCE:
            break
    found: Floats = np.round(strengths - strengths.mean(), DECIMALS)
    return found


def _solved(weights: Floats, right: Floats) -> Floats:
    """x of L x = right, where L is the Laplacian of symmetric weights (n, n) and right sums to 0.

    Conjugate gradients with its diagonal before them: some ten products with L, where to solve it whole takes n³.
    """
    diagonal = weights.sum(axis=1)
    found, missing = np.zeros_like(right), right.copy()
    eased = missing / diagonal
    along, size = eased, float(missing @ eased)
    for _ in range(len(right)):
        if size <= 1e-26 * max(1.0, float(right @ right)):
            break
        product = diagonal * along - weights @ along
        length = size / float(along @ product)
        found, missing = found + length * along, missing - length * product
        eased = missing / diagonal
        size, before = float(missing @ eased), size
        along = eased + size / before * along
    return found


def offset_to_parity(margins: Sequence[Floats]) -> float:
    """What has to be added to the first items' strengths so that they are ahead half the time.

    `margins`, one array a query: by how much the other item of each comparison is ahead. Every query weighs 1, so it is
    the weighted median of all. Raises ValueError without a comparison.
    """
    compared = [one for one in margins if one.size]
    if not compared:
        raise ValueError("no two items are compared")
    values = np.concatenate(compared)
    weights = np.concatenate([np.full(one.size, 1 / one.size) for one in compared])
    by_size = np.argsort(values, kind="stable")
    values, reached = values[by_size], np.cumsum(weights[by_size])
    half = reached[-1] / 2
    low = int(np.searchsorted(reached, half * (1 - 1e-12)))
    high = min(int(np.searchsorted(reached, half * (1 + 1e-12))), len(values) - 1)
    return float((values[low] + values[high]) / 2)
