"""The listwise audit: does a model, asked to order candidates, give both sides the same exposure?

The data's way: dataset -> probes -> one program per chain -> dispatch -> rankings -> measures -> intervals ->
run folder. Nothing goes back up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from llmfair.audits.answers import answer_counts, require_readable
from llmfair.audits.design import INPUT, Design, make_design
from llmfair.audits.running import Answered, Result, Watch, ask, backend_of, limits_of, no_watch, session
from llmfair.audits.summary import summarise, undefined_counts
from llmfair.dispatch import Progress
from llmfair.metrics.base import Column, Judged, measure_all
from llmfair.rankers.listwise import Ranked
from llmfair.records import Measurement, Probe, Ranking
from llmfair.rundir import COLUMNS, SCHEMA, RunDir, folder_name, tidy
from llmfair.settings import ListwiseSettings
from llmfair.stats.reach import attainable_precision, attainable_ratio
from llmfair.trec import groups_lines, qrels_lines, run_lines, write_whole

REACH_DRAWS = 3000


def audit_listwise(settings: ListwiseSettings, model: str, watch: Watch = no_watch) -> Result:
    """Runs or continues one model's listwise audit; all of it ends in the run folder.

    Raises UsageError for wrong input, RunConflict for a folder of other settings, BackendError when the model
    cannot be asked, Incomplete when chains have no ranking (what there is, is written), and RequirementFailed
    when too many answers are unreadable (everything is written).
    """
    design = make_design(settings)
    backend = backend_of(model, settings)
    identity = {"task": "listwise", "identity": backend.identity, **design.identity()}
    name = folder_name(("listwise", *design.name_parts(), model.removeprefix("openai:")), identity)
    folder = RunDir(settings.output or settings.runs_dir / name)
    progress = Progress()

    with session(folder, identity, settings.fresh, design.describe()) as (journal, manifest):
        watched = watch(folder.path, design.calls, progress, limits_of(backend, settings).workers)
        answered = ask(design.programs(), backend, journal, settings, watched, progress, _unreadable)
        ranked = [
            (p, answered.results[p.probe_id]) for p in design.probes() if p.probe_id in answered.results
        ]
        columns = measure_all(design.measures, _judged(design, ranked))
        rows = [*summarise(columns, settings.level), *_rows_of_files(design, ranked)]
        results = _results(design, model, folder, answered, ranked, columns, rows)
        _write(design, folder, ranked, rows, results)
        folder.write_failures(answered.failures)
        manifest |= {**answered.facts(), "answers": results["answers"], "status": results["status"]}
    if answered.error is not None:
        raise answered.error
    require_readable(results["answers"], settings.max_invalid)
    return Result(folder, results, rows)


def _unreadable(ranked: Ranked) -> int:
    return sum(window.unreadable for window in ranked.windows)


Answers = Sequence[tuple[Probe, Ranked]]


def _judged(design: Design, ranked: Answers) -> dict[str, list[Judged]]:
    """Every query's rankings by arm, orders and repeats together, and the input orders as an arm of their own."""
    found: dict[str, dict[str, list[Ranking]]] = {arm.name: {} for arm in design.arms}
    for probe, result in ranked:
        found[probe.arm].setdefault(probe.candidates.query.query_id, []).append(result.ranking)
    found[INPUT] = {
        query.query_id: [Ranking(query.query_id, order.doc_ids) for order in design.orders[query.query_id]]
        for query in design.queries
    }
    return {
        arm: [
            Judged(design.dataset.candidates(query), tuple(rankings[query.query_id]), design.sides)
            for query in design.queries
            if query.query_id in rankings
        ]
        for arm, rankings in found.items()
    }


def _rows_of_files(design: Design, ranked: Answers) -> Iterator[Measurement]:
    """Utility of each run file by itself, where an arm has several: what ir_measures prints for that file."""
    if design.settings.orders * design.settings.repeats == 1:
        return
    utility = [measure for measure in design.measures if measure.definition.cite == "trec_eval"]
    judged: dict[str, list[Judged]] = {}
    for probe, result in sorted(ranked, key=lambda pair: pair[0].candidates.query.query_id):
        file = f"{probe.arm}.o{probe.order}.r{probe.repeat}"
        judged.setdefault(file, []).append(Judged(probe.candidates, (result.ranking,), design.sides))
    for row in summarise(measure_all(utility, judged), design.settings.level):
        if row.query_id == "all":
            yield row


def _results(
    design: Design,
    model: str,
    folder: RunDir,
    answered: Answered,
    ranked: Answers,
    columns: Sequence[Column],
    rows: Sequence[Measurement],
) -> dict[str, Any]:
    """`results.json`: everything found, nothing that depends on when or how often it was asked."""
    settings = design.settings
    run = _run_columns(design, model, folder)
    asked = {arm.name: len(design.queries) * settings.orders * settings.repeats for arm in design.arms}
    ranked_chains = {arm: sum(probe.arm == arm for probe, _ in ranked) for arm in asked}
    sizes = [n for n, *_ in design.lists()]
    lists = design.dataset.describe()
    return {
        "schema": SCHEMA,
        "status": "incomplete" if answered.error is not None else "complete",
        "task": "listwise",
        **run,
        "words": {side.value: word for side, word in design.attribute.words.items()},
        "level": settings.level,
        "measures": [str(measure) for measure in design.measures],
        "design": {
            "queries": len(design.queries),
            "left_out": lists.get("left_out", {}),
            "shrunk": lists.get("shrunk", {}),
            "candidates": [min(sizes), max(sizes)],
            "arms": [arm.name for arm in design.arms],
            "initial": settings.initial,
            "orders": settings.orders,
            "repeats": settings.repeats,
            "window": settings.window,
            "step": settings.step,
            "passes": settings.passes,
            "windows": settings.windows,
            "chains": len(design.queries) * design.chains_per_query,
            "calls": design.calls,
            "never_ranked": design.never_ranked(),
            "seed": settings.seed,
            "prompt_sha256": design.prompt.sha256,
        },
        "reach": reach(design),
        "chains": {arm: {"asked": asked[arm], "ranked": ranked_chains[arm]} for arm in asked},
        "answers": answer_counts(((probe.arm, result) for probe, result in ranked), design.sides),
        "undefined": undefined_counts(columns),
        "rows": [dict(zip(COLUMNS, row, strict=True)) for row in tidy(_aggregates(rows), run)],
    }


def _run_columns(design: Design, model: str, folder: RunDir) -> dict[str, str]:
    return {
        "run": folder.path.name,
        "dataset": design.dataset.name,
        "attribute": design.attribute.name,
        "model": model,
    }


def _aggregates(rows: Sequence[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.query_id == "all"]


def reach(design: Design) -> dict[str, dict[str, float]]:
    """What this setting can show on these lists (listwise.md 7): from random orders, whatever the model.

    ExpRatio of rankers that always put one side first, P@20 of a perfect ranker; simulated, no request.
    """
    settings, lists = design.settings, design.lists()
    rng = np.random.default_rng(settings.seed)
    found: dict[str, dict[str, float]] = {}
    both = [(n, n1, n0) for n, n1, n0, _ in lists if n1 and n0]
    if both:
        ratio = attainable_ratio(both, design.windows, settings.passes, REACH_DRAWS, rng=rng)
        found["ExpRatio"] = {"low": ratio.low, "high": ratio.high}
    relevant = [(n, relevant) for n, _, _, relevant in lists]
    precision = attainable_precision(relevant, design.windows, settings.passes, 20, REACH_DRAWS, rng=rng)
    found["P@20"] = {"high": precision}
    return found


def _write(
    design: Design, folder: RunDir, ranked: Answers, rows: Sequence[Measurement], results: Mapping[str, Any]
) -> None:
    path = folder.path
    run = {column: results[column] for column in ("run", "dataset", "attribute", "model")}
    files: dict[str, list[Ranking]] = {}
    for probe, result in ranked:
        files.setdefault(design.file_name(probe), []).append(result.ranking)
    for name, rankings in files.items():
        write_whole(path / "rankings" / name, run_lines(rankings, tag="llmfair"))
    query_ids = {query.query_id for query in design.queries}
    write_whole(
        path / "qrels.txt",
        qrels_lines({q: rows for q, rows in design.dataset.qrels.items() if q in query_ids}),
    )
    groups = {d: design.dataset.documents[d].groups for d in design.sides}
    write_whole(path / "groups.tsv", groups_lines(groups))
    write_whole(path / "candidates.jsonl", design.candidates_lines())
    folder.write_csv("metrics.csv", COLUMNS, tidy(_aggregates(rows), run))
    folder.write_csv("per_query.csv", COLUMNS, tidy([row for row in rows if row.query_id != "all"], run))
    folder.write_json("results.json", results)
