"""What a design can find: the power of its t test, the smallest effect within reach, the queries and pairs it needs.

Everything is planned on the scale of ln R, whose standard error is s/√Q for Q queries of standard deviation s. Of
lists, s follows from how often two items meet for the first time (`encounters`). Of pairs, it depends on the ratio
itself, on how alike the pairs of a query are, and on how many pairs get the same answer in both orders.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np

FEWEST_TESTED = 6
"""Below this many queries no test is made: with 5 the smallest exact p of a sign flip is .0625."""
MOST_QUERIES = 1_000_000
"""More queries than this are as good as never."""
MOST_PAIRS = 1_000_000
"""So are more pairs per query than this."""
MOST_LOG = 2.3994
"""Where |ln R| √(p(1−p)) is greatest, p = R/(1+R), at ratios of 11 and 1/11: more extreme ones are no easier found."""


def power(effect: float, error: float, queries: float, level: float = 0.95) -> float:
    """Power of the two-sided t test of `effect`, whose estimate has the standard error `error`.

    1 − F(t) + F(−t), F the noncentral t with queries − 1 degrees of freedom and δ = |effect|/error. `queries` need
    not be whole. Raises ValueError for an error that is not positive, 1 query, or a level outside (0, 1).
    """
    from scipy.special import nctdtr, stdtrit

    if not (error > 0 and queries > 1 and 0 < level < 1):
        raise ValueError(f"no power at level {level} of {queries} queries with standard error {error}")
    delta, freedom = abs(effect) / error, queries - 1
    critical = float(stdtrit(freedom, (1 + level) / 2))
    # A tail far below 1e-14 can be NaN to scipy.
    missed, wrong_side = np.nan_to_num(nctdtr(freedom, delta, [critical, -critical])).tolist()
    return float(1 - missed + wrong_side)


def queries_needed(ratio: float, sd: float, target: float = 0.8, level: float = 0.95) -> int | None:
    """The fewest queries with which a ratio is told from 1 with power `target`; None beyond `MOST_QUERIES`.

    `sd`: standard deviation of what one query adds to ln R.
    """
    effect = _log(ratio)
    _check_target(target, level)
    counts = range(FEWEST_TESTED, MOST_QUERIES + 1)
    found = bisect_left(counts, target, key=lambda queries: power(effect, sd / sqrt(queries), queries, level))
    return counts[found] if found < len(counts) else None


def smallest_ratio(sd: float, queries: int, target: float = 0.8) -> float:
    """The ratio below 1 that this many queries tell from 1 with power `target`; its inverse is the one above 1.

    Raises ValueError where no test is made: for fewer than `FEWEST_TESTED` queries.
    """
    return exp(-_delta_needed(queries, target) * sd / sqrt(queries))


@dataclass(frozen=True, slots=True)
class Pairing:
    """What is expected of the pairs of an audit.

    `icc`: ρ, the intraclass correlation of a query's pairs. `consistent`: c, the share of pairs whose answers do
    not flip. Planned is the balanced ratio, which counts all pairs, and with it the position-adjusted odds (no
    position bias). Raises ValueError unless 0 ≤ ρ ≤ 1 and 0 < c ≤ 1.
    """

    icc: float = 0.05
    consistent: float = 0.5

    def __post_init__(self) -> None:
        if not (0 <= self.icc <= 1 and 0 < self.consistent <= 1):
            raise ValueError(f"pairs with icc {self.icc} and consistent share {self.consistent}")

    @property
    def largest_log(self) -> float:
        """The greatest |ln R| there is: a balanced ratio of (1+c)/(1−c), when all consistent pairs agree."""
        if self.consistent == 1:
            return inf
        return log((1 + self.consistent) / (1 - self.consistent))

    def query_sd(self, ratio: float, pairs: float) -> float:
        """s: the standard deviation of what one query of m `pairs` adds to ln R, so that its error is s/√Q.

        Of queries of unequal m it is that of their harmonic mean, which need not be whole.

        With p = R/(1+R), s² is (1 + (m−1)ρ)/m times (c/4 − (p−½)²)/(p(1−p))². Raises ValueError for no pairs and a
        ratio that c does not allow.
        """
        if pairs < 1 or abs(_log(ratio)) > self.largest_log:
            raise ValueError(f"{pairs} pairs with a ratio of {ratio}, {self.consistent} of them consistent")
        p = ratio / (1 + ratio)
        variance = (self.consistent / 4 - (p - 0.5) ** 2) / (p * (1 - p)) ** 2
        return sqrt(variance * (1 + (pairs - 1) * self.icc) / pairs)


def pairs_needed(
    ratio: float, queries: int, pairing: Pairing, target: float = 0.8, level: float = 0.95
) -> int | None:
    """The fewest pairs per query with which the ratio is told from 1 with power `target`; None: never.

    Pairs of one query are alike, so more of them cannot make up for queries. Raises ValueError below
    `FEWEST_TESTED` queries.
    """
    effect, least = abs(_log(ratio)), _delta_needed(queries, target, level)
    counts = range(1, MOST_PAIRS + 1)
    found = bisect_left(
        counts, least, key=lambda pairs: effect * sqrt(queries) / pairing.query_sd(ratio, pairs)
    )
    return counts[found] if found < len(counts) else None


def smallest_pair_ratio(
    pairs: float, queries: int, pairing: Pairing, target: float = 0.8, level: float = 0.95
) -> float | None:
    """The ratio below 1 that `pairs` per query tell from 1 with power `target`; its inverse is the one above 1.

    None when not even the most extreme ratio is. Raises ValueError below `FEWEST_TESTED` queries.
    """
    from scipy.optimize import brentq

    least = _delta_needed(queries, target, level)

    def excess(effect: float) -> float:
        return effect * sqrt(queries) / pairing.query_sd(exp(-effect), pairs) - least

    most = min(MOST_LOG, pairing.largest_log * (1 - 1e-12))  # rounding must not leave the range
    return exp(-brentq(excess, 0, most)) if excess(most) > 0 else None


def _delta_needed(queries: int, target: float, level: float = 0.95) -> float:
    """δ at which the t test of this many queries has the power `target`."""
    from scipy.optimize import brentq
    from scipy.special import stdtrit

    if queries < FEWEST_TESTED:
        raise ValueError(f"no test is made of {queries} queries")
    _check_target(target, level)
    most = float(stdtrit(queries - 1, (1 + level) / 2))
    while power(most, 1, queries, level) < target:
        most *= 2
    return float(brentq(lambda delta: power(delta, 1, queries, level) - target, 0, most))


def _log(ratio: float) -> float:
    if not 0 < ratio < float("inf"):
        raise ValueError(f"a ratio of {ratio}")
    return log(ratio)


def _check_target(target: float, level: float) -> None:
    if not 1 - level < target < 1:
        raise ValueError(f"a power of {target}: at parity it is {1 - level:.3g} already")
