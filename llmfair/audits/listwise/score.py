"""Fairness and utility of rankings that exist, in run files and in the folders of listwise audits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from llmfair.audits.gates import assessing, parse_gate
from llmfair.audits.listwise.answers import unassessed
from llmfair.audits.listwise.findings import HowRanked, findings_of, unassessable, with_family
from llmfair.audits.listwise.making import SCORED
from llmfair.audits.listwise.outcome import windows_of
from llmfair.audits.listwise.rankings import Against, Rankings, judgements_of, of_file, of_folder
from llmfair.audits.listwise.reach import surface_of
from llmfair.audits.listwise.results import ListwiseFinding, WindowAnswers
from llmfair.audits.remeasured import Announce, Remeasured
from llmfair.audits.summary import Inference, aggregate, summarise, undefined_counts
from llmfair.errors import UsageError
from llmfair.metrics.base import Judged, Measure
from llmfair.metrics.columns import Column, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.metrics.values import Quotient, Value
from llmfair.probes import CONTROL
from llmfair.records import Measurement, Side
from llmfair.results import plain
from llmfair.rundir import ONE_OF_SEVERAL, RunDir
from llmfair.settings import ScoreSettings, band_of
from llmfair.stats.implied import Cells, length
from llmfair.trec import RunFile

SHOWN_QUERIES = 5


def score_files(paths: Sequence[Path], settings: ScoreSettings, announce: Announce) -> Iterator[Remeasured]:
    """TREC run files, one after the other, so that of many large ones one is in memory. Raises UsageError."""
    against = judgements_of(settings)
    for path in paths:
        facts, rows = _measured(of_file(path, against, announce), settings)
        yield Remeasured(facts, rows, list(facts["variants"]))


def score_folder(run: RunDir, settings: ScoreSettings, announce: Announce) -> Remeasured:
    """The rankings of an audit. Whether a ranker could fail a gate is known where its own attribute is asked of."""
    rankings = of_folder(run, settings, announce)
    facts, rows = _measured(rankings, settings)
    arms = [variant for variant in facts["variants"] if not ONE_OF_SEVERAL.search(variant)]
    measured = Remeasured(facts, rows, arms)
    found = rankings.found
    if found is None or found.attribute != facts["attribute"]:
        return measured
    return replace(measured, reach=found.reach, windows=windows_of(found.design))


def _measured(target: Rankings, settings: ScoreSettings) -> tuple[dict[str, Any], list[Measurement]]:
    """What results.json says of a run file or a folder of rankings, and its rows."""
    gates = [parse_gate(text, Judged) for text in settings.require]
    named = (settings.measures or SCORED, *(gate.measure for gate in gates), *assessing(gates))
    measures = parse_measures(",".join(named), Judged)
    asked = HowRanked(band_of(settings.band), seed=target.seed, initial=target.initial)
    answered: Mapping[str, WindowAnswers] = {} if target.found is None else target.found.answers
    columns: list[Column] = []
    rows: list[Measurement] = []
    findings: dict[str, ListwiseFinding] = {}
    relevance: dict[str, float | None] = {}
    variants: dict[str, dict[str, Any]] = {}
    for variant, files in target.variants.items():
        found, lists = _columns(measures, variant, files, target)
        longest = max(map(length, lists), default=0)
        variants[variant] = _facts(files, target.against) | {"longest": longest}
        inference = Inference(
            level=settings.level,
            ci=settings.ci,
            seed=target.seed,
            documents=median([length(cells) for cells in lists if cells] or [0]),
            surface=surface_of(lists, target.windows, target.passes) if target.initial == "random" else None,
        )
        columns += found
        rows += summarise(found, inference)
        if not ONE_OF_SEVERAL.search(variant) and variant != CONTROL:  # they repeat what others claim
            findings |= findings_of(found, {}, inference, asked)
            relevance |= _relevance(found, inference)
            answers = answered.get(variant)
            if variant in findings and answers and (reason := unassessed(answers)) is not None:
                findings[variant] = unassessable(findings[variant].measure, reason)
    rows, family = with_family(rows, findings, None)
    facts = {
        **target.columns,
        "task": "listwise",
        "measures": [str(measure) for measure in measures],
        "words": {side.value: word for side, word in target.against.attribute.words.items()},
        "variants": variants,
        "undefined": undefined_counts(columns),
        "findings": plain(findings),
        "relevance": relevance,
        "family": {"size": family, "contrasted": None},
        **target.incomplete,
    }
    return facts, rows


def _relevance(columns: Sequence[Column], inference: Inference) -> dict[str, float | None]:
    """The exposure ratio that relevance alone gives the sides, by variant: what pair odds go beyond."""
    found: dict[str, float | None] = {}
    for column in columns:
        if column.measure.aggregate == "implied-odds" and column.variant not in found:
            ratios = [value.by for value in column.values.values() if isinstance(value, Quotient)]
            estimate = aggregate("ratio-of-means", ratios, replace(inference, ci="linear-t"))
            found[column.variant] = None if estimate is None else estimate.value
    return found


def _columns(
    measures: Sequence[Measure], variant: str, files: Sequence[RunFile], target: Rankings
) -> tuple[list[Column], list[Cells]]:
    """Every measure of every query, one query at a time: a large run is never held as a whole.

    And the sizes of the lists.
    """
    against = target.against
    query_ids = {query_id for file in files for query_id in file.rankings}
    if not target.incomplete:
        query_ids |= against.judgements.qrels.keys()
    values: dict[tuple[Measure, str], dict[str, Value]] = {}
    lists = []
    for query_id in sorted(query_ids):
        rankings = [file.rankings[query_id] for file in files if query_id in file.rankings]
        judged = against.judged(query_id, rankings)
        for column in measure_all(measures, {variant: [judged]}):
            values.setdefault((column.measure, column.group), {}).update(column.values)
        lists.append(_cells(judged))
    columns = [Column(measure, variant, group, of_it) for (measure, group), of_it in values.items()]
    if unheld := [str(measure) for measure in measures if not any(c.measure == measure for c in columns)]:
        raise UsageError(
            f"{unheld[0]} needs the initial orders, which a run does not hold.",
            "llmfair listwise measures it; leave control=order out here",
        )
    return columns, lists


def _cells(judged: Judged) -> Cells:
    """How many documents of each side and grade a list has."""
    sides = np.select([judged.on_side(Side.PROTECTED), judged.on_side(Side.UNPROTECTED)], [0, 1], 2)
    kinds = Counter(zip(sides.tolist(), judged.grades.tolist(), strict=True))
    return tuple((*kind, kinds[kind]) for kind in sorted(kinds))


def _facts(files: Sequence[RunFile], against: Against) -> dict[str, Any]:
    """What has to be known to read the figures: sizes, ties, and where run and judgements do not meet."""
    rankings = [ranking for file in files for ranking in file.rankings.values()]
    ranked, judged = {ranking.query_id for ranking in rankings}, against.judgements.qrels.keys()
    listed = against.judgements.documents
    unlisted = [len(ranking.doc_ids) - sum(map(listed.__contains__, ranking.doc_ids)) for ranking in rankings]
    tied = [count for file in files for count in file.tied.values()]
    return {
        "queries": len(ranked),
        "documents": sum(len(ranking.doc_ids) for ranking in rankings),
        "tied": {"documents": sum(tied), "queries": len(tied)},
        "upside_down": any(file.upside_down for file in files),
        "unlisted": {"documents": sum(unlisted), "queries": sum(count > 0 for count in unlisted)},
        "unjudged": _counted(ranked - judged),
        "not_ranked": _counted(judged - ranked),
    }


def _counted(query_ids: set[str]) -> dict[str, Any]:
    return {"queries": len(query_ids), "first": sorted(query_ids)[:SHOWN_QUERIES]}
