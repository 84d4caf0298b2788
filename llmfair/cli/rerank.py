"""`llmfair rerank`: run files ordered anew, on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmfair import terminal
from llmfair.cli.complete import OFFERED
from llmfair.cli.options import WithFlags, flag
from llmfair.settings import RerankSettings

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN…", help="TREC run files (gzip too).", show_default=False),
]
With = Annotated[
    str,
    flag(
        "Who orders them, fair-star, mmr, greedy or any other ranker; parameters as in fair-star:p=0.3,alpha=0.15.",
        "--with",
        metavar="RANKER",
        panel="Data",
        autocompletion=OFFERED["ranker"],
    ),
]


def rerank(settings: RerankSettings, style: str, *, ctx: typer.Context, runs: Runs, ranker: With) -> None:
    """Rankings that exist in another order: TREC run in, TREC run out; no model is asked."""
    from llmfair.audits.rerank import rerank as ordered

    found = ordered(runs, ranker, settings)
    for run in found.runs:
        for warning in run.warnings:
            terminal.warn(warning)
    if style == "json":
        terminal.print_json(found)
        return
    for run in found.runs:
        print(f"{run.output}: {run.queries:,} queries, {run.changed:,} of them in another order")
    print(f"NEXT     {found.next}")


def add(app: typer.Typer) -> None:
    app.command(
        rich_help_panel="Mitigate",
        epilog="llmfair rerank bm25.run --with fair-star:p=0.3,alpha=0.15 -d trec-fair/2022/gender -o fair.run\n\n"
        "llmfair rerank bm25.run.gz monot5.run --with greedy --qrels qrels.txt --groups groups.tsv -o greedy",
    )(WithFlags(RerankSettings, rerank))
