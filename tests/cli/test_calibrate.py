"""`llmfair calibrate listwise`: what it prints, twice the same; bad input is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import llmfair
from tests.folders import write_folder

pytestmark = pytest.mark.whole

CALIBRATE = ("calibrate", "listwise", "--runs", "10", "--planted", "-0.5")


def test_the_table() -> None:
    found = llmfair(*CALIBRATE)
    assert (found.code, found.err) == (0, "")
    lines = found.out.splitlines()
    assert lines[0] == (
        "Calibrate listwise · sample · gender (protected: female) · 8 queries × 40 · 10 simulated audits a row · "
        "seed 0 · no model asked"
    )
    assert "0.607 (ln -0.5)" in found.out and "1 (no preference)" in found.out
    assert (
        "false alarms: " in found.out
        and "smallest effect found with 80 % power: implied pair odds" in found.out
    )
    assert "only 8 queries: read the intervals with care" in found.out
    assert "fair" not in found.out.replace("llmfair", "")
    assert llmfair(*CALIBRATE).out == found.out
    assert not Path("runs").exists()


def test_json_has_it_all() -> None:
    found = llmfair(*CALIBRATE, "--json")
    results = found.json
    assert [row["planted"] for row in results["planted"]] == [-0.5, 0.0]
    assert (results["seed"], results["runs"], results["settings"]["window"]) == (0, 10, 20)
    assert len(results["curve"]["betas"]) == len(results["curve"]["ratios"]) == 19
    assert llmfair(*CALIBRATE, "--json").out == found.out
    assert llmfair(*CALIBRATE, "--seed", "1", "--json").json["planted"] != results["planted"]


@pytest.mark.parametrize("style", ["tsv", "md"])
def test_other_formats(style: str) -> None:
    found = llmfair(*CALIBRATE, "--format", style)
    assert found.code == 0
    lines = found.out.splitlines()
    if style == "tsv":
        assert lines[0].split("\t")[:3] == ["planted", "planted_odds", "odds"]
        assert [line.split("\t")[0] for line in lines[1:]] == ["-0.5", "0.0"]
    else:
        assert lines[2].startswith("| planted odds | recovered |")


def test_the_paper_s_setting() -> None:
    found = llmfair(*CALIBRATE, "--preset", "paper", "--relevance", "0", "--runs", "2")
    assert "window 5, step 1, 1 pass, 1 random initial order; boot-t intervals" in found.out


def test_lists_of_one_side_are_left_out_and_counted() -> None:
    two: list[tuple[str, str | None, int]] = [(f"f{i}", "female", i % 2) for i in range(4)]
    two += [(f"m{i}", "male", i % 2) for i in range(4)]
    one: list[tuple[str, str | None, int]] = [(f"f{i}", "female", 0) for i in range(4)]
    folder = write_folder(Path("mine"), {**{f"q{i}": two for i in range(6)}, "q6": one})
    found = llmfair(*CALIBRATE, "-d", folder)
    assert found.code == 0, found.err
    assert "1 query without items of both sides left out" in found.out
    alone = llmfair(*CALIBRATE, "-d", folder, "--queries", "q6")
    assert alone.code == 2 and alone.err.startswith("Error: no list has items of both sides.")


def test_help_has_two_examples_and_names_the_variables() -> None:
    found = llmfair("calibrate", "listwise", "--help")
    assert found.code == 0
    assert "LLMFAIR_PLANTED" in found.out and "LLMFAIR_WINDOW" in found.out
    assert found.out.count("llmfair calibrate listwise") >= 2
