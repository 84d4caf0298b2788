"""What a listwise audit asks: which lists are shown, in which orders, under which prompts, at what cost."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np

from llmfair.asking.dispatch import Program
from llmfair.audits.design import Condition, Design, Stage
from llmfair.audits.lists import bucket, drawn_of
from llmfair.audits.listwise.measure import ODDS, HowRanked, WindowShare, seen, share
from llmfair.audits.listwise.results import ListwiseFacts
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.stopping import Stopping
from llmfair.backends.base import Backend, NoBackend
from llmfair.io.files import encode
from llmfair.metrics.base import Judged
from llmfair.nouns import (
    Candidates,
    Chat,
    Completion,
    Encounter,
    Finish,
    Probe,
    Query,
    Ranking,
    Side,
    Steps,
    drive,
)
from llmfair.probes import WINDOW_STREAM, PromptCondition, listwise_probes
from llmfair.prompts import Prompt
from llmfair.rankers.base import Ranker
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.passages import clean, passage
from llmfair.rankers.strategies import (
    WINDOW_FACTS,
    Partition,
    Plan,
    Ranked,
    Window,
    never_ranked,
    spelled_strategy,
)
from llmfair.settings import band_of
from llmfair.stats.sequential import EProcess, rounds

# A ranker that scores lists is asked for a list in several orders only where the order can make a difference. The
# first lists are asked in every order, and again. Where each of them is ranked alike every time, every other list is
# asked once, and its scores stand for all its chains. Which lists are first hangs on the seed, and what is asked of
# the others on their answers alone: workers, interruptions and replays change nothing.


FIRST_LISTS = 3
"""Lists whose every order is asked: shuffles of a hundred documents that are ranked alike six times are no chance."""
STAGE = "orders"
"""What is asked once it is known what the order of a list does."""
Listed = tuple[str, str]
"""A list and the words that it is asked with: query and variant of the prompt."""


@dataclass(frozen=True)
class Shuffles:
    """The chains of an audit of a ranker that scores lists."""

    ranker: ListwiseRanker
    probes: Sequence[Probe]

    @cached_property
    def first(self) -> Collection[str]:
        """The queries whose lists are asked in every order."""
        return [*dict.fromkeys(probe.candidates.query.query_id for probe in self.probes)][:FIRST_LISTS]

    @cached_property
    def one_of_each(self) -> Mapping[Listed, Probe]:
        """The first chain of every list."""
        return {_listed(probe): probe for probe in reversed(self.probes)}

    def at_once(self) -> Iterator[Probe]:
        """What is asked whatever the answers are."""
        for probe in self.probes:
            if probe.candidates.query.query_id in self.first or probe is self.one_of_each[_listed(probe)]:
                yield probe

    def later(self) -> Iterator[Probe]:
        """What is asked where the order of a list makes a difference."""
        known = {probe.probe_id for probe in self.at_once()}
        return (probe for probe in self.probes if probe.probe_id not in known)

    def programs(self, results: Mapping[str, Ranked]) -> Iterator[Program]:
        """The chains that are left: asked, or without a question where the first lists were ranked alike."""
        alike = self.alike(results)
        for probe in self.later():
            answered = results.get(self.one_of_each[_listed(probe)].probe_id)
            scores = _scores(answered) if alike and answered is not None else {}
            if scores:
                yield Program(probe.probe_id, lambda probe=probe, scores=scores: self._unasked(probe, scores))  # type: ignore[misc]
            else:
                yield Program(probe.probe_id, lambda probe=probe: self.ranker.steps(probe))  # type: ignore[misc]

    def alike(self, results: Mapping[str, Ranked]) -> bool:
        """Whether every order of each of the first lists was answered, and by one order of documents."""
        of_first = [probe for probe in self.probes if probe.candidates.query.query_id in self.first]
        return all(
            None not in orders and len({*orders}) == 1
            for _, chains in groupby(sorted(of_first, key=_listed), key=_listed)
            if (orders := [_order(results.get(probe.probe_id)) for probe in chains])
        )

    def said(self, results: Mapping[str, Ranked]) -> str:
        """What the run says of chains that were not asked; empty where all were."""
        spared = sum(not results[one.probe_id].asked for one in self.later() if one.probe_id in results)
        if not spared:
            return ""
        return (
            f"the first {len(self.first)} lists were ranked alike in every order, so that of each other one a single "
            f"order was asked: its scores stand for {spared:,} further requests"
        )

    def _unasked(self, probe: Probe, scores: Mapping[str, float]) -> Steps[Ranked]:
        """A chain that asks nothing: as the scores of its list make it."""

        def answer(chat: Chat) -> Completion:
            pairs = [[place, scores[doc_id]] for place, doc_id in enumerate(chat.about["doc_ids"])]
            return Completion(encode(pairs).decode(), Finish.STOP)

        yield from ()
        return replace(drive(self.ranker.steps(probe), answer), asked=False)


def _listed(probe: Probe) -> Listed:
    return probe.candidates.query.query_id, probe.variant


def _scores(ranked: Ranked | None) -> dict[str, float]:
    """The scores of all documents of a list; none where one of them lacks its own."""
    if ranked is None:
        return {}
    found = [pair for one in ranked.windows for pair in zip(one.shown, one.scores or (), strict=False)]
    shown = sum(len(one.shown) for one in ranked.windows)
    whole = {doc_id: score for doc_id, score in found if score is not None}
    return whole if len(whole) == shown else {}


def _order(ranked: Ranked | None) -> tuple[Any, ...] | None:
    """The documents of a list as their scores order them, equal ones together; None where there is no such answer."""
    scores = _scores(ranked)
    ordered = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))
    return tuple(tuple(equal) for _, equal in groupby(ordered, key=scores.__getitem__)) or None


# The shape of a list: how many documents of which group and grade it has. What a design can find hangs on it alone.


Cells = tuple[tuple[int, int, int], ...]
"""A list's documents as (group, grade, how many), sorted; group 0 is protected, 1 the reference, 2 neither."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How many documents a list has of each side, relevant ones and others; and whether anything is judged."""

    cells: Cells
    judged: bool

    @property
    def n(self) -> int:
        return sum(count for _, _, count in self.cells)

    @property
    def protected(self) -> int:
        return sum(count for side, _, count in self.cells if side == 0)

    @property
    def unprotected(self) -> int:
        return sum(count for side, _, count in self.cells if side == 1)

    @property
    def comparable(self) -> bool:
        """Whether items of both sides share a grade."""
        graded = ({grade for of, grade, count in self.cells if of == side and count} for side in (0, 1))
        return bool(set.intersection(*graded))

    @property
    def relevant(self) -> int:
        return sum(count for _, grade, count in self.cells if grade >= 1)


def shape_of(candidates: Candidates, sides: Mapping[str, Side | None]) -> Shape:
    """The shape of one list, by the side of each of its documents."""
    places = {Side.PROTECTED: 0, Side.UNPROTECTED: 1, None: 2}
    kinds = Counter(
        (places[sides[doc_id]], candidates.relevance.get(doc_id, 0)) for doc_id in candidates.doc_ids
    )
    return Shape(tuple((*kind, kinds[kind]) for kind in sorted(kinds)), bool(candidates.relevance))


INITIAL = "initial"
SHOWN_ALTERED = 100
OF_MODELS = frozenset(
    {"base_url", "server_name", "system", "max_invalid", "control_variate", "prompt_sha256"}
)
"""What else only models are asked with, beside their prompts."""


@dataclass(frozen=True, kw_only=True)
class ListwiseDesign(Design[Ranked]):
    """Everything a listwise audit asks, known before anything is asked."""

    task = "listwise"
    settings: ListwiseSettings
    prompt: Prompt
    prompts: tuple[PromptCondition, ...]
    ranker: ListwiseRanker | Ranker
    first_stage: Ranker | None
    orders: Mapping[str, Sequence[Candidates]]

    @property
    def conditions(self) -> Sequence[Condition]:
        return [Condition(condition.name) for condition in self.prompts]

    why_not_assessable = "the others have no two items of both groups with one grade of relevance"

    @property
    def assessable(self) -> int:
        """Queries whose lists have items of both groups that differ in nothing but the group."""
        return sum(shape.comparable for shape in self.shapes)

    def probes(self) -> Iterator[Probe]:
        """The chains: queries in seeded shuffled order, so that a broken-off run has no systematic gap."""
        shuffled = np.random.default_rng(self.settings.seed).permutation(len(self.queries))
        for index in shuffled:
            query = self.queries[index]
            candidates = self.dataset.candidates(query)
            yield from listwise_probes(
                candidates, self.orders[query.query_id], self.prompts, self.settings.repeats
            )

    def programs(self) -> Iterator[Program]:
        """One program per chain; under --sequential one per window, and none past that which settled its prompt."""
        if not self.settings.sequential:
            for probe in self.shuffles.at_once() if self.shuffles else self.probes():
                yield Program(probe.probe_id, lambda probe=probe: self.ranker.steps(probe))  # type: ignore[misc]
            return
        for condition in self.prompts:
            stopping = self.stopping(condition)
            for probe in stopping.undecided():
                yield Program(
                    probe.probe_id,
                    lambda probe=probe, stopping=stopping: stopping.noting(  # type: ignore[misc]
                        probe, self._alone(probe).steps(probe), partial(self.met, probe)
                    ),
                )

    @cached_property
    def shuffles(self) -> Shuffles | None:
        """What is asked of a ranker that scores lists, where that may be less than every chain."""
        if not isinstance(self.ranker, ListwiseRanker) or not self.ranker.strategy.question.whole:
            return None
        found = Shuffles(self.ranker, [*self.probes()])
        return found if any(found.later()) else None

    def stages(self) -> Sequence[Stage]:
        shuffles = self.shuffles
        return (Stage(STAGE, shuffles.programs, self.backend, shuffles.said),) if shuffles else ()

    def stopping(self, condition: PromptCondition) -> Stopping[WindowShare]:
        """A sequential audit under one prompt that has not begun."""
        asked, probes = self.asked(), self.in_rounds(condition)
        process = EProcess(asked.band, self.settings.level, len(probes))
        return Stopping(probes, process, share, partial(seen, asked=asked, level=process.level))

    def in_rounds(self, condition: PromptCondition) -> list[Probe]:
        """Single windows, one of a query in every round, queries in fresh random order: the same for every prompt."""
        by_query = [self._windows_of(query, condition) for query in self.queries]
        rng = np.random.default_rng([self.settings.seed, WINDOW_STREAM])
        return [by_query[query][number] for query, number in rounds([*map(len, by_query)], rng)]

    def _windows_of(self, query: Query, condition: PromptCondition) -> list[Probe]:
        """The windows of all chains of a query; a probe's name ends with its window's number."""
        candidates, orders = self.dataset.candidates(query), self.orders[query.query_id]
        return [
            replace(probe, probe_id=f"{probe.probe_id}/w{number}")
            for probe in listwise_probes(candidates, orders, (condition,), 1)
            for number in range(len(self._partition.one_pass(len(probe.candidates.documents))))
        ]

    def _alone(self, probe: Probe) -> ListwiseRanker:
        """What asks one window of a chain alone."""
        assert isinstance(self.ranker, ListwiseRanker)
        number = int(probe.probe_id.rpartition("/w")[2])
        return replace(self.ranker, strategy=replace(self._partition, only=number))

    @property
    def _partition(self) -> Partition:
        assert isinstance(self.ranker, ListwiseRanker) and isinstance(self.ranker.strategy, Partition)
        return self.ranker.strategy

    def met(self, probe: Probe, ranked: Ranked) -> WindowShare:
        """What an answer says of items of both groups."""
        candidates = self.dataset.candidates(probe.candidates.query)
        (value,) = ODDS.values(self.judged(candidates, (), encounters=ranked.encounters)).values()
        return WindowShare(probe.candidates.query.query_id, value)

    @cached_property
    def chains_per_query(self) -> int:
        return len(self.prompts) * self.settings.orders * self.settings.repeats

    @cached_property
    def calls(self) -> int:
        """Requests planned: the same for every chain of a query; at most so many where that is not `exact`."""
        return sum(self.plan_of(query).calls for query in self.queries) * self.chains_per_query

    @property
    def longest(self) -> int:
        return max(self.plan_of(query).rounds for query in self.queries)

    def plan_of(self, query: Query) -> Plan:
        """What one chain of this query takes."""
        return self.ranker.plan(len(self.orders[query.query_id][0].documents))

    @property
    def passes(self) -> int:
        """Passes over a list; a ranker that asks nothing orders it once."""
        return self.ranker.passes

    def windows(self, n: int) -> Sequence[Window] | None:
        """The windows asked in one pass over a list of n; None where they hang on the answers."""
        return self.ranker.one_pass(n)

    @property
    def exact(self) -> bool:
        """Whether so many requests are planned, and not at most so many, by what the answers are."""
        return self.shuffles is None and all(self.plan_of(query).exact for query in self.queries)

    def facts(self) -> ListwiseFacts:
        """What results say of the design."""
        settings, lists = self.settings, self.dataset.describe()
        sizes = [shape.n for shape in self.shapes]
        return ListwiseFacts(
            preset=settings.preset_name(),
            queries=len(self.queries),
            left_out=lists.get("left_out", {}),
            shrunk=lists.get("shrunk", {}),
            candidates=(min(sizes), max(sizes)),
            drawn=drawn_of(self.dataset, settings),
            conditions=[condition.name for condition in self.prompts],
            initial=settings.initial,
            orders=settings.orders,
            repeats=settings.repeats,
            **self.asked_with(),
            chains=len(self.queries) * self.chains_per_query,
            calls=self.calls,
            never_ranked=self.never_ranked(),
            seed=settings.seed,
        )

    def asked_with(self) -> dict[str, Any]:
        """How a model is asked: strategy, windows and prompt; None each for a ranker that asks none."""
        asked = not isinstance(self.ranker, Ranker)
        return {
            **self.ordered_by(),
            "prompt_sha256": self.prompt.sha256 if asked else None,
            "constrained": self.settings.constrain if asked else None,
            **({"at_most": True} if asked and not self.exact else {}),
        }

    def ordered_by(self) -> dict[str, Any]:
        """Strategy and windows; None each where there are none."""
        if isinstance(self.ranker, Ranker):
            return dict.fromkeys(WINDOW_FACTS)
        return {**self.other_strategy, **self.ranker.strategy.facts()}

    @property
    def other_strategy(self) -> dict[str, Any]:
        """Design or strategy by name where they are not windows: those runs are told by their windows alone."""
        if self.partition:
            return {"design": "partition", **({"sequential": True} if self.settings.sequential else {})}
        spec = self.settings.ordering
        if spec == "windows" or not isinstance(self.ranker, ListwiseRanker):
            return {}
        read = {"answers": "margin"} if self.settings.margins else {}
        return {"strategy": spelled_strategy(spec, self.ranker.strategy), **read}

    @property
    def partition(self) -> bool:
        """Whether lists are cut into windows that are asked at once, and nothing is ranked."""
        return isinstance(self.ranker, ListwiseRanker) and isinstance(self.ranker.strategy, Partition)

    def never_ranked(self) -> list[int]:
        """Positions (0 is the head) that the window plan leaves out in some list."""
        sizes = {len(orders[0].documents) for orders in self.orders.values()}
        planned = ((n, self.windows(n)) for n in sizes)
        return sorted(
            {
                position
                for n, windows in planned
                if windows is not None
                for position in never_ranked(windows, n, 0, self.settings.depth)
            }
        )

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The sizes of every query's list."""
        return tuple(shape_of(self.dataset.candidates(query), self.sides) for query in self.queries)

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            **self.other_strategy,
            "conditions": [condition.name for condition in self.prompts],
            **({"first_stage": self.first_stage.identity} if self.first_stage else {}),
        }

    def describe(self) -> dict[str, Any]:
        altered, told, unused = sorted(self.altered_texts()), super().describe(), self.unused
        if unused:
            del told["prompt"]
            told |= {"unused": sorted(unused)}
            told["flags"] = {name: value for name, value in told["flags"].items() if name not in unused}
        return {
            **told,
            "candidates_sha256": hashlib.sha256("".join(self.candidates_lines()).encode()).hexdigest(),
            "texts_altered": {"count": len(altered), "first": altered[:SHOWN_ALTERED]},
        }

    @property
    def unused(self) -> frozenset[str]:
        """Settings that make no difference to who orders the lists: a ranker that asks nothing."""
        if not isinstance(self.ranker, Ranker):
            return frozenset()
        return (self.settings.of_asking() | OF_MODELS) - ({"conditions"} if self.ranker.worded else set())

    def backend(self) -> Backend:
        """What answers the chats; a ranker that asks none still says who it is."""
        if isinstance(self.ranker, Ranker):
            return NoBackend(self.ranker.identity)
        return super().backend()

    def altered_texts(self) -> set[str]:
        """Titles, texts and queries that a model sees otherwise than the dataset has them (listwise.md 3)."""
        if isinstance(self.ranker, Ranker):
            return set()
        altered = {query.text for query in self.queries if clean(query.text) != query.text}
        for query in self.queries:
            for document in self.dataset.candidates(query).documents:
                titled = document.text and self.settings.input == "text"
                whole = f"{document.title}: {document.text}" if titled else document.title
                if passage(document, self.settings.input, self.settings.words) != whole:
                    altered.add(whole)
        return altered

    def judged(
        self,
        candidates: Candidates,
        rankings: Sequence[Ranking],
        beside: Sequence[Ranking] = (),
        runs: Sequence[tuple[int, int]] = (),
        encounters: Sequence[Encounter] | None = None,
    ) -> Judged:
        """A query with rankings of it, the orders they began with, their numbers, and what answers compared."""
        return Judged(
            candidates,
            tuple(rankings),
            self.sides,
            groups=self.groups,
            beside=tuple(beside),
            runs=tuple(runs),
            encounters=None if encounters is None else tuple(encounters),
        )

    def asked(self) -> HowRanked:
        """How conclusions are drawn from this design."""
        settings = self.settings
        # a ranker without windows inherits no order, whatever it was given
        initial = "random" if isinstance(self.ranker, Ranker) else settings.initial
        return HowRanked(band_of(settings.band), settings.permutations, settings.seed, initial)

    def file_name(self, probe: Probe) -> str:
        """The run file a chain's ranking goes to: `neutral.run`, further orders and repeats beside it."""
        plain = probe.order == probe.repeat == 0
        return f"{probe.condition}.run" if plain else f"{probe.condition}.o{probe.order}.r{probe.repeat}.run"

    def candidates_lines(self) -> Iterator[str]:
        """`candidates.jsonl`: the lists as the dataset gave them, with relevance and side."""
        for query in sorted(self.queries, key=lambda query: query.query_id):
            candidates = self.dataset.candidates(query)
            row = {
                "query_id": query.query_id,
                "doc_ids": list(candidates.doc_ids),
                "relevance": [candidates.relevance.get(doc_id, 0) for doc_id in candidates.doc_ids],
                "side": [self.sides[doc_id] for doc_id in candidates.doc_ids],
                "bucket": [bucket(candidates, self.sides, doc_id) for doc_id in candidates.doc_ids],
            }
            yield json.dumps(row, ensure_ascii=False) + "\n"
