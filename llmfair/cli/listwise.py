"""`llmfair listwise`: the listwise audit on the command line."""

from __future__ import annotations

import typer

from llmfair.cli import console
from llmfair.settings import ListwiseSettings


def listwise(settings: ListwiseSettings, style: str, *, ctx: typer.Context) -> None:
    """Exposure and utility of a ranker under neutral and sensitive prompts."""
    from llmfair.audits.listwise.table import before_text, listwise_table
    from llmfair.audits.listwise.task import audit_listwise
    from llmfair.cli.audits import Kind, run_audits

    if settings.dry_run:
        _dry_run(settings, style)
        return
    run_audits(Kind("listwise", "chains", audit_listwise, before_text, listwise_table), settings, style)


def _dry_run(settings: ListwiseSettings, style: str) -> None:
    """Says what would be asked; asks nothing."""
    from llmfair.audits.listwise.plan import plan_listwise
    from llmfair.audits.listwise.plan_table import plan_text

    planned = plan_listwise(settings)
    if style == "json":
        console.print_json({"schema": 1, **planned})
    else:
        print(plan_text(planned), end="")
