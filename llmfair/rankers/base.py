"""Who orders a list: rankers that ask nothing, and strategies that order it by asking a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from llmfair.errors import UsageError
from llmfair.metrics.base import Groups
from llmfair.rankers.answers import AnswerClass
from llmfair.records import Attribute, Candidates, Document, Encounter, Probe, Query, Ranking
from llmfair.registry import lookup
from llmfair.steps import Steps

Window = tuple[int, int]
"""Neighbouring ranks that are ordered at once: half-open, (start, end), 0 is the head."""
Place = Literal["tail", "middle", "head"]
WINDOW_FACTS = ("window", "step", "passes", "windows")


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """One window and what its answer did.

    `place`: the first window of a pass is its tail, the last (and an only one) its head. `repaired`: a bad
    answer of which something could be used; `unparseable`: one that left the window as it was. `permutation`: the
    places of the window in the order that the readable answer gives them. `omitted`: shown, but not named by it.
    `replaced`: the classes of the bad answers that this one, a later draw, stands in for.
    """

    pass_number: int
    start: int
    end: int
    place: Place
    answer_class: AnswerClass
    repaired: bool
    unparseable: bool
    permutation: tuple[int, ...] | None
    readers_differ: bool
    shown: tuple[str, ...]
    omitted: tuple[str, ...]
    draw: int
    replaced: tuple[AnswerClass, ...] = ()

    @property
    def identity(self) -> bool:
        """Whether a readable answer is the window's own order."""
        return self.permutation == tuple(range(len(self.shown)))

    @property
    def named(self) -> tuple[str, ...]:
        """The items that the answer names itself, best first: without those that repair put behind them."""
        if self.permutation is None:
            return ()
        count = len(self.permutation) - len(self.omitted)
        return tuple(self.shown[place] for place in self.permutation[:count])


@dataclass(frozen=True, slots=True)
class Ranked:
    """A probe's final order, and every window on the way to it; None where nothing was asked to be ordered whole."""

    ranking: Ranking | None
    windows: tuple[WindowAnswer, ...]

    @property
    def encounters(self) -> tuple[Encounter, ...]:
        """What the answers say of items that met for the first time."""
        return first_encounters((window.shown, window.named) for window in self.windows)


def first_encounters(answers: Iterable[tuple[Sequence[str], Sequence[str]]]) -> tuple[Encounter, ...]:
    """Where at least two items met for the first time, of questions and answers in the order they were asked.

    An answer is (items shown, those of them that it names, best first); it names none where it cannot be read.
    """
    seen: set[str] = set()
    found = []
    for shown, named in answers:
        ranked = tuple(doc_id for doc_id in named if doc_id not in seen)
        seen.update(shown)
        if len(ranked) > 1:
            found.append(Encounter(tuple(shown), ranked))
    return tuple(found)


class Ask(Protocol):
    """Shows documents to a model, and gives them back in its order; as they were where its answer cannot be read."""

    def __call__(
        self, shown: Sequence[Document], start: int, pass_number: int = 1
    ) -> Steps[Sequence[Document]]:
        """`start` is the rank of the first of them, from 0; a pass goes once through the list."""
        ...

    def together(
        self, windows: Sequence[tuple[Sequence[Document], int]], pass_number: int = 1
    ) -> Steps[Sequence[Sequence[Document]]]:
        """Several windows at once, each with the rank of its first item: none waits for another's answer."""
        ...


@dataclass(frozen=True, slots=True)
class StrategyOptions:
    """What the settings of a listwise audit say of how a list is ordered; a strategy reads what it has use for."""

    window: int
    step: int
    passes: int
    depth: int | None
    windows: str


class Strategy(ABC):
    """Orders a list by asking a model about some of its documents at a time.

    Made by `factory(options)`, registered as `@register("strategy", NAME)`. It never knows who answers, nor how a
    question is worded and its answer read. `passes`: how often it goes through a list.
    """

    passes: int = 1

    @abstractmethod
    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking | None]:
        """Orders the candidates: `yield from ask(documents, start)` gives documents in the model's order.

        None of a strategy that only asks what a model prefers, and makes no ranking of it.
        """

    @abstractmethod
    def plan(self, n: int) -> Sequence[Window]:
        """The ranks of n candidates that one pass shows together, in the order of the questions.

        What an audit can reach and find is simulated on them. Where they hang on the answers, `[(0, n)]` says that
        any order is within reach, and `calls` counts.
        """

    def calls(self, n: int) -> int:
        """Chats about n candidates; retries of bad answers come on top."""
        return self.passes * len(self.plan(n))

    def facts(self) -> dict[str, Any]:
        """What results say of the windows: None each where the settings of windows do nothing."""
        return dict.fromkeys(WINDOW_FACTS)


def strategy_of(name: str, settings: Mapping[str, Any]) -> Strategy:
    """A registered strategy, from settings of a listwise audit. Raises UsageError."""
    options = StrategyOptions(**{item.name: settings[item.name] for item in fields(StrategyOptions)})
    strategy: Strategy = lookup("strategy", name)(options)
    return strategy


@dataclass(frozen=True, slots=True)
class RankerOptions:
    """What a ranker of its own may need: the dataset's documents, and a folder that outlives the run.

    `checkpoint` is what the model spec names after a colon, `attribute` whose sides a query may name. `passages` says
    what counts of a long page, `backend_args` how a model in this process is run. `each_list`: every list is a
    collection of its own, so that what a ranker counts in documents, it counts in those of the list. `lists` makes the
    lists with judgements that a ranker may learn from, `groups` say who is in which group.
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
    change an order; it is part of the run's fingerprint. `worded` says that it reads what a sensitive variant adds
    to the query; any other ranks the same under every variant. `made_for_texts`: it was trained on passages of text.
    `target_known`: whose shares of groups to aim at it is told: nobody's, those of the topics that it learns from, or
    those of the very queries that it orders.
    `reads_texts`: it has to know what query and documents say, even where they come with scores; `reads_groups`: who
    is in which group. `warnings`: what readers of its orders have to know.
    """

    passes: ClassVar[int] = 1
    identity: str
    worded: ClassVar[bool] = False
    made_for_texts: ClassVar[bool] = False
    target_known: Literal["no", "training topics", "yes"] = "no"
    warnings: tuple[str, ...] = ()
    reads_texts: ClassVar[bool] = True
    reads_groups: ClassVar[bool] = False

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

    def calls(self, n: int) -> int:
        """Chats per probe of n candidates: none."""
        return 0

    def plan(self, n: int) -> list[Window]:
        """What is ordered at once: the whole list, so that any order is within reach."""
        return [(0, n)]


class ScoringRanker(Ranker):
    """Orders a list by a score for every candidate.

    `costly`: it takes a model of this machine, so that its scores are worth keeping.
    """

    costly: ClassVar[bool] = False

    @abstractmethod
    def scores(self, candidates: Candidates) -> Sequence[float]:
        """A score for each candidate, in their order; the higher the better."""

    def ordered(self, candidates: Candidates) -> tuple[Candidates, tuple[float, ...] | None]:
        """The candidates by falling score and their scores; equal scores keep the order they came in."""
        scores = self.scores(candidates)
        best_first = sorted(range(len(scores)), key=lambda place: -scores[place])
        return candidates.at(best_first), tuple(scores[place] for place in best_first)


def remarks(ranker: Ranker, ordered: Sequence[Candidates]) -> list[str]:
    """What has to be said of these orders, each sentence once with the number of queries."""
    said = Counter(filter(None, map(ranker.remark, ordered)))
    return [f"{one} ({n} of {len(ordered)} queries)" for one, n in said.items()]


def scoring(name: str, ranker: Ranker) -> ScoringRanker:
    """The ranker, where scores are needed. Raises UsageError for one that orders without."""
    if not isinstance(ranker, ScoringRanker):
        raise UsageError(f"{name} gives an order and no scores, which are needed here.", "for example bm25")
    return ranker
