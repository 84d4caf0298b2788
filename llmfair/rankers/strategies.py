"""Strategies: how a list is ordered by asking a model about some of its items at a time, and what answers tell."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, groupby, pairwise
from math import ceil
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from llmfair.errors import UsageError
from llmfair.metrics.base import Declared, read_parameters, spelled, whole
from llmfair.nouns import Candidates, Document, Encounter, Ranking, Steps, picked
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.questions import LETTERS, MOST_LABELS, ORDER, SCORED, BestOf, Choice, Question, YesNo
from llmfair.registry import lookup, register

Window = tuple[int, int]
"""Neighbouring ranks that are ordered at once: half-open, (start, end), 0 is the head."""
WINDOW_FACTS = ("window", "step", "passes", "windows")


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """One window and what its answer did.

    `repaired`: a bad answer of which something could be used; `unparseable`: one that left the window as it was.
    `omitted`: shown, but not named by it. `replaced`: the classes of the bad answers that this one, a later draw,
    stands in for. `best`: how many items the answer names that was asked for the best alone, None where it was asked
    for all. `round`: which of the chain's questions were asked at once. `formed`: it and those that it replaced may
    be answers of a model that is held to their form.
    """

    pass_number: int
    start: int
    end: int
    answer_class: AnswerClass
    repaired: bool
    unparseable: bool
    permutation: tuple[int, ...] | None
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
        enough = len(self.shown) > (1 if self.best is None else 2)
        return enough and self.permutation == tuple(range(len(self.shown)))

    @property
    def named(self) -> tuple[str, ...]:
        """The items that the answer names itself, best first: without those that repair put behind them."""
        count = len(self.shown) - len(self.omitted) if self.best is None else self.best
        return tuple(self.shown[place] for place in (self.permutation or ())[:count])

    @property
    def behind(self) -> tuple[str, ...]:
        """The items that the answer puts behind those that it names, where it was asked for the best alone."""
        behind = () if self.best is None else (self.permutation or ())[self.best :]
        return tuple(self.shown[place] for place in behind)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A probe's final order, None where there is none, and its windows; `asked`: no other answer stands for it."""

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
            PartialOrder(window.round, window.shown, window.named, window.behind) for window in self.windows
        )


class PartialOrder(NamedTuple):
    """What an answer names, best first, and puts behind, of the items shown; those of a `round` are asked at once."""

    round: int
    shown: Sequence[str]
    named: Sequence[str]
    behind: Sequence[str] = ()


def encounters_of(answers: Iterable[PartialOrder]) -> tuple[Encounter, ...]:
    """Where at least two items met for the first time, of answers in the order of their rounds.

    Whom items of an earlier round meet again was chosen by its answers. What a readable answer does not place, it
    leaves out.
    """
    seen: set[str] = set()
    encounters = []
    for _, in_round in groupby(answers, key=attrgetter("round")):
        in_sight: set[str] = set()
        for answer in in_round:
            in_sight.update(answer.shown)
            if sum(doc_id not in seen for doc_id in answer.shown) < 2:
                continue
            ranked = tuple(doc_id for doc_id in answer.named if doc_id not in seen)
            behind = tuple(doc_id for doc_id in answer.behind if doc_id not in seen)
            placed = {*seen, *answer.named, *answer.behind}
            left_out = tuple(doc_id for doc_id in answer.shown if answer.named and doc_id not in placed)
            if len(ranked) + len(behind) + len(left_out) > 1:
                encounters.append(Encounter(tuple(answer.shown), ranked, behind, left_out=left_out))
        seen |= in_sight
    return tuple(encounters)


def scored_encounter(scores: Mapping[str, float]) -> Encounter:
    """Items that were scored one by one, all beside each other."""
    best_first = sorted(scores, key=lambda doc_id: -scores[doc_id])
    return Encounter((), tuple(best_first), scores=tuple(scores[doc_id] for doc_id in best_first))


class Ask(Protocol):
    """Shows documents to a model, and gives them back in its order; as they were where its answer cannot be read."""

    def __call__(
        self, documents: Sequence[Document], start: int, pass_number: int = 1
    ) -> Steps[Sequence[Document]]:
        """`start` is the rank of the first of them, from 0; a pass goes once through the list."""

    def together(
        self, windows: Sequence[tuple[Sequence[Document], int]], pass_number: int = 1
    ) -> Steps[Sequence[Sequence[Document]]]:
        """Several windows at once, each with the rank of its first item; of a choice, the best come first."""

    def scores(self, documents: Sequence[Document]) -> Steps[Sequence[float | None]]:
        """A score for each, None where an answer holds none: asked of all at once, in the form of the question."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a list takes: how many chats, at most where that is not `exact`, and how many rounds wait for each other."""

    calls: int
    rounds: int
    exact: bool = True


class Strategy(ABC):
    """Orders a list by asking a model about some of its documents at a time.

    A dataclass, registered as `@register("strategy", NAME)`: its fields are settings of a listwise audit that it has
    use for (`window`, `step`, `passes`, `depth`, `windows`), and the parameters behind its name, which are
    `declared`. `question`: in which form it asks. `passes`: how often it goes through a list. `orderless`: the order
    in which a list is first shown makes no difference but among equals.
    """

    declared: ClassVar[Declared] = {}
    passes: int = 1

    @property
    def question(self) -> Question:
        return ORDER

    @property
    def orderless(self) -> bool:
        return False

    @abstractmethod
    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking | None]:
        """Orders by `yield from ask(documents, start)`; None of a strategy that makes no ranking of the answers."""

    def one_pass(self, n: int) -> Sequence[Window] | None:
        """The ranks of n candidates that one pass shows together, in the order of the questions, one after the other.

        None where they hang on the answers, or are asked at once: then the program itself is simulated, and `plan`
        counts.
        """
        return None

    def plan(self, n: int) -> Plan:
        """What n candidates take, where every answer can be read; retries of bad answers come on top."""
        windows = self.one_pass(n)
        assert windows is not None, f"{type(self).__name__} has neither windows nor a plan"
        return Plan(self.passes * len(windows), self.passes * len(windows))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its own parameters, of which its identity consists beside its name and its windows."""
        return picked(self, self.declared)

    def facts(self) -> dict[str, Any]:
        """What results say of the windows: None each where the settings of windows do nothing."""
        return {name: vars(self).get(name) for name in WINDOW_FACTS}


def strategy_of(spec: str, settings: Mapping[str, Any]) -> Strategy:
    """A registered strategy, `NAME[:key=value,…]`, from settings of a listwise audit. Raises UsageError."""
    name, _, text = spec.partition(":")
    kind = lookup("strategy", name)
    of_settings = {field.name: settings[field.name] for field in fields(kind) if field.name in settings}
    strategy: Strategy = kind(**{**of_settings, **read_parameters(name, text, kind.declared)})
    return strategy


def spelled_strategy(spec: str, strategy: Strategy) -> str:
    """A strategy as it is called everywhere: by its name and all its parameters."""
    parameters = spelled(strategy.parameters, ",")
    return spec.partition(":")[0] + (f":{parameters}" if parameters else "")


def _ranking(candidates: Candidates, head: Sequence[Document]) -> Ranking:
    """These of the candidates, best first, then the others as they were."""
    order = (*head, *candidates.documents[len(head) :])
    return Ranking(candidates.query.query_id, tuple(document.doc_id for document in order))


def _by_scores(candidates: Candidates, scores: Sequence[float | None]) -> Ranking:
    """The first candidates by falling score, None last, then the others; scored where all of the list are."""
    values = [-math.inf if score is None else score for score in scores]
    best_first = sorted(range(len(scores)), key=lambda place: -values[place])
    ranking = _ranking(candidates, [candidates.documents[place] for place in best_first])
    if None in scores or len(scores) < len(candidates.documents):
        return ranking
    return replace(ranking, scores=tuple(values[place] for place in best_first))


Best = Callable[[Sequence[Document]], Steps[int]]
"""Asks which of a parent and its children, in this order, is best: its place."""


def top_of(documents: Sequence[Document], k: int, children: int, best: Best) -> Steps[list[Document]]:
    """The best k, best first, by heapsort, then the others in the order they came in."""
    heap = list(documents)

    def sink(parent: int) -> Steps[None]:
        while (first := parent * children + 1) < len(heap):
            places = [parent, *range(first, min(first + children, len(heap)))]
            chosen = places[(yield from best([heap[place] for place in places]))]
            if chosen == parent:
                return
            heap[parent], heap[chosen] = heap[chosen], heap[parent]
            parent = chosen

    for parent in reversed(range((len(heap) - 2) // children + 1)):
        yield from sink(parent)
    top: list[Document] = []
    while heap and len(top) < k:
        top.append(heap[0])
        last = heap.pop()
        if heap and len(top) < k:
            heap[0] = last
            yield from sink(0)
    in_top = {document.doc_id for document in top}
    return top + [document for document in documents if document.doc_id not in in_top]


def most_compared(n: int, k: int, children: int) -> list[int]:
    """How many items are compared in each comparison, of as many comparisons as there can be."""
    sizes: list[int] = []

    def sinks(documents: Sequence[Document]) -> Steps[int]:
        yield from ()
        sizes.append(len(documents))
        return 1

    deque(top_of([Document(str(place), "") for place in range(n)], k, children, sinks), 0)
    return sizes


# Zhuang et al. (2024), A Setwise Approach for Effective and Highly Efficient Zero-shot Ranking with LLMs


@register("strategy", "setwise")
@dataclass(frozen=True)
class Setwise(Strategy):
    """Which of c items is the most relevant: a heap, until the best k stand.

    A parent and its c − 1 children are one question; the others keep their order behind the best k.
    """

    c: int = 4
    k: int = 20
    depth: int | None = None
    question: ClassVar[Question] = Choice("setwise")
    declared = {"c": whole(4, MOST_LABELS, least=2), "k": whole(20, 10_000)}

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        rank_of = {doc_id: rank for rank, doc_id in enumerate(candidates.doc_ids)}

        def best(documents: Sequence[Document]) -> Steps[int]:
            first, *_ = yield from ask(documents, rank_of[documents[0].doc_id])
            return documents.index(first)

        head = candidates.documents[: self.depth]
        return _ranking(candidates, (yield from top_of(head, self.k, self.c - 1, best)))

    def plan(self, n: int) -> Plan:
        count = len(most_compared(min(n, self.depth or n), self.k, self.c - 1))
        return Plan(count, count, exact=count < 2)


# Chen et al. (2025), TourRank: Utilizing LLMs for Documents Ranking with a Tournament-Inspired Strategy


@register("strategy", "tournament")
@dataclass(frozen=True)
class Tournament(Strategy):
    """Of groups the best few advance, until one is left; several rounds, points added.

    A point for every stage that an item comes through; equal points keep the initial ranking. Rounds are asked at once.
    """

    group: int = 20
    best: int = 10
    rounds: int = 2
    depth: int | None = None
    declared = {"group": whole(20, 1000, least=2), "best": whole(10, 999), "rounds": whole(2, 100)}

    def __post_init__(self) -> None:
        if self.best >= self.group:
            raise UsageError(
                f"tournament: of groups of {self.group} the best {self.best} would be all.",
                f"for example tournament:group={self.group},best={ceil(self.group / 2)}",
            )

    @property
    def question(self) -> BestOf:
        return BestOf(self.group, self.best)

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        head, best = candidates.documents[: self.depth], self.question.best
        query = zlib.crc32(candidates.query.query_id.encode())
        rngs = [np.random.default_rng([number, query]) for number in range(self.rounds)]
        points: dict[str, float] = defaultdict(float)
        left = [[*head] for _ in rngs]
        for sizes in self._stages(len(head)):
            ends, groups = np.cumsum(sizes).tolist(), list[tuple[int, list[Document]]]()
            for tournament, rng in enumerate(rngs):
                shuffled = [left[tournament][place] for place in rng.permutation(ends[-1])]
                groups += [(tournament, shuffled[end - n : end]) for n, end in zip(sizes, ends, strict=True)]
            answered = iter((yield from ask.together([(group, 0) for _, group in groups if len(group) > 1])))
            left = [[] for _ in rngs]
            for tournament, group in groups:
                through = list(next(answered))[: best(len(group))] if len(group) > 1 else group
                left[tournament] += through
                for document in through:
                    points[document.doc_id] += 1
        return _by_scores(candidates, [points[document.doc_id] for document in head])

    def _stages(self, n: int) -> Sequence[Sequence[int]]:
        """The sizes of the groups of every stage."""
        stages = []
        while n > 1:
            count = ceil(n / self.group)
            sizes = [n * (number + 1) // count - n * number // count for number in range(count)]
            stages.append(sizes)
            n = sum(max(1, self.question.best(size)) for size in sizes)
        return stages

    def plan(self, n: int) -> Plan:
        stages = self._stages(min(n, self.depth or n))
        return Plan(self.rounds * sum(size > 1 for sizes in stages for size in sizes), len(stages))


# Qin et al. (2024), Large Language Models are Effective Text Rankers with Pairwise Ranking Prompting


@register("strategy", "pairwise-sort")
@dataclass(frozen=True)
class PairwiseSort(Strategy):
    """Which of two items is the more relevant: a heap, until the best k stand, or all pairs.

    `heapsort`: the better of two children, then it against their parent. `orders` 2 asks every pair in both orders at
    once: the one that stands first stays where the answers disagree. `allpairs`: every pair in both orders, all at
    once, half a point for each time ahead. Equal points keep the initial ranking.
    """

    method: str = "heapsort"
    k: int = 20
    orders: int = 1
    depth: int | None = None
    question: ClassVar[Question] = Choice("pairwise-sort")
    declared = {"method": ("heapsort", "allpairs"), "k": whole(20, 10_000), "orders": whole(1, 2)}

    @property
    def orderless(self) -> bool:
        return self.method == "allpairs"

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        head = candidates.documents[: self.depth]
        if self.method == "allpairs":
            pairs = [
                (pair, rank)
                for (rank, item), (_, other) in combinations(enumerate(head), 2)
                for pair in ((item, other), (other, item))
            ]
            points: dict[str, float] = defaultdict(float)
            for first, _ in (yield from ask.together(pairs)) if pairs else []:
                points[first.doc_id] += 0.5
            return _by_scores(candidates, [points[document.doc_id] for document in head])
        rank_of = {doc_id: rank for rank, doc_id in enumerate(candidates.doc_ids)}

        def better(item: Document, other: Document) -> Steps[Document]:
            both = [[item, other], [other, item]][: self.orders]
            answers = yield from ask.together([(pair, rank_of[pair[0].doc_id]) for pair in both])
            return other if all(first is other for first, _ in answers) else item

        def best(documents: Sequence[Document]) -> Steps[int]:
            parent, child, *sibling = documents
            for other in sibling:
                child = yield from better(child, other)
            return documents.index((yield from better(parent, child)))

        return _ranking(candidates, (yield from top_of(head, self.k, 2, best)))

    def plan(self, n: int) -> Plan:
        n = min(n, self.depth or n)
        if self.method == "allpairs":
            return Plan(n * (n - 1), min(1, n - 1))
        rounds = sum(size - 1 for size in most_compared(n, self.k, 2))
        return Plan(rounds * self.orders, rounds, exact=rounds < 2)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"method": "allpairs"} if self.method == "allpairs" else super().parameters


# Liang et al. (2022), Holistic Evaluation of Language Models, as ranked by Zhuang et al. (2024), Beyond Yes and No


@register("strategy", "pointwise")
@dataclass(frozen=True)
class Pointwise(Strategy):
    """Is it relevant, asked of every item alone, all at once.

    By falling score; equal scores keep their order, what cannot be read comes last. `depth`: the first N only.
    """

    depth: int | None = None
    question: ClassVar[Question] = YesNo()
    orderless: ClassVar[bool] = True

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        return _by_scores(candidates, (yield from ask.scores(candidates.documents[: self.depth])))

    def plan(self, n: int) -> Plan:
        count = min(n, self.depth or n)
        return Plan(count, min(1, count))


@register("strategy", "scores")
@dataclass(frozen=True)
class Whole(Pointwise):
    """One request per list, for rankers that score lists: rerank:, python:, cross-encoder:, pyterrier:."""

    question: ClassVar[Question] = SCORED
    orderless: ClassVar[bool] = False

    def plan(self, n: int) -> Plan:
        return Plan(min(n, 1), min(n, 1))


def are_places(scores: Sequence[float | None]) -> bool:
    """Whether the scores of a list are 0 to n - 1, each once: as its places are, which argsort gives."""
    return len(scores) > 2 and {*scores} == {*range(len(scores))}


# Sliding windows (Sun et al. 2023; as used by Wang et al. 2024, 3.2.1), from the end of a list to its head


def covering(n: int, window: int, step: int, depth: int | None = None) -> list[Window]:
    """Windows that hold every one of the first `depth` ranks; the last begins at 0 and may be shorter.

    With m = min(depth, n) these are 0 windows for m < 2, 1 for m ≤ window, else 1 + ⌈(m − window) / step⌉.
    """
    end, plan = n if depth is None else min(depth, n), list[Window]()
    while end >= 2 and (not plan or plan[-1][0] > 0):
        plan.append((max(end - window, 0), end))
        end = max(end - step, 2)
    return plan


def rankgpt(n: int, window: int, step: int, rank_end: int | None = None, rank_start: int = 0) -> list[Window]:
    """The original arithmetic of RankGPT (Sun et al. 2023): whole windows only, so a head may stay unranked.

    `rank_end` is not cut to n, so windows may lie past the list; any window and step ≥ 1 are accepted.
    """
    end = n if rank_end is None else rank_end
    return [(start, start + window) for start in range(end - window, rank_start - 1, -step)]


PLANS: Mapping[str, Callable[[int, int, int, int | None], list[Window]]] = {
    "covering": covering, "rankgpt": rankgpt,
}  # fmt: skip


def sent(windows: Iterable[Window], n: int) -> list[Window]:
    """The windows that are asked for a list of n: cut to the list, and only those that hold 2 or more."""
    return [(start, min(end, n)) for start, end in windows if min(end, n) - start >= 2]


def never_ranked(
    windows: Iterable[Window], n: int, rank_start: int = 0, rank_end: int | None = None
) -> list[int]:
    """Ranks in range that no window holds."""
    held = {rank for start, end in windows for rank in range(start, end)}
    end = n if rank_end is None else min(rank_end, n)
    return [rank for rank in range(rank_start, end) if rank not in held]


@register("strategy", "windows")
@dataclass(frozen=True)
class Windows(Strategy):
    """Windows slide from the tail to the head, each ordered on the result of the one before.

    `depth` ranks the first N candidates only, the others keep their place.
    """

    window: int = 20
    step: int = 10
    passes: int = 3
    depth: int | None = None
    windows: str = "covering"
    question: Question = ORDER

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        order = list(candidates.documents)
        plan = self.one_pass(len(order))
        for pass_number in range(1, self.passes + 1):
            for start, end in plan:
                order[start:end] = yield from ask(order[start:end], start, pass_number)
        return _ranking(candidates, order)

    def one_pass(self, n: int) -> list[Window]:
        return sent(PLANS[self.windows](n, self.window, self.step, self.depth), n)


@register("strategy", "first")
@dataclass(frozen=True)
class First(Windows):
    """Windows in one token each, by how likely each item's letter is.

    Reddy et al. (2024), FIRST: Faster Improved Listwise Reranking with Single Token Decoding. Raises UsageError for
    more items than there are letters.
    """

    question: Question = LETTERS

    def __post_init__(self) -> None:
        if self.window > MOST_LABELS:
            raise UsageError(
                f"--strategy first has letters for {MOST_LABELS} items, but --window is {self.window}.",
                "servers tell the log-probabilities of 20: --window 20",
            )


@dataclass(frozen=True)
class Partition(Strategy):
    """What a model prefers, without a ranking: ⌈n / window⌉ windows of about equal size, or `only` one of them."""

    window: int = 20
    only: int | None = None

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[None]:
        windows = self.one_pass(len(candidates.documents))
        if self.only is not None:
            windows = windows[self.only : self.only + 1]
        yield from ask.together([(candidates.documents[start:end], start) for start, end in windows])

    def one_pass(self, n: int) -> Sequence[Window]:
        count = max(1, ceil(n / self.window))
        edges = [n * number // count for number in range(count + 1)]
        return sent(pairwise(edges), n)

    def plan(self, n: int) -> Plan:
        windows = len(self.one_pass(n))
        return Plan(windows, min(1, windows))
