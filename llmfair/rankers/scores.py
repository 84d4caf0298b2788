"""Rankers that people have: they are shown a query and all its documents, and answer with a score for each.

No words are put to them but the query's and the documents'. Their answers are read like any other: a document without
a score, or with two, is counted, and no score is made up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from llmfair.io import files
from llmfair.nouns import Completion, Finish, Scores
from llmfair.rankers import pointwise
from llmfair.rankers.answers import BY_FINISH, AnswerClass, ReaderName, Reading
from llmfair.rankers.questions import Question
from llmfair.rankers.strategy import Plan, StrategyOptions
from llmfair.registry import register


@dataclass(frozen=True)
class Scored(Question):
    """A score for every document of the list."""

    prompt: str = "scores"
    whole: ClassVar[bool] = True
    offered: ClassVar[Collection[str]] = ("query", "title")
    needed: ClassVar[Collection[str]] = ("query", "title")

    def values(self, n: int) -> Mapping[str, Any]:
        return {}

    def expects(self, n: int) -> Scores:
        return Scores(n)

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        if completion.finish is not Finish.STOP:
            return Reading(BY_FINISH[completion.finish])
        return read_scores(completion.text, n)


SCORED = Scored()


def read_scores(text: str, n: int) -> Reading:
    """What pairs of a place and a score say of n documents: of two scores the first counts, null is none.

    Best first, equal scores as they were shown; those without a score come last.
    """
    if not text:  # a dry run's answers hold nothing
        return Reading(AnswerClass.EMPTY)
    found: dict[int, float] = {}
    wrong: list[AnswerClass] = []
    for place, score in files.decode(text.encode()):
        if not 0 <= place < n:
            wrong.append(AnswerClass.OUT_OF_RANGE)
        elif place in found:
            wrong.append(AnswerClass.DUPLICATE)
        elif score is not None:
            found[place] = float(score)
    if not found:
        return Reading(AnswerClass.NO_IDS)
    without = [place for place in range(n) if place not in found]
    wrong += [AnswerClass.MISSING] * bool(without)
    best_first = sorted(found, key=lambda place: (-found[place], place))
    return Reading(
        wrong[0] if wrong else AnswerClass.OK,
        (*best_first, *without),
        len(best_first),
        scores=tuple(found.get(place) for place in range(n)),
    )


def are_places(scores: Sequence[float | None]) -> bool:
    """Whether the scores of a list are 0 to n - 1, each once: as its places are, which argsort gives."""
    return len(scores) > 2 and {*scores} == {*range(len(scores))}


@dataclass(frozen=True)
class Whole(pointwise.Pointwise):
    """By falling score, as pointwise, of scores that one question asks for. It may depend on the order shown."""

    question: Question = SCORED
    orderless: bool = False

    def plan(self, n: int) -> Plan:
        return Plan(min(n, 1), min(n, 1))


@register("strategy", "scores")
def scores(options: StrategyOptions) -> Whole:
    """One request per list, for rankers that score lists: rerank:, python:, cross-encoder:, pyterrier:."""
    return Whole(options.depth)
