"""`--require`: the exit code, the sentence, and everything written before either."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import kept, llmfair, only_run, ran, refuses
from tests.folders import balanced, write_folder

pytestmark = pytest.mark.whole

SMALL = ("listwise", "-n", "5", "--orders", "1", "--passes", "1", "-m", "fake:biased,malformed=0")
FILES = {
    "manifest.json", "journal.jsonl", "failures.csv", "rankings", "candidates.jsonl", "qrels.txt", "groups.tsv",
    "metrics.csv", "per_query.csv", "results.json", "texts.jsonl",
}  # fmt: skip


def test_a_gate_that_is_met_says_nothing() -> None:
    plain = llmfair(*SMALL)
    met = ran(*SMALL, "--require", "P@20:neutral>=0.1", "--require", "nDCG@20<=1")
    assert met.out == plain.out, "the same run, which a gate does not change"
    written = kept("results")["requirements"]
    assert [(entry["require"], entry["condition"]) for entry in written] == [
        ("P@20:neutral>=0.1", "neutral"),
        *(("nDCG@20<=1", condition) for condition in ("neutral", "male", "female")),
    ]
    assert all(entry["holds"] and entry["reason"] is None for entry in written)


def test_a_gate_that_is_not_met_fails_after_everything_is_written() -> None:
    found = llmfair(*SMALL, "-q", "--require", "ExpRatio:male=0.9..1.1")
    assert found.code == 4
    assert "neutral" in found.out, "the result is shown all the same"
    (entry,) = kept("results")["requirements"]
    assert entry["measure"] == "ExpRatio(control=order)", "the one of the table"
    assert f"{entry['value']:.3f} [" in found.out
    assert f"ExpRatio(control=order) (male prompt) {entry['value']:.3f} is outside 0.9..1.1\n" in found.err
    assert {path.name for path in only_run().iterdir()} >= FILES
    assert kept("manifest")["status"] == "complete"
    assert llmfair("runs", "check", only_run()).code == 0, "results.json follows from answers and gates"
    assert llmfair(*SMALL).code == 0, "the same run without the gate"


def test_json_holds_results_and_error_in_one_document() -> None:
    found = llmfair(*SMALL, "--require", "P@20:female>=0.999", "--json")
    assert found.code == found.json["exit_code"] == 4
    assert found.json["error"]["class"] == "RequirementFailed" and found.json["rows"]
    (entry,) = found.json["requirements"]
    assert found.json["error"]["message"] == entry["reason"]
    assert entry["measure"] == "P@20" and not entry["holds"] and entry["value"] < 0.999


def test_the_whole_interval_can_be_asked_for() -> None:
    measured = llmfair(*SMALL, "--measures", "P@20", "--json").json["rows"]
    (row,) = [row for row in measured if (row["measure"], row["condition"]) == ("P@20", "female")]
    gate = ("--measures", "P@20", "--require", f"P@20:female>={(row['low'] + row['value']) / 2}")
    ran(*SMALL, *gate)
    found = llmfair(*SMALL, *gate, "--require-interval")
    assert found.code == 4
    assert f"P@20 (female prompt) [{row['low']:.3f}, {row['high']:.3f}] reaches below" in found.err


def test_what_is_required_is_measured() -> None:
    found = ran(*SMALL, "--measures", "P@20", "--require", "P@5>=0", "--require", "P@20>=0", "--json")
    assert found.json["measures"][:2] == ["P@20", "P@5"]


@pytest.mark.parametrize(
    ("side", "gate", "low", "high"),
    [
        (20, "ExpRatio=0.6..1.6", 0.721, 1.389),
        pytest.param(100, "ExpRatio=0.8..1.25", 0.889, 1.125, marks=pytest.mark.slow),
    ],
)
def test_the_paper_s_windows_cannot_fail_a_wide_gate(side: int, gate: str, low: float, high: float) -> None:
    folder = write_folder(Path("mine"), balanced(6, side, side))
    asked = ("listwise", "-d", folder, "--preset", "paper", "--conditions", "neutral")
    refuses(
        f"Error: no ranker could fail {gate} in this design, whose attainable range is {low:.2f}",
        *asked,
        "--require",
        gate,
    )
    ran(*asked)
    assert kept("results")["reach"]["ExpRatio"] == pytest.approx({"low": low, "high": high}, abs=0.002)


def test_a_gate_may_stand_in_the_configuration_file() -> None:
    Path("llmfair.toml").write_text('[listwise]\nrequire = ["P@20>=0.999"]\n')
    assert llmfair(*SMALL).code == 4
    ran(*SMALL, "--require", "P@20>=0")
