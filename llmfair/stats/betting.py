"""Limits of a bounded mean that hold at any number of queries, whatever the law of the changes (a betting bound).

A gambler who bets a share f of what they own on every query against "the mean is at most μ" owns a product that
exceeds 1/α with a chance of at most α where that is true (Ville). The limit is the largest μ that is refuted so.
Source: Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

SHARES = np.arange(1, 11) / 10
WEIGHTS = np.where(SHARES == 1, 1 / 2, 1 / 18)
TOLERANCE = 1e-12
SIMULATED, AT_ONCE = 400, 100
MOST_QUERIES = 100_000
"""More queries than this are as good as never."""


def wealth(changes: ArrayLike, worst_loss: float, mean: float) -> float:
    """What betting against a mean of at most this has made of 1: the mean of the products over ten shares.

    `changes`: one a query, none below −worst_loss. Raises ValueError for others.
    """
    above = np.asarray(changes, float) + worst_loss
    if worst_loss <= 0 or (above < -TOLERANCE).any():
        raise ValueError("a change is below the worst loss")
    if mean <= -worst_loss:
        return math.inf
    factors = 1 - SHARES[:, None] + SHARES[:, None] * np.maximum(above, 0) / (worst_loss + mean)
    with np.errstate(divide="ignore"):
        logs = np.log(factors).sum(axis=1)
    return float(WEIGHTS @ np.exp(np.minimum(logs, 700)))


def lower_limit(changes: ArrayLike, worst_loss: float, alpha: float = 0.05) -> float:
    """The largest mean that betting refutes at level alpha: the true one is above it with a chance of 1 − alpha.

    -worst_loss where no mean is refuted.
    """
    low, high = -worst_loss, float(np.max(changes, initial=-worst_loss))
    if wealth(changes, worst_loss, high) >= 1 / alpha:
        return high
    while high - low > TOLERANCE * max(1.0, worst_loss):
        middle = (low + high) / 2
        low, high = (middle, high) if wealth(changes, worst_loss, middle) >= 1 / alpha else (low, middle)
    return low


def p_value(changes: ArrayLike, worst_loss: float, mean: float) -> float:
    """p of "the mean is at most this", at least 0 and at most 1."""
    return 1 / max(1.0, wealth(changes, worst_loss, mean))


@lru_cache
def fewest_queries(margin: float, worst_loss: float, alpha: float = 0.05, spread: float = 0.0) -> int | None:
    """From how many queries a loss of more than `margin` can be ruled out where the mean change is 0; None: never.

    With a `spread`, the standard deviation of normal changes, in 80 % of simulated audits.
    """
    if margin >= worst_loss:
        return 1
    rng, audits = np.random.default_rng(0), SIMULATED if spread else 1
    logs = np.zeros((audits, 1, len(SHARES)))
    for queries in range(0, MOST_QUERIES if margin > 0 else 0, AT_ONCE):
        changes = spread * rng.standard_normal((audits, AT_ONCE, 1))
        above = np.clip(changes, -worst_loss, worst_loss) + worst_loss
        with np.errstate(divide="ignore"):
            logs = logs[:, -1:] + np.log(1 - SHARES + SHARES * above / (worst_loss - margin)).cumsum(axis=1)
        refuted = (np.exp(np.minimum(logs, 700)) @ WEIGHTS >= 1 / alpha).mean(axis=0) >= 0.8
        if refuted.any():
            return queries + 1 + int(refuted.argmax())
    return None
