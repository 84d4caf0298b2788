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
    header = ("model", f"{UTILITY} [95 %]", "preference odds [95 %]", "verdict", "calls", "tokens", "seconds")
    cells = tuple((name, *_row(run)) for name, run in rows)
    notes = (
        "utility and odds are those of the prompt that the verdict speaks of; tokens as the server counts them (a "
        "simulated model counts none: llmfair plan listwise estimates them); seconds of all commands on the run",
    )
    yield Table(f"Ways of asking · {group.dataset}", header, cells, notes)


def _row(run: AuditedRun) -> tuple[str, ...]:
    results, manifest = run.results, RunDir(run.folder).read_manifest()
    assert isinstance(results, ListwiseResults)
    condition = results.verdict.condition if results.verdict else None
    condition = condition or results.design.conditions[0]
    figures = {row.measure: row for row in results.of_all() if row.condition == condition}
    tokens = manifest.prompt_tokens + manifest.completion_tokens
    return (
        cell(figures.get(UTILITY)),
        cell(figures.get(ODDS), results.band),
        results.verdict.status if results.verdict else "",
        f"{results.calls:,}",
        f"{tokens:,}" if tokens else "",
        f"{_seconds(manifest):,.0f}",
    )


def _seconds(manifest: Manifest) -> float:
    """How long all commands on the run took."""
    return sum(
        (datetime.fromisoformat(one.ended) - datetime.fromisoformat(one.started)).total_seconds()
        for one in manifest.invocations
        if one.ended is not None
    )
