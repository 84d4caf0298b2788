"""`llmfair calibrate`: the instrument itself against injected preferences."""

from __future__ import annotations

from collections.abc import Callable

import typer

from llmfair import terminal
from llmfair.audits.kind import Kind, kinds
from llmfair.cli.options import add_command
from llmfair.settings import CalibrationSettings

calibrate = typer.Typer(name="calibrate", help="The audit procedure against injected preferences.")


def _of(kind: Kind) -> Callable[..., None]:
    """Simulated audits of one kind."""

    def run(settings: CalibrationSettings, style: str, *, ctx: typer.Context) -> None:
        from llmfair.report.tables import calibration_tsv, markdown

        simulated = 0

        def advance() -> None:
            nonlocal simulated
            simulated += 1

        count = terminal.Count("Simulating", kind.calibration(settings), "audits", lambda: simulated)
        with terminal.drawn(count.name, count):
            found = kind.calibrate(settings, advance)
        if style == "json":
            terminal.print_json(found)
        elif style == "tsv":
            print(calibration_tsv(found), end="")
        elif style == "md":
            print(markdown(kind.calibration_table(found)), end="")
        else:
            terminal.print_table(kind.calibration_table(found))

    return run


for kind in kinds():
    if kind.calibrated is not None:
        add_command(calibrate, kind.name, kind.calibrated, _of(kind), kind.help("calibrate"))


def add(app: typer.Typer) -> None:
    app.add_typer(calibrate, rich_help_panel="Plan")
