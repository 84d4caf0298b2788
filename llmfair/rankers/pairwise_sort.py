"""Sorting by pairs: which of two items is the more relevant one, asked of some pairs or of all.

Pairwise ranking prompting, Qin et al. (2024), Large Language Models are Effective Text Rankers with Pairwise Ranking
Prompting: by heapsort, or by how many others an item is ahead of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from llmfair.nouns import Candidates, Document, Ranking, Steps
from llmfair.rankers.heaps import most_asked, top_of
from llmfair.rankers.parameters import Declared, whole
from llmfair.rankers.questions import Choice, Question
from llmfair.rankers.strategy import Ask, Plan, Strategy, StrategyOptions
from llmfair.registry import register

QUESTION = Choice("pairwise-sort")


@dataclass(frozen=True)
class Heapsort(Strategy):
    """The better of two children, then it against their parent; the others keep their order behind the best k.

    `orders` 2 asks every pair in both orders at once: the one that stands first stays where the answers disagree.
    """

    k: int = 20
    orders: int = 1
    depth: int | None = None
    question: Question = QUESTION

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        documents = candidates.documents
        rank_of = {document.doc_id: rank for rank, document in enumerate(documents)}

        def better(one: Document, other: Document) -> Steps[Document]:
            shown = [[one, other], [other, one]][: self.orders]
            found = yield from ask.together([(pair, rank_of[pair[0].doc_id]) for pair in shown])
            return other if all(first is other for first, _ in found) else one

        def best(shown: Sequence[Document]) -> Steps[int]:
            parent, child, *sibling = shown
            for one in sibling:
                child = yield from better(child, one)
            return shown.index((yield from better(parent, child)))

        top = yield from top_of(documents[: self.depth], self.k, 2, best)
        order = [*top, *documents[len(top) :]]
        return Ranking(candidates.query.query_id, tuple(document.doc_id for document in order))

    def plan(self, n: int) -> Plan:
        rounds = sum(size - 1 for size in most_asked(min(n, self.depth or n), self.k, 2))
        return Plan(rounds * self.orders, rounds, exact=rounds < 2)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"method": "heapsort", "k": self.k, "orders": self.orders}


@dataclass(frozen=True)
class AllPairs(Strategy):
    """Every pair in both orders, all at once: 1 point for an item that is ahead in both, a half each where they differ.

    Equal points keep the initial ranking, which else makes no difference.
    """

    depth: int | None = None
    question: Question = QUESTION
    orderless: bool = True

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        head = candidates.documents[: self.depth]
        pairs = [
            (pair, rank) for rank, other in self._pairs(len(head)) for pair in self._both(head, rank, other)
        ]
        found = (yield from ask.together(pairs)) if pairs else []
        points: dict[str, float] = defaultdict(float)
        for first, _ in found:
            points[first.doc_id] += 0.5
        order = sorted(head, key=lambda document: -points[document.doc_id])
        scores = tuple(points[document.doc_id] for document in order)
        order += candidates.documents[len(head) :]
        ids = tuple(document.doc_id for document in order)
        return Ranking(candidates.query.query_id, ids, scores if len(scores) == len(ids) else None)

    @staticmethod
    def _pairs(n: int) -> Sequence[tuple[int, int]]:
        return [*combinations(range(n), 2)]

    @staticmethod
    def _both(head: Sequence[Document], rank: int, other: int) -> Sequence[Sequence[Document]]:
        return [head[rank], head[other]], [head[other], head[rank]]

    def plan(self, n: int) -> Plan:
        asked = min(n, self.depth or n)
        return Plan(asked * (asked - 1), min(1, asked - 1))

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"method": "allpairs"}


@register("strategy", "pairwise-sort")
def pairwise_sort(options: StrategyOptions) -> Strategy:
    """Which of two items is the more relevant: a heap, until the best k stand, or all pairs."""
    declared: Declared = {"method": ("heapsort", "allpairs"), "k": whole(20, 10_000), "orders": whole(1, 2)}
    given = options.read("pairwise-sort", declared)
    if given["method"] == "allpairs":
        return AllPairs(options.depth)
    return Heapsort(given["k"], given["orders"], options.depth)
