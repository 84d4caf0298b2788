"""The gates of rankings that exist: those of the audits (`gates.py`), asked of every RUN that has the condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from llmfair.audits.commands import continuing, plan_of, scoring_of, settings_of, takes_of, ways_of
from llmfair.audits.gates import (
    GatedFigures,
    check_gates,
    parse_gate,
    read_gates,
    refused,
    require_met,
    statuses_of,
)
from llmfair.audits.kind import kind_of, results_of
from llmfair.audits.scoring.remeasured import RemeasuredRun
from llmfair.audits.verdict import Conclusions
from llmfair.errors import RequirementFailed
from llmfair.io.files import typed
from llmfair.manifest import Manifest
from llmfair.results import Finding, Requirement, Row, RunVerdict, Words, plain
from llmfair.rundir import RunDir
from llmfair.settings import AuditSettings, ScoreSettings, band_of


def requirements_of(
    settings: ScoreSettings, found: RemeasuredRun, rows: Sequence[Mapping[str, Any]], folder: bool
) -> list[dict[str, Any]]:
    """Which gates the RUN holds, a `folder` or a file; `rows` are those of all queries.

    A gate of a condition that the RUN has not is asked of the others. Whether a ranker could fail it at all is known
    of a run folder alone.
    """
    facts, kind = found.facts, kind_of(found.facts["task"])
    results = GatedFigures(
        found.conditions,
        facts["measures"],
        typed(rows, list[Row]),
        typed(facts["findings"], dict[str, Finding]),
        found.reach,
        f" {kind.condition}" if folder else "",
        found.windows,
        kind.not_gated(found.conditions),
        kind.titles,
    )
    gates = [parse_gate(text, kind.reads()) for text in settings.require]
    asked = [gate for gate in gates if gate.condition is None or gate.condition in facts["conditions"]]
    entries = check_gates(asked, results, settings.require_interval)
    return [{"run": facts["run"], **plain(entry)} for entry in entries]


def named_in_reasons(
    settings: ScoreSettings, runs: Sequence[Mapping[str, Any]], requirements: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The entries of all RUNs, each reason with the name of its RUN where there are several.

    Raises UsageError for a gate of a condition that none of them has.
    """
    if runs:
        conditions = dict.fromkeys(condition for facts in runs for condition in facts["conditions"])
        read_gates(settings.require, conditions, kind_of(runs[0]["task"]).reads())
    return [
        entry | {"reason": f"{entry['run']}: {entry['reason']}"}
        if entry["reason"] and len(runs) > 1 and entry["run"] != entry["condition"]
        else entry
        for entry in requirements
    ]


def verdict_of(
    settings: ScoreSettings, found: RemeasuredRun, rows: Sequence[Mapping[str, Any]], run: Path
) -> RunVerdict:
    """What the RUN comes to, in the words of its kind of audit."""
    facts, kind = found.facts, kind_of(found.facts["task"])
    manifest = RunDir(run).read_manifest() if run.is_dir() else None
    asked = None if manifest is None else settings_of(RunDir(run), manifest)
    results = None if manifest is None else results_of(RunDir(run))
    figures = {(row.measure, row.condition): row for row in typed(rows, list[Row]) if not row.group}
    return kind.verdict(
        Conclusions(
            **{name: facts[name] for name in ("task", "dataset", "attribute", "model", "measures")},
            run=str(run) if run.is_dir() else None,
            words=typed(facts["words"], Words),
            level=settings.level,
            band=band_of(settings.band),
            conditions=[condition for condition in found.conditions if condition not in kind.aside],
            findings=typed(facts["findings"], get_type_hints(kind.results())["findings"]),
            figures=figures,
            complete="incomplete" not in facts,
            planned="" if manifest is None or asked is None else plan_of(kind.name, asked, manifest.model),
            prompted=results is not None and results.design.prompted,
            takes=() if manifest is None or asked is None else takes_of(asked, manifest.model),
            problems={}
            if results is None
            else {name: of_it.problem for name, of_it in results.answers.items()},
            ways=_ways(settings, kind.name, manifest, asked, run),
        )
    )


def _ways(
    settings: ScoreSettings, task: str, manifest: Manifest | None, asked: AuditSettings | None, run: Path
) -> dict[str, str]:
    """Of a run folder the commands that ask the same with what a reason calls for; of a file what shows more."""
    if manifest is None:
        return {"per_query": f"{scoring_of([run], settings)} --per-query"}
    missing = continuing(RunDir(run))
    return {
        **({} if asked is None else ways_of(task, asked, manifest.model, texts=False)),
        **({"unfinished": missing} if missing else {}),
    }


def gravest(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The gravest verdict of all RUNs, the first of several.

    Where there are several it has its RUN's name, and so has a next step that neither is that of all nor names it.
    """
    first = min(runs, key=lambda facts: kind_of(facts["task"]).statuses.index(facts["verdict"]["status"]))
    verdict: dict[str, Any] = first["verdict"]
    others = {facts["verdict"]["next"] for facts in runs} - {verdict["next"]}
    named = ["sentence"] * (len(runs) > 1) + ["next"] * (bool(others) and first["run"] not in verdict["next"])
    return verdict | {key: f"{first['run']}: {verdict[key]}" for key in named}


def failing(settings: ScoreSettings, runs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The statuses of `--fail-on`. Raises UsageError for one that no RUN could have."""
    known = dict.fromkeys(status for facts in runs for status in kind_of(facts["task"]).failures)
    return statuses_of(settings.fail_on, known)


def require_all(results: Mapping[str, Any], settings: ScoreSettings) -> None:
    """Raises RequirementFailed, with what is wrong, unless every gate holds."""
    runs = results["runs"]
    fail_on, several = failing(settings, runs), len(runs) > 1
    said = {facts["run"]: refused(typed(facts["verdict"], RunVerdict), fail_on) for facts in runs}
    refusals = [f"{run}: {why}" if several else why for run, why in said.items() if why is not None]
    try:
        require_met(typed(results["requirements"], list[Requirement]), *refusals)
    except RequirementFailed as failure:
        if settings.output is None:
            failure.hint = "--json lists verdicts and requirements, -o DIR keeps them"
        raise
