"""Asking until it is clear where the odds lie: an e-value and an interval beyond the band, or one inside it.

Each unit that is asked gives X, from 0 to 1: the share that the protected items win. A pair asked in both orders gives
1, 0, or ½ where its answers flip; a window the share of its comparisons; what cannot be read gives ½. The mean p of X
gives the balanced ratio p/(1−p). A gambler who bets on X against the claim "p is at most m" multiplies their stake by
1/α with probability α at most if the claim holds, however often one looks; the stake is the e-value, and bets of 16
sizes are held at once. The odds with the position taken out lie beyond the balanced ratio, as seen from 1, so what is
beyond the band by one is by the other. The gambler takes units for exchangeable, and so speaks of these queries alone:
where queries differ, the interval of the odds over queries has to lie beyond the band, too, looked at when the e-value
crosses and from then on at preset counts. Nothing follows for the inside of the band: there that interval decides, at
the preset counts. A few looks only, each at a level that keeps the error of all together. An X between two points of
GRID counts for both, in proportion: the logarithm of a bet's gain is concave in X, so the e-value is only made smaller.
Sources: Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting; Pocock (1977), Group
sequential methods in the design and analysis of clinical trials.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import log
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.float64]
"""How many X were at each point of GRID, after each unit of a batch; shape (units, 21)."""
Direction = Literal[1, -1]
"""+1 bets that p is above m, −1 that it is below."""

FEWEST_UNITS = 20
"""Before this many units nothing is decided."""
FRACTIONS = np.geomspace(0.02, 0.9, 16)
"""λ: the shares of the largest possible bet."""
MEANS = tuple(np.linspace(0.02, 0.98, 601).tolist())
"""The values of p that a confidence sequence keeps or excludes."""
FEWEST_INSIDE = 20
"""From fewer queries nothing is inside: a strong effect in few queries may be in none of these (Monte Carlo)."""
FEW_INSIDE = "few_queries_inside"
"""Why an interval inside the band is no decision."""
LOOKS = (50, 75, 110, 165, 250, 370, 560, 840)
"""After so many units, and after the last, the interval of the odds is looked at."""
LOOK_SHARE = 0.25
"""Of α, what either end of the interval may err by at one look: nine looks then err by about α (Monte Carlo)."""
GRID = np.linspace(0, 1, 21)
"""The values of X that are counted."""


class Decision(StrEnum):
    """Where the odds lie, as seen from the band."""

    ABOVE = "above"
    BELOW = "below"
    INSIDE = "inside"


Look = Callable[[int], Decision | None]
"""Where the interval of the odds over the first so many units lies; None where it crosses an end of the band."""


@dataclass(frozen=True, slots=True)
class EProcess:
    """What the units asked so far allow to be said; begin with `EProcess(band, level, cap)`, go on with `after`.

    `band`: (low, high) of the odds; α = 1 − `level`; at most `cap` units are asked. `counts`: those at each point of
    GRID, up to the stop. `kept`: the half-open range of `MEANS` that the confidence sequence still holds. `crossed`:
    the directions whose e-value has reached 2/α at some unit.
    """

    band: tuple[float, float]
    level: float = 0.95
    cap: int = 1000
    counts: tuple[float, ...] = (0.0,) * len(GRID)
    kept: tuple[int, int] = (0, len(MEANS))
    crossed: frozenset[Decision] = frozenset()
    decision: Decision | None = None

    @property
    def units(self) -> int:
        """Units counted; after a decision, the one at which it fell."""
        return round(sum(self.counts))

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
        """The process after a batch of X in schedule order, shape (units,); what follows the stop is unused.

        `look` is asked where an e-value crosses and after as many units as LOOKS says. What it says is the decision if
        it is a direction whose e-value has crossed, if it is `inside` after a number of LOOKS, and after the last unit
        in any case.
        """
        batch = np.asarray(values, dtype=np.float64)
        if self.decision is not None or not len(batch):
            return self
        counts = np.cumsum(np.vstack([self.counts, on_grid(batch)]), axis=0)[1:]
        units_asked = np.rint(counts.sum(axis=1))
        low, high = map(_mean, self.band)
        two_sided = log(2) - log(1 - self.level)  # ln(2/α)
        crossings = dict.fromkeys(self.crossed, -1)  # where in the batch each e-value first reaches 2/α
        for way, value in (
            (Decision.ABOVE, log_e(counts, high, +1)),
            (Decision.BELOW, log_e(counts, low, -1)),
        ):
            places = np.flatnonzero((value >= two_sided) & (units_asked >= FEWEST_UNITS)).tolist()
            if places and way not in crossings:
                crossings[way] = places[0]
        preset = np.isin(units_asked, (*LOOKS, self.cap))
        decision, stop = None, len(counts)
        for place in sorted({*np.flatnonzero(preset).tolist(), *(p for p in crossings.values() if p >= 0)}):
            units = int(units_asked[place])
            seen = look(units)
            if seen is None:
                continue
            settled = preset[place] if seen is Decision.INSIDE else crossings.get(seen, place + 1) <= place
            if settled or units == self.cap:
                decision, stop = seen, place + 1
                break
        counts = counts[:stop]

        def excluded(mean: float, direction: Direction) -> bool:
            return bool(log_e(counts, mean, direction).max() >= two_sided)

        # A bet against m gains as m moves away from the data: each direction excludes one end of the range.
        first = bisect_left(MEANS, True, lo=self.kept[0], key=lambda mean: not excluded(mean, +1))
        end = bisect_left(MEANS, True, hi=self.kept[1], key=lambda mean: excluded(mean, -1))
        return replace(
            self,
            counts=tuple(counts[-1].tolist()),
            kept=(first, end),
            crossed=frozenset(way for way, place in crossings.items() if place < stop),
            decision=decision,
        )


def look_level(level: float) -> float:
    """The two-sided level of the interval at one look, so that all looks together err by 1 − `level` at either end."""
    return 1 - 2 * LOOK_SHARE * (1 - level)


def on_grid(values: Floats) -> Counts:
    """Each X as counts at the points of GRID beside it, which sum to 1; shape (n,) gives (n, 21)."""
    steps = values * (len(GRID) - 1)
    counts: Counts = np.maximum(0, 1 - np.abs(steps[:, None] - np.arange(len(GRID))))
    return counts


def log_e(counts: ArrayLike, mean: float, direction: Direction) -> Floats:
    """ln E against p = m from the numbers of X at each point of GRID; shapes (…, 21) give (…).

    E = 1/16 Σ_j Π_i (1 ± λ_j c (X_i − m)), c = 1/m for + and 1/(1−m) for −: a product depends on how
    often each X came, not on when. Sums are taken unit by unit alike, so a batch's size does not touch the bits.
    """
    cap = 1 / mean if direction > 0 else 1 / (1 - mean)
    gains = np.log1p(direction * cap * (GRID[:, None] - mean) * FRACTIONS)
    sums = (np.asarray(counts)[..., None] * gains).sum(axis=-2)
    wealth: Floats = np.logaddexp.reduce(sums, axis=-1) - log(len(FRACTIONS))
    return wealth


def rounds(units_per_query: Sequence[int], rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """The order in which units are asked: (query's index, unit's number), one unit per query and round.

    Every round goes through the queries in a fresh random order, so that queries that differ cannot look like a
    trend; queries without further units drop out. `rng`: `default_rng([seed, 32 + kind])`, kind 0 for relevant
    and 1 for irrelevant pairs, 2 for windows.
    """
    for number in range(max(units_per_query, default=0)):
        left = [query for query, units in enumerate(units_per_query) if units > number]
        yield from ((query, number) for query in rng.permutation(left).tolist())


def _mean(ratio: float) -> float:
    return ratio / (1 + ratio)


def _ratio(mean: float) -> float:
    return mean / (1 - mean)
