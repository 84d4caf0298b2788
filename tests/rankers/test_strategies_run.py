"""Strategies through the whole command: planned, run, killed, replayed, scored, compared; a simulated model answers all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llmfair as api
from llmfair.audits.listwise.settings import ListwiseSettings
from tests.cli.command import kept, llmfair, ran, refuses

MODEL = ("-m", "fake:biased,listwise=-0.7,malformed=0.02")
SMALL = ("-n", "6", "--conditions", "neutral", "--no-repeat", "--orders", "2")
NAMES = ("windows", "pointwise", "pairwise-sort", "setwise", "first", "tournament")


@pytest.mark.whole
@pytest.mark.parametrize("name", NAMES)
def test_it_is_planned_run_resumed_and_scored(name: str) -> None:
    asked = ("listwise", *MODEL, *SMALL, "--strategy", name, "-o", "run")
    planned = llmfair(*asked, "--dry-run", "--json").json
    results = ran(*asked, "--json").json
    made = sum(condition["windows"] for condition in results["answers"].values())
    assert made <= planned["calls"] and (made == planned["calls"] or planned["at_most"])
    assert results["design"].get("strategy", "windows").partition(":")[0] == name
    odds = results["findings"]["neutral"]["odds"]
    assert odds["n"] == 6 and odds["comparisons"] >= 20

    run = Path("run")
    before = {
        path.name: path.read_bytes() for path in run.glob("*.*") if path.suffix in (".csv", ".json", ".tsv")
    }
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (run / "journal.jsonl").write_bytes(b"".join(lines[: len(lines) // 3]))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["journal_answers"] = 0
    (run / "manifest.json").write_text(json.dumps(manifest))
    ran(*asked)
    again = {path.name: path.read_bytes() for path in run.glob("*.*") if path.name in before}
    assert {path for path in before if before[path] != again[path]} <= {"manifest.json"}
    assert len((run / "journal.jsonl").read_bytes().splitlines()) == len(lines)
    ran("runs", "check", "run", "--runs-dir", ".")
    ran("score", "run")


def test_several_strategies_are_runs_of_their_own_side_by_side() -> None:
    asked = ("listwise", *MODEL, *SMALL, "--strategy", "windows", "--strategy", "setwise:c=3")
    found = llmfair(*asked, "--json").json
    assert [one["design"].get("strategy") for one in found["runs"]] == [None, "setwise:c=3,k=20"]
    compared = found["comparison"]
    assert [one["name"].rpartition(" ")[2] for one in compared["runs"]][1] == "setwise:c=3,k=20"
    rows = {row["measure"]: row for row in compared["rows"]}
    assert rows["PreferenceOdds"]["low"] is not None and rows["PreferenceOdds"]["headline"]
    assert rows["ExpRatio"]["low"] is None and rows["ExpRatio"]["reason"] in ("other_design", "other_reach")
    assert "preference odds" in compared["verdict"]["sentence"]
    refuses("several runs", *asked, "-o", "one")
    refuses("names one twice", "listwise", "--strategy", "first", "--strategy", "first")


def test_designs_that_reach_alike_do_not_compare_by_exposure() -> None:
    for strategy, folder in (("windows", "one"), ("first", "other")):
        ran("listwise", *MODEL, *SMALL, "--strategy", strategy, "-o", folder)
    compared = llmfair("compare", "one", "other", "--json").json
    (row,) = [row for row in compared["rows"] if row["measure"] == "ExpRatio"]
    assert row["reason"] == "other_design" and row["p"] is None
    told = llmfair("compare", "one", "other", "-v").out
    assert "since exposure ratios of different designs do not compare" in " ".join(told.split())


def test_the_api_takes_a_strategy_by_name() -> None:
    result = api.audit_listwise(
        model="fake:biased,malformed=0", strategy="setwise:c=5", limit=5, conditions="neutral"
    )
    assert result.results["design"]["strategy"] == "setwise:c=5,k=20"
    with pytest.raises(api.UsageError, match="2 are named"):
        api.audit_listwise(strategy=["setwise", "first"], limit=5)


def test_answers_are_read_as_asked() -> None:
    for read in ("text", "margin"):
        ran("listwise", *MODEL, *SMALL, "--strategy", "pointwise", "--answers", read, "-o", read)
        assert kept("results", read)["design"].get("answers") == (read if read == "margin" else None)
        row = json.loads(Path(read, "journal.jsonl").read_text().splitlines()[1])
        assert bool(row.get("logprobs")) == (read == "margin")
    refuses("reads no log-probabilities", "listwise", "--answers", "margin", "-n", "1")


@pytest.mark.whole
def test_a_report_has_all_strategies_in_one_table() -> None:
    strategies = [word for name in NAMES for word in ("--strategy", name)]
    ran(
        "listwise",
        "-m",
        "fake:biased,listwise=-0.7,malformed=0",
        "-n",
        "6",
        "--conditions",
        "neutral",
        *strategies,
    )
    runs = sorted(str(path) for path in Path("runs").iterdir())
    assert len(runs) == len(NAMES)
    (table,) = [
        part
        for part in ran("report", *runs, "--format", "md").out.split("\n\n")
        if part.startswith("| model | nDCG@20")
    ]
    assert table.splitlines()[0] == (
        "| model | nDCG@20 [95 %] | preference odds [95 %] | verdict | calls | tokens | seconds |"
    )
    rows = table.splitlines()[2:]
    assert len(rows) == len(NAMES) and all("[0." in row for row in rows)
    assert any(row.startswith("| fake:biased,listwise=-0.7,malformed=0 setwise:c=4,k=20 |") for row in rows)
    assert any(row.startswith("| fake:biased,listwise=-0.7,malformed=0 windows |") for row in rows)


def test_no_next_step_asks_for_what_is_refused() -> None:
    """Partitions are windows: a run of another strategy is not told to ask the same by a partition."""
    assert "slots" in ListwiseSettings.make().ways()
    assert "slots" not in ListwiseSettings.make(strategy="setwise").ways()
    refuses("has no --strategy setwise", "listwise", "--design", "partition", "--strategy", "setwise")


@pytest.mark.parametrize("name", ["setwise", "pointwise", "first"])
def test_evidence_reads_answers_as_the_strategy_does(name: str) -> None:
    asked = (
        "-m",
        "fake:biased,malformed=0.1",
        "-n",
        "5",
        "--conditions",
        "neutral",
        "--no-repeat",
        "--orders",
        "1",
    )
    results = llmfair(
        "listwise", *asked, "--strategy", name, "--max-invalid", "1", "-o", "run", "--json"
    ).json
    bad = sum(n for kind, n in results["answers"]["neutral"]["classes"].items() if kind != "ok")
    shown = ran("runs", "show", "run", "--runs-dir", ".", "--invalid", "--json").json
    assert 0 < len(shown["rows"]) == bad
