"""`llmfair calibrate`: the instrument itself against planted preferences."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from llmfair.audits.kind import Kind, kinds
from llmfair.cli import console
from llmfair.cli.options import add_command
from llmfair.settings import Calibrated

calibrate = typer.Typer(
    name="calibrate", help="The instrument itself against planted preferences.", no_args_is_help=True
)


def _of(kind: Kind) -> Callable[..., None]:
    """Simulated audits of one kind."""

    def run(settings: Calibrated, style: str, *, ctx: typer.Context) -> None:
        from llmfair.report.calibration import calibration_tsv
        from llmfair.report.tables import markdown

        with _bar(kind.calibration(settings)) as advance:
            found = kind.calibrate(settings, advance)
        if style == "json":
            console.print_json(found)
        elif style == "tsv":
            print(calibration_tsv(found), end="")
        elif style == "md":
            print(markdown(kind.calibration_table(found)), end="")
        else:
            console.print_table(kind.calibration_table(found))

    return run


for kind in kinds():
    if kind.calibrated is not None:
        add_command(calibrate, kind.name, kind.calibrated, _of(kind), kind.help("calibrate"))


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """Shows how many audits are simulated, on stderr: a bar on a terminal, else a line every 30 seconds."""
    stderr = console.console(stderr=True)
    if console.output.quiet or not console.output.progress:
        yield lambda: None
    elif stderr.is_terminal and not stderr.is_dumb_terminal:
        from rich.progress import Progress

        with Progress(console=stderr, transient=True) as shown:
            task = shown.add_task("Simulating audits", total=total)
            yield lambda: shown.advance(task)
    else:
        done, told = 0, time.monotonic()

        def tell() -> None:
            nonlocal done, told
            done += 1
            if time.monotonic() - told > console.PLAIN_EVERY:
                told = time.monotonic()
                print(f"Simulating audits  {done:,}/{total:,}", file=sys.stderr, flush=True)

        yield tell
