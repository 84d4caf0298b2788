"""The gates of rankings that exist: those of the audits (`gates.py`), asked of every RUN that has the variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmfair.audits.gates import Gated, check_gates, parse_gate, read_gates, require_met
from llmfair.audits.kind import kind_of
from llmfair.audits.remeasured import Remeasured
from llmfair.errors import RequirementFailed
from llmfair.jsonfiles import typed
from llmfair.results import Finding, Requirement, Row, plain
from llmfair.settings import ScoreSettings


def requirements_of(
    settings: ScoreSettings, found: Remeasured, rows: Sequence[Mapping[str, Any]], folder: bool
) -> list[dict[str, Any]]:
    """Which gates the RUN holds, a `folder` or a file; `rows` are those of all queries.

    A gate of a variant that the RUN has not is asked of the others. Whether a ranker could fail it at all is known
    of a run folder alone.
    """
    facts, kind = found.facts, kind_of(found.facts["task"])
    results = Gated(
        found.arms,
        facts["measures"],
        typed(rows, list[Row]),
        typed(facts["findings"], dict[str, Finding]),
        found.reach,
        f" {kind.condition}" if folder else "",
        found.windows,
        kind.aside,
        kind.titles,
    )
    gates = [parse_gate(text, kind.reads()) for text in settings.require]
    asked = [gate for gate in gates if gate.variant is None or gate.variant in facts["variants"]]
    entries = check_gates(asked, results, settings.require_interval)
    return [{"run": facts["run"], **plain(entry)} for entry in entries]


def named_in_reasons(
    settings: ScoreSettings, runs: Sequence[Mapping[str, Any]], requirements: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The entries of all RUNs, each reason with the name of its RUN where there are several.

    Raises UsageError for a gate of a variant that none of them has.
    """
    if runs:
        variants = dict.fromkeys(variant for facts in runs for variant in facts["variants"])
        read_gates(settings.require, variants, kind_of(runs[0]["task"]).reads())
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
