"""`llmfair calibrate`: the instrument itself against planted preferences."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from llmfair.cli import console
from llmfair.cli.options import with_flags
from llmfair.settings import CalibratePairwiseSettings, CalibrateSettings, planted_of

if TYPE_CHECKING:
    from llmfair.report.tables import Table

calibrate = typer.Typer(
    name="calibrate", help="The instrument itself against planted preferences.", no_args_is_help=True
)


def listwise(
    settings: CalibrateSettings,
    style: str,
    *,
    ctx: typer.Context,
) -> None:
    """Simulated listwise audits of your own lists: recovery, coverage, false alarms, smallest effect.

    No model is asked.
    """
    from llmfair.audits.listwise.calibrate import calibrate as run
    from llmfair.audits.listwise.calibrate_table import calibrate_table, calibrate_tsv

    with _bar(len(planted_of(settings.planted)) * settings.runs) as advance:
        results = run(settings, advance)
    _show(results, style, calibrate_table, calibrate_tsv)


def pairwise(
    settings: CalibratePairwiseSettings,
    style: str,
    *,
    ctx: typer.Context,
) -> None:
    """Simulated pairwise audits of your own pairs: recovery, coverage, false alarms, smallest odds found.

    No model is asked.
    """
    from llmfair.audits.pairwise.calibrate import calibrate_pairwise
    from llmfair.audits.pairwise.calibrate_table import calibrate_pairs_table, calibrate_pairs_tsv

    with _bar(len(settings.kinds()) * len(planted_of(settings.planted)) * settings.runs) as advance:
        results = calibrate_pairwise(settings, advance)
    _show(results, style, calibrate_pairs_table, calibrate_pairs_tsv)


def _show(
    results: Mapping[str, Any],
    style: str,
    table: Callable[[Mapping[str, Any]], Table],
    tsv: Callable[[Mapping[str, Any]], str],
) -> None:
    from llmfair.report.tables import markdown

    if style == "json":
        console.print_json(results)
    elif style == "tsv":
        print(tsv(results), end="")
    elif style == "md":
        print(markdown(table(results)), end="")
    else:
        console.print_table(table(results))


calibrate.command(
    epilog="llmfair calibrate listwise\n\n"
    "llmfair calibrate listwise -d trec-fair/2022/gender --preset paper --planted -0.3,0.3 --runs 500"
)(with_flags(CalibrateSettings, listwise))
calibrate.command(
    epilog="llmfair calibrate pairwise\n\n"
    "llmfair calibrate pairwise -d my-folder --pairs 20 --planted -0.5,0.5 --position 2 --query-sd 0.5"
)(with_flags(CalibratePairwiseSettings, pairwise))


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
