"""One RUN that was measured again, and how that is done for a kind of audit that has no way of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmfair.audits.gates import parse_gate
from llmfair.audits.summary import Inference, summarise, undefined_counts
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN
from llmfair.manifest import Manifest
from llmfair.metrics.base import Column, Observation, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Measurement
from llmfair.results import Finding, Reach, Results, plain
from llmfair.rundir import RunDir
from llmfair.settings import ScoreSettings

Announce = Callable[[Path], None]
"""Told of every file before it is read."""
RANKS_NOTHING: Mapping[str, Any] = {
    counted: {"documents": 0, "queries": 0, "first": []}
    for counted in ("tied", "unlisted", "unjudged", "not_ranked")
}
"""What is said of a condition in which no documents were ranked."""


@dataclass(frozen=True)
class RemeasuredRun:
    """One RUN: `facts` as results.json has them, its rows, and what gates have to know (as in `Gated`).

    `conditions` are the conditions that a gate which names none speaks of, `limits` what no order of its lists passes.
    """

    facts: Mapping[str, Any]
    rows: Sequence[Measurement]
    conditions: Sequence[str]
    reach: Mapping[str, Reach] = field(default_factory=dict)
    windows: str = "on these lists"
    limits: Mapping[str, str] = field(default_factory=dict)


def measured_again(
    run: RunDir,
    results: Results,
    reads: type[Observation],
    observations: Mapping[str, Sequence[Observation]],
    settings: ScoreSettings,
) -> RemeasuredRun:
    """The measures of --measures, or else of the run, of what it observed by condition. Nothing is concluded.

    Raises UsageError for an attribute that the run was not about, and a measure that reads something else.
    """
    if settings.attribute not in (None, results.attribute):
        raise UsageError(
            f"{run.path} was asked by {results.attribute}, not by {settings.attribute}.",
            f"llmfair {results.task} -a {settings.attribute} asks about that",
        )
    measures, shown = measures_of(settings, results, reads)
    columns = measure_all(measures, observations)
    inference = Inference(level=settings.level, ci=settings.ci, seed=results.design.seed)
    conditions = {
        name: {"queries": len({one.query_id for one in observed})} for name, observed in observations.items()
    }
    facts = facts_of(run, results, shown, conditions, columns)
    return RemeasuredRun(facts, summarise(columns, inference), list(observations))


def facts_of(
    run: RunDir,
    results: Results,
    shown: Sequence[str],
    conditions: Mapping[str, Mapping[str, Any]],
    columns: Sequence[Column],
    findings: Mapping[str, Finding] | None = None,
    family: int = 0,
) -> dict[str, Any]:
    """What results.json says of a run folder in which no documents were ranked."""
    return {
        **named(run, results),
        "task": results.task,
        "words": plain(results.words),
        "measures": shown,
        "conditions": {name: {**facts, **RANKS_NOTHING} for name, facts in conditions.items()},
        "undefined": undefined_counts(columns),
        "findings": plain(findings or {}),
        "family": {"size": family, "contrasted": None},
        **incomplete(run.read_manifest(), results),
    }


def check_settings(run: RunDir, results: Results, names: Sequence[str]) -> None:
    """Raises UsageError where results say otherwise than the manifest how it was asked: nobody knows which is true."""
    asked = run.read_manifest().settings
    for name in names:
        found = plain(getattr(results.design, name))
        if (named := asked.get(name, found)) != found:
            raise UsageError(
                f"{run.results}: `design.{name}` is {str(found)[:40]}, but {run.manifest.name} has "
                f"{str(named)[:40]} at `settings.{name}`.",
                AGAIN,
            )


def measures_of(
    settings: ScoreSettings, results: Results, reads: type[Observation], concluded: Sequence[str] = ()
) -> tuple[Sequence[Any], list[str]]:
    """What is measured of a run and, by name, what its table shows: its own measures or those asked for, and gates'.

    What is `concluded` of is measured whatever is asked for.
    """
    gated = [parse_gate(text, reads).measure for text in settings.require]
    measures, shown = (
        parse_measures(",".join((settings.measures or ",".join(names), *also, *gated)), reads)
        for names, also in ((results.measures, concluded), (results.shown, ()))
    )
    return measures, [str(measure) for measure in shown]


def named(run: RunDir, results: Results) -> dict[str, str]:
    """The columns that name a run."""
    return {
        "run": run.path.resolve().name,
        "dataset": results.dataset,
        "attribute": results.attribute,
        "model": results.model,
    }


def incomplete(manifest: Manifest, results: Results) -> dict[str, Any]:
    """What is known of a run that is not through, or whose last command was not; nothing of a complete one."""
    if manifest.status == results.status == "complete":
        return {}
    known = {"status": manifest.status, "chains": results.chains, "failures": results.failures}
    return {"incomplete": plain(known)}
