"""A tournament: groups of items, of which the best few advance, until one is left; several times in other groups.

Chen et al. (2025), TourRank: Utilizing Large Language Models for Documents Ranking with a Tournament-Inspired Strategy.
An item has a point for every stage that it came through; points of all rounds are added.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np

from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Completion, Document, Permutation, Ranking, Steps
from llmfair.rankers.answers import AnswerClass, ReaderName, Reading, read
from llmfair.rankers.parameters import whole
from llmfair.rankers.questions import Question
from llmfair.rankers.strategy import Ask, Plan, Strategy, StrategyOptions
from llmfair.registry import register


@dataclass(frozen=True)
class BestOf(Question):
    """The best of a group, best first, by their numbers: as large a share of it as `best` is of `group`."""

    group: int
    of_group: int
    prompt: str = "tournament"
    offered: ClassVar[Collection[str]] = ("query", "k", "title", "n", "m")
    needed: ClassVar[Collection[str]] = ("query", "k", "title", "m")

    def values(self, n: int) -> Mapping[str, Any]:
        return {"n": n, "m": self.best(n)}

    def best(self, n: int) -> int:
        return min(n - 1, ceil(n * self.of_group / self.group))

    def expects(self, n: int) -> Permutation:
        return Permutation(n, self.best(n))

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        found, asked = read(completion, n), self.best(n)
        if found.permutation is None:
            return found
        named = found.permutation[: min(found.named, asked)]
        order = (*named, *(place for place in range(n) if place not in named))
        whole = found.answer_class in (AnswerClass.OK, AnswerClass.MISSING) and len(named) == asked
        return Reading(AnswerClass.OK if whole else found.answer_class, order, len(named))


@dataclass(frozen=True)
class Tournament(Strategy):
    """`rounds` tournaments side by side; equal points keep the initial ranking. `depth`: of the first N only."""

    question: BestOf
    rounds: int = 2
    depth: int | None = None

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        head = candidates.documents[: self.depth]
        query = zlib.crc32(candidates.query.query_id.encode())
        rngs = [np.random.default_rng([number, query]) for number in range(self.rounds)]
        points: dict[str, float] = defaultdict(float)
        left: list[Sequence[Document]] = [head] * self.rounds
        for sizes in self._stages(len(head)):
            groups = [group for one, rng in zip(left, rngs, strict=True) for group in _cut(one, sizes, rng)]
            asked = [group for group in groups if len(group) > 1]
            answered = iter((yield from ask.together([(group, 0) for group in asked])))
            through = [
                list(next(answered))[: self.question.best(len(group))] if len(group) > 1 else group
                for group in groups
            ]
            for group in through:
                for document in group:
                    points[document.doc_id] += 1
            each = len(sizes)
            left = [
                [document for group in through[start : start + each] for document in group]
                for start in range(0, len(through), each)
            ]
        order = sorted(head, key=lambda document: -points[document.doc_id])
        scores = tuple(points[document.doc_id] for document in order)
        order += candidates.documents[len(head) :]
        ids = tuple(document.doc_id for document in order)
        return Ranking(candidates.query.query_id, ids, scores if len(scores) == len(ids) else None)

    def _stages(self, n: int) -> Sequence[Sequence[int]]:
        """The sizes of the groups of every stage."""
        stages = []
        while n > 1:
            count = ceil(n / self.question.group)
            sizes = [n * (number + 1) // count - n * number // count for number in range(count)]
            stages.append(sizes)
            n = sum(self.question.best(size) if size > 1 else 1 for size in sizes)
        return stages

    def plan(self, n: int) -> Plan:
        stages = self._stages(min(n, self.depth or n))
        return Plan(self.rounds * sum(size > 1 for sizes in stages for size in sizes), len(stages))

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"group": self.question.group, "best": self.question.of_group, "rounds": self.rounds}


def _cut(
    documents: Sequence[Document], sizes: Sequence[int], rng: np.random.Generator
) -> list[list[Document]]:
    """Random groups of these sizes."""
    shuffled = [documents[place] for place in rng.permutation(len(documents))]
    ends = np.cumsum(sizes).tolist()
    return [shuffled[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@register("strategy", "tournament")
def tournament(options: StrategyOptions) -> Tournament:
    """Of groups the best few advance, until one is left; several rounds, points added."""
    declared = {"group": whole(20, 1000, least=2), "best": whole(10, 999), "rounds": whole(2, 100)}
    given = options.read("tournament", declared)
    if given["best"] >= given["group"]:
        raise UsageError(
            f"tournament: of groups of {given['group']} the best {given['best']} would be all.",
            f"for example tournament:group={given['group']},best={ceil(given['group'] / 2)}",
        )
    return Tournament(BestOf(given["group"], given["best"]), given["rounds"], options.depth)
