"""Asking pairs until it is clear where their odds lie: an e-value and an interval beyond the band, or one inside it.

Each pair gives X: 1 when the protected item won in both orders, 0 when the unprotected one did, ½ when the answers
flipped or could not be read. The mean p of X gives the balanced ratio p/(1−p). A gambler who bets on X against the
claim "p is at most m" multiplies their stake by 1/α with probability α at most if the claim holds, however often
one looks; the stake is the e-value, and bets of 16 sizes are held at once. The odds with the position taken out lie
beyond the balanced ratio, as seen from 1, so what is beyond the band by one is by the other. The gambler takes pairs
for exchangeable, and so speaks of these queries alone: where queries differ, the interval of the odds over queries has
to lie beyond the band, too, looked at when the e-value crosses and from then on at preset counts. Nothing follows for
the inside of the band: there that interval decides, at the preset counts. A few looks only, each at a level that keeps
the error of all together. Sources: Waudby-Smith and Ramdas (2024), Estimating means of bounded
random variables by betting; Pocock (1977), Group sequential methods in the design and analysis of clinical trials.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
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
LOOKS = (50, 75, 110, 165, 250, 370, 560, 840)
"""After so many pairs, and after the last, the interval of the odds is looked at."""
LOOK_SHARE = 0.25
"""Of α, what either end of the interval may err by at one look: nine looks then err by about α (Monte Carlo)."""
VALUES: Floats = np.array([0.0, 0.5, 1.0])


class Decision(StrEnum):
    """Where the odds lie, as seen from the band."""

    ABOVE = "above"
    BELOW = "below"
    INSIDE = "inside"


Look = Callable[[int], Decision | None]
"""Where the interval of the odds over the first so many pairs lies; None where it crosses an end of the band."""


@dataclass(frozen=True, slots=True)
class EProcess:
    """What the pairs asked so far allow to be said; begin with `EProcess(band, level, cap)`, go on with `after`.

    `band`: (low, high) of the odds; α = 1 − `level`; at most `cap` pairs are asked. `counts`: pairs with X = 0, ½, 1,
    up to the stop. `kept`: the half-open range of `MEANS` that the confidence sequence still holds. `crossed`: the
    directions whose e-value has reached 2/α at some pair. Raises ValueError for a band that is none, and for a level
    outside (0, 1).
    """

    band: tuple[float, float]
    level: float = 0.95
    cap: int = 1000
    counts: tuple[int, int, int] = (0, 0, 0)
    kept: tuple[int, int] = (0, len(MEANS))
    crossed: frozenset[Decision] = frozenset()
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
        """The log e-value of each direction: it crosses at ln(2/α)."""
        low, high = map(_mean, self.band)
        return {
            Decision.ABOVE: float(log_e(self.counts, high, +1)),
            Decision.BELOW: float(log_e(self.counts, low, -1)),
        }

    @property
    def confidence(self) -> tuple[float, float] | None:
        """The confidence sequence of the balanced ratio: both limits, valid whenever one looks; None if empty."""
        first, end = self.kept
        return (_ratio(MEANS[first]), _ratio(MEANS[end - 1])) if first < end else None

    def after(self, values: ArrayLike, look: Look) -> EProcess:
        """The process after a batch of X in schedule order, shape (pairs,); what follows the stop is unused.

        `look` is asked where an e-value crosses and after as many pairs as LOOKS says. What it says is the decision if
        it is a direction whose e-value has crossed, if it is `inside` after a number of LOOKS, and after the last pair
        in any case. Raises ValueError for an X other than 0, ½, 1.
        """
        batch = np.asarray(values, dtype=np.float64)
        if batch.ndim != 1 or not np.isin(batch, VALUES).all():
            raise ValueError("a pair counts 0, 1/2 or 1")
        if self.decision is not None or not len(batch):
            return self
        counts = np.array(self.counts) + np.cumsum(batch[:, None] == VALUES, axis=0)
        crossings = self._crossings(counts)
        decision, stop = self._decide(counts, crossings, look)
        counts = counts[:stop]

        def excluded(mean: float, direction: Direction) -> bool:
            return bool(log_e(counts, mean, direction).max() >= self._two_sided)

        # A bet against m gains as m moves away from the data: each direction excludes one end of the range.
        first = bisect_left(MEANS, True, lo=self.kept[0], key=lambda mean: not excluded(mean, +1))
        end = bisect_left(MEANS, True, hi=self.kept[1], key=lambda mean: excluded(mean, -1))
        zeros, halves, ones = counts[-1].tolist()
        return replace(
            self,
            counts=(zeros, halves, ones),
            kept=(first, end),
            crossed=frozenset(way for way, place in crossings.items() if place < stop),
            decision=decision,
        )

    @property
    def _two_sided(self) -> float:
        """ln(2/α)."""
        return log(2) - log(1 - self.level)

    def _crossings(self, counts: Counts) -> dict[Decision, int]:
        """Where in the batch each e-value first reaches 2/α, −1 for before it; only those that do."""
        low, high = map(_mean, self.band)
        enough = counts.sum(axis=1) >= FEWEST_PAIRS
        values = {Decision.ABOVE: log_e(counts, high, +1), Decision.BELOW: log_e(counts, low, -1)}
        reached = {way: np.flatnonzero((value >= self._two_sided) & enough) for way, value in values.items()}
        new = {way: int(places[0]) for way, places in reached.items() if len(places)}
        return new | dict.fromkeys(self.crossed, -1)

    def _decide(
        self, counts: Counts, crossings: Mapping[Decision, int], look: Look
    ) -> tuple[Decision | None, int]:
        """The batch's first decision, and how many of its pairs are used."""
        asked = counts.sum(axis=1)
        preset = np.isin(asked, (*LOOKS, max(self.cap, FEWEST_PAIRS)))
        new = [place for place in crossings.values() if place >= 0]
        for place in sorted({*np.flatnonzero(preset).tolist(), *new}):
            pairs = int(asked[place])
            seen = look(pairs)
            if seen is None:
                continue
            settled = preset[place] if seen is Decision.INSIDE else crossings.get(seen, place + 1) <= place
            if settled or pairs == self.cap:
                return seen, place + 1
        return None, len(asked)


def look_level(level: float) -> float:
    """The two-sided level of the interval at one look, so that all looks together err by 1 − `level` at either end."""
    return 1 - 2 * LOOK_SHARE * (1 - level)


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
