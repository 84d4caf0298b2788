"""A strategy's own program, answered by an injected ranker: whatever it asks, without a chat.

Where questions hang on answers nothing is simpler than to ask them. Items are numbers 0 … n−1; a ranker of known
weights answers at once, its noise fresh in every question or an item's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.listwise.encounters import Items, Noise
from llmfair.metrics.base import Judged
from llmfair.metrics.names import parse_measure
from llmfair.metrics.values import Value
from llmfair.nouns import Candidates, Document, Encounter, Query, Side, Steps
from llmfair.rankers.questions import Question
from llmfair.rankers.strategy import Compared, Strategy, encounters_of, scored_encounter

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Weigh = Callable[[Sequence[int], bool], Sequence[float]]
"""The weights by which shown items are ordered; and whether they were scored alone."""
SIDES = {1: Side.PROTECTED, -1: Side.UNPROTECTED, 0: None}
HEADLINE = parse_measure("PreferenceOdds")


@dataclass
class Answering:
    """Answers a program by weights; equal ones stay as they were shown. `keeps`: also what it compared."""

    question: Question
    weigh: Weigh
    keeps: bool = True
    compared: list[Compared] = field(default_factory=list)
    scored: dict[str, float] = field(default_factory=dict)
    round: int = 0

    def __call__(
        self, shown: Sequence[Document], start: int, pass_number: int = 1
    ) -> Steps[Sequence[Document]]:
        (found,) = yield from self.together([(shown, start)])
        return found

    def together(
        self, windows: Sequence[tuple[Sequence[Document], int]], pass_number: int = 1
    ) -> Steps[Sequence[Sequence[Document]]]:
        yield from ()
        self.round += 1
        return [self._ordered(shown) for shown, _ in windows]

    def scores(self, documents: Sequence[Document]) -> Steps[Sequence[float | None]]:
        yield from ()
        found = self.weigh([int(document.doc_id) for document in documents], True)
        self.scored |= zip((document.doc_id for document in documents), found, strict=True)
        return found

    @property
    def encounters(self) -> tuple[Encounter, ...]:
        """What its answers say of items that met for the first time."""
        return (scored_encounter(self.scored),) if self.scored else encounters_of(self.compared)

    def _ordered(self, shown: Sequence[Document]) -> Sequence[Document]:
        weights = self.weigh([int(document.doc_id) for document in shown], False)
        best = self.question.best(len(shown))
        if len(shown) == 2:
            order = [*shown] if weights[0] >= weights[1] else [shown[1], shown[0]]
        else:
            best_first = sorted(range(len(shown)), key=lambda place: -weights[place])
            if best is not None:
                named = best_first[:best]
                best_first = named + [place for place in range(len(shown)) if place not in named]
            order = [shown[place] for place in best_first]
        if self.keeps:
            ids = [document.doc_id for document in order]
            seen = [document.doc_id for document in shown]
            self.compared.append(Compared(self.round, seen, ids[:best], () if best is None else ids[best:]))
        return order


@lru_cache(maxsize=8)
def _documents(n: int) -> tuple[Document, ...]:
    return tuple(Document(str(number), "") for number in range(n))


def play(
    strategy: Strategy, order: Sequence[int], weigh: Weigh, keeps: bool = True
) -> tuple[list[int], Answering]:
    """The ranking that a program makes of items in this initial order, and what it compared on the way."""
    documents = _documents(len(order))
    answering = Answering(strategy.question, weigh, keeps)
    candidates = Candidates(Query("", ""), tuple(documents[item] for item in order), {})
    steps = strategy.steps(candidates, answering)
    try:
        next(steps)
    except StopIteration as end:
        ranking = end.value
        return ([] if ranking is None else [int(doc_id) for doc_id in ranking.doc_ids]), answering
    raise RuntimeError("a program yields no chats but those of its questions")


def rank_played(strategy: Strategy, tastes: NDArray[np.int8]) -> NDArray[np.int8]:
    """The final lists of a noiseless ranker that puts low tastes first; `tastes` by rank, shape (draws, n)."""
    ranked = np.empty_like(tastes)
    for row, one in enumerate(tastes):
        final, _ = play(strategy, range(len(one)), _by((-one).tolist()), keeps=False)
        ranked[row] = one[final]
    return ranked


def _by(weights: Sequence[float]) -> Weigh:
    return lambda items, alone: [weights[item] for item in items]


@dataclass(frozen=True)
class PlayedAudits:
    """Audits of one list by injected rankers: the odds that a real audit would measure, each from a draw of its own.

    As `encounters.Encounters`, whose audits are drawn all at once: of strategies whose windows are known beforehand.
    `relevance`: the log-weight of each grade. `spoken`: an item alone is answered yes or no, not scored.
    """

    items: Items
    strategy: Strategy
    orders: int
    repeats: int
    noise: Noise
    seed: Sequence[int]
    relevance: float = 0.0
    spoken: bool = False

    def value(self, log_odds: float, audit: int) -> Value:
        """One audit of a ranker with this preference, as the measure PreferenceOdds has it."""
        rng = np.random.default_rng([*self.seed, audit])
        weights = log_odds * (self.items.groups == 1) + self.relevance * self.items.grades
        return odds_of(self.items, self._encounters(weights, rng))

    def _encounters(self, weights: Floats, rng: np.random.Generator) -> list[Encounter]:
        noise, found, n = self.noise, list[Encounter](), self.items.n
        drawn = rng.logistic if self.spoken else rng.gumbel
        fixed, always, alone_always = (one.tolist() for one in (weights, rng.gumbel(size=n), drawn(size=n)))
        fresh, fresh_alone, chance = (_stream(one) for one in (rng.gumbel, drawn, rng.random))

        def weigh(items: Sequence[int], alone: bool) -> Sequence[float]:
            if alone:
                scores = [
                    fixed[item] + (alone_always[item] if next(chance) < noise.alike else next(fresh_alone))
                    for item in items
                ]
                return [float(score > 0) for score in scores] if self.spoken else scores
            alike = bool(noise.alike) and next(chance) < noise.alike
            weighed = [fixed[item] + (always[item] if alike else next(fresh)) for item in items]
            if noise.slots and len(items) > 1:
                step = noise.slots / (len(items) - 1)
                weighed = [weight + noise.slots / 2 - step * slot for slot, weight in enumerate(weighed)]
            return weighed

        for _ in range(self.orders):
            order = rng.permutation(self.items.n).tolist()
            for _ in range(self.repeats):
                found += play(self.strategy, order, weigh)[1].encounters
        return found


def _stream(draw: Callable[..., Floats]) -> Iterator[float]:
    """Numbers one by one, drawn many at a time."""
    while True:
        yield from draw(size=512).tolist()


def odds_of(items: Items, encounters: Sequence[Encounter]) -> Value:
    """The measure PreferenceOdds of a list of which these encounters are known."""
    documents = _documents(items.n)
    relevance = {str(item): grade for item, grade in enumerate(items.grades.tolist())}
    judged = Judged(
        Candidates(Query(items.query_id, ""), documents, relevance),
        (),
        {str(item): SIDES[group] for item, group in enumerate(items.groups.tolist())},
        encounters=tuple(encounters),
    )
    (value,) = HEADLINE.values(judged).values()
    return value
