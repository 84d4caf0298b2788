"""What a ranker is: a program that asks its questions as steps and returns its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from llmfair.rankers.listwise import Ranked
from llmfair.rankers.windows import Window
from llmfair.records import Candidates, Document, Probe, Ranking, Steps

T_co = TypeVar("T_co", covariant=True)


class Ranker(Protocol[T_co]):
    """Orders a probe's candidates. It yields chats and receives completions; it never knows who answers."""

    def steps(self, probe: Probe) -> Steps[T_co]:
        """The probe's program, not yet begun."""
        ...


@dataclass(frozen=True, slots=True)
class RankerOptions:
    """What a ranker of its own may need: the dataset's documents, and a folder that outlives the run."""

    documents: Sequence[Document]
    cache: Path


class ScoringRanker(ABC):
    """Orders a list by a score for every candidate; it asks no model, so it has neither windows nor prompts.

    Made by `factory(options)`, registered as `@register("ranker", NAME)`. `identity` says in words all that can
    change a score; it is part of the run's fingerprint.
    """

    identity: str

    @abstractmethod
    def scores(self, candidates: Candidates) -> Sequence[float]:
        """A score for each candidate, in their order; the higher the better."""

    def ordered(self, candidates: Candidates) -> tuple[Candidates, tuple[float, ...]]:
        """The candidates by falling score and their scores; equal scores keep the order they came in."""
        scores = self.scores(candidates)
        best_first = sorted(range(len(scores)), key=lambda place: -scores[place])
        documents = tuple(candidates.documents[place] for place in best_first)
        return replace(candidates, documents=documents), tuple(scores[place] for place in best_first)

    def steps(self, probe: Probe) -> Steps[Ranked]:
        """Ranks a probe's candidates without a question."""
        yield from ()
        candidates, scores = self.ordered(probe.candidates)
        return Ranked(Ranking(candidates.query.query_id, candidates.doc_ids, scores), windows=())

    def calls(self, n: int) -> int:
        """Chats per probe of n candidates: none."""
        return 0

    def plan(self, n: int) -> list[Window]:
        """What is ordered at once: the whole list, so that any order is within reach."""
        return [(0, n)]
