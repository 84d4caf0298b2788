"""The pairwise audit made but not begun: which pairs of which queries are asked, how often, and in which order.

The data's way: dataset -> pairs -> one program per pair, both orders at once -> dispatch -> verdicts ->
measures -> intervals -> run folder. A sequential audit asks pairs in rounds over the queries and stops each
stratum when its verdict is settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain
from statistics import fmean
from typing import Any, get_args

import numpy as np

from llmfair.asking.dispatch import Program
from llmfair.audits.design import NOBODY, Condition, Design, Outcome
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import drawn_of, load_lists, selected_queries, with_prompt
from llmfair.audits.pairwise.measure import HEADLINE, outcome_of, seen, share, with_weights
from llmfair.audits.pairwise.plan import findable_of, plan_of, tokens_of
from llmfair.audits.pairwise.results import PairGrades, PairwiseFacts
from llmfair.audits.pairwise.settings import PairwiseSettings, PlanPairwiseSettings
from llmfair.audits.runs.stopping import Stopping
from llmfair.audits.subject import Subject
from llmfair.backends.python import SCORES
from llmfair.errors import UsageError
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import JudgedPairs
from llmfair.nouns import Chat, Failure, PairStratum, PairVerdict, Probe
from llmfair.probes import PAIR_STREAM, PairProbes, pair_grades, pairwise_probes
from llmfair.prompts import Prompt
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.settings import band_of
from llmfair.stats.sequential import EProcess, rounds

SHOWN = "WinShare,FlipRate,InvalidRate,AdjustedOdds,WinRatio"
MEASURED = f"{SHOWN},BalancedRatio,RawRatio,PositionOdds,Kappa,FirstSlotRate,PositionIndex,TieRate,NoiseRate"


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
        return plan_of(self, models)

    def tokens(self) -> tuple[int, int]:
        return tokens_of(self)

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
