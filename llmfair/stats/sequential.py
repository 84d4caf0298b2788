"""Asking pairs until the answer is clear: an anytime-valid test of the balanced ratio against a band.

Each pair gives X: 1 when the protected item won in both orders, 0 when the unprotected one did, ½ when the answers
flipped or could not be read. The mean p of X gives the balanced ratio p/(1−p). A gambler who bets on X against the
claim "p is at most m" multiplies their stake by 1/α with probability α at most if the claim holds, however often
one looks; the stake is the e-value, and bets of 16 sizes are held at once. Source: Waudby-Smith and Ramdas (2024),
Estimating means of bounded random variables by betting.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf, log
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
"""How many X were 0, ½ and 1, after each pair of a batch; shape (pairs, 3)."""
Direction = Literal[1, -1]
"""+1 bets that p is above m, −1 that it is below."""

FEWEST_PAIRS = 20
"""Before this many pairs nothing is decided."""
FRACTIONS: Floats = np.geomspace(0.02, 0.9, 16)
"""λ: the shares of the largest possible bet."""
MEANS: tuple[float, ...] = tuple(np.linspace(0.02, 0.98, 601).tolist())
"""The values of p that a confidence sequence keeps or excludes."""
VALUES: Floats = np.array([0.0, 0.5, 1.0])


class Decision(StrEnum):
    """Where the balanced ratio lies, as seen from the band."""

    ABOVE = "above"
    BELOW = "below"
    INSIDE = "inside"


@dataclass(frozen=True, slots=True)
class EProcess:
    """What the pairs asked so far allow to be said; begin with `EProcess(band, level)`, go on with `after`.

    `band`: (low, high) of the balanced ratio; α = 1 − `level`. `counts`: pairs with X = 0, ½, 1, up to the stop.
    `peaks`: the greatest log e-values so far for "p is above the band's low end" and "below its high end".
    `kept`: the half-open range of `MEANS` that the confidence sequence still holds. Raises ValueError for a band
    that is none, and for a level outside (0, 1).
    """

    band: tuple[float, float]
    level: float = 0.95
    counts: tuple[int, int, int] = (0, 0, 0)
    peaks: tuple[float, float] = (0.0, 0.0)
    kept: tuple[int, int] = (0, len(MEANS))
    decision: Decision | None = None

    def __post_init__(self) -> None:
        if not (0 < self.band[0] < self.band[1] < inf and 0 < self.level < 1):
            raise ValueError(f"no band from {self.band[0]} to {self.band[1]} at level {self.level}")

    @property
    def pairs(self) -> int:
        """Pairs counted; after a decision, the pair at which it fell."""
        return sum(self.counts)

    @property
    def log_e(self) -> dict[Decision, float]:
        """The log e-value behind each decision: ln(2/α) decides for `above` and `below`, ln(1/α) for `inside`."""
        low, high = map(_mean, self.band)
        return {
            Decision.ABOVE: float(log_e(self.counts, high, +1)),
            Decision.BELOW: float(log_e(self.counts, low, -1)),
            Decision.INSIDE: min(self.peaks),
        }

    @property
    def confidence(self) -> tuple[float, float] | None:
        """The confidence sequence of the balanced ratio: both limits, valid whenever one looks; None if empty."""
        first, end = self.kept
        return (_ratio(MEANS[first]), _ratio(MEANS[end - 1])) if first < end else None

    def after(self, values: ArrayLike, settled: Callable[[int], bool]) -> EProcess:
        """The process after a batch of X in schedule order, shape (pairs,); what follows the stop is unused.

        `settled(t)`: whether the ordinary interval of the position-adjusted odds over the first t pairs lies in
        the band. Only asked where it alone keeps `inside` from being decided: when all answers flip, X says
        nothing of them. Raises ValueError for an X other than 0, ½, 1.
        """
        batch = np.asarray(values, dtype=np.float64)
        if batch.ndim != 1 or not np.isin(batch, VALUES).all():
            raise ValueError("a pair counts 0, 1/2 or 1")
        if self.decision is not None or not len(batch):
            return self
        counts = np.array(self.counts) + np.cumsum(batch[:, None] == VALUES, axis=0)
        peaks = self._peaks(counts)
        decision, stop = self._decide(counts, peaks, settled)
        counts, last = counts[:stop], stop - 1

        def excluded(mean: float, direction: Direction) -> bool:
            return bool(log_e(counts, mean, direction).max() >= self._two_sided)

        # A bet against m gains as m moves away from the data: each direction excludes one end of the range.
        first = bisect_left(MEANS, True, lo=self.kept[0], key=lambda mean: not excluded(mean, +1))
        end = bisect_left(MEANS, True, hi=self.kept[1], key=lambda mean: excluded(mean, -1))
        zeros, halves, ones = counts[last].tolist()
        above_low, below_high = peaks[:, last].tolist()
        return replace(
            self,
            counts=(zeros, halves, ones),
            peaks=(above_low, below_high),
            kept=(first, end),
            decision=decision,
        )

    @property
    def _two_sided(self) -> float:
        """ln(2/α)."""
        return log(2) - log(1 - self.level)

    def _peaks(self, counts: Counts) -> Floats:
        """`peaks` after every pair of a batch; shape (2, pairs)."""
        low, high = map(_mean, self.band)
        bets = np.stack([log_e(counts, low, +1), log_e(counts, high, -1)])
        bets[:, 0] = np.maximum(bets[:, 0], self.peaks)
        return np.maximum.accumulate(bets, axis=1)

    def _decide(
        self, counts: Counts, peaks: Floats, settled: Callable[[int], bool]
    ) -> tuple[Decision | None, int]:
        """The batch's first decision, and how many of its pairs are used."""
        low, high = map(_mean, self.band)
        above = log_e(counts, high, +1) >= self._two_sided
        below = log_e(counts, low, -1) >= self._two_sided
        inside = (peaks >= -log(1 - self.level)).all(axis=0)
        asked = counts.sum(axis=1)
        for place in np.flatnonzero((above | below | inside) & (asked >= FEWEST_PAIRS)).tolist():
            if above[place]:
                return Decision.ABOVE, place + 1
            if below[place]:
                return Decision.BELOW, place + 1
            if settled(int(asked[place])):
                return Decision.INSIDE, place + 1
        return None, len(asked)


def log_e(counts: ArrayLike, mean: float, direction: Direction) -> Floats:
    """ln E against p = m from the numbers of X = 0, ½, 1; shapes (…, 3) give (…).

    E = 1/16 Σ_j Π_i (1 ± λ_j c (X_i − m)), c = 1/m for + and 1/(1−m) for −: a product depends on how
    often each X came, not on when. Sums are taken pair by pair alike, so a batch's size does not touch the bits.
    """
    cap = 1 / mean if direction > 0 else 1 / (1 - mean)
    gains = np.log1p(direction * cap * (VALUES[:, None] - mean) * FRACTIONS)
    sums = (np.asarray(counts)[..., None] * gains).sum(axis=-2)
    wealth: Floats = np.logaddexp.reduce(sums, axis=-1) - log(len(FRACTIONS))
    return wealth


def rounds(pairs_per_query: Sequence[int], rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """The order in which pairs are asked: (query's index, pair's number), one pair per query and round.

    Every round goes through the queries in a fresh random order, so that queries that differ cannot look like a
    trend; queries without further pairs drop out. `rng`: `default_rng([seed, 32 + kind])`, kind 0 for relevant
    and 1 for irrelevant pairs. Raises ValueError for a query with fewer than 0 pairs.
    """
    if any(pairs < 0 for pairs in pairs_per_query):
        raise ValueError("a query has fewer than 0 pairs")
    for number in range(max(pairs_per_query, default=0)):
        left = [query for query, pairs in enumerate(pairs_per_query) if pairs > number]
        yield from ((query, number) for query in rng.permutation(left).tolist())


def _mean(ratio: float) -> float:
    return ratio / (1 + ratio)


def _ratio(mean: float) -> float:
    return mean / (1 - mean)
