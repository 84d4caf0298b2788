"""`llmfair plan`: what an audit takes and can find, before anything is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from llmfair import terminal
from llmfair.audits.kind import Kind, kinds
from llmfair.cli.options import add_command
from llmfair.settings import AuditSettings

if TYPE_CHECKING:
    from llmfair.report.tables import Table

plan = typer.Typer(name="plan", help="Power, calls, cost and time of a design before it runs.")


def _of(kind: Kind) -> Callable[..., None]:
    """The plan of one kind of audits."""

    def run(settings: AuditSettings, style: str, *, ctx: typer.Context) -> None:
        from llmfair.audits.planning.plan import plan as plan_of

        with _busy("Counting and simulating"):
            planned = plan_of(kind, settings)
        table = kind.plan_table(planned)
        if table is None and style != "json":
            terminal.print_text(kind.plan_text(planned).rstrip("\n"))
        else:
            _show(planned, table, style)

    return run


def _show(planned: Mapping[str, Any], table: Table | None, style: str) -> None:
    from llmfair.report.tables import markdown

    if style == "json" or table is None:
        terminal.print_json(planned)
    elif style == "tsv":
        print("".join("\t".join(line) + "\n" for line in (table.header, *table.rows)), end="")
    elif style == "md":
        print(markdown(table), end="")
    else:
        terminal.print_table(table)


for kind in kinds():
    add_command(plan, kind.name, kind.plan_settings, _of(kind), kind.help("plan"))


@contextmanager
def _busy(what: str) -> Iterator[None]:
    """Lists of many lengths take seconds to simulate: a terminal shows that something is going on."""
    stderr = terminal.console(stderr=True)
    if terminal.output.quiet or not terminal.output.progress or not stderr.is_terminal:
        yield
        return
    with stderr.status(what):
        yield


def add(app: typer.Typer) -> None:
    app.add_typer(plan, rich_help_panel="Plan")
