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
        == "44 queries × 50 pairs × 2 kinds × 2 orders = 8,800 calls + 880 (10 % of pairs asked twice)"
    )
    for line in (
        "  9,680 calls · about ",
        "no price given (--price-in, --price-out)",
        "  at least 2 min 32 s at 1 s a call and 64 workers",
        "  smallest position-adjusted odds found with 80 % power: 0.852 or 1.174 (p < 0.05, icc 0.05, a "
        "share of 0.5 of the pairs consistent)",
        "  odds of 0.9: power 0.45; with 80 % power they need about 100 queries of 50 pairs\n",
        "  more pairs alone are not enough: all 100 a query find 0.862\n",
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
        (("--sequential",), "--sequential asks until each kind is settled, so what it finds is not planned"),
        (("--pairs", "5"), "= 160 calls + 32 (20 % of pairs asked twice)"),
        (("--pairs", "20"), "smallest position-adjusted odds found with 80 % power: 0.601"),
        (("--pairs", "20"), "more pairs alone are not enough: all 100 a query find 0.671"),
        (("--pairs", "200"), "more pairs alone are not enough: all 100 a query find 0.671"),
        (("--level", "0.999"), "found with 80 % power: 0.424 or 2.360 (p < 0.001, "),
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
    assert (
        "| relevant | 8 | 50 | 0.651 | 0.31 | not with these queries | 24 |"
        in llmfair(*PLAN, "--format", "md").out
    )
    rows = [line.split("\t") for line in llmfair(*PLAN, "--format", "tsv").out.splitlines()]
    assert [len(row) for row in rows] == [7, 7, 7]


def test_a_plan_has_no_empty_columns() -> None:
    rows = [line.split("\t") for line in llmfair(*PLAN, "--sequential", "--format", "tsv").out.splitlines()]
    assert rows == [["pairs", "queries"], ["relevant", "8"], ["irrelevant", "8"]]


def test_pairs_a_query_need_not_be_whole() -> None:
    lists = balanced(9, 2, 4) | {f"small{q}": rows for q, rows in balanced(1, 2, 2).items()}
    found = llmfair(*PLAN, "-d", write_folder(Path("few"), lists), "--kind", "relevant", "--format", "md")
    assert "| relevant | 10 | 1.8 |" in found.out and "queries of 1.8 pairs" in found.out


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
    none = "with 80 % power: none of those planted; --planted takes more extreme ones"
    for text in ("0.741 (ln -0.3)", "1 (no preference)", "relevant: false alarms: ", none):
        assert text in found.out, text
    further = llmfair(*CALIBRATE, "--planted", "-1").out
    assert "with 80 % power: 0." in further and " or none of those planted above parity (between" in further
    assert "--weights pooled" in llmfair(*CALIBRATE, "--weights", "pooled").out
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
    assert (
        "false alarms: too few queries or items for a test" in few and "only 4 queries: no intervals" in few
    )


@pytest.mark.parametrize("command", ["plan", "calibrate"])
def test_help_has_two_examples_and_names_the_variables(command: str) -> None:
    found = llmfair(command, "pairwise", "--help")
    assert found.code == 0 and found.out.count(f"llmfair {command} pairwise") >= 2
    assert "LLMFAIR_PAIRS" in found.out and "LLMFAIR_POWER" in found.out
