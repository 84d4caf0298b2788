"""Rankers that order a list themselves and ask nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from llmfair.errors import UsageError
from llmfair.metrics.base import Groups
from llmfair.nouns import Attribute, Candidates, Document, Probe, Query, Ranking, Steps
from llmfair.rankers.strategies import Plan, Ranked, Window


@dataclass(frozen=True, slots=True)
class RankerOptions:
    """What a ranker of its own may need: the dataset's documents, and a folder that outlives the run.

    `checkpoint` is what the model spec names after a colon, `passages` says what counts of a long page,
    `backend_args` how a model in this process is run. `each_list`: what a ranker counts in documents, it counts in
    those of the list. `lists` makes the lists with judgements that a ranker may learn from.
    """

    documents: Sequence[Document]
    cache: Path
    attribute: Attribute | None = None
    checkpoint: str = ""
    passages: Literal["first", "max"] = "first"
    backend_args: Mapping[str, str] = field(default_factory=dict)
    each_list: bool = False
    lists: Callable[[], Iterable[Candidates]] = tuple
    groups: Groups = field(default_factory=Groups)


class Ranker(ABC):
    """Orders a list itself; it asks no model, so it has neither windows nor prompts.

    Made by `factory(options)`, registered as `@register("ranker", NAME)`. `identity` says in words all that can
    change an order; it is part of the run's fingerprint. `worded`: it reads what a sensitive variant adds to the
    query. `target_known`: whose shares of groups to aim at it is told: nobody's, those of the topics that it learns
    from, or those of the very queries that it orders. `reads_texts`: it has to know what query and documents say,
    even where they come with scores; `reads_groups`: who is in which group; `weighs_scores`: how far apart the scores
    are that candidates come with.
    """

    passes: ClassVar[int] = 1
    identity: str
    worded: ClassVar[bool] = False
    target_known: Literal["no", "training topics", "yes"] = "no"
    reads_texts: ClassVar[bool] = True
    reads_groups: ClassVar[bool] = False
    weighs_scores: bool = False

    @abstractmethod
    def ordered(self, candidates: Candidates) -> tuple[Candidates, tuple[float, ...] | None]:
        """The candidates, best first, and the scores that order them, if any do."""

    def remark(self, ordered: Candidates) -> str:
        """What has to be said of an order that it made, such as a promise it could not keep; mostly nothing."""
        return ""

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

    def plan(self, n: int) -> Plan:
        """No chat."""
        return Plan(0, 0)

    def one_pass(self, n: int) -> list[Window]:
        """What is ordered at once: the whole list, so that any order is within reach."""
        return [(0, n)]


class ScoringRanker(Ranker):
    """Orders a list by a score for every candidate.

    `costly`: it takes a model of this machine. `scored_together`: so many items in a row are scored alike to the last
    digit whatever else is in the list; None: only all of them are.
    """

    costly: ClassVar[bool] = False
    scored_together: int | None = None

    @abstractmethod
    def scores(self, candidates: Candidates) -> Sequence[float]:
        """A score for each candidate, in their order; the higher the better."""

    def scores_of_each(self, lists: Iterable[Candidates]) -> Iterator[Sequence[float]]:
        """The scores of each list."""
        return map(self.scores, lists)

    def ordered(self, candidates: Candidates) -> tuple[Candidates, tuple[float, ...] | None]:
        """The candidates by falling score and their scores; equal scores keep the order they came in."""
        scores = self.scores(candidates)
        places = best_first(scores)
        return candidates.at(places), tuple(scores[place] for place in places)


def best_first(scores: Sequence[float]) -> list[int]:
    """The places of scores, the highest first, equal ones in their order."""
    return sorted(range(len(scores)), key=lambda place: -scores[place])


def remarks(ranker: Ranker, ordered: Sequence[Candidates]) -> list[str]:
    """What has to be said of these orders, each sentence once with the number of queries."""
    counts = Counter(filter(None, map(ranker.remark, ordered)))
    return [f"{remark} ({n} of {len(ordered)} queries)" for remark, n in counts.items()]


def scoring(name: str, ranker: Ranker) -> ScoringRanker:
    """The ranker, where scores are needed. Raises UsageError for one that orders without."""
    if not isinstance(ranker, ScoringRanker):
        raise UsageError(f"{name} gives an order and no scores, which are needed here.", "for example bm25")
    return ranker
