"""Setwise: which of a few items is the most relevant? Heapsort by these answers, until the top stands.

Zhuang et al. (2024), A Setwise Approach for Effective and Highly Efficient Zero-shot Ranking with Large Language
Models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmfair.nouns import Candidates, Document, Ranking, Steps
from llmfair.rankers.heaps import most_asked, top_of
from llmfair.rankers.parameters import whole
from llmfair.rankers.questions import MOST_LABELS, Choice, Question
from llmfair.rankers.strategy import Ask, Plan, Strategy, StrategyOptions
from llmfair.registry import register

QUESTION = Choice("setwise")


@dataclass(frozen=True)
class Setwise(Strategy):
    """A parent and its c − 1 children in one question; the others keep their order behind the best k."""

    c: int = 4
    k: int = 20
    depth: int | None = None
    question: Question = QUESTION

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        documents = candidates.documents
        rank_of = {document.doc_id: rank for rank, document in enumerate(documents)}

        def best(shown: Sequence[Document]) -> Steps[int]:
            first, *_ = yield from ask(shown, rank_of[shown[0].doc_id])
            return shown.index(first)

        top = yield from top_of(documents[: self.depth], self.k, self.c - 1, best)
        order = [*top, *documents[len(top) :]]
        return Ranking(candidates.query.query_id, tuple(document.doc_id for document in order))

    def plan(self, n: int) -> Plan:
        asked = len(most_asked(min(n, self.depth or n), self.k, self.c - 1))
        return Plan(asked, asked, exact=asked < 2)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"c": self.c, "k": self.k}


@register("strategy", "setwise")
def setwise(options: StrategyOptions) -> Setwise:
    """Which of c items is the most relevant: a heap, until the best k stand."""
    given = options.read("setwise", {"c": whole(4, MOST_LABELS, least=2), "k": whole(20, 10_000)})
    return Setwise(given["c"], given["k"], options.depth)
