"""The gates of rankings that exist: those of the audits (`gates.py`), asked of every RUN that has the variant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmfair.audits.gates import RATIO, Gated, check_gates, parse_gate, read_gates, require_met
from llmfair.audits.listwise.outcome import windows_of
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.errors import RequirementFailed
from llmfair.metrics.names import Task
from llmfair.results import Finding, Requirement, Row, plain, read, typed
from llmfair.settings import ScoreSettings


def with_gated(measures: str, settings: ScoreSettings, task: Task) -> str:
    """The measures and those that gates ask for, with what says whether a ratio of exposures can be assessed.

    Raises UsageError for a malformed gate, and one of another task.
    """
    asked = [parse_gate(text, task).measure for text in settings.require]
    if task == "listwise" and any(RATIO.match(measure) for measure in asked):
        asked.append("ImpliedOdds")
    return ",".join((measures, *asked))


def requirements_of(
    run: Path,
    settings: ScoreSettings,
    facts: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    arms: Collection[str],
) -> list[dict[str, Any]]:
    """Which gates the RUN holds; `rows` are those of all queries, `arms` what a gate without variant speaks of.

    A gate of a variant that the RUN has not is asked of the others. Whether a ranker could fail it at all is known
    of a run folder alone.
    """
    results = Gated(
        list(arms),
        facts["measures"],
        typed(rows, list[Row]),
        typed(facts["findings"], dict[str, Finding]),
        asked={"listwise": " prompt", "pairwise": " pairs"}[facts["task"]] if run.is_dir() else "",
    )
    if run.is_dir() and facts["task"] == "listwise":
        known = read(run / "results.json", ListwiseResults)
        if known.attribute == facts["attribute"]:
            results = replace(results, reach=known.reach, windows=windows_of(known.design))
    gates = [parse_gate(text, facts["task"]) for text in settings.require]
    asked = [gate for gate in gates if gate.variant is None or gate.variant in facts["variants"]]
    found = check_gates(asked, results, settings.require_interval)
    return [{"run": facts["run"], **plain(entry)} for entry in found]


def named_in_reasons(
    settings: ScoreSettings, runs: Sequence[Mapping[str, Any]], requirements: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The entries of all RUNs, each reason with the name of its RUN where there are several.

    Raises UsageError for a gate of a variant that none of them has.
    """
    if runs:
        variants = dict.fromkeys(variant for facts in runs for variant in facts["variants"])
        read_gates(settings.require, variants, runs[0]["task"])
    return [
        entry | {"reason": f"{entry['run']}: {entry['reason']}"}
        if entry["reason"] and len(runs) > 1
        else entry
        for entry in requirements
    ]


def require_all(results: Mapping[str, Any], written: bool) -> None:
    """Raises RequirementFailed, with what is wrong, unless every gate holds."""
    try:
        require_met(typed(results["requirements"], list[Requirement]))
    except RequirementFailed as failure:
        if not written:
            failure.hint = "--json lists the requirements, -o DIR keeps them"
        raise
