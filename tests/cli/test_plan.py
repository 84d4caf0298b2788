"""`llmfair plan`: what a person reads before anything is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair.audits.listwise.plan_table import plan_text
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
    ("arguments", "sentence"),
    [
        (("--preset", "paper", "--ratio", "0.5"), "no ranker could show ExpRatio 0.500 at window 5, step 1"),
        (("-n", "5"), "5 queries: no test at all, which needs 6"),
        (("-n", "5", "--ratio", "0.95"), "finding ExpRatio 0.950 with power 0.8 takes 31 queries"),
        (("--ratio", "0.95"), "ExpRatio 0.950 is not found reliably: power 0.25; power 0.8 takes 31 queries"),
        (("--ratio", "0.99999"), "power 0.05; power 0.8 is beyond any number of queries"),
        (("--tau", "2"), "not even a ranker that always puts one side first is found with power 0.8"),
        (("--initial", "deltr", "--orders", "1"), "what it can find is known for --initial random only"),
        (("--initial", "deltr", "--orders", "1"), "a ranker without any preference reads ExpRatio 0."),
        (("--windows", "rankgpt", "--window", "6", "--step", "4"), "ranks that no window holds in some list: 1, 2"),
        (("--step", "20"), "step equals window: no item is carried from window to window"),
        (("--price-in", "100", "--price-out", "1000"), "costs about 5"),
        (("--latency", "20"), "at least 4 min 40 s at 20 s a call and 64 workers"),
        (("-m", "bm25"), "8 queries × 40 candidates × 1 order · no model is asked\nNothing was ranked.\n"),
    ],
)  # fmt: skip
def test_what_it_says_plainly(arguments: tuple[str, ...], sentence: str) -> None:
    found = llmfair(*PLAN, *arguments)
    assert found.code == 0, found.err
    assert sentence in found.out


def test_an_effect_that_is_found_gets_no_warning() -> None:
    found = llmfair(*PLAN, "--ratio", "0.8").out
    assert "reliably" not in found and "no ranker" not in found and "no test" not in found


def test_lists_of_one_side_only() -> None:
    folder = write_folder(Path("mine"), balanced(3, 4, 0) | {"m": [("m", "male", 1), ("n", "male", 0)]})
    assert "no list has items of both sides: nothing can be found" in llmfair(*PLAN, "-d", folder).out


def test_formats() -> None:
    planned = llmfair(*PLAN, "--ratio", "0.9", "--json").json
    assert planned["schema"] == 1
    assert planned["findable"]["effect"]["ratio"] == 0.9
    assert {"calls", "cost", "seconds", "reach", "other_windows", "seed", "render"} <= planned.keys()
    assert "| to be found | 0.900 |" in llmfair(*PLAN, "--ratio", "0.9", "--format", "md").out
    rows = [line.split("\t") for line in llmfair(*PLAN, "--format", "tsv").out.splitlines()]
    assert [len(row) for row in rows] == [6, 6, 6, 6]


def test_the_dry_run_is_told_in_the_same_words() -> None:
    planned = llmfair("listwise", "--preset", "paper", "--dry-run", "--json").json
    told = plan_text(planned).splitlines()
    assert told[-1] == "Nothing was asked."
    assert told[0] in llmfair(*PLAN, "--preset", "paper").out
    assert any("llmfair plan listwise" in line for line in told)


def test_the_audit_s_configuration_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("llmfair.toml").write_text("[listwise]\nlimit = 3\nwindow = 10\nstep = 5\n")
    monkeypatch.setenv("LLMFAIR_LATENCY", "2")
    planned = llmfair(*PLAN, "--json").json
    assert (planned["queries"], planned["window"], planned["latency"]) == (3, 10, 2.0)
    assert planned["calls"] == llmfair("listwise", "--dry-run", "--json").json["calls"]


def test_help_names_its_variables_and_two_examples() -> None:
    found = llmfair(*PLAN, "--help")
    assert found.code == 0
    for name in (
        "LLMFAIR_RATIO",
        "LLMFAIR_PRICE_IN",
        "LLMFAIR_WINDOW",
        "llmfair plan listwise --preset paper",
    ):
        assert name in found.out
    assert "plan" in llmfair("--help").out
