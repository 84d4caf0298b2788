"""What a ranker is: a program that asks its questions as steps and returns its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar

from llmfair.rankers.listwise import Ranked
from llmfair.rankers.windows import Window
from llmfair.records import Attribute, Candidates, Document, Probe, Query, Ranking
from llmfair.steps import Steps

T_co = TypeVar("T_co", covariant=True)


class Ranker(Protocol[T_co]):
    """Orders a probe's candidates. It yields chats and receives completions; it never knows who answers."""

    def steps(self, probe: Probe) -> Steps[T_co]:
        """The probe's program, not yet begun."""
        ...


@dataclass(frozen=True, slots=True)
class RankerOptions:
    """What a ranker of its own may need: the dataset's documents, and a folder that outlives the run.

    `checkpoint` is what the model spec names after a colon, `attribute` whose sides a query may name. `passages` says
    what counts of a long page, `backend_args` how a model in this process is run.
    """

    documents: Sequence[Document]
    cache: Path
    attribute: Attribute | None = None
    checkpoint: str = ""
    passages: Literal["first", "max"] = "first"
    backend_args: Mapping[str, str] = field(default_factory=dict)


class ScoringRanker(ABC):
    """Orders a list by a score for every candidate; it asks no model, so it has neither windows nor prompts.

    Made by `factory(options)`, registered as `@register("ranker", NAME)`. `identity` says in words all that can
    change a score; it is part of the run's fingerprint. `worded` says that it reads what a sensitive variant adds
    to the query; any other ranks the same under every variant.
    """

    identity: str
    worded: ClassVar[bool] = False

    @abstractmethod
    def scores(self, candidates: Candidates) -> Sequence[float]:
        """A score for each candidate, in their order; the higher the better."""

    def ordered(self, candidates: Candidates) -> tuple[Candidates, tuple[float, ...]]:
        """The candidates by falling score and their scores; equal scores keep the order they came in."""
        scores = self.scores(candidates)
        best_first = sorted(range(len(scores)), key=lambda place: -scores[place])
        documents = tuple(candidates.documents[place] for place in best_first)
        return replace(candidates, documents=documents), tuple(scores[place] for place in best_first)

    def wording(self, query: Query, variant: str) -> str:
        """The query's text under a prompt variant."""
        return query.text

    def steps(self, probe: Probe) -> Steps[Ranked]:
        """Ranks a probe's candidates without a question."""
        yield from ()
        query = probe.candidates.query
        worded = replace(query, text=self.wording(query, probe.variant))
        candidates, scores = self.ordered(replace(probe.candidates, query=worded))
        return Ranked(Ranking(candidates.query.query_id, candidates.doc_ids, scores), windows=())

    def calls(self, n: int) -> int:
        """Chats per probe of n candidates: none."""
        return 0

    def plan(self, n: int) -> list[Window]:
        """What is ordered at once: the whole list, so that any order is within reach."""
        return [(0, n)]
