"""The pairwise audit made but not begun: which pairs are asked, how often and in which order, at what cost."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from math import ceil, exp, log, sqrt
from statistics import fmean, harmonic_mean
from typing import Any, Literal, get_args

import numpy as np

from llmfair.asking.dispatch import Program
from llmfair.audits.design import CHARACTERS_PER_TOKEN, NOBODY, Condition, Design, Outcome
from llmfair.audits.documents import CallPlan
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import drawn_of, load_lists, selected_queries, with_prompt
from llmfair.audits.pairwise.measure import HEADLINE, outcome_of, seen, share, with_weights
from llmfair.audits.pairwise.results import PairGrades, PairwiseFacts
from llmfair.audits.pairwise.settings import PairwiseSettings, PlanPairwiseSettings
from llmfair.audits.runs.stopping import Stopping
from llmfair.audits.subject import Subject
from llmfair.backends.python import SCORES
from llmfair.errors import UsageError
from llmfair.io.files import plain
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import JudgedPairs
from llmfair.nouns import Chat, Failure, PairStratum, PairVerdict, Probe, Query
from llmfair.probes import PAIR_STREAM, PairProbes, by_grade, pair_grades, pair_pools, pairwise_probes
from llmfair.prompts import Prompt
from llmfair.rankers.pairwise import PairForm, PairwiseRanker
from llmfair.results import Count, Counts, Share
from llmfair.settings import band_of
from llmfair.stats.power import (
    FEWEST_TESTED,
    Pairing,
    pairs_needed,
    power,
    queries_needed,
    smallest_pair_ratio,
)
from llmfair.stats.sequential import EProcess, rounds

SHOWN = "WinShare,FlipRate,InvalidRate,AdjustedOdds,WinRatio"
MEASURED = f"{SHOWN},BalancedRatio,RawRatio,PositionOdds,Kappa,FirstSlotRate,PositionIndex,TieRate,NoiseRate"
RENDERED = 3
"""So many pairs of a query and stratum are rendered; the others are taken to be as long."""
ANSWERS: Mapping[PairForm, str] = {"order": "[1] > [2]", "letter": "A", "scores": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseFindable:
    """What a t test over queries finds with the pairs of one stratum, in position-adjusted odds.

    `queries` have such pairs, of which `pairs` each are asked and `all_pairs` could be (harmonic means);
    `items_recur` says that an item stands in pairs of several queries, which makes every figure here too good.
    `error`, `power` and what is needed are those of the odds `ratio`, tested at 1 − `level`: None where no test is
    made, or where no number is enough; `pairs_needed` are to be asked of these queries, as far as they have them.
    `smallest` odds below 1 are found with power `target` (and their inverse above it), `smallest_with_all` with all
    pairs; None: not even the most extreme ones.
    """

    queries: Count
    pairs: float
    items_recur: bool
    ratio: float
    level: float
    target: float
    icc: float
    consistent: float
    reason: str | None = None
    error: float | None = None
    power: Share | None = None
    pairs_needed: Count | None = None
    queries_needed: Count | None = None
    smallest: float | None = None
    all_pairs: float | None = None
    smallest_with_all: float | None = None


class PairwisePlan(CallPlan, frozen=True, kw_only=True):
    """llmfair plan pairwise; llmfair pairwise --dry-run has no findable, and cost only at given prices."""

    task: Literal["pairwise"]
    conditions: list[Literal["relevant", "irrelevant"]]
    pairs: Count | None
    pairs_asked: Counts
    repeats: Count
    noise_share: float
    noise_calls: Count
    sequential: bool
    models: Count
    design: dict[str, Any]
    findable: dict[str, PairwiseFindable] | None = None


@dataclass(frozen=True, kw_only=True)
class PairwiseDesign(Design[PairVerdict]):
    """Everything a pairwise audit asks, what that costs and can find, and what the answers come to."""

    task = "pairwise"
    settings: PairwiseSettings
    prompt: Prompt
    ranker: PairwiseRanker
    pairs: Mapping[PairStratum, Mapping[str, PairProbes]]

    @property
    def conditions(self) -> Sequence[Condition]:
        return [Condition(stratum) for stratum in self.strata]

    @property
    def strata(self) -> tuple[PairStratum, ...]:
        return tuple(self.pairs)

    why_not_assessable = "the others have no pair of items of both groups alike in relevance"

    @property
    def assessable(self) -> int:
        """Queries with pairs, of the stratum for which most have some."""
        return max(sum(map(bool, by_query.values())) for by_query in self.pairs.values())

    def probes(self) -> Iterator[Probe]:
        """Every probe; queries in seeded shuffled order, so that a broken-off run has no systematic gap."""
        shuffled = np.random.default_rng(self.settings.seed).permutation(len(self.queries))
        for stratum in self.strata:
            for index in shuffled:
                yield from self.pairs[stratum][self.queries[index].query_id]

    def in_rounds(self, stratum: PairStratum) -> list[Probe]:
        """The schedule of a sequential audit: one pair a query in every round, queries in fresh random order."""
        by_query = [[*self.pairs[stratum][query.query_id]] for query in self.queries]
        rng = np.random.default_rng([self.settings.seed, PAIR_STREAM + get_args(PairStratum).index(stratum)])
        schedule = [by_query[query][pair] for query, pair in rounds([len(p) for p in by_query], rng)]
        return schedule[: self.settings.max_pairs]

    @cached_property
    def calls(self) -> int:
        """Requests planned: two a probe; under --sequential at most so many."""
        return 2 * sum(map(self._count, self.strata))

    def programs(self) -> Iterator[Program]:
        """One program per probe; under --sequential none past the pair at which its stratum was settled."""
        if not self.settings.sequential:
            for probe in self.probes():
                yield Program(probe.probe_id, partial(self.ranker.steps, probe))
            return
        for stratum in self.strata:
            stopping = self.stopping(stratum)
            for probe in stopping.undecided():
                yield Program(
                    probe.probe_id,
                    lambda probe=probe, stopping=stopping: stopping.noting(  # type: ignore[misc]
                        probe, self.ranker.steps(probe), lambda verdict: verdict
                    ),
                )

    def stopping(self, stratum: PairStratum) -> Stopping[PairVerdict]:
        """A sequential audit of one stratum that has not begun."""
        settings, probes = self.settings, self.in_rounds(stratum)
        process = EProcess(band_of(settings.band), settings.level, len(probes))
        look = partial(seen, band=process.band, level=process.level, weights=settings.weights)
        return Stopping(probes, process, share, look)

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            "conditions": list(self.strata),
            "pairs": self.settings.max_pairs if self.settings.sequential else self.settings.pairs,
            **({"grades": "match"} if self.settings.grades == "match" and self._graded else {}),
        }

    def facts(self) -> PairwiseFacts:
        """What results say of the design."""
        settings = self.settings
        probes: dict[str, int] = {stratum: self._count(stratum) for stratum in self.strata}
        counts: dict[str, list[int]] = {
            stratum: [len(one.pairs) for one in self.pairs[stratum].values()] for stratum in self.strata
        }
        return PairwiseFacts(
            preset=settings.preset_name(),
            queries=len(self.queries),
            conditions=list(self.strata),
            pairs=settings.pairs,
            form=settings.form,
            answers=settings.answers,
            constrained=settings.constrain,
            noise_share=settings.noise_share,
            repeats=settings.repeats,
            weights=settings.weights,
            sequential=settings.sequential,
            max_pairs=settings.max_pairs if settings.sequential else None,
            prompt_sha256=self.prompt.sha256,
            probes=probes,
            pairs_asked=probes if settings.sequential else {name: sum(n) for name, n in counts.items()},
            without_pairs={
                stratum: sorted(query_id for query_id, one in by_query.items() if not one)
                for stratum, by_query in self.pairs.items()
            },
            fewer_pairs={name: sum(0 < n < settings.pairs for n in of_it) for name, of_it in counts.items()},
            passed_over={
                stratum: sum(one.passed_over for one in by_query.values())
                for stratum, by_query in self.pairs.items()
            },
            left_out=self.dataset.describe().get("left_out", {}),
            grades={stratum: self._grades(stratum) for stratum in self._graded} or None,
            drawn=drawn_of(self.dataset, settings),
            calls=self.calls,
            seed=settings.seed,
        )

    def _count(self, stratum: PairStratum) -> int:
        """How many probes of a stratum there are; under --sequential at most."""
        planned = sum(map(len, self.pairs[stratum].values()))
        return min(planned, self.settings.max_pairs) if self.settings.sequential else planned

    @cached_property
    def _graded(self) -> Mapping[PairStratum, set[int]]:
        """The grades of those relevance strata of which the items of some query have several."""
        by_query = {
            stratum: [pair_grades(self.dataset.candidates(q), self.attribute, stratum) for q in self.queries]
            for stratum in self.strata
        }
        return {name: {*chain(*of_it)} for name, of_it in by_query.items() if max(map(len, of_it)) > 1}

    def _grades(self, stratum: PairStratum) -> PairGrades:
        by_query: dict[str, list[int]] = {}
        probes = self.in_rounds(stratum) if self.settings.sequential else chain(*self.pairs[stratum].values())
        for probe in probes:
            if not probe.draw:
                relevance = probe.candidates.relevance
                ours, theirs = (relevance.get(doc_id, 0) for doc_id in probe.candidates.doc_ids)
                by_query.setdefault(probe.candidates.query.query_id, []).append(ours - theirs)
        difference = fmean(map(fmean, by_query.values())) if by_query else None
        grades = self._graded[stratum]
        return PairGrades(min(grades), max(grades), self.settings.grades == "match", difference)

    # What it costs and can find, and what the answers come to

    def plan(self, models: int) -> dict[str, Any]:
        settings = self.settings
        pairs = {stratum: _pairs(of_it.values()) for stratum, of_it in self.pairs.items()}
        once = 2 * settings.repeats * sum(map(sum, pairs.values()))
        return {
            "design": plain(self.facts()),
            "left_out": self.dataset.describe().get("left_out", {}),
            "queries": len(self.queries),
            "conditions": list(self.strata),
            "pairs": None if settings.sequential else settings.pairs,
            "pairs_asked": {stratum: sum(counts) for stratum, counts in pairs.items()},
            "repeats": settings.repeats,
            "noise_share": settings.noise_share,
            "sequential": settings.sequential,
            "max_pairs": settings.max_pairs if settings.sequential else None,
            "models": models,
            "noise_calls": 0 if settings.sequential else (self.calls - once) * models,
        }

    def tokens(self) -> tuple[int, int]:
        # probes of one query and stratum have equal prompts but for the items
        groups: list[Collection[Probe] | PairProbes] = []
        if self.settings.sequential:
            scheduled: dict[tuple[str, str], list[Probe]] = {}
            for stratum in self.strata:
                for probe in self.in_rounds(stratum):
                    scheduled.setdefault((stratum, probe.candidates.query.query_id), []).append(probe)
            groups += scheduled.values()
        else:
            groups += [one for by_query in self.pairs.values() for one in by_query.values()]
        prompts, calls = 0.0, 0
        for probes in groups:
            chats = [chat for probe in islice(probes, RENDERED) for chat in self.ranker.chats(probe)]
            characters = sum(len(message.content) for chat in chats for message in chat.messages)
            prompts += 2 * len(probes) * characters / max(len(chats), 1)
            calls += 2 * len(probes)
        answer = ceil(len(ANSWERS[self.ranker.form]) / CHARACTERS_PER_TOKEN)
        return round(prompts / CHARACTERS_PER_TOKEN), calls * answer

    def findable(self, settings: PlanPairwiseSettings) -> dict[str, Any]:
        return {stratum: asdict(findable_of(self, stratum, settings)) for stratum in self.strata}

    def unparseable(self, result: PairVerdict) -> int:
        return sum(answer.unparseable for answer in result.answers)

    def outcome(self, run: str, results: Mapping[str, PairVerdict], failures: Sequence[Failure]) -> Outcome:
        stopped = {stratum: self.stopping(stratum) for stratum in self.strata if self.settings.sequential}
        for one in stopped.values():
            for probe in one.undecided():
                if probe.probe_id in results:
                    one.note(probe, results[probe.probe_id])
        probes = self.probes() if not stopped else (p for one in stopped.values() for p in one.counted())
        verdicts = (results[probe.probe_id] for probe in probes if probe.probe_id in results)
        return outcome_of(self, run, verdicts, failures, stopped)


def _pairs(probes: Iterable[PairProbes]) -> list[int]:
    """How many pairs each of these queries has; none are left out."""
    return [len(one.pairs) for one in probes if one]


def findable_of(
    design: PairwiseDesign, stratum: PairStratum, settings: PlanPairwiseSettings
) -> PairwiseFindable:
    """Power and smallest odds of one relevance stratum. Raises UsageError for odds and power that cannot be."""
    by_query, level, target = design.pairs[stratum], settings.level, settings.power
    counts, pairing = _pairs(by_query.values()), Pairing(settings.icc, settings.consistent)
    check_power(target, level)
    if abs(log(settings.ratio)) >= pairing.largest_log:
        most = exp(pairing.largest_log)
        raise UsageError(
            f"no answers show odds of {settings.ratio:g} when a share of {settings.consistent:g} is consistent.",
            f"a --ratio between {1 / most:.3g} and {most:.3g}, or more --consistent",
        )
    # Σ_q s²(m_q) depends on Σ 1/m_q alone, so queries of unequal pairs count as their harmonic mean.
    queries, pairs = len(counts), harmonic_mean(counts) if counts else 0.0
    items = Counter(
        doc_id
        for one in by_query.values()
        for doc_id in {d for probe in one for d in probe.candidates.doc_ids}
    )
    unknown = PairwiseFindable(
        queries=queries,
        pairs=pairs,
        items_recur=max(items.values(), default=1) > 1,
        ratio=settings.ratio,
        level=level,
        target=target,
        icc=settings.icc,
        consistent=settings.consistent,
    )
    if settings.sequential:
        return replace(unknown, reason="sequential")
    if not queries:
        return replace(unknown, reason="no_pairs")
    sd = pairing.query_sd(settings.ratio, pairs)
    needed = queries_needed(settings.ratio, sd, target, level)
    known = replace(unknown, error=sd / sqrt(queries), queries_needed=needed)
    if queries < FEWEST_TESTED:
        return replace(known, reason="too_few_queries")
    available = [_available(design, stratum, query) for query in design.queries if by_query[query.query_id]]
    all_pairs = harmonic_mean(available)
    return replace(
        known,
        power=power(log(settings.ratio), sd / sqrt(queries), queries, level),
        pairs_needed=_asked_for(pairs_needed(settings.ratio, queries, pairing, target, level), available),
        smallest=smallest_pair_ratio(pairs, queries, pairing, target, level),
        all_pairs=all_pairs,
        smallest_with_all=smallest_pair_ratio(all_pairs, queries, pairing, target, level),
    )


def check_power(target: float, level: float) -> None:
    """Raises UsageError for a power that a test has where there is nothing to find."""
    if target <= 1 - level:
        raise UsageError(
            f"--power {target:g} is no more than the chance of a false positive at --level {level:g}.",
            f"a --power above {1 - level:.3g}",
        )


def _available(design: PairwiseDesign, stratum: PairStratum, query: Query) -> int:
    """How many pairs of a query there are; two equal texts are none."""
    candidates = design.dataset.candidates(query)
    texts = {document.doc_id: design.ranker.shown(document) for document in candidates.documents}
    pools = pair_pools(candidates, design.attribute, stratum, design.settings.seed)
    available = 0
    for sides in by_grade(candidates, *pools).values() if design.settings.grades == "match" else [pools]:
        protected, unprotected = (Counter(texts[doc_id] for doc_id in side) for side in sides)
        equal = sum(number * unprotected[text] for text, number in protected.items())
        available += protected.total() * unprotected.total() - equal
    return available


def _asked_for(needed: int | None, available: Sequence[int]) -> int | None:
    """The fewest pairs to ask of each query, as far as it has them, that count as those needed; None: not even all."""
    if needed is None:
        return None
    asked, enough = range(needed, max(available) + 1), needed - 1e-9  # rounding
    found = bisect_left(asked, enough, key=lambda pairs: harmonic_mean([min(pairs, n) for n in available]))
    return asked[found] if found < len(asked) else None


def make_pair_design(settings: PairwiseSettings, subject: Subject = NOBODY) -> PairwiseDesign:
    """Loads what the settings name and fixes the pairs that are asked. Raises UsageError."""
    dataset, attribute = load_lists(settings)
    if subject.scores_lists:  # and answers no questions: there is one form in which it can be asked
        if settings.answers == "margin" or settings.constrain:
            flag = "--constrain" if settings.constrain else "--answers margin"
            raise UsageError(f"{subject.spec} scores lists, and cannot do {flag}.", "leave it out")
        settings = replace(settings, form=SCORES)
    task = PairwiseDesign.task + (f"-{SCORES}" if settings.form == SCORES else "")
    settings, prompt = with_prompt(settings, dataset, task)
    queries, strata = selected_queries(dataset, settings), settings.strata()
    gates = read_gates(settings.require, strata, JudgedPairs)
    shown, measured = (
        with_weights(names, settings.weights) if settings.measures is None else settings.measures
        for names in (SHOWN, MEASURED)
    )
    concluded = with_weights(HEADLINE, settings.weights)
    ranker = PairwiseRanker(
        prompt=prompt,
        form=settings.form,
        answers=settings.answers,
        on_bad_answer=settings.on_bad_answer,
        input=settings.input,
        words=settings.words,
    )
    # a sequential audit may ask as many pairs of one query as it asks in all, each once
    how = (settings.pairs, settings.noise_share, settings.repeats)
    pairs, noise_share, repeats = (settings.max_pairs, 0.0, 1) if settings.sequential else how
    return PairwiseDesign(
        settings=settings,
        subject=subject,
        dataset=dataset,
        attribute=attribute,
        prompt=prompt,
        ranker=ranker,
        measures=parse_measures(
            ",".join((measured, concluded, *(gate.measure for gate in gates))), JudgedPairs
        ),
        shown=parse_measures(shown, JudgedPairs),
        gates=gates,
        queries=tuple(queries),
        pairs={
            stratum: {
                query.query_id: pairwise_probes(
                    dataset.candidates(query), attribute, stratum, pairs, settings.seed, ranker.shown,
                    noise_share, repeats, settings.grades,
                )
                for query in queries
            }
            for stratum in strata
        },
    )  # fmt: skip


def rendered(settings: PairwiseSettings) -> Iterator[Chat]:
    """Both questions of every pair."""
    design = make_pair_design(settings)
    for probe in design.probes():
        yield from design.ranker.chats(probe)
