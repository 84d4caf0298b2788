"""Rankers that order anew what a first stage found, by its scores and by what else they weigh."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmfair.errors import UsageError
from llmfair.metrics.attention import smoothed
from llmfair.metrics.base import Declared, Free, Judged, Undefined, number, read_parameters, spelled, whole
from llmfair.metrics.targets import IMPLIES, SPREAD_TO_TARGET, Cells, cells, target_shares
from llmfair.nouns import Candidates, Ranking, Side
from llmfair.rankers.base import Ranker, RankerOptions, best_first
from llmfair.rankers.bm25 import Bm25, bm25
from llmfair.rankers.neural import KINDS, Encoder, unit
from llmfair.registry import register
from llmfair.retrieval.engine import ENGLISH, plain

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

ROUNDING = 1e-12
"""Chances that differ by less, relatively, are the same: a level that equals one must not hang on its last bit."""
TRADE: dict[str, Free | tuple[str, ...]] = {"lambda": number(0.5, 0, 1), "pool": whole(100, 2000)}
"""Of a trade between relevance and something else: the weight of relevance, and how many of the best are ordered."""


class Reranker(Ranker):
    """Orders candidates by the scores that they come with, or else by BM25's, equal ones as they are, then anew."""

    name: ClassVar[str]
    declared: ClassVar[Declared]

    def __init__(self, options: RankerOptions) -> None:
        self.parameters: dict[str, Any] = read_parameters(self.name, options.checkpoint, self.declared)
        self.options = replace(options, checkpoint="")

    @cached_property
    def identity(self) -> str:  # type: ignore[override]  # known when it is asked for: BM25 reads all documents
        return f"{self.name} {spelled(self.parameters)} over {self.first_stage.identity}"

    @cached_property
    def first_stage(self) -> Bm25:
        return bm25(self.options)

    @abstractmethod
    def order(self, candidates: Candidates, scores: Floats) -> Sequence[int]:
        """The places of the first candidates in their new order; those it leaves out follow as they are.

        Candidates come by falling score; `scores` has shape (n,).
        """

    def ordered(self, candidates: Candidates) -> tuple[Candidates, None]:
        """The candidates in the new order, which no score explains. Raises UsageError (`Bm25Index`)."""
        scores = candidates.scores
        if scores is None:
            scores = tuple(self.first_stage.scores(candidates))
        pool = replace(candidates, scores=scores).at(best_first(scores))
        first = self.order(pool, np.array(pool.scores, dtype=float))
        return pool.at([*dict.fromkeys([*first, *range(len(scores))])]), None


def first_best(worth: Floats) -> int:
    """The place of the largest, of equals the first; shape (n,). What differs by rounding is equal."""
    return int(np.argmax(worth >= worth.max() - ROUNDING))


def min_max(scores: Floats) -> Floats:
    """Scores moved to [0, 1], all 0 where they are equal; shape (n,). Infinite ones count as the largest number."""
    values = np.clip(scores, -1e308, 1e308) / 4  # so that no difference overflows
    if not values.size or values.min() == values.max():
        return np.zeros_like(values)
    moved: Floats = (values - values.min()) / (values.max() - values.min())
    return moved


# Maximal marginal relevance (Carbonell & Goldstein 1998): next = argmax λ · relevance(i) − (1 − λ) · max over chosen
# j of similarity(i, j); of equals the first comes first. As a ranker: λ = 0.5 [Chen & Fang 2025, FAIR-QR], over BM25's
# best 100; relevance is their score moved to [0, 1], similarity the cosine of TF-IDF vectors or of an encoder's.

TF_IDF = "tf-idf"


def mmr(relevance: ArrayLike, similarity: ArrayLike, trade: float = 0.5) -> list[int]:
    """The places of n documents as they are chosen: relevance of shape (n,), similarity (n, n), `trade` is λ."""
    relevant, alike = np.asarray(relevance, dtype=float), np.asarray(similarity, dtype=float)
    worth, redundancy = trade * relevant, np.zeros(relevant.size)
    chosen: list[int] = []
    for _ in range(relevant.size):
        place = first_best(worth - (1 - trade) * redundancy)
        redundancy = np.maximum(redundancy, alike[:, place]) if chosen else alike[:, place].copy()
        chosen.append(place)
        worth[place] = -np.inf
    return chosen


def cosines(vectors: ArrayLike) -> Floats:
    """Of vectors with each other; shapes (n, d) to (n, n)."""
    units = unit(np.asarray(vectors, dtype=float))
    alike: Floats = units @ units.T
    return alike


def tf_idf(texts: Sequence[str]) -> Floats:
    """Vectors of n texts, shape (n, terms): how often a text has a term, times 1 + ln((1 + n)/(1 + texts with it))."""
    analyze = ENGLISH.built().analyze
    counts = [Counter(analyze(plain(text))) for text in texts]
    held = Counter(term for count in counts for term in count)
    column = {term: place for place, term in enumerate(held)}
    vectors = np.zeros((len(texts), len(held)))
    for row, count in enumerate(counts):
        vectors[row, [column[term] for term in count]] = [*count.values()]
    weighted: Floats = vectors * (
        1 + np.log((1 + len(texts)) / (1 + np.array([*held.values()], dtype=float)))
    )
    return weighted


def _measure(text: str) -> str:
    if text != TF_IDF and text.partition(":")[0] not in KINDS:
        raise ValueError(text)
    return text


@register("ranker", "mmr")
class Mmr(Reranker):
    """The best of the first stage, each unlike those before it."""

    name = "mmr"
    weighs_scores = True
    declared: ClassVar[Declared] = {
        **TRADE,
        "similarity": Free(TF_IDF, _measure, f"{TF_IDF}, or an encoder: sbert, dense:NAME", (TF_IDF, *KINDS)),
    }

    def __init__(self, options: RankerOptions) -> None:
        super().__init__(options)
        kind, _, checkpoint = self.parameters["similarity"].partition(":")
        self._encoder = None if kind == TF_IDF else Encoder(kind, replace(options, checkpoint=checkpoint))

    @cached_property
    def identity(self) -> str:  # type: ignore[override]
        return super().identity + (f" and {self._encoder.identity}" if self._encoder else "")

    def order(self, candidates: Candidates, scores: Floats) -> list[int]:
        pool = self.parameters["pool"]
        texts = [f"{item.title} {item.text}" for item in candidates.documents[:pool]]
        vectors = tf_idf(texts) if self._encoder is None else self._encoder.vectors("document", texts)
        return mmr(min_max(scores[:pool]), cosines(vectors), self.parameters["lambda"])


# Greedy re-ranking towards a target: what a method that knows the target gets without any model. next = argmax λ ·
# relevance(i) − (1 − λ) · KL(shares of the page with i ‖ target), over BM25's best 100 with their scores moved to [0,
# 1]; of equals the first comes first. A control of query refinement, whose loop aims at the same.


EPS = 1e-6
"""Smoothing, as `KL` has it by default."""
MEMBERSHIP = "split"
NO_TARGET = "no relevant document says which groups to aim at, so the order is the first stage's"


def greedy(relevance: Floats, rows: Floats, target: Floats, trade: float = 0.5) -> list[int]:
    """All n places, as they are chosen: relevance of shape (n,), memberships (n, groups), target (groups,)."""
    smooth = smoothed(target, EPS)
    furthest = _divergence(np.eye(target.size), smooth).max()
    mass, worth, order = np.zeros(target.size), trade * relevance, list[int]()
    for _ in range(relevance.size):
        pages = mass + rows
        totals = pages.sum(axis=1, keepdims=True)
        shares = np.divide(pages, totals, out=np.zeros_like(pages), where=totals > 0)
        distance = np.where(totals[:, 0] > 0, _divergence(shares, smooth), furthest)
        place = first_best(worth - (1 - trade) * distance)
        order.append(place)
        worth[place], mass = -np.inf, pages[place]
    return order


def _divergence(shares: Floats, smooth: Floats) -> Floats:
    """KL of each page's shares and the target, both smoothed; shapes (n, groups) and (groups,) to (n,)."""
    page = smoothed(shares, EPS)
    divergence: Floats = (page * (np.log(page) - np.log(smooth))).sum(axis=1)
    return divergence


@register("ranker", "greedy")
class Greedy(Reranker):
    """The best of the first stage, in the order that keeps every page near the target."""

    name = "greedy"
    weighs_scores = True
    declared: ClassVar[Declared] = {**TRADE, "target": SPREAD_TO_TARGET["target"]}
    reads_texts, reads_groups = False, True
    target_known = "yes"

    @cached_property
    def _spread(self) -> Cells:
        """The groups that shares are of, with the unknown as one where the target has it."""
        _, unknown = IMPLIES.get(("target", self.parameters["target"]), ("unknown", "keep"))
        return cells(self.options.groups, None, unknown)

    def order(self, candidates: Candidates, scores: Floats) -> list[int]:
        target = self._target(candidates)
        if target is None:
            return []
        pool = self.parameters["pool"]
        rows = self._spread.rows(candidates.doc_ids[:pool], MEMBERSHIP)[:, self._spread.kept]
        return greedy(min_max(scores[:pool]), rows, target, self.parameters["lambda"])

    def remark(self, ordered: Candidates) -> str:
        return NO_TARGET if self._target(ordered) is None else ""

    def _target(self, candidates: Candidates) -> Floats | None:
        """The shares to aim at; None without a relevant document to have them of. Raises UsageError."""
        judged = Judged(candidates, (), {}, groups=self.options.groups)
        shares = target_shares(judged, self._spread, self.parameters["target"], MEMBERSHIP)
        return None if isinstance(shares, Undefined) else shares


# FA*IR (Zehlike et al. 2017): the table m says how many protected documents the first i must hold at least: the fewest
# that i independent draws with share p have with a chance of more than α_c. Since all k prefixes are tested, α_c is
# adjusted so that a fair ranking fails anywhere with chance α. All is exact: v_0 = [1]; v_i[j] = (1 − p) v_{i−1}[j] +
# p v_{i−1}[j − 1], then v_i[j] = 0 for j < m(i); fail = 1 − Σ_j v_k[j]. With `null=hypergeometric` draws are without
# replacement from the list's own documents, p = (protected left)/(documents left) [hyperFA*IR, FAccT 2025]. As a
# ranker: k = 400, p = 0.3, α = 0.15 [Chen & Fang 2025, FAIR-QR] over BM25.

TOO_FEW = "too few protected documents for every prefix to hold as many as the table asks"


@dataclass(frozen=True)
class FairTable:
    """The fewest protected documents of each prefix, the chance that a fair ranking fails, and the `level` α_c."""

    minimum: tuple[int, ...]
    fail: float
    level: float


@lru_cache(256)
def fair_table(k: int, share: float | tuple[int, int], alpha: float, adjust: str = "closest") -> FairTable:
    """The table for k documents: of independent draws with this share, or, (n, protected), from n without replacement.

    `adjust`: `closest` takes the table whose chance of failing is nearest to alpha, the lower of two as near;
    `conservative` the largest that does not pass it; `none` tests every prefix at alpha itself.
    """
    if isinstance(share, tuple):
        n, protected = share
        k = min(k, n)
        left = np.maximum(protected - np.arange(k + 1), 0)
        chances = np.minimum(left / (n - np.arange(k)[:, None]), 1)
    else:
        chances = np.full((k, k + 1), share)
    cdf = np.cumsum(_counts(chances), axis=1)
    cdf[:, -1] = 1  # which rounding may miss

    def at(level: float) -> FairTable:
        minimum = (cdf >= level * (1 - ROUNDING)).argmax(axis=1)
        passing = _counts(chances, minimum)[-1].sum() if k else 1.0
        return FairTable(tuple(minimum.tolist()), max(0.0, 1 - float(passing)), level)

    if adjust == "none":
        return at(alpha)
    # tables change at values of the distribution alone, and the chance of failing rises with the level
    levels = np.unique(np.append(cdf[(cdf > 0) & (cdf <= alpha)], alpha))
    low, high = 0, len(levels)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(levels[middle]).fail <= alpha else (low, middle)
    lower = at(float(levels[low]))
    if adjust == "conservative" or high == len(levels):
        return lower
    other = at(float(levels[high]))
    return other if other.fail - alpha < alpha - lower.fail else lower


def _counts(chances: Floats, minimum: Places | None = None) -> Floats:
    """The chance of j protected among the first i, of rankings that met the table so far; shape (k, k + 1).

    `chances` that document i + 1 is protected after j protected ones; of the same shape.
    """
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
    queues = [
        [place for place, member in enumerate(protected) if bool(member) is kind] for kind in (False, True)
    ]
    (others, held), at, order = queues, [0, 0], list[int]()
    for least in minimum[: len(scores)]:
        left, have = at[0] < len(others), at[1] < len(held)
        kind = have and (not left or at[1] < least or scores[held[at[1]]] >= scores[others[at[0]]])
        order.append(queues[kind][at[kind]])
        at[kind] += 1
    return order


def meets(protected: Sequence[bool], minimum: Sequence[int]) -> bool:
    """Whether every prefix of a ranking has as many protected documents as the table asks."""
    n = min(len(protected), len(minimum))
    return bool((np.cumsum(protected[:n]) >= np.array(minimum[:n])).all())


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
        protected, table = self._table(candidates)
        return fair_order(protected, scores.tolist(), table.minimum)

    def remark(self, ordered: Candidates) -> str:
        protected, table = self._table(ordered)
        return "" if meets(protected, table.minimum) else TOO_FEW

    def _table(self, candidates: Candidates) -> tuple[list[bool], FairTable]:
        """Who is protected, and the table for so many documents."""
        attribute = self.options.attribute
        assert attribute is not None
        protected = [attribute.side(document) is Side.PROTECTED for document in candidates.documents]
        k, p, alpha, adjust, null = self.parameters.values()
        share = p if null == "binomial" else (len(protected), sum(protected))
        return protected, fair_table(k, share, alpha, adjust)


# The central ranking of several orders of one list, with the least sum of Kendall distances to them: permutation
# self-consistency [Tang et al. 2024, Found in the Middle, arXiv 2310.07712]. The very least is NP-hard from four
# orders on, so Borda's order (by mean rank) and each of the orders are improved by moving single items until no move
# helps, and the best of these is taken: of lists of up to seven items it is the very least.


def consensus(rankings: Sequence[Ranking]) -> Ranking:
    """The central ranking of orders of the same documents."""
    doc_ids, ranks = ranks_of(rankings)
    return Ranking(rankings[0].query_id, tuple(doc_ids[item] for item in central(ranks)))


def ranks_of(rankings: Sequence[Ranking]) -> tuple[tuple[str, ...], Places]:
    """The documents as the first ranking has them, and their ranks in each, shape (orders, n)."""
    doc_ids = rankings[0].doc_ids
    ranks = [{doc_id: rank for rank, doc_id in enumerate(ranking.doc_ids)} for ranking in rankings]
    return doc_ids, np.array([[of[doc_id] for doc_id in doc_ids] for of in ranks], dtype=np.intp)


def central(ranks: ArrayLike) -> Places:
    """The items of the central ranking, best first: `ranks` of shape (orders, n) has each item's rank in each order."""
    of = np.asarray(ranks, dtype=np.intp)
    first = np.argsort(of[0])
    if len(of) == 1:
        return first
    relabelled = of[:, first]  # item k is the one of rank k in the first order
    before = (relabelled[:, :, None] < relabelled[:, None, :]).sum(
        axis=0
    )  # in how many orders i is ahead of j
    borda = np.argsort(relabelled.sum(axis=0), kind="stable")
    improved = [_improved(start, before - before.T) for start in (borda, *np.argsort(relabelled))]
    items: Places = first[min(improved, key=lambda order: int(np.tril(before[np.ix_(order, order)]).sum()))]
    return items


def _improved(order: Places, lead: Places) -> Places:
    """The order after every move of a single item that lessens the sum.

    `lead[i, j]`: in how many more orders i is ahead of j than behind it. An item that passes those between its place
    and another adds what it leads them by (backwards), or what they lead it by (forwards).
    """
    order, moved = order.copy(), True
    while moved:
        moved = False
        for item in order.copy():
            place = int(np.flatnonzero(order == item)[0])
            leads = lead[item, order]
            backwards = np.cumsum(leads[place + 1 :])
            forwards = np.cumsum(-leads[:place][::-1])
            costs = np.concatenate([forwards[::-1], [0], backwards])
            best = int(costs.argmin())
            if costs[best] < 0:
                rest = np.delete(order, place)
                order, moved = np.insert(rest, best, item), True
    return order
