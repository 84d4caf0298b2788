"""`llmfair score`: measures of runs that exist, on the command line."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated

import typer

from llmfair import terminal
from llmfair.cli.options import WithFlags
from llmfair.errors import RequirementFailed
from llmfair.settings import ScoreSettings

TOLD_FROM = 10_000_000
Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN…",
        help="TREC run files (gzip too), ranx JSON or CSV, or run folders.",
        show_default=False,
    ),
]


def score(
    settings: ScoreSettings,
    style: str,
    *,
    ctx: typer.Context,
    runs: Runs,
) -> None:
    """Fairness and utility of existing TREC runs; no model is asked."""
    from llmfair.audits.junit import suites_of_score, write_junit
    from llmfair.audits.scoring import failing, require_all
    from llmfair.audits.scoring import score as measure
    from llmfair.cli.report import write_report
    from llmfair.io.files import plain
    from llmfair.report.compare import score_table, score_warnings
    from llmfair.report.tables import markdown, tidy_tsv
    from llmfair.results import lines_of
    from llmfair.rundir import COLUMNS, RunDir

    scored = measure(runs, settings, _tell)
    results = scored.results
    written = None
    if settings.report and settings.output is not None:
        written = write_report(RunDir(settings.output), settings.open)
    if style in ("json", "tsv") or settings.per_query:
        for warning in score_warnings(results):  # rows have no place for them
            terminal.warn(warning)
    if settings.junit is not None:
        write_junit(settings.junit, suites_of_score(results), failing(settings, results.runs))
    failed: RequirementFailed | None = None
    try:
        require_all(results, settings)
    except RequirementFailed as error:
        failed = error
    rows = [*(scored.per_query if settings.per_query else ()), *results.rows]
    if style == "json":
        failure = terminal.failure(failed) if failed else {}
        terminal.print_json({**plain(results), "rows": rows, **failure})
    elif settings.per_query:
        csv.writer(sys.stdout, "excel-tab", lineterminator="\n").writerows([COLUMNS, *lines_of(rows)])
    elif style == "tsv":
        print(tidy_tsv(results.rows), end="")
    elif style == "md":
        print(markdown(score_table(results)), end="")
    else:
        terminal.print_table(score_table(results), written)
        if written is not None:
            print("", written, sep="\n")
    if failed is not None:
        terminal.output.as_json = False  # said already
        raise typer.Exit(terminal.fail(failed))


def _tell(path: Path) -> None:
    """A large file takes seconds: say which one is being read."""
    size = path.stat().st_size if path.is_file() else 0
    if size >= TOLD_FROM and terminal.output.progress:
        terminal.say(f"Reading {path}, {size / 1e6:,.0f} MB")


def add(app: typer.Typer) -> None:
    app.command(
        rich_help_panel="Audit",
        epilog="llmfair score bm25.run monot5.run.gz --qrels qrels.txt --groups groups.tsv\n\n"
        "llmfair score my.run -d sample --measures P@20,ExpRatio --per-query",
    )(WithFlags(ScoreSettings, score))
