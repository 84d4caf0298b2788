"""Strengths of items behind several orders of them, on the scale of log odds.

Bradley and Terry's model of every two items of every order, logit P(i ahead of j) = s_i − s_j, each two compared once
more with a tie, so that an item that is always ahead has a finite strength. All items are compared alike often, so
strengths follow the mean ranks (Borda's order), and items of one mean rank have one strength.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

STEPS, TOLERANCE = 50, 1e-10
DECIMALS = 9
"""The last digits hang on the processor, and equal orders give equal files everywhere."""


def bradley_terry(ranks: ArrayLike) -> NDArray[np.float64]:
    """Strengths with mean 0, shape (n,), of items whose ranks in each order have shape (orders, n); 0 is the head."""
    of = np.asarray(ranks, dtype=np.float64)
    orders, n = of.shape
    if n < 2:
        return np.zeros(n)
    won = (n - 1 - of).sum(axis=0) + (n - 1) / 2
    each = orders + 1
    strengths = np.zeros(n)
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
        np.fill_diagonal(chance, 0)
        missing = won - each * chance.sum(axis=1)
        curved = each * chance * chance.T
        # strengths are known up to a constant: its direction is put in, so that the system has one solution
        information = np.diag(curved.sum(axis=1)) - curved + 1 / n
        step = np.linalg.solve(information, missing)
        strengths += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < TOLERANCE:
            break
    found: NDArray[np.float64] = np.round(strengths - strengths.mean(), DECIMALS)
    return found


def offset_to_parity(margins: Sequence[NDArray[np.float64]]) -> float:
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
