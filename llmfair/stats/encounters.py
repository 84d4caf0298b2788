"""How precisely a design measures preference odds, counted before anything is asked.

Of a list of n items in random order, groups of f_i items meet for the first time in one question (the first window
whole, later ones with what enters them; the windows of a partition). Two given items meet in one order with
π = Σ f(f−1) / n(n−1), three with π₃ = Σ f(f−1)(f−2) / n(n−1)(n−2). Of n1 protected and n0 unprotected items of one
grade, K orders give N = K n1 n0 π comparisons, whose outcomes hang together: two that share an item correlate by
1/3 in one answer, and by ρ/3 across orders, the same two items across orders by ρ, the intra-item correlation: 0
for fresh noise, 1 for a model that answers alike every time. So the share of a query's comparisons that the
protected item wins has at parity the variance

    ¼ Σ_grades [N + K n1 n0 (n1+n0−2) π₃/3 + K(K−1) ρ n1 n0 π² (1 + (n1+n0−2)/3)] / (Σ_grades N)².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt

Windows = Sequence[tuple[int, int]]
"""The windows [start, end) of one pass, in the order they are asked."""
LOGIT = 4.0
"""A share of ½ that changes by x changes ln odds by 4x."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A list of `n` items as encounters see it: (protected, unprotected) of every grade, and the group sizes f."""

    n: int
    grades: tuple[tuple[int, int], ...]
    groups: tuple[int, ...]

    def comparisons(self, orders: int = 1) -> float:
        """How many first encounters of equally relevant items of both groups are expected from so many orders."""
        return orders * self._met * sum(protected * unprotected for protected, unprotected in self.grades)

    def share_variance(self, orders: int = 1, icc: float = 0.0) -> float:
        """The variance of the share that the protected items win. Raises ValueError where none is compared."""
        if not (count := self.comparisons(orders)):
            raise ValueError("no two items are compared")
        n, met = self.n, self._met
        three = sum(f * (f - 1) * (f - 2) for f in self.groups) / (n * (n - 1) * (n - 2)) if n > 2 else 0.0
        total = 0.0
        for protected, unprotected in self.grades:
            pairs, beside = protected * unprotected, protected + unprotected - 2
            once = met + beside * three / 3
            again = (orders - 1) * icc * met**2 * (1 + beside / 3)
            total += orders * pairs * (once + again)
        return total / 4 / count**2

    @property
    def _met(self) -> float:
        """π."""
        return sum(f * (f - 1) for f in self.groups) / (self.n * (self.n - 1)) if self.n > 1 else 0.0


def first_shown(windows: Windows) -> list[list[int]]:
    """The ranks that each window shows for the first time in a pass; what it shows again has been ranked before."""
    seen: set[int] = set()
    found = []
    for start, end in windows:
        found.append([rank for rank in range(start, end) if rank not in seen])
        seen.update(range(start, end))
    return found


def query_sd(lists: Sequence[Meeting], orders: int = 1, icc: float = 0.0, spread: float = 0.0) -> float:
    """s: the standard deviation of what one query adds to ln preference odds, whose error is s/√Q.

    s² is the mean over lists of 16 times the variance of the share, and `spread` squared: the standard deviation
    over queries of the true ln odds. Lists without a comparison count for nothing; ValueError when all are.
    """
    if orders < 1 or spread < 0 or not 0 <= icc <= 1:
        raise ValueError(f"{orders} orders with a spread of {spread} and a correlation of {icc}")
    compared = [one for one in lists if one.comparisons()]
    if not compared:
        raise ValueError("no list has two items to compare")
    shares = fsum(one.share_variance(orders, icc) for one in compared) / len(compared)
    return sqrt(LOGIT**2 * shares + spread**2)
