"""What a listwise audit found, as the files of its run folder: made from the rankings alone.

Nothing here depends on when or how often a chat was asked, so an interrupted and an undisturbed run, and a
replay years later, give the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmfair.audits.answers import answer_counts
from llmfair.audits.design import INPUT, Design
from llmfair.audits.summary import summarise, undefined_counts
from llmfair.metrics.base import Column, Judged, measure_all
from llmfair.rankers.base import ScoringRanker
from llmfair.rankers.listwise import Ranked
from llmfair.records import Failure, Measurement, Probe, Ranking
from llmfair.rundir import COLUMNS, SCHEMA, csv_text, json_text, tidy
from llmfair.stats.reach import attainable_precision, attainable_ratio
from llmfair.trec import groups_lines, qrels_lines, run_lines, scores_lines

REACH_DRAWS = 3000
FAILURE_COLUMNS = ("probe", "class", "message")
Chains = Sequence[tuple[Probe, Ranked]]


@dataclass(frozen=True)
class Outcome:
    """Results as `results.json` has them, all rows, and every file by name."""

    results: Mapping[str, Any]
    rows: Sequence[Measurement]
    files: Mapping[str, str]


def outcome_of(design: Design, run: str, model: str, chains: Chains, failures: Sequence[Failure]) -> Outcome:
    """Measures the chains that have a ranking, in the design's order; the others are counted and named."""
    columns = measure_all(design.measures, _judged(design, chains))
    rows = [*summarise(columns, design.settings.level), *_rows_of_files(design, chains)]
    named = {"run": run, "dataset": design.dataset.name, "attribute": design.attribute.name, "model": model}
    results = _results(design, named, chains, failures, columns, rows)
    return Outcome(results, rows, dict(_files(design, named, chains, failures, rows, results)))


def _judged(design: Design, chains: Chains) -> dict[str, list[Judged]]:
    """Every query's rankings by arm, orders and repeats together, and the input orders as an arm of their own."""
    found: dict[str, dict[str, list[Ranking]]] = {arm.name: {} for arm in design.arms}
    for probe, ranked in chains:
        found[probe.arm].setdefault(probe.candidates.query.query_id, []).append(ranked.ranking)
    # Of an incomplete run the input speaks of the same queries as the arms beside it.
    reached = {query_id for by_query in found.values() for query_id in by_query}
    found[INPUT] = {
        query.query_id: [Ranking(query.query_id, order.doc_ids) for order in design.orders[query.query_id]]
        for query in design.queries
        if query.query_id in reached
    }
    return {
        arm: [
            design.judged(design.dataset.candidates(query), rankings[query.query_id])
            for query in design.queries
            if query.query_id in rankings
        ]
        for arm, rankings in found.items()
    }


def _rows_of_files(design: Design, chains: Chains) -> Iterator[Measurement]:
    """Utility of each run file by itself, where an arm has several: what ir_measures prints for that file."""
    if design.settings.orders * design.settings.repeats == 1:
        return
    utility = [measure for measure in design.measures if measure.definition.cite == "trec_eval"]
    judged: dict[str, list[Judged]] = {}
    for probe, ranked in chains:
        file = f"{probe.arm}.o{probe.order}.r{probe.repeat}"
        judged.setdefault(file, []).append(design.judged(probe.candidates, [ranked.ranking]))
    for row in summarise(measure_all(utility, judged), design.settings.level):
        if row.query_id == "all":
            yield row


def _results(
    design: Design,
    named: Mapping[str, str],
    chains: Chains,
    failures: Sequence[Failure],
    columns: Sequence[Column],
    rows: Sequence[Measurement],
) -> dict[str, Any]:
    settings, lists = design.settings, design.dataset.describe()
    asked = len(design.queries) * settings.orders * settings.repeats
    ranked = Counter(probe.arm for probe, _ in chains)
    sizes = [shape.n for shape in design.shapes()]
    return {
        "schema": SCHEMA,
        "status": "complete" if sum(ranked.values()) == asked * len(design.arms) else "incomplete",
        "task": "listwise",
        **named,
        "words": {side.value: word for side, word in design.attribute.words.items()},
        "level": settings.level,
        "measures": [str(measure) for measure in design.measures],
        "measure_notes": {str(measure): measure.note for measure in design.measures if measure.note},
        "design": {
            "preset": settings.preset_name(),
            "queries": len(design.queries),
            "left_out": lists.get("left_out", {}),
            "shrunk": lists.get("shrunk", {}),
            "candidates": [min(sizes), max(sizes)],
            "arms": [arm.name for arm in design.arms],
            "initial": settings.initial,
            "orders": settings.orders,
            "repeats": settings.repeats,
            **design.asked_with(),
            "chains": len(design.queries) * design.chains_per_query,
            "calls": design.calls,
            "never_ranked": design.never_ranked(),
            "seed": settings.seed,
        },
        "reach": reach(design),
        "chains": {arm.name: {"asked": asked, "ranked": ranked[arm.name]} for arm in design.arms},
        "failures": dict(sorted(Counter(failure.failure for failure in failures).items())),
        "answers": answer_counts(((probe.arm, result) for probe, result in chains), design.sides),
        "undefined": undefined_counts(columns),
        "rows": [dict(zip(COLUMNS, row, strict=True)) for row in tidy(_of_all(rows), named)],
    }


def _files(
    design: Design,
    named: Mapping[str, str],
    chains: Chains,
    failures: Sequence[Failure],
    rows: Sequence[Measurement],
    results: Mapping[str, Any],
) -> Iterator[tuple[str, str]]:
    """Every file of the run folder but the manifest and the journal, by name."""
    runs: dict[str, list[Ranking]] = {}
    for probe, ranked in chains:
        runs.setdefault(design.file_name(probe), []).append(ranked.ranking)
    for name, rankings in runs.items():
        yield f"rankings/{name}", "".join(run_lines(rankings, tag="llmfair"))
    if isinstance(design.ranker, ScoringRanker):
        yield "scores.tsv", "".join(scores_lines(ranked.ranking for _, ranked in chains))
    # Judgements of the queries that were ranked, so that other tools read our files as we do.
    reached = {probe.candidates.query.query_id for probe, _ in chains}
    qrels = {q: judged for q, judged in design.dataset.qrels.items() if q in reached}
    yield "qrels.txt", "".join(qrels_lines(qrels))
    # Documents outside the lists too: targets and the axis of groups are made of them.
    yield "groups.tsv", "".join(groups_lines({d: doc.groups for d, doc in design.dataset.documents.items()}))
    if design.groups.relevant:
        yield "relevant.jsonl", "".join(_relevant_lines(design))
    yield "candidates.jsonl", "".join(design.candidates_lines())
    yield "metrics.csv", csv_text(COLUMNS, tidy(_of_all(rows), named))
    yield "per_query.csv", csv_text(COLUMNS, tidy([row for row in rows if row.query_id != "all"], named))
    failed = sorted((failure.probe_id, failure.failure, failure.message) for failure in failures)
    yield "failures.csv", csv_text(FAILURE_COLUMNS, failed)
    yield "results.json", json_text(results)


def _relevant_lines(design: Design) -> Iterator[str]:
    """Of drawn lists: the groups of all relevant documents of each query, and how many have them."""
    groups = design.groups
    for query_id, counts in sorted(groups.relevant.items()):
        rows = [{"groups": groups.documents[name].groups, "count": count} for name, count in counts.items()]
        yield json.dumps({"query_id": query_id, "relevant": rows}, ensure_ascii=False) + "\n"


def _of_all(rows: Sequence[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.query_id == "all"]


def reach(design: Design) -> dict[str, dict[str, float]]:
    """What this setting can show on these lists (listwise.md 7), from random orders, whatever the model.

    ExpRatio of rankers that always put one side first, P@20 of a perfect ranker; simulated, no request. Of
    other initial orders nothing is said: what can be reached depends on where each item starts.
    """
    if design.settings.initial not in ("random", "mirrored"):
        return {}
    passes, shapes = design.settings.passes, design.shapes()
    rng = np.random.default_rng(design.settings.seed)
    found: dict[str, dict[str, float]] = {}
    both = [(s.n, s.protected, s.unprotected) for s in shapes if s.protected and s.unprotected]
    if both:
        ratio = attainable_ratio(both, design.windows, passes, REACH_DRAWS, rng=rng)
        found["ExpRatio"] = {"low": ratio.low, "high": ratio.high}
    judged = [(s.n, s.relevant) for s in shapes if s.judged]
    if judged:
        found["P@20"] = {
            "high": attainable_precision(judged, design.windows, passes, 20, REACH_DRAWS, rng=rng)
        }
    return found
