"""What a run says of its own making: how far it is, what it cost, and how its lists came to be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmfair.asking.limits import Progress
from llmfair.cli.audits import cost_text
from tests.cli.command import llmfair, ran
from tests.folders import balanced, write_folder
from tests.manifests import invocation, manifest

pytestmark = pytest.mark.whole


def test_calls_that_were_not_made_are_not_said_to_have_been() -> None:
    """Of a run that stopped when it knew; tables of those that broke off are in tests/snapshots."""
    ran("pairwise", "--sequential", "--max-pairs", "400", "-m", "fake:biased,pairwise=3", "-o", "early")
    ran("report", "early")
    (row,) = re.findall(r"<dt>calls</dt>\s*<dd>(.*?)</dd>", Path("early/report.html").read_text())
    assert re.fullmatch(r"[0-9,]+ of [0-9,]+", row)


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_lists_that_were_drawn_are_said_to_be_with_the_seed(task: str) -> None:
    lists = write_folder(Path("lists"), balanced(6, 6, 6))
    small = (
        task,
        "-d",
        lists,
        *(("--passes", "1", "--orders", "1") if task == "listwise" else ("--pairs", "2")),
    )
    told = "lists drawn with seed 7 from documents relevant to the query and, beside them, documents relevant to other"
    drawn = (*small, "--candidates", "8", "--seed", "7")
    for found in (llmfair(*drawn, "-v"), llmfair(*drawn, "--dry-run"), llmfair("plan", *drawn)):
        assert found.code == 0 and f"  {told} queries only, as many of either group\n" in found.out, found.err
    counts = llmfair(*small, "--buckets", "2,2,1,2", "--dry-run").out
    assert "seed 0" in counts and "queries only, --buckets 2,2,1,2\n" in counts
    if task == "listwise":
        small = ("study", "windows", *small[1:], "--settings", "10/5", "--candidates", "8", "--seed", "7")
        for found in (llmfair(*small, "-v"), llmfair(*small, "--dry-run")):
            assert found.code == 0 and f"  {told} queries only, as many of either group\n" in found.out, (
                found.err
            )
    assert "drawn" not in llmfair(task, "--dry-run").out


def test_what_is_not_in_a_run_s_cost_is_said() -> None:
    """Commands without prices, and those that a kill left no word to."""
    told, free, killed = invocation(5, 0.5), invocation(3), invocation()
    assert cost_text(manifest(told, cost=0.5)) == "the run in all: 5 calls, cost 0.5000"
    text = cost_text(manifest(told, free, killed, told, cost=1.0), Progress(calls=1, cost=0.25))
    assert text.startswith(
        "this command: 1 call, cost 0.2500; the run in all: 10 calls, cost 1.0000, and 3 calls "
    )
    assert text.endswith("made without prices, and 1 command killed or still running")
    assert cost_text(manifest(free, killed)) == ""
