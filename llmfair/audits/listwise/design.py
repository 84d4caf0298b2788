"""What a listwise audit asks: which lists are shown, in which orders, under which prompts, at what cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from llmfair.asking.dispatch import Program
from llmfair.audits.condition import Condition
from llmfair.audits.design import Design
from llmfair.audits.lists import bucket, drawn_of
from llmfair.audits.listwise.findings import HowRanked
from llmfair.audits.listwise.results import ListwiseFacts
from llmfair.audits.listwise.seen import HEADLINE, WindowShare, seen, share
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.listwise.shapes import Shape, shape_of
from llmfair.audits.listwise.shuffles import STAGE, Shuffles
from llmfair.audits.runs.stopping import Stopping
from llmfair.audits.stage import Stage
from llmfair.backends.base import Backend, NoBackend
from llmfair.metrics.base import Judged
from llmfair.nouns import Candidates, Encounter, Probe, Query, Ranking
from llmfair.probes import WINDOW_STREAM, PromptCondition, listwise_probes
from llmfair.prompts import Prompt
from llmfair.rankers.base import Ranker
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.partition import Partition
from llmfair.rankers.passages import clean, passage
from llmfair.rankers.strategy import WINDOW_FACTS, Plan, Ranked, Window, spelled_strategy
from llmfair.rankers.windows import never_ranked
from llmfair.settings import band_of
from llmfair.stats.sequential import EProcess, rounds

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
        (value,) = HEADLINE.values(self.judged(candidates, (), encounters=ranked.encounters)).values()
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
