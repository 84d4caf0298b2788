"""Fairness and utility of rankings that exist: TREC runs, or run folders, those of pairs too. No model is asked.

A run is measured as it stands, in the order trec_eval reads it. A query of the qrels that it lacks counts 0 in
the measures of trec_eval (of a run folder that is not through it does not count: it was not asked yet), a query
without judgement only where no judgement is needed. A document that neither
groups nor qrels name is unlisted: it keeps its rank, and is on no side.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from llmfair.audits.exhibits import REPRODUCES
from llmfair.audits.gates import assessing, parse_gate
from llmfair.audits.listwise.answers import unassessed
from llmfair.audits.listwise.findings import Asked, findings_of, unassessable, with_family
from llmfair.audits.listwise.making import SCORED
from llmfair.audits.listwise.reach import surface_of
from llmfair.audits.listwise.results import ListwiseFinding
from llmfair.audits.pairwise.score import score_pairs
from llmfair.audits.runs import Against, PairTarget, Target, Watch, targets
from llmfair.audits.score_gates import gates_of, named_in_reasons, requirements_of
from llmfair.audits.summary import ALL, Inference, aggregate, summarise, undefined_counts
from llmfair.audits.versions import versions
from llmfair.errors import RunConflict, UsageError
from llmfair.metrics.base import Column, Judged, Measure, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.metrics.values import Quotient, Value
from llmfair.probes import CONTROL
from llmfair.records import Measurement, Side
from llmfair.results import plain
from llmfair.rundir import COLUMNS, ONE_OF_SEVERAL, SCHEMA, RunDir, csv_text, json_text, tidy
from llmfair.settings import ScoreSettings, band_of
from llmfair.stats.implied import Cells, length
from llmfair.trec import RunFile, write_whole

SHOWN_QUERIES = 5


@dataclass(frozen=True)
class Scored:
    """What was found: `results` as results.json has it, and its tidy rows in the order of COLUMNS."""

    results: dict[str, Any]
    rows: list[list[Any]]
    per_query: list[list[Any]]


def score(runs: Sequence[Path], settings: ScoreSettings, watch: Watch = lambda path: None) -> Scored:
    """Measures TREC run files and run folders; `watch` is told of every file before it is read.

    With `settings.output`, metrics.csv, per_query.csv and results.json are written there. Raises UsageError for
    malformed files (file and line), RunConflict when the output is the folder of another run.
    """
    for text in settings.require:
        parse_gate(text)  # a malformed one is said before anything is read
    # map, since a loop would hold one large run while it reads the next
    found = list(map(partial(_score_one, settings), runs, targets(runs, settings, watch)))
    rows = [row for one in found for row in one.rows]
    names = dict.fromkeys(name for one in found for name in one.facts["measures"])
    measures = parse_measures(",".join(names))
    results = {
        "schema": SCHEMA,
        "status": "complete",
        "task": "score",
        "level": settings.level,
        "band": list(band_of(settings.band)),
        "measures": [str(measure) for measure in measures],
        "labels": {str(m): m.definition.label for m in measures if m.definition.of_all is True},
        "measure_notes": {str(measure): measure.note for measure in measures if measure.note},
        "settings": _named_data(runs, settings),
        "versions": versions(),
        "command": _command(runs, settings),
        "runs": [one.facts for one in found],
        "requirements": named_in_reasons(
            settings, [one.facts for one in found], [entry for one in found for entry in one.requirements]
        ),
        "rows": _named(rows),
    }
    scored = Scored(results, rows, [row for one in found for row in one.per_query])
    if settings.output is not None:
        _write(settings.output, scored)
    return scored


def _named_data(runs: Sequence[Path], settings: ScoreSettings) -> dict[str, Any]:
    """Where rankings and judgements came from, as the user named them."""
    named = (settings.dataset, settings.qrels, settings.groups, settings.attributes)
    data = zip(("dataset", "qrels", "groups", "attributes"), named, strict=True)
    return {"runs": [str(run) for run in runs], **{name: str(value) for name, value in data if value}}


def _command(runs: Sequence[Path], settings: ScoreSettings) -> str:
    """The command line that measures the same again, wherever it writes."""
    names = (item.name for item in fields(settings) if item.metadata["panel"] in REPRODUCES)
    flags = settings.as_flags(names)
    return " ".join(["llmfair score", *(shlex.quote(str(run)) for run in runs), *([flags] if flags else [])])


@dataclass(frozen=True)
class _One:
    """What was found of one RUN: `facts` as results.json has them, which gates hold, and its tidy rows."""

    facts: dict[str, Any]
    requirements: list[dict[str, Any]]
    rows: list[list[Any]]
    per_query: list[list[Any]]


def _score_one(settings: ScoreSettings, run: Path, target: Target | PairTarget) -> _One:
    if isinstance(target, PairTarget):
        facts, found = score_pairs(settings, target)
    else:
        facts, found = _score_lists(settings, target)
    rows = tidy([row for row in found if row.query_id == ALL], target.columns)
    arms = [
        variant for variant in facts["variants"] if not run.is_dir() or not ONE_OF_SEVERAL.search(variant)
    ]
    requirements = requirements_of(run, settings, facts, _named(rows), arms)
    return _One(
        facts, requirements, rows, tidy([row for row in found if row.query_id != ALL], target.columns)
    )


def _named(rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Tidy rows with the names of their columns."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def _score_lists(settings: ScoreSettings, target: Target) -> tuple[dict[str, Any], list[Measurement]]:
    """What results.json says of a run file or a folder of rankings, and its rows."""
    gates = gates_of(settings, Judged)
    named = (settings.measures or SCORED, *(gate.measure for gate in gates), *assessing(gates))
    measures = parse_measures(",".join(named), Judged)
    asked = Asked(band_of(settings.band), seed=target.seed, initial=target.initial)
    columns: list[Column] = []
    rows: list[Measurement] = []
    findings: dict[str, ListwiseFinding] = {}
    relevance: dict[str, float | None] = {}
    variants: dict[str, dict[str, Any]] = {}
    for variant, files in target.variants.items():
        found, lists = _measured(measures, variant, files, target)
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
            answers = target.answers.get(variant)
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
        **({"incomplete": dict(target.incomplete)} if target.incomplete else {}),
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


def _measured(
    measures: Sequence[Measure], variant: str, files: Sequence[RunFile], target: Target
) -> tuple[list[Column], list[Cells]]:
    """Every measure of every query, one query at a time: a large run is never held as a whole.

    And the sizes of the lists.
    """
    against = target.against
    query_ids = {query_id for file in files for query_id in file.rankings}
    if target.incomplete is None:
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


def _write(path: Path, scored: Scored) -> None:
    if RunDir(path).manifest.exists():
        raise RunConflict(f"{path} is the folder of another run.", "choose another --output folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        RunDir(path).drop_report()
        write_whole(path / "metrics.csv", [csv_text(COLUMNS, scored.rows)])
        write_whole(path / "per_query.csv", [csv_text(COLUMNS, scored.per_query)])
        write_whole(path / "results.json", [json_text(scored.results)])
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}.", "choose another --output folder"
        ) from None
