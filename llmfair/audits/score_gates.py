"""The gates of rankings that exist: those of the audits (`gates.py`), asked of every RUN that has the variant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmfair.audits.gates import Gate, Gated, check_gates, parse_gate, read_gates, require_met
from llmfair.audits.listwise.outcome import windows_of
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.errors import RequirementFailed
from llmfair.metrics.base import Judged, Observation
from llmfair.metrics.pairs import JudgedPairs
from llmfair.results import Finding, Requirement, Row, plain, read, typed
from llmfair.settings import ScoreSettings

READS: Mapping[str, type[Observation]] = {"listwise": Judged, "pairwise": JudgedPairs}
"""What the measures of a run's task read."""


def gates_of(settings: ScoreSettings, reads: type[Observation]) -> list[Gate]:
    """The gates. Raises UsageError for a malformed one, and one of a measure that reads something else."""
    return [parse_gate(text, reads) for text in settings.require]


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
    gates = gates_of(settings, READS[facts["task"]])
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
        read_gates(settings.require, variants, READS[runs[0]["task"]])
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
