"""FA*IR: a ranking of which no beginning has fewer protected documents than chance would leave (Zehlike et al. 2017).

The table m says how many protected documents the first i must hold at least: the fewest that i independent draws with
share p have with a chance of more than α_c. Since all k prefixes are tested, α_c is adjusted so that a fair ranking
fails anywhere with chance α. All is exact: v_0 = [1]; v_i[j] = (1 − p) v_{i−1}[j] + p v_{i−1}[j − 1], then v_i[j] = 0
for j < m(i); fail = 1 − Σ_j v_k[j]. With `null=hypergeometric` draws are without replacement from the list's own
documents, p = (protected left)/(documents left) [hyperFA*IR, FAccT 2025].
As a ranker: k = 400, p = 0.3, α = 0.15 [Chen & Fang 2025, FAIR-QR] over BM25. Protected are the documents of the
attribute's protected groups; those of no group are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Side
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.parameters import Declared, number, whole
from llmfair.rankers.reranking import Floats, Reranker
from llmfair.registry import register

ROUNDING = 1e-12
"""Chances that differ by less, relatively, are the same: a level that equals one must not hang on its last bit."""
TOO_FEW = "too few protected documents for every prefix to hold as many as the table asks"


@dataclass(frozen=True)
class FairTable:
    """The fewest protected documents of each prefix (of 1, 2, … documents), and the chance that a fair ranking fails.

    `level` is α_c, at which each prefix is tested.
    """

    minimum: tuple[int, ...]
    fail: float
    level: float


def binomial(k: int, p: float) -> Floats:
    """The chance that document i + 1 is protected after j protected ones, whatever came before; shape (k, k + 1)."""
    return np.full((k, k + 1), p)


def hypergeometric(k: int, n: int, protected: int) -> Floats:
    """The same of draws without replacement from n documents, k at most; shape (k, k + 1)."""
    left = np.maximum(protected - np.arange(k + 1), 0)
    return np.minimum(left / (n - np.arange(k)[:, None]), 1)


def fair_table(k: int, p: float, alpha: float, adjust: str = "closest") -> FairTable:
    """The table of independent draws for k documents.

    `adjust`: `closest` takes the table whose chance of failing is nearest to alpha, the lower of two as near;
    `conservative` the largest that does not pass it; `none` tests every prefix at alpha itself.
    """
    return table_of(binomial(k, p), alpha, adjust)


def finite_table(k: int, n: int, protected: int, alpha: float, adjust: str = "closest") -> FairTable:
    """The table of draws from n documents with so many protected ones; of min(k, n) documents."""
    return table_of(hypergeometric(min(k, n), n, protected), alpha, adjust)


def table_of(chances: Floats, alpha: float, adjust: str = "closest") -> FairTable:
    """The table under any null: `chances` of shape (k, k + 1) as `binomial` gives them."""
    cdf = np.cumsum(_counts(chances), axis=1)
    cdf[:, -1] = 1  # which rounding may miss

    def at(level: float) -> FairTable:
        minimum = (cdf >= level * (1 - ROUNDING)).argmax(axis=1)
        return FairTable(tuple(minimum.tolist()), fail_probability(chances, minimum), level)

    if adjust == "none":
        return at(alpha)
    # tables change at values of the distribution alone, and the chance of failing rises with the level
    levels = np.unique(np.append(cdf[(cdf > 0) & (cdf <= alpha)], alpha))
    low, high = 0, len(levels)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(levels[middle]).fail <= alpha else (low, middle)
    kept = at(float(levels[low]))
    if adjust == "conservative" or high == len(levels):
        return kept
    other = at(float(levels[high]))
    return other if other.fail - alpha < alpha - kept.fail else kept


def fail_probability(chances: Floats, minimum: Sequence[int] | NDArray[np.intp]) -> float:
    """The chance that some prefix has fewer protected documents than the table asks; 0 where none can."""
    return max(0.0, 1 - float(_counts(chances, minimum)[-1].sum())) if len(chances) else 0.0


def _counts(chances: Floats, minimum: Sequence[int] | NDArray[np.intp] | None = None) -> Floats:
    """The chance of j protected among the first i, of rankings that met the table so far; shape (k, k + 1)."""
    counts = np.zeros_like(chances)
    held = np.zeros(chances.shape[1])
    held[0] = 1
    for row, chance in enumerate(chances):
        gained = held * chance
        held = held - gained
        held[1:] += gained[:-1]
        if minimum is not None:
            held[: minimum[row]] = 0
        counts[row] = held
    return counts


def fair_order(protected: Sequence[bool], scores: Sequence[float], minimum: Sequence[int]) -> list[int]:
    """The places of the first documents in fair order, as many as the table has, of documents by falling score.

    A protected document comes next where the table asks for one, else the one of higher score, of equals the
    protected. Where one kind is used up the other follows; then the table may not be met (`meets`).
    """
    queues = [[place for place, one in enumerate(protected) if bool(one) is kind] for kind in (False, True)]
    (others, held), at, found = queues, [0, 0], list[int]()
    for least in minimum[: len(scores)]:
        left, have = at[0] < len(others), at[1] < len(held)
        needed = at[1] < least
        kind = have and (not left or needed or scores[held[at[1]]] >= scores[others[at[0]]])
        found.append(queues[kind][at[kind]])
        at[kind] += 1
    return found


def meets(protected: Sequence[bool], minimum: Sequence[int]) -> bool:
    """Whether every prefix of a ranking has as many protected documents as the table asks."""
    n = min(len(protected), len(minimum))
    return bool((np.cumsum(protected[:n]) >= np.array(minimum[:n])).all())


_fair_table, _finite_table = lru_cache(64)(fair_table), lru_cache(256)(finite_table)


@register("ranker", "fair-star")
class FairStar(Reranker):
    """The first stage's order, with protected documents moved up as far as the table asks."""

    name = "fair-star"
    declared: ClassVar[Declared] = {
        "k": whole(400, 2000),
        "p": number(0.3, 0, 1),
        "alpha": number(0.15, 0, 1),
        "adjust": ("closest", "conservative", "none"),
        "null": ("binomial", "hypergeometric"),
    }
    reads_texts, reads_groups = False, True

    def __init__(self, options: RankerOptions) -> None:
        super().__init__(options)
        if self.parameters["null"] == "hypergeometric" and "p=" in options.checkpoint:
            raise UsageError(
                "fair-star: null=hypergeometric takes the share of protected documents from each list.",
                "leave p out",
            )

    def order(self, candidates: Candidates, scores: Floats) -> list[int]:
        protected = self._protected(candidates)
        return fair_order(protected, scores.tolist(), self._table(protected).minimum)

    def remark(self, ordered: Candidates) -> str:
        protected = self._protected(ordered)
        return "" if meets(protected, self._table(protected).minimum) else TOO_FEW

    def _protected(self, candidates: Candidates) -> list[bool]:
        attribute = self.options.attribute
        assert attribute is not None
        return [attribute.side(document) is Side.PROTECTED for document in candidates.documents]

    def _table(self, protected: Sequence[bool]) -> FairTable:
        k, alpha, adjust = (self.parameters[name] for name in ("k", "alpha", "adjust"))
        if self.parameters["null"] == "binomial":
            return _fair_table(k, self.parameters["p"], alpha, adjust)
        return _finite_table(k, len(protected), sum(protected), alpha, adjust)
