"""Makes a pairwise audit from what the user set: data loaded, pairs drawn, measures read.

The data's way: dataset -> pairs -> one program per pair, both orders at once -> dispatch -> verdicts ->
measures -> intervals -> run folder. A sequential audit asks pairs in rounds over the queries and stops each
stratum when its verdict is settled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from llmfair.audits.design import NOBODY, Outcome
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import load_lists, selected_queries, with_prompt
from llmfair.audits.pairwise.design import PairwiseDesign
from llmfair.audits.pairwise.outcome import outcome_of
from llmfair.audits.pairwise.plan import findable_of, plan_of, tokens_of
from llmfair.audits.pairwise.settings import PairwiseSettings, PlanPairwiseSettings
from llmfair.audits.subject import Subject
from llmfair.backends.python import SCORES
from llmfair.datasets.base import Dataset
from llmfair.errors import UsageError
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import JudgedPairs
from llmfair.nouns import Attribute, Failure, PairStratum, PairVerdict, Query
from llmfair.probes import PairProbes, pairwise_probes
from llmfair.rankers.pairwise import PairwiseRanker

CONCLUDED = "AdjustedOdds"
"""What conclusions are made of, whatever --measures names."""
SHOWN = "WinShare,FlipRate,InvalidRate,AdjustedOdds,WinRatio"
MEASURED = f"{SHOWN},BalancedRatio,RawRatio,PositionOdds,Kappa,FirstSlotRate,PositionIndex,TieRate,NoiseRate"


@dataclass(frozen=True, kw_only=True)
class PairwiseAudit(PairwiseDesign):
    """A pairwise audit made but not begun: what it asks, what that costs and can find, what the answers come to."""

    def plan(self, models: int) -> dict[str, Any]:
        return plan_of(self, models)

    def tokens(self) -> tuple[int, int]:
        return tokens_of(self)

    def findable(self, settings: PlanPairwiseSettings) -> dict[str, Any]:
        return {stratum: asdict(findable_of(self, stratum, settings)) for stratum in self.strata}

    def unparseable(self, result: PairVerdict) -> int:
        return sum(answer.unparseable for answer in (result.first, result.second))

    def outcome(self, run: str, results: Mapping[str, PairVerdict], failures: Sequence[Failure]) -> Outcome:
        stopped = {stratum: self.stopping(stratum) for stratum in self.strata if self.settings.sequential}
        for one in stopped.values():
            for probe in one.undecided():
                if probe.probe_id in results:
                    one.note(probe, results[probe.probe_id])
        probes = self.probes() if not stopped else (p for one in stopped.values() for p in one.counted())
        verdicts = (results[probe.probe_id] for probe in probes if probe.probe_id in results)
        return outcome_of(self, run, verdicts, failures, stopped)


def make_pair_design(settings: PairwiseSettings, subject: Subject = NOBODY) -> PairwiseAudit:
    """Loads what the settings name and fixes the pairs that are asked. Raises UsageError."""
    dataset, attribute = load_lists(settings)
    settings = _scored(settings, subject)
    task = PairwiseAudit.task + (f"-{SCORES}" if settings.form == SCORES else "")
    settings, prompt = with_prompt(settings, dataset, task)
    queries = selected_queries(dataset, settings)
    strata = settings.strata()
    gates = read_gates(settings.require, strata, JudgedPairs)
    shown, measured = settings.measures, settings.measures
    if shown is None or measured is None:
        shown, measured = (_weighted(names, settings.weights) for names in (SHOWN, MEASURED))
    ranker = PairwiseRanker(
        prompt=prompt,
        form=settings.form,
        answers=settings.answers,
        on_bad_answer=settings.on_bad_answer,
        input=settings.input,
        words=settings.words,
    )
    return PairwiseAudit(
        settings=settings,
        subject=subject,
        dataset=dataset,
        attribute=attribute,
        prompt=prompt,
        ranker=ranker,
        measures=parse_measures(
            ",".join((measured, concluded_of(settings.weights), *(gate.measure for gate in gates))),
            JudgedPairs,
        ),
        shown=parse_measures(shown, JudgedPairs),
        gates=gates,
        queries=tuple(queries),
        pairs={stratum: _pairs(dataset, attribute, queries, stratum, settings, ranker) for stratum in strata},
    )


def _scored(settings: PairwiseSettings, subject: Subject) -> PairwiseSettings:
    """With the one form in which a backend can be asked that scores lists, and answers no questions."""
    if not subject.scores_lists:
        return settings
    if settings.answers == "margin" or settings.constrain:
        flag = "--constrain" if settings.constrain else "--answers margin"
        raise UsageError(f"{subject.spec} scores lists, and cannot do {flag}.", "leave it out")
    return replace(settings, form=SCORES)


def concluded_of(weights: str) -> str:
    """The measure that conclusions are made of, with these weights."""
    return _weighted(CONCLUDED, weights)


def _weighted(names: str, weights: str) -> str:
    """The measures with the weights asked for; how often answers change is a mean over queries anyway."""
    if weights == "macro":
        return names
    return ",".join(name if name == "NoiseRate" else f"{name}(agg={weights})" for name in names.split(","))


def _pairs(
    dataset: Dataset,
    attribute: Attribute,
    queries: Sequence[Query],
    stratum: PairStratum,
    settings: PairwiseSettings,
    ranker: PairwiseRanker,
) -> dict[str, PairProbes]:
    """The pairs of every query; a sequential audit may ask as many of one as it asks in all."""
    return {
        query.query_id: pairwise_probes(
            dataset.candidates(query),
            attribute,
            stratum,
            settings.max_pairs if settings.sequential else settings.pairs,
            settings.seed,
            ranker.shown,
            0.0 if settings.sequential else settings.noise_share,
            1 if settings.sequential else settings.repeats,
            settings.grades,
        )
        for query in queries
    }
