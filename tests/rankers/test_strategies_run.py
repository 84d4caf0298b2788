"""Strategies through the whole command: planned, run, killed, replayed, scored, compared; a simulated model answers all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import llmfair as api
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.exhibits import all_answers
from llmfair.rankers.strategies import Strategy, strategy_of
from llmfair.rundir import RunDir
from tests.cli.command import kept, llmfair, ran, refuses
from tests.shared import mockllm

MODEL = ("-m", "fake:biased,listwise=-0.7,malformed=0.02")
SMALL = ("-n", "6", "--conditions", "neutral", "--no-repeat", "--orders", "2")
NAMES = ("windows", "pointwise", "pairwise-sort", "setwise", "first", "tournament")
STRATEGIES = tuple(word for name in NAMES for word in ("--strategy", name))
ONCE = ("-n", "6", "--no-repeat", "--orders", "1")
NEUTRAL = ("--conditions", "neutral")


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


@pytest.mark.whole
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


@pytest.mark.whole
def test_designs_that_reach_alike_do_not_compare_by_exposure() -> None:
    for strategy, folder in (("windows", "one"), ("first", "other")):
        ran("listwise", *MODEL, *SMALL, "--strategy", strategy, "-o", folder)
    compared = llmfair("compare", "one", "other", "--json").json
    (row,) = [row for row in compared["rows"] if row["measure"] == "ExpRatio"]
    assert row["reason"] == "other_design" and row["p"] is None
    told = llmfair("compare", "one", "other", "-v").out
    assert "since exposure ratios of different designs do not compare" in " ".join(told.split())


@pytest.mark.whole
def test_the_api_takes_a_strategy_by_name() -> None:
    result = api.audit_listwise(
        model="fake:biased,malformed=0", strategy="setwise:c=5", limit=5, conditions="neutral"
    )
    assert result.results["design"]["strategy"] == "setwise:c=5,k=20"
    with pytest.raises(api.UsageError, match="2 are named"):
        api.audit_listwise(strategy=["setwise", "first"], limit=5)


@pytest.mark.whole
def test_answers_are_read_as_asked() -> None:
    for read in ("text", "margin"):
        ran("listwise", *MODEL, *SMALL, "--strategy", "pointwise", "--answers", read, "-o", read)
        assert kept("results", read)["design"].get("answers") == (read if read == "margin" else None)
        row = json.loads(Path(read, "journal.jsonl").read_text().splitlines()[1])
        assert bool(row.get("logprobs")) == (read == "margin")
    refuses("reads no log-probabilities", "listwise", "--answers", "margin", "-n", "1")


HEADER = "| model | nDCG@20 [95 %] | preference odds [95 %] | verdict | calls | tokens | seconds |"


@pytest.mark.whole
def test_a_report_has_all_strategies_in_one_table() -> None:
    """A simulated model counts no tokens, and none are made up."""
    ran("listwise", "-m", "fake:biased,listwise=-0.7,malformed=0", *ONCE, *NEUTRAL, *STRATEGIES)
    rows = table_of_runs()
    assert all(row.split(" | ")[-2] == "" for row in rows.values())


@pytest.mark.whole
def test_strategies_stand_side_by_side_under_one_prompt() -> None:
    """Each run's verdict may speak of another prompt: then it names it."""
    model = ("-m", "fake:biased,listwise=-0.5,prompt=1.5,malformed=0")
    for name in ("windows", "pointwise"):
        ran(
            "listwise",
            *model,
            *ONCE,
            "--conditions",
            "neutral,male",
            "--strategy",
            name,
            "-o",
            name,
            "--no-report",
        )
    table = next(
        part
        for part in ran("report", "windows", "pointwise", "--format", "md").out.split("\n\n")
        if HEADER in part
    )
    for name, row in zip(("windows", "pointwise"), table.splitlines()[2:], strict=True):
        results = kept("results", name)
        (odds,) = [
            one["value"]
            for one in results["rows"]
            if (one["measure"], one["condition"]) == ("PreferenceOdds", "neutral")
        ]
        assert f"| {odds:.3f} [" in row
        assert (results["verdict"]["condition"] == "male") == ("(male) |" in row)
    assert "(male) |" in table


@pytest.mark.whole
def test_a_server_that_only_ranks_has_its_row_for_every_strategy() -> None:
    """One without log-probabilities of letters answers neither `first` nor yes or no: not assessable, and it says so."""
    config = mockllm("config").MockConfig(latency_ms=0, policy="shuffle")
    with mockllm("server").serve_in_thread(config) as server:
        of_it = ("-m", "openai:mock", "--base-url", server.base_url)
        assert llmfair("listwise", *of_it, *ONCE, *NEUTRAL, *STRATEGIES).code == 4
    rows = table_of_runs()
    assert all(int(row.split(" | ")[-2].replace(",", "")) > 1000 for row in rows.values())
    unread = {
        name for name, row in rows.items() if "undefined (no answer could be read) | not assessable" in row
    }
    assert unread == {"first", "pointwise"}


def table_of_runs() -> dict[str, str]:
    """The rows of the table of all runs by strategy, which say what results.json and manifest.json of each run hold."""
    runs = sorted(path.name for path in Path("runs").iterdir())
    (table,) = [part for part in ran("report", *runs, "--format", "md").out.split("\n\n") if HEADER in part]
    lines = {
        re.match(r"\| \S+(?: at \S+)? ([a-z-]+)", row)[1]: row  # type: ignore[index]
        for row in table.splitlines()[2:]
    }
    assert table.splitlines()[0] == HEADER and {*lines} == {*NAMES}
    for run in runs:
        results, manifest = (
            json.loads(Path("runs", run, f"{file}.json").read_text()) for file in ("results", "manifest")
        )
        row = lines[results["design"].get("strategy", "windows").partition(":")[0]].strip("| ").split(" | ")
        figures = {
            one["measure"]: one
            for one in results["rows"]
            if one["condition"] == "neutral" and one.get("group") in (None, "", "all")
        }
        for shown, measure in zip(row[1:3], ("nDCG@20", "PreferenceOdds"), strict=True):
            told = [figures[measure][name] for name in ("value", "low", "high")]
            numbers = [f"{one:.3f}" for one in told if one is not None]
            assert re.findall(r"[\d.]+\d", shown) == numbers and shown.startswith("undefined") != bool(
                numbers
            )
        answers = [
            json.loads(line) for line in Path("runs", run, "journal.jsonl").read_text().splitlines()[1:]
        ]
        calls, tokens = len({one["key"] for one in answers}), sum(map(tokens_of, answers))
        assert tokens == manifest["prompt_tokens"] + manifest["completion_tokens"]
        assert row[3:6] == [
            results["verdict"]["status"],
            f"{calls:,}",
            f"{tokens:,}" if tokens else "",
        ]
        (one,) = manifest["invocations"]
        began, ended = (datetime.fromisoformat(one[name]) for name in ("started", "ended"))
        assert row[6] == f"{(ended - began).total_seconds():,.0f}"
    return lines


def tokens_of(answer: dict[str, Any]) -> int:
    return (answer["prompt_tokens"] or 0) + (answer["completion_tokens"] or 0)


def test_no_next_step_asks_for_what_is_refused() -> None:
    """Partitions are windows: a run of another strategy is not told to ask the same by a partition."""
    assert "slots" in ListwiseSettings.make().ways()
    assert "slots" not in ListwiseSettings.make(strategy="setwise").ways()
    refuses("has no --strategy setwise", "listwise", "--design", "partition", "--strategy", "setwise")


@pytest.mark.whole
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


@pytest.mark.whole
def test_a_thousand_answers_are_read_by_one_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings read again for every answer took nine tenths of a report of 34,000."""
    ran("listwise", *MODEL, *SMALL, "--window", "5", "--step", "5", "-o", "run")
    made: list[str] = []

    def counting(spec: str, settings: Mapping[str, Any]) -> Strategy:
        made.append(spec)
        return strategy_of(spec, settings)

    monkeypatch.setattr("llmfair.rankers.strategies.strategy_of", counting)
    run = RunDir(Path("run"))
    answers = list(all_answers(run, run.read_manifest()))
    assert len(answers) > 50 and len(made) <= 1
