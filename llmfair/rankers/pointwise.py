"""Pointwise: every item is asked about alone, "is it relevant?"; the list is ordered by how surely the answer is yes.

Relevance generation of Liang et al. (2022), Holistic Evaluation of Language Models, as ranked by Zhuang et al. (2024),
Beyond Yes and No. No item is shown beside another, so there is no position to prefer, and no question waits for
another.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from llmfair.nouns import Candidates, Completion, Finish, Labels, Ranking, Steps
from llmfair.rankers.answers import BY_FINISH, AnswerClass, ReaderName, Reading
from llmfair.rankers.choices import LEAST_MASS, labels_sent
from llmfair.rankers.questions import ANSWERED, Margins, Question
from llmfair.rankers.strategy import Ask, Plan, Strategy, StrategyOptions
from llmfair.rankers.support import read_support
from llmfair.registry import register

YES, NO = "Yes", "No"
OUT_OF_SIGHT = -50.0
"""The log-probability that stands for that of a label which is not among the alternatives."""


@dataclass(frozen=True)
class YesNo(Question):
    """Whether one item is relevant: the logit of yes less that of no where a backend has margins, else 1 or 0."""

    prompt: str = "pointwise"
    margins: ClassVar[Margins] = "welcome"
    offered: ClassVar[Collection[str]] = ("query", "title")
    needed: ClassVar[Collection[str]] = ("query", "title")

    def values(self, n: int) -> Mapping[str, Any]:
        return {}

    def expects(self, n: int) -> Labels:
        return Labels((YES, NO))

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        sent, mass = labels_sent(completion, (YES, NO))
        if mass >= LEAST_MASS and completion.finish in ANSWERED:
            yes, no = (max(sent.get(label, -math.inf), OUT_OF_SIGHT) for label in (YES, NO))
            return Reading(AnswerClass.OK, (0,), 1, scores=(yes - no,))
        if completion.finish is not Finish.STOP:
            return Reading(BY_FINISH[completion.finish])
        said = read_support(completion)
        return (
            Reading(AnswerClass.NO_IDS)
            if said is None
            else Reading(AnswerClass.OK, (0,), 1, scores=(float(said),))
        )


QUESTION = YesNo()


@dataclass(frozen=True)
class Pointwise(Strategy):
    """By falling score; equal scores keep their order, what cannot be read comes last. `depth`: the first N only."""

    depth: int | None = None
    question: Question = QUESTION
    orderless: bool = True

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        documents = candidates.documents
        found = yield from ask.scores(documents[: self.depth])
        scores = [-math.inf if score is None else score for score in found]
        best_first = sorted(range(len(scores)), key=lambda place: -scores[place])
        ids = [documents[place].doc_id for place in best_first] + [
            one.doc_id for one in documents[len(scores) :]
        ]
        known = None not in found and len(scores) == len(documents)
        told = tuple(scores[place] for place in best_first) if known else None
        return Ranking(candidates.query.query_id, tuple(ids), told)

    def plan(self, n: int) -> Plan:
        asked = min(n, self.depth or n)
        return Plan(asked, min(1, asked))


@register("strategy", "pointwise")
def pointwise(options: StrategyOptions) -> Pointwise:
    """Is it relevant, asked of every item alone, all at once."""
    return Pointwise(options.depth)
