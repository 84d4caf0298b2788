"""`llmfair plan`: what a person reads before anything is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import llmfair
from tests.folders import balanced, write_folder

PLAN = ("plan", "listwise")


def lists_of_200(queries: int) -> Path:
    return write_folder(Path(f"mine{queries}"), balanced(queries, 100, 100))


@pytest.mark.slow
def test_the_paper_s_design() -> None:
    found = llmfair(
        *PLAN, "-d", lists_of_200(44), "-m", "openai:gpt-4", "--preset", "paper", "--ratio", "0.97"
    )
    assert found.code == 0 and not found.err and not Path("runs").exists()
    for line in (
        "44 queries × 200 candidates × 3 arms (neutral, male, female) × 1 order · window 5, step 1, 1 pass · "
        "132 chains of up to 196",
        "no price given (--price-in, --price-out)",
        "  at least 6 min 45 s at 1 s a call and 64 workers",
        "a ranker that always puts one side first reads ExpRatio 0.89 … 1.1",
        "on these lists (100 of 200 protected; simulated, seed 0)",
        "  window 20, step 10, 3 passes: 7,524 calls, 0.73 … 1.36: fewer calls, further reach",
        "  a perfect ranker reads P@20 0.60",
        "  standard error of ln ExpRatio: 0.0104 (44 queries with items of both sides, 1 order",
        "  first prompt: llmfair prompts render listwise --dataset mine44 --window 5 --step 1 --orders 1",
    ):
        assert line in found.out, line
    assert "  25,872 calls · about " in found.out
    rows = {line.split("  ")[0].strip(): line.split() for line in found.out.splitlines()}
    ratio, odds, _, *power = rows["to be found"][3:]
    assert (ratio, power) == ("0.970", ["0.82", "43"]) and float(odds) == pytest.approx(0.735, abs=0.01)
    ratio, odds, _, *power = rows["smallest found below parity"][4:]
    assert (ratio, power) == ("0.971", ["0.8", "44"]) and float(odds) == pytest.approx(0.74, abs=0.01)
    assert found.out.endswith("Nothing was asked.\n")


def test_it_asks_nothing_and_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr("socket.socket.connect", refuse)
    assert llmfair(*PLAN, "-m", "openai:gpt-4o-mini", "--price-in", "0.15", "--price-out", "0.6").code == 0


@pytest.mark.parametrize(
    ("kind", "calls", "findable", "keys"),
    [
        ("listwise", 864, {"effect", "smallest"}, {"cost", "seconds", "reach", "other_windows", "seed", "render"}),
        ("pairwise", 1760, {"relevant", "irrelevant"}, {"cost", "seconds", "noise_calls", "prompt_tokens", "design"}),
    ],
)  # fmt: skip
def test_json_has_it_all_and_a_dry_run_begins_in_the_same_words(
    kind: str, calls: int, findable: set[str], keys: set[str]
) -> None:
    planned = llmfair("plan", kind, "--ratio", "0.9", "--json").json
    assert (planned["schema"], planned["calls"]) == (1, calls)
    assert planned["findable"].keys() >= findable and planned.keys() >= keys
    if kind == "listwise":
        assert planned["findable"]["effect"]["ratio"] == 0.9
    told = llmfair(kind, "--dry-run").out.splitlines()
    assert told[0] == llmfair("plan", kind, "--ratio", "0.9").out.splitlines()[0]
    assert told[-1] == "Nothing was asked." and any(f"llmfair plan {kind}" in line for line in told)
    assert llmfair(kind, "--dry-run", "--json").json["calls"] == calls and not Path("runs").exists()


def test_the_audit_s_configuration_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("llmfair.toml").write_text(
        "[listwise]\nlimit = 3\nwindow = 10\nstep = 5\n[pairwise]\npairs = 7\n[plan]\nicc = 0.2\ntau = 0.1\n"
    )
    monkeypatch.setenv("LLMFAIR_LATENCY", "2")
    planned = llmfair(*PLAN, "--json").json
    assert (planned["queries"], planned["window"], planned["latency"]) == (3, 10, 2.0)
    assert planned["calls"] == llmfair("listwise", "--dry-run", "--json").json["calls"]
    assert planned["findable"]["tau"] == 0.1
    pairs = llmfair("plan", "pairwise", "--json").json
    assert (pairs["pairs"], pairs["findable"]["relevant"]["icc"]) == (7, 0.2)
