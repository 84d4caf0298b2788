"""Fairness and utility of what exists: TREC runs, or run folders, each by its kind of audit. No model is asked.

A run is measured as it stands, in the order trec_eval reads it. A query of the qrels that it lacks counts 0 in
the measures of trec_eval (of a run folder that is not through it does not count: it was not asked yet), a query
without judgement only where no judgement is needed. A document that neither
groups nor qrels name is unlisted: it keeps its rank, and is on no side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from llmfair.audits.commands import scoring_of
from llmfair.audits.design import versions
from llmfair.audits.gates import parse_gate
from llmfair.audits.kind import kind_in, kinds
from llmfair.audits.scoring.remeasured import Announce, RemeasuredRun
from llmfair.audits.scoring.score_gates import failing, gravest, named_in_reasons, requirements_of, verdict_of
from llmfair.audits.summary import ALL
from llmfair.errors import UsageError
from llmfair.io.files import SCHEMA, json_text, write_whole
from llmfair.metrics.names import parse_measures
from llmfair.results import plain
from llmfair.rundir import COLUMNS, RunDir, csv_text, tidy
from llmfair.settings import SCORE_FORMS, ScoreSettings, band_of
from llmfair.settings.score import LOG

LOG_HINT = "llmfair score LOG.jsonl    of what a generator was shown and said"
NAMING = ("run", "dataset", "attribute", "model")
"""The facts of a run that are columns of its rows."""


@dataclass(frozen=True)
class _One:
    """What was found of one RUN: `facts` as results.json has them, which gates hold, and its tidy rows."""

    facts: Mapping[str, Any]
    requirements: list[dict[str, Any]]
    rows: list[list[Any]]
    per_query: list[list[Any]]
    limits: Mapping[str, str]


@dataclass(frozen=True)
class ScoreOutcome:
    """What was found: `results` as results.json has it, and its tidy rows in the order of COLUMNS."""

    results: dict[str, Any]
    rows: list[list[Any]]
    per_query: list[list[Any]]


def score(
    runs: Sequence[Path], settings: ScoreSettings, announce: Announce = lambda path: None
) -> ScoreOutcome:
    """Measures TREC run files and run folders; `announce` is told of every file before it is read.

    With `settings.output`, metrics.csv, per_query.csv and results.json are written there. Raises UsageError for
    malformed files (file and line), RunConflict when the output is the folder of another run.
    """
    for text in settings.require:
        parse_gate(text)  # a malformed one is said before anything is read
    # map, since a loop would hold one large run while it reads the next
    found = list(map(partial(_scored_one, settings), runs, _remeasured(runs, settings, announce)))
    failing(settings, [one.facts for one in found])
    rows = [row for one in found for row in one.rows]
    names = dict.fromkeys(name for one in found for name in one.facts["measures"])
    measures = parse_measures(",".join(names))
    results = {
        "schema": SCHEMA,
        "status": "complete",
        "verdict": gravest([one.facts for one in found]),
        "task": "score",
        "level": settings.level,
        "band": list(band_of(settings.band)),
        "measures": [str(measure) for measure in measures],
        "labels": {str(m): m.label for m in measures if m.definition.worded},
        "measure_notes": {str(measure): measure.note for measure in measures if measure.note},
        "settings": _named_data(runs, settings),
        "versions": versions(),
        "command": scoring_of(runs, settings),
        "runs": [one.facts for one in found],
        "requirements": named_in_reasons(
            settings, [one.facts for one in found], [entry for one in found for entry in one.requirements]
        ),
        **({"limits": limits} if (limits := _limits(found)) else {}),
        "rows": _named(rows),
    }
    scored = ScoreOutcome(results, rows, [row for one in found for row in one.per_query])
    if settings.output is not None:
        _write(settings.output, scored)
    return scored


def _named_data(runs: Sequence[Path], settings: ScoreSettings) -> dict[str, Any]:
    """Where rankings and judgements came from, as the user named them."""
    named = (settings.dataset, settings.qrels, settings.groups, settings.attributes)
    data = zip(("dataset", "qrels", "groups", "attributes"), named, strict=True)
    return {"runs": [str(run) for run in runs], **{name: str(value) for name, value in data if value}}


def _remeasured(runs: Sequence[Path], settings: ScoreSettings, announce: Announce) -> Iterator[RemeasuredRun]:
    """Every RUN, measured by its kind of audit, one after the other. Raises UsageError."""
    named = settings.dataset is not None or settings.qrels is not None
    names = Counter(run.resolve().name for run in runs if run.is_dir())
    for run in runs:
        if not run.exists() and not named:  # else it is told with all that is wrong in these files
            raise UsageError(
                f"{run}: there is no such file.", "name a TREC run file, or a run folder by its path"
            )
        if run.is_dir() and named:
            RunDir(run).read_manifest()  # if it is no run, that is what there is to say
            raise UsageError(
                f"{run} is a folder and brings its own judgements.",
                f"with others: llmfair score {run}/rankings/*.run --qrels FILE --groups FILE",
            )
        if run.suffix == LOG and run.is_file():
            continue
        if not run.is_dir() and not named:
            raise UsageError(f"{run}: what is relevant, and who is in which group?", SCORE_FORMS)
    if any(run.suffix == LOG and run.is_file() for run in runs):
        if named or not all(run.suffix == LOG for run in runs):
            raise UsageError(
                "logs are measured by themselves, without other runs, qrels and datasets.", LOG_HINT
            )
        reader = next((kind for kind in kinds() if kind.reads_logs), None)
        if reader is None:
            raise UsageError("no audit here reads logs.", LOG_HINT)
        yield from (reader.score_log(run, settings, announce) for run in runs)
        return
    if named:
        reader = next((kind for kind in kinds() if kind.reads_runs), None)
        if reader is None:
            raise UsageError(
                "no audit here reads TREC run files.", "llmfair score FOLDER measures a run folder"
            )
        yield from reader.score_files(runs, settings, announce)
        return
    for run in runs:
        folder = RunDir(run)
        found = kind_in(folder.manifest, folder.read_manifest().task).score(folder, settings, announce)
        several = names[run.resolve().name] > 1
        yield replace(found, facts={**found.facts, "run": str(run)}) if several else found


def _scored_one(settings: ScoreSettings, run: Path, found: RemeasuredRun) -> _One:
    named = {column: found.facts[column] for column in NAMING}
    rows = tidy([row for row in found.rows if row.query_id == ALL], named)
    of_queries = tidy([row for row in found.rows if row.query_id != ALL], named)
    facts = {"verdict": plain(verdict_of(settings, found, _named(rows), run)), **found.facts}
    requirements = requirements_of(settings, found, _named(rows), run.is_dir())
    return _One(facts, requirements, rows, of_queries, found.limits)


def _limits(found: Sequence[_One]) -> dict[str, str]:
    """By measure, what no order of the lists of any run passes; of which run, where they differ."""
    limits: dict[str, str] = {}
    for measure in dict.fromkeys(measure for one in found for measure in one.limits):
        said = {one.facts["run"]: one.limits[measure] for one in found if measure in one.limits}
        alike = len(set(said.values())) == 1
        limits[measure] = next(iter(said.values())) if alike else "; ".join(map(": ".join, said.items()))
    return limits


def _named(rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Tidy rows with the names of their columns."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def _write(path: Path, scored: ScoreOutcome) -> None:
    RunDir(path).refuse_run()
    try:
        path.mkdir(parents=True, exist_ok=True)
        RunDir(path).drop_report()
        write_whole(path / "metrics.csv", [csv_text(COLUMNS, scored.rows)])
        write_whole(path / "per_query.csv", [csv_text(COLUMNS, scored.per_query)])
        write_whole(path / "results.json", [json_text(scored.results)])
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or path}: {error.strerror}.", "choose another --output folder"
        ) from None
