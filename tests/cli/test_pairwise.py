"""`llmfair pairwise` end to end: evidence on disk, planted bias told apart from position, early stopping."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Outcome, llmfair, only_run
from tests.folders import balanced, write_folder
from tests.servers import Server

QUERIES = 20


def lists(queries: int = QUERIES) -> Path:
    return write_folder(Path(f"lists{queries}"), balanced(queries, 20, 20))


def asked(model: str, *more: str, queries: int = QUERIES) -> Outcome:
    found = llmfair("pairwise", "-d", lists(queries), "-m", model, *more)
    assert found.code == 0, found.err
    return found


def row(document: Any, measure: str, kind: str = "relevant", group: str = "") -> Any:
    (found,) = [
        r for r in document["rows"] if (r["measure"], r["variant"], r["group"]) == (measure, kind, group)
    ]
    return found


def test_the_sample_offline_and_again() -> None:
    first = llmfair("pairwise")
    assert first.code == 0, first.err
    title, *rest = first.out.splitlines()
    assert title.startswith("Pairwise · sample · gender (protected: female) · fake:biased, a simulated model")
    assert "1,760 calls" in title and "fair" not in first.out.replace("llmfair", "")
    assert [line.split()[0] for line in rest if line.startswith((" relevant", " irrelevant"))] == [
        "relevant", "irrelevant",
    ]  # fmt: skip
    assert first.err.startswith("1,760 calls: 440 relevant, 440 irrelevant pairs")
    folder = only_run()
    before = {
        p: p.read_bytes()
        for p in folder.iterdir()
        if p.name not in ("manifest.json", ".lock") and p.is_file()
    }
    assert {p.name for p in before} == {
        "journal.jsonl", "verdicts.csv", "metrics.csv", "per_query.csv", "failures.csv", "results.json",
    }  # fmt: skip
    again = llmfair("pairwise")
    assert again.out == first.out and json.loads((folder / "manifest.json").read_text())["calls"] == 0
    assert before == {p: p.read_bytes() for p in before}
    assert llmfair("runs", "check", folder).code == 0
    with (folder / "verdicts.csv").open(newline="") as file:
        verdicts = list(csv.DictReader(file))
    assert len(verdicts) == 880 and {v["draw"] for v in verdicts} == {"0", "1"}
    assert all(v["cell"] in ("PP", "UU", "FF", "SS", "T", "M1", "M2") for v in verdicts)
    assert all((v["first_answer"] == "") == (v["first_problem"] != "") for v in verdicts)


def test_content_bias_position_bias_and_unreadable_answers_are_told_apart() -> None:
    found = asked(
        "fake:biased,pairwise=0.2,position=2,query_sd=0,malformed=0.05", "--max-invalid", "1", "--json"
    ).json
    for kind in ("relevant", "irrelevant"):
        odds, paper, balanced_ratio = (
            row(found, m, kind) for m in ("AdjustedOdds", "WinRatio", "BalancedRatio")
        )
        assert odds["low"] < math.exp(0.2) < odds["high"]
        assert row(found, "PositionOdds", kind)["low"] > math.exp(1.5)
        assert row(found, "FirstSlotRate", kind)["value"] > 0.8
        assert paper["value"] > odds["value"] > balanced_ratio["value"] > 1
        invalid = row(found, "InvalidRate", kind)["value"]
        assert invalid == pytest.approx(1 - 0.95**2, abs=0.03)
        low, high = found["findings"][kind]["worst_case"]
        assert high - low == pytest.approx(0.05, abs=0.02)
    table = asked("fake:biased,pairwise=0.2,position=2,query_sd=0,malformed=0.05", "--max-invalid", "1").out
    assert "first shown wins 8" in table and "WinRatio counts only pairs that do not flip" in table


def test_a_model_that_names_the_first_item_is_not_at_parity_but_not_assessable() -> None:
    found = asked("fake:biased,pairwise=0,position=50,query_sd=0,malformed=0")
    assert found.out.count("not assessable: the answers follow the position") == 2
    document = asked("fake:biased,pairwise=0,position=50,query_sd=0,malformed=0", "--json").json
    assert row(document, "BalancedRatio")["value"] == 1
    assert (row(document, "WinRatio")["value"], row(document, "WinRatio")["reason"]) == (
        None,
        "no_consistent_pair",
    )
    odds = row(document, "AdjustedOdds")
    assert (odds["conclusion"], odds["reason"], odds["low"]) == ("not_assessable", "position_driven", None)
    gate = llmfair("pairwise", "-d", lists(), "-m", "fake:biased,pairwise=0,position=50,query_sd=0,malformed=0", "--require", "AdjustedOdds=0.5..2")  # fmt: skip
    assert gate.code == 4 and "cannot be assessed" in gate.err


def test_adding_a_query_or_dropping_a_kind_moves_no_pair() -> None:
    def verdicts(*more: str) -> dict[tuple[str, ...], dict[str, str]]:
        name = "-".join(("run", *more))
        asked("fake:biased", "-o", name, *more)
        with (Path(name) / "verdicts.csv").open(newline="") as file:
            return {(v["kind"], v["query_id"], v["pair"], v["draw"]): v for v in csv.DictReader(file)}

    whole = verdicts()
    for part in (verdicts("-n", "5"), verdicts("--kind", "irrelevant"), verdicts("--pairs", "20")):
        assert 0 < len(part) < len(whole)
        assert {key: whole[key] for key in part if key in whole} == {
            k: v for k, v in part.items() if k in whole
        }


@pytest.mark.parametrize("workers", [1, 64])
def test_a_sequential_audit_stops_at_the_same_pair_whatever_happens(workers: int, tmp_path: Path) -> None:
    model = "fake:biased,pairwise=-0.7,position=0.5,query_sd=0,malformed=0"
    calm = asked(model, "--sequential", "--json", "--runs-dir", str(tmp_path / "calm"), "-j", "7").json
    broken = llmfair(
        "pairwise", "-d", lists(), "-m", model, "--sequential", "--max-calls", "40", "-j", str(workers)
    )  # fmt: skip
    assert broken.code == 3
    found = asked(model, "--sequential", "--json", "-j", str(workers)).json
    assert found["stopping"] == calm["stopping"] and found["rows"] == calm["rows"]
    folder = only_run(tmp_path / "calm")
    assert (only_run() / "verdicts.csv").read_bytes() == (folder / "verdicts.csv").read_bytes()
    for kind in ("relevant", "irrelevant"):
        stopped = found["stopping"][kind]
        assert stopped["decision"] == "below" and 20 <= stopped["pairs"] < 600 and stopped["saved"] > 0.4
        assert sum(found["cells"][kind].values()) == stopped["pairs"]
    again = asked(model, "--sequential", "-j", str(workers))
    assert json.loads((only_run() / "manifest.json").read_text())["calls"] == 0
    assert "on this benchmark" in again.out and "not adjusted for stopping" in again.out
    assert llmfair("runs", "check", only_run()).code == 0


def test_over_http_both_orders_are_asked() -> None:
    with Server() as server:
        found = asked("openai:any", "--base-url", server.base_url, "--pairs", "5", "--json", queries=6)
        bodies = server.bodies
    assert len(bodies) == 6 * 2 * (5 + 1) * 2
    first, second = (body["messages"][-1]["content"] for body in bodies[:2])
    assert first != second and sorted(first.splitlines()) != first.splitlines()
    assert all(arm["unreadable"] == 0 for arm in found.json["answers"].values())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--kind", "relevance"), "--kind relevance is no kind of pair"),
        (("--pairs", "0"), "--pairs is 0"),
        (("--noise-share", "2"), "--noise-share is 2.0"),
        (("--require", "AdjustedOdds:female>=1"), "no variant 'female'"),
        (("--measures", "AdjustedOods"), "Did you mean 'AdjustedOdds'?"),
        (("--on-bad-answer", "mend"), "mend"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_sentence(flags: tuple[str, ...], said: str) -> None:
    found = llmfair("pairwise", *flags)
    assert found.code == 2 and said in found.err and not Path("runs").exists()
