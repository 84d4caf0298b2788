"""`llmfair pairwise`: the pairwise audit on the command line."""

from __future__ import annotations

import typer

from llmfair.cli import console
from llmfair.settings import PairwiseSettings


def pairwise(settings: PairwiseSettings, style: str, *, ctx: typer.Context) -> None:
    """Who wins between a protected and an unprotected item, asked in both orders."""
    from llmfair.audits.pairwise.table import before_text, pairwise_table
    from llmfair.audits.pairwise.task import audit_pairwise
    from llmfair.cli.audits import Kind, run_audits

    if settings.dry_run:
        _dry_run(settings, style)
        return
    run_audits(Kind("pairwise", "probes", audit_pairwise, before_text, pairwise_table), settings, style)


def _dry_run(settings: PairwiseSettings, style: str) -> None:
    """Says what would be asked; asks nothing."""
    from llmfair.audits.pairwise.plan import plan_pairwise
    from llmfair.audits.pairwise.plan_table import plan_pairs_text

    planned = plan_pairwise(settings)
    if style == "json":
        console.print_json({"schema": 1, **planned})
    else:
        print(plan_pairs_text(planned), end="")
