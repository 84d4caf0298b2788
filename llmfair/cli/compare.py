"""`llmfair compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from llmfair import terminal
from llmfair.cli import complete
from llmfair.cli.options import Config, Json, RunsDir, Verbose, flag

Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN RUN…",
        help="Run folders, or the beginnings of their names. The first is the base.",
        show_default=False,
        autocompletion=complete.runs,
    ),
]
Measures = Annotated[
    str | None,
    flag(
        "Measures, comma-separated (default: those of both runs that have a better direction).", "--measures"
    ),
]
Format = Annotated[
    Literal["table", "tsv", "json", "md"],
    flag("What stdout gets.", "--format"),
]


def compare(
    runs: Runs,
    # not `measures`: a configuration file names those of audits by that word
    wanted: Measures = None,
    format: Format = "table",
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    verbose: Verbose = False,
    config: Config = None,
) -> None:
    """Runs side by side, paired by query: what another model, adapter or setting changes."""
    from llmfair.audits.comparing import compare as compared_of
    from llmfair.report.compare import compare_table, compare_tsv
    from llmfair.report.tables import markdown
    from llmfair.rundir import find_run

    compared = compared_of([find_run(name, runs_dir) for name in runs], wanted)
    if as_json or format == "json":
        terminal.print_json(compared)
    elif format == "tsv":
        print(compare_tsv(compared), end="")
    elif format == "md":
        print(markdown(compare_table(compared)), end="")
    else:
        terminal.print_table(compare_table(compared))


def add(app: typer.Typer) -> None:
    app.command(
        rich_help_panel="Read",
        epilog="llmfair compare pairwise-base pairwise-lora\n\n"
        "llmfair compare runs/one runs/two runs/three --measures P@20,ExpRatio --format md",
    )(compare)
