"""Audits of one list by injected rankers, simulated by the hundred: the values that a real audit would measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.plan import BLOCK, rng_of
from llmfair.metrics.base import Judged, QueryComparisons, Sides, Undefined, Value
from llmfair.metrics.names import parse_measure
from llmfair.metrics.preference import pairs_shown
from llmfair.nouns import Candidates, Document, Encounter, Query, Side, Steps
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.questions import Question
from llmfair.rankers.strategies import PartialOrder, Strategy, encounters_of, scored_encounter
from llmfair.stats.power import Windows, first_shown
from llmfair.stats.strata import Comparisons

Floats = NDArray[np.float64]
Places = NDArray[np.intp]


Shown = Sequence[Document]
Cells = tuple[tuple[int, int, int], ...]
"""A list's items as (group, grade, how many), sorted; group 0 is protected, 1 the reference, 2 neither."""


@dataclass(frozen=True)
class Items:
    """A query's list: the group of every item (1 protected, -1 unprotected, 0 neither) and its grade; shape (n,).

    What a design can find hangs on these alone. `judged`: whether relevance is known of any item.
    """

    query_id: str
    groups: Places
    grades: Places
    doc_ids: Sequence[str] = ()
    judged: bool = True

    @property
    def n(self) -> int:
        return len(self.groups)

    @property
    def names(self) -> Sequence[str]:
        """The items' ids; without any, items come in no other list."""
        return self.doc_ids or tuple(f"{self.query_id} {place}" for place in range(self.n))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many items there are, and how many of them are protected and unprotected."""
        return self.n, int((self.groups == 1).sum()), int((self.groups == -1).sum())

    @property
    def relevant(self) -> int:
        return int((self.grades >= 1).sum())

    @property
    def both_sides(self) -> bool:
        return all(self.sizes)

    @cached_property
    def cells(self) -> Cells:
        groups = np.array([2, 0, 1])[self.groups].tolist()  # of 0, 1, -1
        counts = Counter(zip(groups, self.grades.tolist(), strict=True))
        return tuple((*kind, counts[kind]) for kind in sorted(counts))

    @cached_property
    def pairs(self) -> int:
        """How many pairs of items of both groups and one grade there are."""
        unprotected = {grade: count for group, grade, count in self.cells if group == 1}
        return sum(count * unprotected.get(grade, 0) for group, grade, count in self.cells if group == 0)


# First encounters of simulated audits: who is ahead when two items meet, of rankers with an injected preference. A
# ranker puts an item ahead by its log-weight, its slot, and Gumbel noise: fresh in every window, or the item's own in
# the windows that are answered alike. Two equally relevant items of both groups differ in none but the preference, so
# what else a window holds does not matter, nor does what earlier windows carried on; one draw serves any preference.


@dataclass(frozen=True)
class Noise:
    """How the injected rankers answer: the share of windows that get the item's own noise, log odds of the slots."""

    alike: float = 0.0
    slots: float = 0.0


@dataclass(frozen=True)
class Encounters:
    """A query's first encounters in every audit: how far the protected item is ahead where nothing is preferred.

    For an audit `margins` has shape (c,), `slots` and `places`, in the list, (c, 2): those of the protected and of the
    other item.
    """

    items: Items
    margins: Sequence[Floats]
    slots: Sequence[Floats]
    places: Sequence[Places]
    window: int

    def value(self, log_odds: float, audit: int) -> QueryComparisons | Undefined:
        """One audit of a ranker with this preference, as the measure PreferenceOdds has it."""
        margins = self.margins[audit]
        if not len(margins):
            return Undefined("no_encounter")
        first, second = self.places[audit].T
        relevant, ahead = self.items.grades[first] > 0, (margins > -log_odds).astype(float)
        query, shown = np.zeros(len(first), np.intp), pairs_shown(relevant)
        outcomes = Comparisons(query, relevant, shown, self.window, first, second, ahead, self.slots[audit])
        return QueryComparisons(outcomes, self.items.names)


def items_of(candidates: Candidates, sides: Sides) -> Items:
    """A candidate list as its groups and grades."""
    group = {Side.PROTECTED: 1, Side.UNPROTECTED: -1, None: 0}
    return Items(
        candidates.query.query_id,
        np.array([group[sides[doc_id]] for doc_id in candidates.doc_ids], np.intp),
        np.array(candidates.grades, np.intp),
        candidates.doc_ids,
        bool(candidates.relevance),
    )


def simulate_encounters(
    items: Items,
    windows: Windows,
    audits: int,
    orders: int,
    repeats: int,
    noise: Noise,
    *,
    qualities: Floats | None = None,
    rng: np.random.Generator,
) -> Encounters:
    """So many audits of one list, each from `orders` random initial orders, asked `repeats` times.

    `qualities`: the items' own, in every audit, shape (audits, n); drawn, unless given.
    """
    pairs: list[tuple[int, int]] = []  # of ranks that meet first in one window
    slot_of, window_of = np.zeros(items.n), np.zeros(items.n, np.intp)
    for number, ((start, end), ranks) in enumerate(zip(windows, first_shown(windows), strict=True)):
        pairs += combinations(ranks, 2)
        slot_of[ranks] = 2 * (np.array(ranks) - start) / (end - start - 1) - 1
        window_of[ranks] = number
    first, second = np.array(pairs, np.intp).reshape(-1, 2).T
    shown = rng.permuted(np.tile(np.arange(items.n), (audits, orders, 1)), axis=-1)
    shown = shown.repeat(repeats, axis=1)
    audit = np.arange(audits)[:, None, None]
    alike = rng.random((audits, orders * repeats, len(windows))) < noise.alike
    always = rng.gumbel(size=(audits, items.n)) if qualities is None else qualities
    fresh = rng.gumbel(size=shown.shape)
    scores = np.where(alike[..., window_of], always[audit, shown], fresh) - noise.slots / 2 * slot_of
    groups, grades = items.groups[shown], items.grades[shown]
    met = (groups[..., first] * groups[..., second] == -1) & (grades[..., first] == grades[..., second])
    run, chain, pair = np.nonzero(met)
    leads = groups[run, chain, first[pair]] == 1
    met_at = np.where(
        leads, [first[pair], second[pair]], [second[pair], first[pair]]
    ).T  # the protected item's first
    of_ranks = scores[run[:, None], chain[:, None], met_at]
    ends = np.cumsum(np.bincount(run, minlength=audits))[:-1]
    return Encounters(
        items,
        np.split(of_ranks[:, 0] - of_ranks[:, 1], ends),
        np.split(slot_of[met_at], ends),
        np.split(shown[run[:, None], chain[:, None], met_at], ends),
        max((end - start for start, end in windows), default=1),
    )


# A strategy's own program, answered by an injected ranker: whatever it asks, without a chat. Where questions hang on
# answers nothing is simpler than to ask them. Items are numbers 0 … n−1; a ranker of known weights answers at once,
# its noise fresh in every question or an item's own.


Weigh = Callable[[Sequence[int], bool], Sequence[float]]
"""The weights by which shown items are ordered; and whether they were scored alone."""
SIDES = {1: Side.PROTECTED, -1: Side.UNPROTECTED, 0: None}
HEADLINE = parse_measure("PreferenceOdds")


@dataclass
class Answering:
    """Answers a program by weights; equal ones stay as they were shown."""

    question: Question
    weigh: Weigh
    compared: list[PartialOrder] = field(default_factory=list)
    scored: dict[str, float] = field(default_factory=dict)
    round: int = 0

    def __call__(self, documents: Shown, start: int, pass_number: int = 1) -> Steps[Shown]:
        (ordered,) = yield from self.together([(documents, start)])
        return ordered

    def together(self, windows: Sequence[tuple[Shown, int]], pass_number: int = 1) -> Steps[Sequence[Shown]]:
        yield from ()
        self.round += 1
        orders = list[Shown]()
        for shown, _ in windows:
            weights = self.weigh([int(document.doc_id) for document in shown], False)
            best = self.question.best(len(shown))
            places = sorted(range(len(shown)), key=lambda place: -weights[place])
            if best is not None:  # the others stay as they were shown
                places = places[:best] + sorted(places[best:])
            order = [shown[place] for place in places]
            ids = [document.doc_id for document in order]
            before = [document.doc_id for document in shown]
            self.compared.append(
                PartialOrder(self.round, before, ids[:best], () if best is None else ids[best:])
            )
            orders.append(order)
        return orders

    def scores(self, documents: Shown) -> Steps[Sequence[float | None]]:
        yield from ()
        scores = self.weigh([int(document.doc_id) for document in documents], True)
        self.scored |= zip((document.doc_id for document in documents), scores, strict=True)
        return scores

    @property
    def encounters(self) -> tuple[Encounter, ...]:
        """What its answers say of items that met for the first time."""
        return (scored_encounter(self.scored),) if self.scored else encounters_of(self.compared)


@lru_cache(maxsize=8)
def _documents(n: int) -> tuple[Document, ...]:
    return tuple(Document(str(number), "") for number in range(n))


def play(strategy: Strategy, order: Sequence[int], weigh: Weigh) -> tuple[list[int], Answering]:
    """The ranking that a program makes of items in this initial order, and what it compared on the way."""
    documents = _documents(len(order))
    answering = Answering(strategy.question, weigh)
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
    for row, ranks in enumerate(tastes):
        final, _ = play(strategy, range(len(ranks)), _by((-ranks).tolist()))
        ranked[row] = ranks[final]
    return ranked


def _by(weights: Sequence[float]) -> Weigh:
    return lambda items, alone: [weights[item] for item in items]


@dataclass(frozen=True)
class AuditSimulation:
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
    qualities: Floats | None = None

    def value(self, log_odds: float, audit: int) -> Value:
        """One audit of a ranker with this preference, as the measure PreferenceOdds has it."""
        rng, noise, n = np.random.default_rng([*self.seed, audit]), self.noise, self.items.n
        weights = log_odds * (self.items.groups == 1) + self.relevance * self.items.grades
        drawn = rng.logistic if self.spoken else rng.gumbel
        fixed, always, alone_always = (draw.tolist() for draw in (weights, rng.gumbel(size=n), drawn(size=n)))
        if self.qualities is not None:
            always = alone_always = self.qualities[audit].tolist()
        fresh, fresh_alone, chance = (_stream(draw) for draw in (rng.gumbel, drawn, rng.random))

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

        encounters = list[Encounter]()
        for _ in range(self.orders):
            order = rng.permutation(n).tolist()
            for _ in range(self.repeats):
                encounters += play(self.strategy, order, weigh)[1].encounters
        return odds_of(self.items, encounters)


def _stream(draw: Callable[..., Floats]) -> Iterator[float]:
    """Numbers one by one, drawn many at a time."""
    while True:
        yield from draw(size=512).tolist()


def odds_of(items: Items, encounters: Sequence[Encounter]) -> Value:
    """The measure PreferenceOdds of a list of which these encounters are known."""
    relevance = {str(item): grade for item, grade in enumerate(items.grades.tolist())}
    sides = {str(item): SIDES[group] for item, group in enumerate(items.groups.tolist())}
    candidates = Candidates(Query(items.query_id, ""), _documents(items.n), relevance)
    (value,) = HEADLINE.values(Judged(candidates, (), sides, encounters=tuple(encounters))).values()
    return replace(value, doc_ids=items.names) if isinstance(value, QueryComparisons) else value


# Blocks of audits of all lists together, as `calibrate` and `plan` draw them: the same seeds, so the same audits.


STREAM, QUALITIES = 2000, 3000
"""The streams of the seeds that simulated audits are drawn from, one a block, from here on: a query's; an item's."""


def draw(
    lists: Sequence[Items], ranker: ListwiseRanker, settings: ListwiseSettings, noise: Noise, block: int
) -> dict[str, Encounters | AuditSimulation]:
    """A block of audits of lists, by query_id. An item that is in several lists has one quality in all of them."""
    doc_ids = {doc_id for items in lists for doc_id in items.doc_ids} if noise.alike else ()
    qualities = {d: rng_of(settings, d, QUALITIES + block).gumbel(size=BLOCK) for d in doc_ids}
    drawn = dict[str, Encounters | AuditSimulation]()
    for items in lists:
        rng = rng_of(settings, items.query_id, STREAM + block)
        of_items = np.stack([qualities[d] for d in items.doc_ids], axis=1) if qualities else None
        how, windows = (settings.orders, settings.repeats, noise), ranker.one_pass(items.n)
        if windows is None:
            seed = rng.integers(2**32, size=2).tolist()
            drawn[items.query_id] = AuditSimulation(items, ranker.strategy, *how, seed, qualities=of_items)
        else:
            drawn[items.query_id] = simulate_encounters(
                items, windows, BLOCK, *how, qualities=of_items, rng=rng
            )
    return drawn
