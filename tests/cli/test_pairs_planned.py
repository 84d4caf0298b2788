"""`llmfair plan pairwise` and `llmfair calibrate pairwise`: what they print; bad input is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import llmfair
from tests.folders import balanced, write_folder

PLAN = ("plan", "pairwise")
CALIBRATE = ("calibrate", "pairwise", "--runs", "10", "--planted", "-0.3", "--kind", "relevant")


APART: dict[str, list[tuple[str, str | None, int]]] = {
    f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)
}
"""No query has relevant items of both sides, nor others."""


def test_the_paper_s_queries() -> None:
    folder = write_folder(Path("mine"), balanced(44, 20, 20))
    found = llmfair(*PLAN, "-d", folder, "-m", "openai:gpt-4", "--ratio", "0.9")
    assert found.code == 0 and not found.err and not Path("runs").exists()
    lines = found.out.splitlines()
    assert (
        lines[0]
        == "44 queries × 50 pairs × 2 kinds × 2 orders = 8,800 calls + 880 (a share of 0.1 asked twice)"
    )
    for line in (
        "  9,680 calls · about ",
        "no price given (--price-in, --price-out)",
        "  at least 2 min 32 s at 1 s a call and 64 workers",
        "  smallest position-adjusted odds found with 80 % power: 0.852 or 1.174 (icc 0.05, a share of 0.5 of the "
        "pairs consistent)",
        "  odds of 0.9: power 0.45; with 80 % power they need about 100 queries of 50 pairs\n",
        "  more pairs do not help: 500 a query find 0.870; more queries do\n",
    ):
        assert line in found.out, (line, found.out)
    assert lines[-1] == "  Nothing was asked."
    assert [line.split()[0] for line in lines[2:5]] == ["pairs", "relevant", "irrelevant"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--ratio", "0.5"), "odds of 0.5: power > 0.99"),
        (("--ratio", "0.5"), "need about 6 queries of 50 pairs, or 8 pairs of each of these 8"),
        (("-n", "5"), "5 queries: no test at all, which needs 6"),
        (("-n", "5"), "with 80 % power, position-adjusted odds of 0.8 need about 24 queries of 50 pairs"),
        (("--icc", "1", "--consistent", "0.05", "--ratio", "0.95"), "no position-adjusted odds are found with 80 % power"),
        (("--icc", "1", "--ratio", "0.9999"), "they are beyond any number of queries"),
        (("--sequential",), "up to 1,000 pairs × 2 kinds × 2 orders: at most 3,200 calls"),
        (("--sequential",), "what it can find is planned without --sequential"),
        (("--pairs", "200"), "8 queries × 200 pairs × 2 kinds × 2 orders, less what queries lack: 3,200 calls + 320"),
        (("--pairs", "200"), "relevant: 8 queries with fewer pairs than asked"),
        (("--repeats", "2", "--kind", "relevant"), "8 queries × 50 pairs × 1 kind × 2 orders × 2 times = 1,600 calls\n"),
        (("-m", "fake:biased", "-m", "fake:oracle", "--preset", "paper"), "× 2 orders × 2 models = 3,200 calls\n"),
        (("--price-in", "1", "--price-out", "2"), "costs about 0.2"),
        ((), "items stand in pairs of several queries, so intervals will be wider than planned"),
    ],
)  # fmt: skip
def test_what_a_plan_says_plainly(arguments: tuple[str, ...], sentence: str) -> None:
    found = llmfair(*PLAN, *arguments)
    assert found.code == 0, found.err
    assert sentence in found.out, found.out
    assert "fair" not in found.out.replace("llmfair", "")


def test_no_pairs() -> None:
    folder = write_folder(Path("apart"), APART)
    planned = llmfair(*PLAN, "-d", folder)
    assert planned.code == 0 and "no pairs: nothing can be found" in planned.out
    assert "relevant: 8 queries without such pairs" in planned.out
    calibrated = llmfair(*CALIBRATE, "-d", folder)
    assert calibrated.code == 2
    assert calibrated.err.startswith("Error: no query has pairs of a protected and an unprotected item.")


def test_formats_of_a_plan() -> None:
    planned = llmfair(*PLAN, "--json").json
    assert planned["schema"] == 1 and planned["calls"] == 1760
    assert set(planned["findable"]) == {"relevant", "irrelevant"}
    assert {"cost", "seconds", "noise_calls", "prompt_tokens", "design"} <= planned.keys()
    assert "| relevant | 8 | 50 | 0.651 | 0.31 | never | 24 |" in llmfair(*PLAN, "--format", "md").out
    rows = [line.split("\t") for line in llmfair(*PLAN, "--format", "tsv").out.splitlines()]
    assert [len(row) for row in rows] == [7, 7, 7]


def test_the_dry_run_is_told_in_the_same_words() -> None:
    told = llmfair("pairwise", "--dry-run").out.splitlines()
    planned = llmfair(*PLAN).out
    assert told[0] == planned.splitlines()[0] and told[-1] == "Nothing was asked."
    assert any("llmfair plan pairwise" in line for line in told)
    assert llmfair("pairwise", "--dry-run", "--json").json["calls"] == 1760
    assert not Path("runs").exists()


def test_the_audit_s_configuration_is_planned_and_simulated() -> None:
    Path("llmfair.toml").write_text(
        "[pairwise]\npairs = 7\n[plan]\nicc = 0.2\ntau = 0.1\n[calibrate]\nposition = 1\nrelevance = 1\n"
    )
    planned = llmfair(*PLAN, "--json").json
    assert (planned["pairs"], planned["findable"]["relevant"]["icc"]) == (7, 0.2)
    settings = llmfair(*CALIBRATE, "--json").json["settings"]
    assert (settings["pairs"], settings["position"]) == (7, 1.0)
    assert llmfair("plan", "listwise", "--json").json["findable"]["tau"] == 0.1


def test_the_table_of_a_calibration() -> None:
    found = llmfair(*CALIBRATE)
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[0] == (
        "Calibrate pairwise · sample · gender (protected: female) · 8 queries, 400 relevant pairs, both orders · "
        "10 simulated audits a row · seed 0 · no model asked"
    )
    for text in ("0.741 (ln -0.3)", "1 (no preference)", "relevant: false alarms: ", "with 80 % power: 0."):
        assert text in found.out, text
    assert "only 8 queries: read the intervals with care" in found.out
    assert "fair" not in found.out.replace("llmfair", "")
    assert llmfair(*CALIBRATE).out == found.out and not Path("runs").exists()


def test_formats_of_a_calibration() -> None:
    results = llmfair(*CALIBRATE, "--json").json
    assert [(row["kind"], row["planted"]) for row in results["planted"]] == [
        ("relevant", -0.3),
        ("relevant", 0.0),
    ]
    assert (results["seed"], results["runs"], results["settings"]["query_sd"]) == (0, 10, 0.3)
    assert llmfair(*CALIBRATE, "--seed", "1", "--json").json["planted"] != results["planted"]
    tsv = [line.split("\t") for line in llmfair(*CALIBRATE, "--format", "tsv").out.splitlines()]
    assert tsv[0][:3] == ["kind", "planted", "planted_odds"] and [row[1] for row in tsv[1:]] == [
        "-0.3",
        "0.0",
    ]
    assert "| pairs | planted odds | over queries |" in llmfair(*CALIBRATE, "--format", "md").out


def test_what_a_calibration_says_of_what_it_cannot_tell() -> None:
    driven = llmfair(*CALIBRATE, "--position", "6").out
    assert "relevant, planted +0: position_driven in 10 of 10 audits" in driven
    few = llmfair(*CALIBRATE, "-n", "4").out
    assert "false alarms: too few queries for a test" in few and "only 4 queries: no intervals" in few


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*PLAN, "--ratio", "1"), "--ratio is 1.0, but must be odds from 0.01 to 100 other than 1"),
        ((*PLAN, "--ratio", "4"), "no answers show odds of 4 when a share of 0.5 is consistent."),
        ((*PLAN, "--icc", "2"), "--icc is 2.0, but lies from 0 to 1."),
        ((*PLAN, "--price-in", "1"), "--price-in and --price-out go together."),
        ((*PLAN, "-m", "gpt-4"), "'gpt-4' is not a model."),
        ((*PLAN, "-d", "nope"), "no dataset 'nope'"),
        ((*CALIBRATE, "--malformed", "2"), "--malformed is 2.0, but is a share below 1."),
        ((*CALIBRATE, "--sequential"), "calibrate simulates audits that ask all their pairs"),
        ((*CALIBRATE, "--output", "x"), "calibrate writes no files, but --output names a folder."),
    ],
)
def test_bad_input(arguments: tuple[str, ...], message: str) -> None:
    found = llmfair(*arguments)
    assert found.code == 2 and found.err.startswith(f"Error: {message}") and not found.out
    assert llmfair(*arguments, "--json").json["exit_code"] == 2


@pytest.mark.parametrize("command", ["plan", "calibrate"])
def test_help_has_two_examples_and_names_the_variables(command: str) -> None:
    found = llmfair(command, "pairwise", "--help")
    assert found.code == 0 and found.out.count(f"llmfair {command} pairwise") >= 2
    assert "LLMFAIR_PAIRS" in found.out and "LLMFAIR_POWER" in found.out
