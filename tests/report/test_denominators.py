"""How many queries are in a figure stands in its row wherever rows differ in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import llmfair, ran
from tests.folders import balanced, write_folder
from tests.report.reading import grid


@pytest.fixture
def data() -> Path:
    """Of seven queries one has no relevant item."""
    lists = balanced(7, 4, 4)
    lists["q0"] = [(doc_id, gender, 0) for doc_id, gender, _ in lists["q0"]]
    return write_folder(Path("lists"), lists)


def compared(data: Path, *arguments: str) -> tuple[str, list[str], list[list[str]]]:
    """The title, header and rows of two models' comparison."""
    for strength in ("0", "-1"):
        model = f"fake:biased,malformed=0,pairwise={strength}"
        ran(*arguments, "-q", "-d", data, "-m", model, "-o", f"run{strength}")
    told = llmfair("compare", "run0", "run-1", "--format", "md").out
    header, *rows = grid(told)
    title = next(line for line in told.splitlines() if line and not line.startswith("**"))
    return title, header, rows


@pytest.mark.whole
def test_rows_of_a_comparison_say_how_many_queries_are_in_them(data: Path) -> None:
    title, header, rows = compared(data, "pairwise", "--pairs", "4", "--noise-share", "0")
    assert title.endswith(" · 7 queries")
    queries = {(row[0], row[1]): row[header.index("queries")] for row in rows}
    assert queries["flips", "relevant"] == "6" and queries["flips", "irrelevant"] == "7"


def test_measured_runs_of_other_queries_say_how_many_each_ranks(data: Path) -> None:
    rankings = {
        query: [f"{query} Q0 {doc_id} {place} {-place} mine\n" for place, (doc_id, *_) in enumerate(rows, 1)]
        for query, rows in balanced(7, 4, 4).items()
    }
    for name, most in (("all", 7), ("few", 4), ("too", 7)):
        kept = [line for lines in list(rankings.values())[:most] for line in lines]
        Path(f"{name}.run").write_text("".join(kept))
    told = ran("score", "all.run", "few.run", "-d", data, "--measures", "ExpRatio", "--format", "md").out
    header, *rows = grid(told)
    assert " · 4 to 7 queries · 2 rankings\n" in told
    assert {row[0]: row[header.index("queries ranked")] for row in rows} == {"all.run": "7", "few.run": "4"}
    assert "- few.run: only 4 queries: no intervals" in told and "- all.run: only 7 queries: read" in told
    told = llmfair("score", "all.run", "too.run", "-d", data, "--measures", "ExpRatio", "--format", "md").out
    assert " · 7 queries · 2 rankings\n" in told and "queries ranked" not in told
    assert told.count("only 7 queries") == 1
