"""Makes a pairwise audit from what the user set: data loaded, pairs drawn, measures read."""

from __future__ import annotations

from collections.abc import Sequence

from llmfair.audits.design import NOBODY
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import load_lists, selected_queries
from llmfair.audits.pairwise.audit import PairwiseAudit
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.audits.subject import Subject
from llmfair.datasets.base import Dataset
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import JudgedPairs
from llmfair.probes import PairProbes, pairwise_probes
from llmfair.prompts import load_prompt
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.records import Attribute, PairKind, Query

SHOWN = "WinShare,FlipRate,InvalidRate,AdjustedOdds,WinRatio"
MEASURED = f"{SHOWN},BalancedRatio,RawRatio,PositionOdds,Kappa,FirstSlotRate,PositionIndex,TieRate,NoiseRate"


def make_pair_design(settings: PairwiseSettings, subject: Subject = NOBODY) -> PairwiseAudit:
    """Loads what the settings name and fixes the pairs that are asked. Raises UsageError."""
    dataset, attribute = load_lists(settings)
    prompt = load_prompt(settings.prompt)
    queries = selected_queries(dataset, settings)
    kinds = settings.kinds()
    gates = read_gates(settings.require, kinds, JudgedPairs)
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
        measures=parse_measures(",".join((measured, *(gate.measure for gate in gates))), JudgedPairs),
        shown=parse_measures(shown, JudgedPairs),
        gates=gates,
        queries=tuple(queries),
        pairs={kind: _pairs(dataset, attribute, queries, kind, settings, ranker) for kind in kinds},
    )


def _weighted(names: str, weights: str) -> str:
    """The measures with the weights asked for; how often answers change is a mean over queries anyway."""
    if weights == "macro":
        return names
    return ",".join(name if name == "NoiseRate" else f"{name}(agg={weights})" for name in names.split(","))


def _pairs(
    dataset: Dataset,
    attribute: Attribute,
    queries: Sequence[Query],
    kind: PairKind,
    settings: PairwiseSettings,
    ranker: PairwiseRanker,
) -> dict[str, PairProbes]:
    """The pairs of every query; a sequential audit may ask as many of one as it asks in all."""
    return {
        query.query_id: pairwise_probes(
            dataset.candidates(query),
            attribute,
            kind,
            settings.max_pairs if settings.sequential else settings.pairs,
            settings.seed,
            ranker.shown,
            0.0 if settings.sequential else settings.noise_share,
            1 if settings.sequential else settings.repeats,
        )
        for query in queries
    }
