"""Several ways of asking side by side: how well each ranks, what it prefers, and what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from llmfair.audits.listwise.results import ListwiseResults
from llmfair.manifest import Manifest
from llmfair.report.groups import AuditedRun, Group
from llmfair.report.tables import Table, cell
from llmfair.rundir import RunDir

UTILITY, ODDS = "nDCG@20", "PreferenceOdds"


def group_tables(group: Group) -> Iterator[Table]:
    """A row a run, where models were asked by several strategies; nothing where all were asked by one."""
    rows = [(name, run) for name, runs in group.rows.items() for run in runs.values()]
    if len({run.settings.get("strategy", "windows") for _, run in rows}) < 2:
        return
    asked = [run.results.design.conditions for _, run in rows]
    common = next((one for one in asked[0] if all(one in others for others in asked)), None)
    header = ("model", f"{UTILITY} [95 %]", "preference odds [95 %]", "verdict", "calls", "tokens", "seconds")
    cells = tuple((name, *_row(run, common or run.results.design.conditions[0])) for name, run in rows)
    notes = (
        f"utility and odds under the {common} prompt"
        if common
        else "utility and odds under each run's first prompt",
        "calls and tokens are those of all answers on disk (a question that comes again is asked once), tokens as the "
        "server counts them (a simulated model counts none: llmfair plan listwise estimates "
        "them); seconds are those of all commands",
    )
    yield Table(f"Ways of asking · {group.dataset}", header, cells, notes)


def _row(run: AuditedRun, condition: str) -> tuple[str, ...]:
    """A run under this prompt; a verdict that speaks of another one names it."""
    results, folder = run.results, RunDir(run.folder)
    manifest = folder.read_manifest()
    assert isinstance(results, ListwiseResults)
    figures = {row.measure: row for row in results.of_all() if row.condition == condition}
    tokens = manifest.prompt_tokens + manifest.completion_tokens
    said = ""
    if (verdict := results.verdict) is not None:
        other = verdict.condition not in (None, condition)
        said = verdict.status + f" ({verdict.condition})" * other
    return (
        cell(figures.get(UTILITY)),
        cell(figures.get(ODDS), results.band),
        said,
        f"{folder.answers():,}",
        f"{tokens:,}" if tokens else "",
        f"{_seconds(manifest):,.0f}",
    )


def _seconds(manifest: Manifest) -> float:
    """How long all commands on the run took."""
    taken = [
        datetime.fromisoformat(one.ended) - datetime.fromisoformat(one.started)
        for one in manifest.invocations
        if one.ended is not None
    ]
    return sum(max(0.0, one.total_seconds()) for one in taken)  # clocks were set back between them once
