"""A listwise audit made but not begun: which lists are shown, in which orders, under which prompts, at what cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from itertools import chain, groupby
from typing import Any

import numpy as np
from msgspec import structs

from llmfair.asking.dispatch import Program
from llmfair.audits.design import NOBODY, Condition, Design, Outcome, Stage
from llmfair.audits.label_error import judged_between, judged_of, odds_with
from llmfair.audits.lists import NOT_JUDGED, bucket, load_lists, selected_queries, with_prompt
from llmfair.audits.listwise.measure import ODDS, HowRanked, WindowShare, in_groups, look, outcome_of, share
from llmfair.audits.listwise.plan import chats_of, findable_of, known_reach, tokens_of
from llmfair.audits.listwise.results import INITIAL, OF_RANKINGS, ListwiseFacts, of_stratum
from llmfair.audits.listwise.settings import ListwiseSettings, PlanSettings
from llmfair.audits.listwise.simulate import Items, items_of
from llmfair.audits.runs.stopping import Stopping
from llmfair.audits.subject import Subject, backend_args
from llmfair.backends.base import Backend, NoBackend
from llmfair.backends.python import SCORES
from llmfair.errors import UsageError, did_you_mean
from llmfair.io.files import encode, plain
from llmfair.io.text import parts
from llmfair.metrics.base import CONTROLLED, Judged, Sides, measure_all
from llmfair.metrics.preference import shared_strata
from llmfair.nouns import (
    Candidates,
    Chat,
    Completion,
    Failure,
    Finish,
    Probe,
    Query,
    Ranking,
    Steps,
    drive,
    picked,
)
from llmfair.probes import WINDOW_STREAM, PromptCondition, conditions_of, initial_orders, listwise_probes
from llmfair.prompts import Prompt
from llmfair.rankers.base import Ranker, remarks
from llmfair.rankers.bm25 import Bm25
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.strategies import (
    WINDOW_FACTS,
    Partition,
    Plan,
    Ranked,
    Strategy,
    never_ranked,
    spelled_strategy,
    strategy_of,
)
from llmfair.results import MOST_CONTRASTS, Reach
from llmfair.settings.declaration import band_of, default_of
from llmfair.stats.sequential import EProcess, rounds
from llmfair.stats.strata import Stratum

# A ranker that scores lists is asked for a list in several orders only where the order can make a difference. The
# first lists are asked in every order, and again. Where each of them is ranked alike every time, every other list is
# asked once, and its scores stand for all its chains. Which lists are first hangs on the seed, and what is asked of
# the others on their answers alone: workers, interruptions and replays change nothing.


FIRST_LISTS = 3
"""Lists whose every order is asked: shuffles of a hundred documents that are ranked alike six times are no chance."""
Listed = tuple[str, str]
"""A list and the words that it is asked with: query and variant of the prompt."""


class Shuffles:
    """The chains of a ranker that scores lists: those of the `first` lists, `once` a chain of every list, and those
    that are `later` asked, if at all."""

    def __init__(self, ranker: ListwiseRanker, probes: Iterable[Probe]) -> None:
        self.ranker = ranker
        self.first, self.once, self.later = list[Probe](), dict[Listed, Probe](), list[Probe]()
        first = set[str]()
        for probe in probes:
            if len(first) < FIRST_LISTS:
                first.add(_listed(probe)[0])
            if _listed(probe)[0] in first:
                self.first.append(probe)
            elif self.once.setdefault(_listed(probe), probe) is not probe:
                self.later.append(probe)

    def programs(self, results: Mapping[str, Ranked]) -> Iterator[Program]:
        """The chains that are left: without a question where every order of each of the first lists was answered, and
        by one order of documents, ties together."""
        orders: dict[Listed, set[tuple[Any, ...]]] = {}
        for probe in self.first:
            scores = _scores(results.get(probe.probe_id))
            ordered = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))
            order = tuple(tuple(equal) for _, equal in groupby(ordered, key=scores.__getitem__))
            orders.setdefault(_listed(probe), set()).add(order)
        alike = all(len(of_list) == 1 and () not in of_list for of_list in orders.values())
        for probe in self.later:
            scores = _scores(results.get(self.once[_listed(probe)].probe_id)) if alike else {}
            steps = partial(self._unasked, probe, scores) if scores else partial(self.ranker.steps, probe)
            yield Program(probe.probe_id, steps)

    def spared(self, results: Mapping[str, Ranked]) -> str:
        """What the run says of chains that were not asked; empty where all were."""
        spared = sum(p.probe_id in results and not results[p.probe_id].asked for p in self.later)
        text = (
            f"the first {len({_listed(probe)[0] for probe in self.first})} lists were ranked alike in every order, so "
            f"that of each other one a single order was asked: its scores stand for {spared:,} further requests"
        )
        return text if spared else ""

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
    windows = () if ranked is None else ranked.windows
    pairs = [pair for window in windows for pair in zip(window.shown, window.scores or (), strict=False)]
    scores = {doc_id: score for doc_id, score in pairs if score is not None}
    return scores if len(scores) == sum(len(window.shown) for window in windows) else {}


OF_MODELS = frozenset(
    {"base_url", "server_name", "system", "max_invalid", "control_variate", "prompt_sha256"}
)
"""What else only models are asked with, beside their prompts."""


@dataclass(frozen=True, kw_only=True)
class ListwiseDesign(Design[Ranked]):
    """Everything a listwise audit asks, known before anything is asked."""

    task = "listwise"
    held_against = (INITIAL,)
    settings: ListwiseSettings
    prompt: Prompt
    prompts: tuple[PromptCondition, ...]
    ranker: ListwiseRanker | Ranker
    strata: Mapping[str, Sequence[Stratum]]
    first_stage: Ranker | None
    orders: Mapping[str, Sequence[Candidates]]

    @property
    def conditions(self) -> Sequence[Condition]:
        return [Condition(condition.name) for condition in self.prompts]

    why_not_assessable = "the others have no two items of both groups with one grade of relevance"

    several_groups = True

    @property
    def assessable(self) -> int:
        """Queries whose lists have items of two groups that differ in nothing but the group."""
        return sum(
            map(any, zip(*([items.pairs > 0 for items in of] for of in self.lists_of.values()), strict=True))
        )

    def probes(self) -> Iterator[Probe]:
        """The chains: queries in seeded shuffled order, so that a broken-off run has no systematic gap."""
        for index in np.random.default_rng(self.settings.seed).permutation(len(self.queries)):
            query = self.queries[index]
            orders, candidates = self.orders[query.query_id], self.dataset.candidates(query)
            yield from listwise_probes(candidates, orders, self.prompts, self.settings.repeats)

    def programs(self) -> Iterator[Program]:
        """One program per chain; under --sequential one per window, and none past that which settled its prompt."""
        if not self.settings.sequential:
            later = {probe.probe_id for probe in self.shuffles.later} if self.shuffles else set[str]()
            for probe in self.probes():
                if probe.probe_id not in later:
                    yield Program(probe.probe_id, partial(self.ranker.steps, probe))
            return
        for condition in self.prompts:
            stopping = self.stopping(condition)
            for probe in stopping.undecided():
                yield Program(probe.probe_id, partial(self._alone, stopping, probe))

    @cached_property
    def shuffles(self) -> Shuffles | None:
        """What is asked of a ranker that scores lists, where that may be less than every chain."""
        if not isinstance(self.ranker, ListwiseRanker) or not self.ranker.strategy.question.per_list:
            return None
        shuffles = Shuffles(self.ranker, self.probes())
        return shuffles if shuffles.later else None

    def stages(self) -> Sequence[Stage]:
        shuffles = self.shuffles
        return (Stage("orders", shuffles.programs, self.backend, shuffles.spared),) if shuffles else ()

    def stopping(self, condition: PromptCondition) -> Stopping[WindowShare]:
        """A sequential audit under one prompt that has not begun."""
        probes = self.in_rounds(condition)
        process = EProcess(self.rule.band, self.settings.level, len(probes))
        return Stopping(probes, process, share, partial(look, rule=self.rule, level=process.level))

    def in_rounds(self, condition: PromptCondition) -> list[Probe]:
        """Single windows, one of a query in every round, queries in fresh random order: the same for every prompt."""
        by_query = [
            [  # the windows of all chains of a query; a probe's name ends with its window's number
                replace(probe, probe_id=f"{probe.probe_id}/w{number}")
                for probe in listwise_probes(
                    self.dataset.candidates(query), self.orders[query.query_id], (condition,), 1
                )
                for number in range(len(self.ranker.one_pass(len(probe.candidates.documents)) or ()))
            ]
            for query in self.queries
        ]
        rng = np.random.default_rng([self.settings.seed, WINDOW_STREAM])
        return [by_query[query][number] for query, number in rounds([*map(len, by_query)], rng)]

    def _alone(self, stopping: Stopping[WindowShare], probe: Probe) -> Steps[Ranked]:
        """One window of a chain alone, noted once it is answered."""
        assert isinstance(self.ranker, ListwiseRanker) and isinstance(self.ranker.strategy, Partition)
        alone = replace(self.ranker.strategy, only=int(probe.probe_id.rpartition("/w")[2]))
        steps = replace(self.ranker, strategy=alone).steps(probe)
        return stopping.noting(probe, steps, partial(self.window_share, probe))

    def window_share(self, probe: Probe, ranked: Ranked) -> WindowShare:
        """What an answer says of items of both groups."""
        candidates = self.dataset.candidates(probe.candidates.query)
        judged = replace(self.judged(candidates, ()), encounters=ranked.encounters)
        (value,) = ODDS.values(judged).values()
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
    def exact(self) -> bool:
        """Whether so many requests are planned, and not at most so many, by what the answers are."""
        return self.shuffles is None and all(self.plan_of(query).exact for query in self.queries)

    def facts(self) -> ListwiseFacts:
        """What results say of the design."""
        settings, lists = self.settings, self.dataset.describe()
        prompted = not isinstance(self.ranker, Ranker)
        sizes = {items.n for items in self.lists}
        unranked = set[int]()  # positions that the window plan leaves out in some list
        for n in sizes:
            if (windows := self.ranker.one_pass(n)) is not None:
                unranked.update(never_ranked(windows, n, 0, settings.depth))
        shared = structs.asdict(super().facts()) | {"factors": None} | self.ordered_by()
        shared |= picked(settings, ("label_error", "initial", "orders", "repeats"))
        return ListwiseFacts(
            **shared,
            left_out=lists.get("left_out", {}),
            shrunk=lists.get("shrunk", {}),
            candidates=(min(sizes), max(sizes)),
            prompt_sha256=self.prompt.sha256 if prompted else None,
            constrained=settings.constrain if prompted else None,
            at_most=True if prompted and not self.exact else None,
            chains=len(self.queries) * self.chains_per_query,
            never_ranked=sorted(unranked),
        )

    def ordered_by(self) -> dict[str, Any]:
        """Strategy and windows; None each where there are none."""
        of_windows = dict.fromkeys(WINDOW_FACTS)
        if isinstance(self.ranker, ListwiseRanker):
            of_windows = self.ranker.strategy.facts()
        return {**self.other_strategy, **of_windows}

    @property
    def other_strategy(self) -> dict[str, Any]:
        """Design or strategy by name where they are not windows: those runs are told by their windows alone."""
        if isinstance(self.ranker, Ranker):
            return {}
        if self.partition:
            return {"design": "partition", **({"sequential": True} if self.settings.sequential else {})}
        spec = self.settings.ordering
        if spec == "windows":
            return {}
        read = {"answers": "margin"} if self.settings.margins else {}
        return {"strategy": spelled_strategy(spec, self.ranker.strategy), **read}

    @property
    def partition(self) -> bool:
        """Whether lists are cut into windows that are asked at once, and nothing is ranked."""
        return isinstance(self.ranker, ListwiseRanker) and isinstance(self.ranker.strategy, Partition)

    @cached_property
    def lists_of(self) -> Mapping[str, tuple[Items, ...]]:
        """Every query's list by grades and the two groups of each contrast."""
        every = [self.dataset.candidates(query) for query in self.queries]
        return {
            contrast: tuple(items_of(candidates, sides) for candidates in every)
            for contrast, sides in self.sides_of.items()
        }

    @property
    def lists(self) -> tuple[Items, ...]:
        """The same of the one contrast that there is; of several, of the first."""
        return next(iter(self.lists_of.values()))

    @cached_property
    def sides_of(self) -> Mapping[str, Sides]:
        """The side of every candidate in each contrast."""
        documents = {document.doc_id: document for document in self.candidates()}
        return {
            contrast: {doc_id: of.side(document) for doc_id, document in documents.items()}
            for contrast, of in self.attribute.contrasts.items()
        }

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            **self.other_strategy,
            "conditions": self.condition_names,
            **({"first_stage": self.first_stage.identity} if self.first_stage else {}),
        }

    def describe(self) -> dict[str, Any]:
        facts, lists = super().describe(), "".join(self.candidates_lines()).encode()
        if isinstance(self.ranker, Ranker):  # the settings that make no difference to one that asks nothing
            unused = (self.settings.of_asking() | OF_MODELS) - (
                {"conditions"} if self.ranker.worded else set()
            )
            del facts["prompt"]
            facts |= {"unused": sorted(unused)}
            facts["flags"] = {name: value for name, value in facts["flags"].items() if name not in unused}
        return {**facts, "candidates_sha256": hashlib.sha256(lists).hexdigest()}

    def backend(self) -> Backend:
        """What answers the chats; a ranker that asks none still says who it is."""
        if isinstance(self.ranker, Ranker):
            return NoBackend(self.ranker.identity)
        return super().backend()

    def judged(self, candidates: Candidates, rankings: Sequence[Ranking]) -> Judged:
        """A query with rankings of it; of several contrasts, in the first."""
        sides = next(iter(self.sides_of.values()))
        judged = Judged(candidates, tuple(rankings), sides, groups=self.groups)
        return in_groups(judged, self.attribute, self.sides_of)

    def between(self, judged: Judged, contrast: str) -> Judged:
        """The same query, its items on the sides of this contrast."""
        return judged.between(self.attribute, contrast, self.sides_of)

    @property
    def many_contrasts(self) -> bool:
        """Whether there are so many that their permutation tests are approximated, and that prompts are not compared
        contrast by contrast."""
        return len(self.attribute.contrasts) > MOST_CONTRASTS

    @property
    def rule(self) -> HowRanked:
        """How conclusions are drawn from this design, of one contrast."""
        return next(iter(self.rules.values()))

    @cached_property
    def rules(self) -> Mapping[str, HowRanked]:
        """The same of every contrast."""
        settings = self.settings
        # a ranker without windows inherits no order, whatever it was given
        initial = "random" if isinstance(self.ranker, Ranker) else settings.initial
        unjudged = not any(items.judged for items in self.lists)
        of_groups = judged_of(map(self.dataset.candidates, self.queries), self.attribute)
        return {
            contrast: HowRanked(
                band_of(settings.band), band_of(settings.guard), self.strata[contrast], settings.level,
                0 if self.many_contrasts else settings.permutations, settings.seed, initial, unjudged,
                judged_between(of_groups, contrast), settings.label_error,
            )
            for contrast in self.attribute.contrasts
        }  # fmt: skip

    def candidates_lines(self) -> Iterator[str]:
        """`candidates.jsonl`: the lists as the dataset gave them, with relevance and side."""
        for query in sorted(self.queries, key=lambda query: query.query_id):
            candidates = self.dataset.candidates(query)
            row = {
                "query_id": query.query_id,
                "doc_ids": list(candidates.doc_ids),
                "relevance": candidates.grades,
                "side": [self.attribute.group(document) for document in candidates.documents],
                "bucket": [bucket(candidates, self.sides, doc_id) for doc_id in candidates.doc_ids],
            }
            yield json.dumps(row, ensure_ascii=False) + "\n"

    # What it costs and can find, and what the answers come to

    @cached_property
    def reach(self) -> dict[str, Reach]:
        """What rankers could make of these lists at most, whatever the model."""
        return known_reach(self)

    def plan(self, models: int) -> dict[str, Any]:
        protected = [items.sizes[1] for items in self.lists]
        return {
            **plain(self.facts()),
            "protected": [min(protected), max(protected)],
            "longest_chain": self.longest,
            "reach": plain(self.reach),
        }

    def tokens(self) -> tuple[int, int]:
        return tokens_of(self)

    def findable(self, settings: PlanSettings) -> dict[str, Any]:
        return asdict(findable_of(self, settings))

    def unparseable(self, result: Ranked) -> int:
        return sum(window.unparseable for window in result.windows)

    def outcome(self, run: str, results: Mapping[str, Ranked], failures: Sequence[Failure]) -> Outcome:
        prompts = self.prompts if self.settings.sequential else ()
        stopped = {condition.name: self.stopping(condition) for condition in prompts}
        for stopping in stopped.values():
            for probe in stopping.undecided():
                if probe.probe_id in results:
                    stopping.note(probe, self.window_share(probe, results[probe.probe_id]))
        probes = chain(*(stopping.counted() for stopping in stopped.values())) if stopped else self.probes()
        chains = [(probe, results[probe.probe_id]) for probe in probes if probe.probe_id in results]
        return outcome_of(self, run, chains, failures, stopped)


# A design from what the user set: data loaded, orders drawn, measures read.


SHOWN_QUERIES = 5
OF_GROUPS = "SelectionRate@{0},ImpactRatio@{0}"
BY_CHANCE = "ImpactRatio(chance)@{0},ExpRatio(worst),ExpRatio(chance),GroupOdds"
"""What is shown of each group, where there are several, and what is told of all together."""
SELECTED = 20
"""How many of a list count as selected; of lists that are no longer, half."""
OF_WINDOWS = ("PreferenceOdds", "SlotOdds", "RelevanceOdds")
"""What is shown, measured and concluded from where nothing is ranked."""


def make_design(settings: ListwiseSettings, subject: Subject = NOBODY) -> ListwiseDesign:
    """Loads what the settings name and fixes all that is drawn. Raises UsageError.

    A subject that is a ranker orders the lists itself: once each, without prompts.
    """
    dataset, attribute = load_lists(settings)
    if attribute.groups and (settings.sequential or settings.initial in ("deltr", "mirrored")):
        flag = "sequential" if settings.sequential else "initial"
        raise UsageError(
            f"{settings.as_flags([flag])} is for two groups, and {attribute.name} has {len(attribute.groups)}.",
            "leave it out, or --contrast binary with protected and unprotected in attributes.toml",
        )
    ranker, partition = None, settings.design == "partition" and not subject.ranks
    if subject.ranks:
        engine = backend_args(settings.backend_arg)
        ranker = subject.ranker(dataset, attribute, passages=settings.passages, backend_args=engine)
        settings = _without_prompts(settings, subject.spec, ranker.worded)
    if subject.scores_lists:
        settings = _scored(settings, subject.spec)
    strategy = Partition(settings.window) if partition else strategy_of(settings.ordering, vars(settings))
    if ranker is None:
        settings = _as_asked(settings, strategy, subject)
    settings, prompt = with_prompt(settings, dataset, strategy.question.prompt)
    queries = selected_queries(dataset, settings)
    conditions = [*attribute.named]
    if settings.conditions is not None:
        conditions = parts(settings.conditions)
        wrong = next((name for name in conditions or [""] if name not in attribute.named), None)
        if wrong is not None:
            raise UsageError(
                f"{attribute.name} has no prompt '{wrong}'.{did_you_mean(wrong, attribute.named)}",
                f"--conditions takes {', '.join(attribute.named)}",
            )
    prompts = conditions_of(conditions, settings.repeats, settings.repeat)
    control = CONTROLLED * (settings.control_variate and settings.initial == "random")
    odds = OF_RANKINGS if ranker else "PreferenceOdds"
    shown = f"P@20,ExpRatio{control},{odds}"
    measured = f"{shown},SlotOdds,RelevanceOdds,ExpRatio,RelevanceRatio,overlap@20,nDCG@20,RBO,Tau"
    concluded = f"{odds},RelevanceOdds,ExcessRatio{control}"  # whatever --measures names
    candidates = [dataset.candidates(query) for query in queries]
    if attribute.groups:
        longest = max(len(listed.documents) for listed in candidates)
        selected = SELECTED if longest > SELECTED else (longest + 1) // 2
        of_groups = OF_GROUPS.format(selected)
        shown, measured = f"{shown},{of_groups}", f"{measured},{of_groups},{BY_CHANCE.format(selected)}"
    if partition:
        shown = measured = concluded = ",".join(OF_WINDOWS)
    if settings.label_error is not None:  # refused before anything is asked
        for of in attribute.contrasts.values():
            odds_with(settings.label_error, judged_of(candidates, of), None)
    strata = {
        contrast: shared_strata(
            (of.side(document), grade > 0)
            for listed in candidates
            for document, grade in zip(listed.documents, listed.grades, strict=True)
        )
        for contrast, of in attribute.contrasts.items()
    }
    every = dict.fromkeys(stratum for of in strata.values() for stratum in of)
    concluded = ",".join([concluded, *(of_stratum(odds, stratum) for stratum in every)])
    first_stage = Subject("bm25").ranker(dataset, attribute) if settings.initial == "bm25" else None
    how: tuple[Any, int] = ("random", 1) if first_stage else (settings.initial, settings.orders)
    orders = {c.query.query_id: initial_orders(c, attribute, *how, settings.seed) for c in candidates}
    if first_stage:  # ties come in a random order: the dataset's own may tell what is relevant
        orders = {query_id: [first_stage.ordered(of[0])[0]] for query_id, of in orders.items()}
    design = ListwiseDesign.measuring(
        shown, measured, concluded, settings=settings, subject=subject, dataset=dataset, attribute=attribute,
        queries=tuple(queries), prompt=prompt, prompts=tuple(prompts), strata=strata, first_stage=first_stage,
        orders=orders, warnings=tuple(_warnings(ranker, first_stage, candidates)),
        ranker=ranker or ListwiseRanker(
            prompt=prompt, attribute=attribute, strategy=strategy, reader=settings.read, words=settings.words,
            on_bad_answer=settings.on_bad_answer, input=settings.input,
        ),
    )  # fmt: skip
    for measure in design.measures:
        if partition and measure.name not in OF_WINDOWS:
            raise UsageError(
                f"--design partition makes no ranking, so it has no {measure}.",
                f"it has {', '.join(OF_WINDOWS)}; --design ranking has the others",
            )
        if measure.arguments.get("control") == "order" and settings.initial != "random":
            raise UsageError(
                f"{measure} needs random initial orders, but --initial is {settings.initial}.",
                f"measure {measure.name} without control=order",
            )
    # what a measure cannot do with these data must be said before anything is asked
    as_given = Ranking(queries[0].query_id, candidates[0].doc_ids)
    measure_all(design.measures, {INITIAL: [design.judged(candidates[0], [as_given])]})
    return design


def rendered(settings: ListwiseSettings) -> Iterator[Chat]:
    """The windows of the first chain, each in its initial order."""
    yield from chats_of(next(make_design(replace(settings, limit=1)).programs()).start())


def _scored(settings: ListwiseSettings, spec: str) -> ListwiseSettings:
    """With the one strategy that asks a backend which scores lists, under the neutral prompt unless others are named.
    Raises UsageError."""
    if settings.design == "partition" or settings.strategy not in (ListwiseSettings().strategy, (SCORES,)):
        wrong = "design" if settings.design == "partition" else "strategy"
        raise UsageError(
            f"{spec} scores whole lists, so it has no {settings.as_flags([wrong])}.", "leave it out"
        )
    return replace(settings, strategy=(SCORES,), conditions=settings.conditions or "neutral")


def _as_asked(settings: ListwiseSettings, strategy: Strategy, subject: Subject) -> ListwiseSettings:
    """The settings as far as a strategy has a use for them, since no others must name the run. Raises UsageError."""
    usual, margins = ListwiseSettings(), strategy.question.margins
    changes = {name: getattr(usual, name) for name, value in strategy.facts().items() if value is None}
    if strategy.orderless:
        changes["orders"] = 1
    if settings.answers == {"none": "margin", "needed": "text"}.get(margins):
        what = "log-probabilities" if margins == "none" else "text of answers"
        raise UsageError(f"--strategy {settings.ordering} reads no {what}.", "leave --answers out")
    if margins == "needed":
        changes["answers"] = "margin"
        if settings.max_tokens is None:
            changes["max_tokens"] = 1  # all that is read is where the answer begins
    elif margins == "none":
        changes["answers"] = "auto"
    elif settings.answers == "auto":
        reads_text = replace(settings, answers="text")
        able = subject.spec and "margins" in subject.backend(reads_text).capabilities
        changes["answers"] = "margin" if able else "text"
    return replace(settings, **changes)


def _without_prompts(settings: ListwiseSettings, model: str, worded: bool) -> ListwiseSettings:
    """The settings of a ranker that reads no prompt: one order, once. Raises UsageError for sensitive conditions,
    unless their words are put into the query (`worded`)."""
    if not worded and settings.conditions not in (None, "neutral"):
        raise UsageError(
            f"{model} reads no prompt, so it cannot rank under --conditions {settings.conditions}.",
            "leave --conditions out",
        )
    # What only a model is told must not name the run; the prompt that none reads is the same for all data.
    unread = {item.name: default_of(item) for item in fields(settings) if item.name in settings.of_asking()}
    conditions = settings.conditions if worded else "neutral"
    once = {"conditions": conditions, "orders": 1, "repeats": 1, "repeat": False, "control_variate": False}
    return replace(settings, **unread | {"prompt": "wikiproject"} | once)


def _warnings(
    ranker: Ranker | None, first_stage: Ranker | None, lists: Sequence[Candidates]
) -> Iterator[str]:
    """What makes lists doubtful: no judgements; queries without a word of any candidate, where BM25 orders those;
    groups that a ranker cannot place. Raises UsageError where BM25 finds nothing at all."""
    if not any(listed.relevance for listed in lists):
        yield NOT_JUDGED
    words = first_stage or ranker
    if isinstance(words, Bm25):
        empty = [listed.query.query_id for listed in lists if not any(words.scores(listed))]
        if len(empty) == len(lists):
            raise UsageError(
                "bm25 finds nothing: no query shares a word with any of its candidates.",
                "it compares the words of queries with those of titles and texts, as English ones",
            )
        if empty:
            named = ", ".join(empty[:SHOWN_QUERIES]) + ", …" * (len(empty) > SHOWN_QUERIES)
            yield (
                f"bm25 finds nothing in {len(empty)} of {len(lists)} queries ({named}): no word of theirs stands in "
                "any candidate, so their lists are in random order"
            )
    if ranker is None:
        return
    name = ranker.identity.partition(" ")[0]
    if ranker.reads_groups:
        for remark in remarks(ranker, [ranker.ordered(listed)[0] for listed in lists]):
            yield f"{name}: {remark}"
