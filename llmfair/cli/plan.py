"""`llmfair plan`: what an audit takes and can find, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from llmfair.cli import console
from llmfair.cli.options import with_flags
from llmfair.settings import PlanPairwiseSettings, PlanSettings

if TYPE_CHECKING:
    from llmfair.report.tables import Table

plan = typer.Typer(
    name="plan", help="Power, reach, calls, cost, time of a design before it runs.", no_args_is_help=True
)


def listwise(
    settings: PlanSettings,
    style: str,
    *,
    ctx: typer.Context,
) -> None:
    """What `llmfair listwise` with these flags would ask, reach, cost and find; nothing is asked."""
    from llmfair.audits.listwise.plan import plan_listwise
    from llmfair.audits.listwise.plan_table import plan_table, plan_text

    with _busy("Counting and simulating"):
        planned = plan_listwise(settings)
    table = plan_table(planned)
    if table is None and style != "json":
        print(plan_text(planned), end="")
    else:
        _show(planned, table, style)


def pairwise(
    settings: PlanPairwiseSettings,
    style: str,
    *,
    ctx: typer.Context,
) -> None:
    """What `llmfair pairwise` with these flags would ask, cost and find; nothing is asked."""
    from llmfair.audits.pairwise.plan import plan_pairwise
    from llmfair.audits.pairwise.plan_table import plan_pairs_table

    with _busy("Counting"):
        planned = plan_pairwise(settings)
    _show(planned, plan_pairs_table(planned), style)


def _show(planned: Mapping[str, Any], table: Table | None, style: str) -> None:
    from llmfair.report.tables import markdown

    if style == "json" or table is None:
        console.print_json({"schema": 1, **planned})
    elif style == "tsv":
        print("".join("\t".join(line) + "\n" for line in (table.header, *table.rows)), end="")
    elif style == "md":
        print(markdown(table), end="")
    else:
        console.print_table(table)


plan.command(
    "listwise",
    epilog="llmfair plan listwise -m openai:gpt-4o-mini --price-in 0.15 --price-out 0.6\n\n"
    "llmfair plan listwise --preset paper --ratio 0.97 --power 0.9",
)(with_flags(PlanSettings, listwise))
plan.command(
    "pairwise",
    epilog="llmfair plan pairwise --ratio 0.9\n\n"
    "llmfair plan pairwise -m openai:gpt-4o-mini --icc 0.1 --price-in 0.15 --price-out 0.6",
)(with_flags(PlanPairwiseSettings, pairwise))


@contextmanager
def _busy(what: str) -> Iterator[None]:
    """Lists of many lengths take seconds to simulate: a terminal shows that something is going on."""
    stderr = console.console(stderr=True)
    if console.output.quiet or not console.output.progress or not stderr.is_terminal:
        yield
        return
    with stderr.status(what):
        yield
