"""Strategies: how a list is ordered by asking a model about some of its items at a time, and what answers tell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Protocol

from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Document, Encounter, Ranking, Steps
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.parameters import Declared, read_parameters
from llmfair.rankers.questions import ORDER, Question
from llmfair.registry import lookup

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
    `replaced`: the classes of the bad answers that this one, a later draw, stands in for. `best`: how many items the
    answer names that was asked for the best alone, None where it was asked for all. `scores`: of the items shown.
    `round`: which of the chain's questions were asked at once. `formed`: it and those that it replaced may be answers
    of a model that is held to their form.
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
    best: int | None = None
    scores: tuple[float | None, ...] | None = None
    round: int = 0
    formed: bool = True

    @property
    def identity(self) -> bool:
        """Whether a readable answer is the window's own order; of a choice between two that says nothing."""
        told = len(self.shown) > (1 if self.best is None else 2)
        return told and self.permutation == tuple(range(len(self.shown)))

    @property
    def named(self) -> tuple[str, ...]:
        """The items that the answer names itself, best first: without those that repair put behind them."""
        if self.permutation is None:
            return ()
        count = len(self.permutation) - len(self.omitted) if self.best is None else self.best
        return tuple(self.shown[place] for place in self.permutation[:count])

    @property
    def behind(self) -> tuple[str, ...]:
        """The items that the answer puts behind those that it names, where it was asked for the best alone."""
        if self.permutation is None or self.best is None:
            return ()
        return tuple(self.shown[place] for place in self.permutation[self.best :])


@dataclass(frozen=True, slots=True)
class Ranked:
    """A probe's final order, and every window on the way to it; None where nothing was asked to be ordered whole.

    `asked`: another probe's answer does not stand for its own.
    """

    ranking: Ranking | None
    windows: tuple[WindowAnswer, ...]
    asked: bool = True

    @property
    def encounters(self) -> tuple[Encounter, ...]:
        """What the answers say of items that met for the first time, or were scored one by one."""
        scored = {
            doc_id: score
            for window in self.windows
            for doc_id, score in zip(window.shown, window.scores or (), strict=False)
            if score is not None
        }
        if scored:
            return (scored_encounter(scored),)
        return encounters_of(
            Compared(window.round, window.shown, window.named, window.behind) for window in self.windows
        )


class Compared(NamedTuple):
    """What an answer says: of the items shown it names some, best first, and puts others behind all of these.

    `round`: questions of one round are asked at once, so that none of them hangs on another's answer.
    """

    round: int
    shown: Sequence[str]
    named: Sequence[str]
    behind: Sequence[str] = ()


def encounters_of(answers: Iterable[Compared]) -> tuple[Encounter, ...]:
    """Where at least two items met for the first time, of answers in the order of their rounds.

    Items of an earlier round have been ranked before: its answers chose with whom they meet again.
    """
    seen: set[str] = set()
    found = []
    for _, in_round in groupby(answers, key=attrgetter("round")):
        shown: set[str] = set()
        for answer in in_round:
            shown.update(answer.shown)
            ranked = tuple(doc_id for doc_id in answer.named if doc_id not in seen)
            behind = tuple(doc_id for doc_id in answer.behind if doc_id not in seen)
            if ranked and len(ranked) + len(behind) > 1:
                found.append(Encounter(tuple(answer.shown), ranked, behind))
        seen |= shown
    return tuple(found)


def first_encounters(answers: Iterable[tuple[Sequence[str], Sequence[str]]]) -> tuple[Encounter, ...]:
    """The same of questions that were asked one after the other: items shown, and those that the answer names.

    These come best first; an answer that cannot be read names none.
    """
    return encounters_of(Compared(number, *answer) for number, answer in enumerate(answers))


def scored_encounter(scores: Mapping[str, float]) -> Encounter:
    """Items that were scored one by one, all beside each other."""
    best_first = sorted(scores, key=lambda doc_id: -scores[doc_id])
    return Encounter((), tuple(best_first), scores=tuple(scores[doc_id] for doc_id in best_first))


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
        """Several windows at once, each with the rank of its first item: none waits for another's answer.

        Of a question for the best alone these come first, best first, and the others as they were shown.
        """
        ...

    def scores(self, documents: Sequence[Document]) -> Steps[Sequence[float | None]]:
        """A score for each, None where an answer holds none: asked of all at once, in the form of the question."""
        ...


@dataclass(frozen=True, slots=True)
class StrategyOptions:
    """What the settings of a listwise audit say of how a list is ordered; a strategy reads what it has use for."""

    window: int
    step: int
    passes: int
    depth: int | None
    windows: str
    parameters: str = ""

    def read(self, name: str, declared: Declared) -> dict[str, Any]:
        """The strategy's own parameters, `key=value,…` behind its name, over their defaults. Raises UsageError."""
        return read_parameters(name, self.parameters, declared)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a list takes: how many chats, at most where that is not `exact`, and how many rounds wait for each other."""

    calls: int
    rounds: int
    exact: bool = True


class Strategy(ABC):
    """Orders a list by asking a model about some of its documents at a time.

    Made by `factory(options)`, registered as `@register("strategy", NAME)`. It never knows who answers, nor how a
    question is worded and its answer read, but in which form it asks: its `question`. `passes`: how often it goes
    through a list. `orderless`: the order in which a list is first shown makes no difference but among equals.
    """

    passes: int = 1
    question: Question = ORDER
    orderless: bool = False

    @abstractmethod
    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking | None]:
        """Orders the candidates: `yield from ask(documents, start)` gives documents in the model's order.

        None of a strategy that only asks what a model prefers, and makes no ranking of it.
        """

    def one_pass(self, n: int) -> Sequence[Window] | None:
        """The ranks of n candidates that one pass shows together, in the order of the questions, one after the other.

        What an audit can reach and find is simulated on them. None where they hang on the answers, or are asked at
        once: then the program itself is simulated, and `plan` counts.
        """
        return None

    def plan(self, n: int) -> Plan:
        """What n candidates take, where every answer can be read; retries of bad answers come on top."""
        windows = self.one_pass(n)
        if windows is None:
            raise NotImplementedError(f"{type(self).__name__} has neither windows nor a plan")
        return Plan(self.passes * len(windows), self.passes * len(windows))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its own parameters, of which its identity consists beside its name and its windows."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What results say of the windows: None each where the settings of windows do nothing."""
        return dict.fromkeys(WINDOW_FACTS)


def strategy_of(spec: str, settings: Mapping[str, Any]) -> Strategy:
    """A registered strategy, `NAME[:key=value,…]`, from settings of a listwise audit. Raises UsageError."""
    name, _, parameters = spec.partition(":")
    told = {item.name: settings[item.name] for item in fields(StrategyOptions) if item.name != "parameters"}
    strategy: Strategy = lookup("strategy", name)(StrategyOptions(**told, parameters=parameters))
    if parameters and not strategy.parameters:
        raise UsageError(f"strategy {name} has no parameters.", f"write --strategy {name}")
    return strategy


def spelled_strategy(spec: str, strategy: Strategy) -> str:
    """A strategy as it is called everywhere: by its name and all its parameters."""
    spelled = ",".join(f"{name}={value}" for name, value in strategy.parameters.items())
    return spec.partition(":")[0] + (f":{spelled}" if spelled else "")
