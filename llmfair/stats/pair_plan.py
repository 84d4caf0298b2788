"""What a verdict on pairs will be, before any is asked: from how answers follow the slot and agree with themselves.

Every pair is asked in both orders. The logit of "the protected item wins" is b + γ where it stands first and b − γ
where it stands second; two answers to one pair agree as often as a pilot run's, and pairs of a query have an
intraclass correlation ρ. The error of b over Q queries of m pairs is

    se² = [τ² + (S(b) − τ²)/m]/Q,    S(b) = ¼[1/v₁ + 1/v₂ + 2r/√(v₁v₂)] at σ(b ± γ),    τ² = ρ S(0).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from llmfair.stats.intervals import FEWEST_QUERIES, t_quantile

GATE_LEVEL = 0.9995
"""Of the one-sided test that answers agree with themselves more than coins would."""
MOST_QUERIES = 1_000_000
"""More queries than this are as good as never."""
MOST_LOG = 3.0
"""Odds farther than this beyond the band are no easier found."""
TOLERANCE = 1e-6
DRAWS = 4000
"""Quantiles of the error's law that a chance is a mean over."""


@dataclass(frozen=True, slots=True)
class PairPlan:
    """`gamma`: the slot's effect; `agreement`: the correlation r of both answers to a pair; `error` of the log odds.

    Chances: that odds of 1 are rejected, of *disparity*, that the interval lies in the band, that answers are
    consistent enough, and of *parity*. `agreement` has no name where it is beyond what the slots allow: it is cut.
    """

    gamma: float
    agreement: float
    error: float
    power: float
    disparity: float
    in_band: float
    consistent: float

    @property
    def parity(self) -> float:
        return self.in_band * self.consistent


@dataclass(frozen=True, slots=True)
class Rule:
    """How a verdict is drawn: the level of intervals, the band of parity, how many strata are tested (Holm)."""

    level: float = 0.95
    band: tuple[float, float] = (0.8, 1.25)
    tests: int = 1


RULE = Rule()


def plan_pairs(
    queries: int,
    pairs: float,
    odds: float,
    first_slot: float,
    consistent: float | None,
    icc: float,
    rule: Rule = RULE,
) -> PairPlan:
    """What to expect where the protected item wins at these odds.

    `pairs`: of a query. `first_slot`: how often the item in the first slot wins; `consistent`: the share of pairs
    whose two answers name the same item, None where no pilot says so; `icc`: of a query's pairs.
    """
    from scipy.special import nctdtr, stdtrit

    gamma = math.log(first_slot / (1 - first_slot))  # of ½[σ(γ) + 1 − σ(−γ)]
    agreement = icc / (2 - icc)
    if consistent is not None:
        first, second = _chance(gamma), _chance(-gamma)
        spread = math.sqrt(first * (1 - first) * second * (1 - second))
        agreement = max(-1.0, min(1.0, ((consistent + first + second - 1) / 2 - first * second) / spread))
    effect, between = math.log(odds), icc * _variance(0.0, gamma, agreement)
    error = math.sqrt((between + (_variance(effect, gamma, agreement) - between) / pairs) / queries)
    freedom, (low, high) = queries - 1, map(math.log, rule.band)

    def beyond(lower: float, upper: float, tests: int) -> float:
        """The chance that the interval lies below `lower` or above `upper`."""
        t = float(stdtrit(freedom, 1 - (1 - rule.level) / 2 / tests))
        edges = np.array([upper - effect, effect - lower]) / error
        # nan where it is too small for a number
        return min(1.0, float(np.nan_to_num(nctdtr(freedom, edges, -t)).sum()))

    strength = agreement * math.sqrt(pairs * queries / (1 + (pairs - 1) * icc**2))
    gate = float(np.nan_to_num(nctdtr(freedom, -strength, -stdtrit(freedom, GATE_LEVEL))))
    inside = chance_in_band(effect, error, freedom, t_quantile(freedom, rule.level), (low, high))
    return PairPlan(gamma, agreement, error, beyond(0.0, 0.0, 1), beyond(low, high, rule.tests), inside, gate)


def fewest_queries(enough: Callable[[int], bool], least: int = FEWEST_QUERIES) -> int | None:
    """The fewest queries, from `least` on, that are enough; None beyond `MOST_QUERIES`."""
    counts = range(least, MOST_QUERIES + 1)
    place = bisect_left(counts, True, key=enough)
    return counts[place] if place < len(counts) else None


def smallest_odds(enough: Callable[[float], bool], edge: float) -> float | None:
    """The odds nearest to the band's lower edge that are enough; None where the most extreme are not."""
    low, high = math.log(edge) - MOST_LOG, math.log(edge)
    if not enough(math.exp(low)):
        return None
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if enough(math.exp(middle)) else (low, middle)
    return math.exp(low)


def _variance(effect: float, gamma: float, agreement: float) -> float:
    """S: of the log odds that one pair in both orders gives."""
    first, second = (chance * (1 - chance) for chance in (_chance(effect + gamma), _chance(effect - gamma)))
    return (1 / first + 1 / second + 2 * agreement / math.sqrt(first * second)) / 4


def chance_in_band(effect: float, error: float, freedom: int, t: float, edges: tuple[float, float]) -> float:
    """The chance that effect ± t · error, whose error is estimated, too, lies between the edges."""
    from scipy.special import chdtri, ndtr

    half = t * np.sqrt(chdtri(freedom, 1 - (np.arange(DRAWS) + 0.5) / DRAWS) / freedom)
    low, high = (edges[0] - effect) / error + half, (edges[1] - effect) / error - half
    return float(np.where(low < high, ndtr(high) - ndtr(low), 0.0).mean())


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
