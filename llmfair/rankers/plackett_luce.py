"""The Plackett-Luce ranker of Fair-RAG: how likely each item is shown, and lists drawn from it.

Items are drawn one after another, each with a chance proportional to e^(log-weight) among those left. A log-weight is
the item's score, moved to [1, 2] and raised to alpha: 0 makes every order as likely as any other, and the larger alpha,
the closer the draws come to the one list by score.
Source: Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Eq. 1, 2 and 5, footnote 2; Oosterhuis 2021 for the Gumbel draws.
"""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

GOLD = 10.0
"""The score of a useful item where usefulness itself retrieves [Fair-RAG, official code]."""
STREAM = 64
"""Keeps the noise of draws apart from whatever else is drawn from the same seed for the same query."""
NODES = 16
"""Gauss-Legendre nodes of a panel of the quadrature."""
BEFORE, AFTER = 37.0, math.log(45)
"""An item rings earlier than e^-37 / its weight, or later than 45 / its weight, with a chance below 1e-16."""
CERTAIN = 45.0
"""Items whose log-weights are this far apart come in that order, but for a chance of e^-45."""
AT_ONCE = 2**21
"""Entries of a table of chances: what is held at once is a small multiple of it."""


def log_weights(scores: ArrayLike, alpha: float) -> Floats:
    """s̃ = s̄^alpha (`normalised`), alpha from 0, below 1024; shape (n,). Raises ValueError for scores not finite."""
    return normalised(scores) ** alpha


def normalised(scores: ArrayLike) -> Floats:
    """s̄ = (s − min)/(max − min) + 1, all 1 where all scores are equal; shape (n,)."""
    values = _finite(scores)
    if not values.size:
        return values
    values = values / max(float(np.abs(values).max()), 1.0)  # so that no difference overflows
    low, high = values.min(), values.max()
    return np.ones_like(values) if low == high else (values - low) / (high - low) + 1


def gold_scores(useful: ArrayLike) -> Floats:
    """What scores items by their usefulness alone: 10 or 0, before they become log-weights; shape (n,)."""
    return np.where(np.asarray(useful, dtype=bool), GOLD, 0.0)


def deterministic(scores: ArrayLike, k: int) -> Places:
    """The k best by score, best first, ties in the order given: places of items, shape (min(k, n),)."""
    return np.argsort(-_finite(scores), kind="stable")[:k]


def noise(seed: int, query_id: str, samples: int, n: int) -> Floats:
    """Gumbel noise of a query's draws, shape (samples, n); fewer samples are the first of more.

    It does not depend on scores or alpha, so that differences of policies are narrower than of separate draws.
    """
    return np.random.default_rng([seed, crc32(query_id.encode()), STREAM]).gumbel(size=(samples, n))


def draws(log_weights: ArrayLike, k: int, noise: ArrayLike) -> Places:
    """Lists drawn with noise of shape (samples, n): places of items, best first, shape (samples, min(k, n)) [Eq. 1]."""
    weights = _finite(log_weights)
    # the largest is taken off, or huge log-weights would swallow the noise between equals
    keys = (weights.max(initial=0.0) - weights) - np.asarray(noise, dtype=np.float64)
    return np.argsort(keys, axis=1)[:, :k]


def inclusion(log_weights: ArrayLike, k: int) -> Floats:
    """ε: the probability that each item is among the first k, exact to about 1e-12; shape (n,), sum min(k, n) [Eq. 5].

    Drawing without replacement is a race of exponential clocks of rates w: an item is among the first k when at most
    k − 1 others rang before it. With u the logarithm of time, ε_d = ∫ w_d e^(u − w_d e^u) P(at most k − 1 others rang
    by e^u) du; the number that rang is a sum of independent zeros and ones. O(n k) a node.
    """
    weights = _finite(log_weights)
    n = len(weights)
    if k >= n:
        return np.ones(n)
    # whether an item is shown is decided against the k + 1-th: far before it all are, far behind it none is
    relative = weights - np.partition(weights, n - k - 1)[n - k - 1]
    chances: Floats = (relative >= CERTAIN).astype(np.float64)
    rivals = np.abs(relative) < CERTAIN
    relative, k = relative[rivals], k - int(chances.sum())
    if not k:
        return chances
    begin = -math.log(np.exp(relative).sum()) - BEFORE
    width = min(2.0, math.sqrt(20 / k))  # the moment at which k have rung is the sharper, the larger k
    panels = math.ceil((AFTER - begin) / width)
    points, shares = np.polynomial.legendre.leggauss(NODES)
    nodes = (begin + width * (np.arange(panels)[:, None] + (points + 1) / 2)).ravel()
    widths = np.tile(width / 2 * shares, panels)
    size = max(1, AT_ONCE // (len(relative) * k))
    for first in range(0, len(nodes), size):
        chunk = slice(first, first + size)
        chances[rivals] += _among_the_first(relative, k, nodes[chunk]) @ widths[chunk]
    return np.minimum(chances, 1.0)  # but for rounding


def _among_the_first(relative: Floats, k: int, nodes: Floats) -> Floats:
    """The density, in log time, of each item ringing as one of the first k; shape (n, nodes)."""
    n = len(relative)
    times = np.exp(relative[:, None] + nodes)
    waits, rings = np.exp(-times), -np.expm1(-times)
    # rang[i, 0]: the chances that 0 … k − 1 of the items before i rang; rang[n − 1 − i, 1]: that at most 0 … k − 1 of
    # the items after it did. Both go from item to item alike, and differ in where they begin
    ahead = np.stack([waits, waits[::-1]], axis=1)[:, :, None]
    behind = np.stack([rings, rings[::-1]], axis=1)[:, :, None]
    rang = np.empty((n, 2, k, len(nodes)))
    rang[0, 0] = 0.0
    rang[0, 0, 0] = rang[0, 1] = 1.0
    moved = np.empty((2, k - 1, len(nodes)))
    for i in range(1, n):
        np.multiply(rang[i - 1], ahead[i - 1], out=rang[i])
        np.multiply(rang[i - 1, :, :-1], behind[i - 1], out=moved)
        rang[i, :, 1:] += moved
    chances: Floats = times * waits * np.einsum("ikj,ikj->ij", rang[:, 0], rang[::-1, 1, ::-1])
    return chances


def _finite(values: ArrayLike) -> Floats:
    """The values as an array of one finite number per item. Raises ValueError naming the first that is not."""
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        place = int(np.argmin(np.isfinite(numbers)))
        raise ValueError(f"the score of item {place + 1} is {numbers[place]:g}")
    return numbers
