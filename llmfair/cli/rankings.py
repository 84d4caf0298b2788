"""The commands of run files: `llmfair score` measures them, `llmfair rerank` orders them anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from llmfair import terminal
from llmfair.cli.options import command, flag
from llmfair.errors import RequirementFailed
from llmfair.settings.commands import RerankSettings, ScoreSettings

root = typer.Typer()
TOLD_FROM = 10_000_000
"""A larger file takes seconds to read: which one is said."""
Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN…",
        help="TREC run files (gzip too), ranx JSON or CSV, or run folders.",
        show_default=False,
    ),
]


@command(
    root,
    "llmfair score bm25.run monot5.run.gz --qrels qrels.txt --groups groups.tsv",
    "llmfair score my.run -d sample --measures P@20,ExpRatio --per-query",
    panel="Audit",
    settings=ScoreSettings,
)
def score(settings: ScoreSettings, style: str, runs: Runs) -> None:
    """Fairness and utility of existing TREC runs; no model is asked."""
    from llmfair.audits.gates import suites_of_score, write_junit
    from llmfair.audits.scoring import failing, require_all
    from llmfair.audits.scoring import score as measure
    from llmfair.cli.audits import write_report
    from llmfair.io.files import plain
    from llmfair.report.compare import score_table, score_warnings
    from llmfair.results import TIDY, lines_of
    from llmfair.rundir import COLUMNS, RunDir, csv_lines

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
    if settings.per_query and style != "json":
        sys.stdout.writelines(csv_lines(COLUMNS, lines_of(rows), "\t"))
    else:
        document = {**plain(results), "rows": rows}
        below, lines = [] if written is None else [written], (TIDY, lines_of(rows, TIDY))
        terminal.show(style, document, lambda: score_table(results), lambda: lines, written, below, failed)
    if failed is not None:
        raise terminal.failed_after_output(failed)


def _tell(path: Path) -> None:
    size = path.stat().st_size if path.is_file() else 0
    if size >= TOLD_FROM and terminal.output.progress:
        terminal.say(f"Reading {path}, {size / 1e6:,.0f} MB")


RunFiles = Annotated[
    list[Path], typer.Argument(metavar="RUN…", help="TREC run files (gzip too).", show_default=False)
]
With = Annotated[
    str,
    flag(
        "Who orders them, fair-star, mmr, greedy or any other ranker; parameters as in fair-star:p=0.3,alpha=0.15.",
        "--with",
        metavar="RANKER",
        panel="Data",
    ),
]


@command(
    root,
    "llmfair rerank bm25.run --with fair-star:p=0.3,alpha=0.15 -d trec-fair/2022/gender -o fair.run",
    "llmfair rerank bm25.run.gz monot5.run --with greedy --qrels qrels.txt --groups groups.tsv -o greedy",
    panel="Mitigate",
    settings=RerankSettings,
)
def rerank(settings: RerankSettings, style: str, runs: RunFiles, ranker: With) -> None:
    """Rankings that exist in another order: TREC run in, TREC run out; no model is asked."""
    from llmfair.audits.rerank import rerank as ordered

    reranked = ordered(runs, ranker, settings)
    for run in reranked.runs:
        for warning in run.warnings:
            terminal.warn(warning)
    if style == "json":
        terminal.print_json(reranked)
        return
    for run in reranked.runs:
        print(f"{run.output}: {run.queries:,} queries, {run.changed:,} of them in another order")
    print(f"NEXT     {reranked.next}")
