"""The verdict comes first, and `--fail-on` and `--require` agree with it."""

from __future__ import annotations

import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

import llmfair
from llmfair.audits.gates import Suite, write_junit
from llmfair.errors import UsageError
from llmfair.io.files import plain
from llmfair.results import Requirement, RunVerdict
from tests.cli.command import kept, only_run, ran, refuses
from tests.cli.command import llmfair as command

PAIRS = ("pairwise", "-q", "--noise-share", "0", "--conditions", "relevant", "--no-report")
MODELS = {
    "disparity": ("-m", "fake:biased,pairwise=-2", "--pairs", "10"),
    "parity": tuple(
        "-m fake:biased,pairwise=0,query_sd=0,position=0,pair_sd=1.5,malformed=0 --pairs 100 --seed 2".split()
    ),
    "inconclusive": ("-m", "fake:biased,pairwise=0", "--pairs", "4"),
    "not assessable": ("-m", "fake:biased,pairwise=0,position=30", "--pairs", "10"),
}


@pytest.mark.parametrize(
    "status", [pytest.param(name, marks=pytest.mark.whole if name != "disparity" else ()) for name in MODELS]
)
def test_the_exit_code_is_the_verdict(status: str) -> None:
    asked = (*PAIRS, *MODELS[status], "-o", "run")
    shown = ran(*asked).out
    assert shown.startswith(f"VERDICT  {status}: of relevant pairs ") and "\nNEXT     " in shown
    written = Path("run/results.json").read_bytes()
    verdict = kept("results", "run")["verdict"]
    assert verdict["status"] == status and plain(llmfair.open_run("run").verdict) == verdict
    others = ",".join(other for other in MODELS if other not in (status, "parity"))
    assert command(*asked, "--fail-on", others).code == 0
    failed = command(*asked, "--fail-on", f"'{status}'")
    if status == "parity":
        assert failed.code == 2 and "there is no verdict 'parity' that fails a run" in failed.err
    else:
        assert failed.code == 4 and failed.out == shown
        assert f"Error: --fail-on: the verdict is {status}: {verdict['sentence']}\n" in failed.err
    assert Path("run/results.json").read_bytes() == written
    assert not any(one["calls"] for one in kept("manifest", "run")["invocations"][1:])


PARTITION = ("listwise", "-q", "--no-report", "--design", "partition", "-m", "fake:biased,listwise=-2")


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ((*PAIRS, *MODELS["disparity"]), ()),
        ((*PAIRS, *MODELS["disparity"]), ("-o", "elsewhere/run")),
        (PARTITION, ("--runs-dir", "a place/of runs")),
    ],
)
def test_the_next_step_finds_the_run_wherever_it_is_and_has_something_to_show(
    asked: tuple[str, ...], where: tuple[str, ...]
) -> None:
    shown = ran(*asked, *where).out
    assert shown.startswith("VERDICT  disparity")
    steps = " ".join(shown.partition("\nNEXT ")[2].partition("\n\n")[0].split())
    steps = steps.removeprefix("single answers: ")
    assert " figure of its own" not in ran(*shlex.split(steps)[1:]).out
    folder = shlex.split(steps)[3]
    again = ran("runs", "show", folder)
    assert steps in " ".join(again.out.split())


def suites(path: str) -> list[ElementTree.Element]:
    found = [*ElementTree.parse(path).getroot()]
    for suite in found:
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        for name in ("failure", "error"):
            assert suite.get(f"{name}s") == str(len(suite.findall(f"testcase/{name}")))
    return found


def problems(suite: ElementTree.Element) -> dict[str, str]:
    return {c.get("name", ""): str(one.get("message")) for c in suite for one in c if one.get("message")}


def test_junit_has_the_verdict_and_every_gate() -> None:
    asked = (*PAIRS, *MODELS["disparity"], "-o", "run", "--junit", "ci/junit.xml", "--label", "nightly")
    ran(*asked, "--require", "FlipRate<=1")
    (suite,) = suites("ci/junit.xml")
    assert suite.get("name") == "nightly: fake:biased,pairwise=-2"
    assert [case.get("name") for case in suite] == ["verdict", "FlipRate<=1 (relevant)"]
    assert not problems(suite)
    verdict = kept("results", "run")["verdict"]
    said = suite.findtext("testcase/system-out")
    assert said == f"disparity: {verdict['sentence']}\n{verdict['next']}"
    assert command(*asked, "--require", "FlipRate>=1", "--fail-on", "disparity").code == 4
    wrong = problems(*suites("ci/junit.xml"))
    assert wrong["verdict"] == verdict["sentence"] and "is below 1" in wrong["FlipRate>=1 (relevant)"]


@pytest.mark.parametrize("path", ["", "/"])
def test_junit_that_is_no_file_is_refused_in_a_sentence(path: str) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        write_junit(Path(path), [], ())


def test_junit_of_a_run_that_is_not_through_has_its_error_beside_gates_that_fail() -> None:
    asked = (*PAIRS, "--pairs", "20", "-m", "fake:oracle", "--junit", "junit.xml")
    every = "disparity,inconclusive,not assessable"
    assert command(*asked, "--fail-on", every, "--max-calls", "100", "-o", "half").code == 3
    (half,) = suites("junit.xml")
    assert (half.get("failures"), half.get("errors")) == ("1", "1") and "run" in problems(half)


def test_a_study_has_a_suite_of_junit_for_each_setting() -> None:
    asked = ("study", "windows", "-q", "-n", "5", "--orders", "1", "--settings", "10/5,20/10", "--no-report")
    noisy = ("-m", "fake:biased,malformed=0.5", "--max-invalid", "0.1")
    assert command(*asked, *noisy, "--junit", "junit.xml", "-o", "st").code == 4
    found = suites("junit.xml")
    assert [suite.get("name") for suite in found] == ["10/5", "20/10"]
    assert all("unparseable" in problems(suite)["run"] for suite in found)
    assert [suite[0].get("classname") for suite in found] == ["llmfair.listwise"] * 2


def test_junit_is_legal_whatever_things_are_called(tmp_path: Path) -> None:
    verdict = RunVerdict(status="dis\x01parity", sentence="of \x02 items\udc80", next="\x03")
    gate = Requirement("P@20>=2", "P@20", "neutral\x04", "all", "fe\x05male", 1.0, False, "\x06 is below 2")
    broken = Suite("a\x00 model", "list\x07wise", verdict, [gate], llmfair.UsageError("\x08", "hint"))
    write_junit(tmp_path / "junit.xml", [broken], ["dis\x01parity"])
    (suite,) = suites(str(tmp_path / "junit.xml"))
    assert suite.get("name") == "a\ufffd model"
    assert [*problems(suite)] == ["verdict", "P@20>=2 (neutral\ufffd, fe\ufffdmale)", "run"]


@pytest.mark.whole
def test_measured_runs_have_a_verdict_each() -> None:
    for status in ("disparity", "inconclusive"):
        ran(*PAIRS, *MODELS[status], "-o", status)
    runs = ("score", "inconclusive", "disparity")
    shown = ran(*runs).out
    assert "VERDICT  inconclusive: inconclusive: of relevant pairs " in shown
    assert "VERDICT  disparity: disparity: of relevant pairs " in shown
    assert shown.count("\nNEXT     ") == 1 and "\nNEXT     llmfair runs show disparity --furthest" in shown
    assert shown.index("NEXT") < shown.index("Score · ")
    found = ran(*runs, "--json").json
    of_runs = {run["run"]: run["verdict"] for run in found["runs"]}
    assert {name: one["status"] for name, one in of_runs.items()} == {name: name for name in of_runs}
    assert found["verdict"]["status"] == "disparity"
    assert found["verdict"]["sentence"].startswith("disparity: ")
    assert ran("score", "disparity", "inconclusive", "--json").json["verdict"] == found["verdict"]
    assert of_runs == {name: kept("results", name)["verdict"] for name in of_runs}
    failed = command(*runs, "--fail-on", "disparity", "--junit", "junit.xml", "-o", "scored")
    assert failed.code == 4 and "Error: disparity: --fail-on: the verdict is disparity: " in failed.err
    assert [suite.get("failures") for suite in suites("junit.xml")] == ["0", "1"]
    assert kept("results", "scored")["verdict"] == found["verdict"]
    assert llmfair.open_run("scored").verdict.status == "disparity"
    ran("score", "inconclusive", "--fail-on", "disparity")
    refuses("there is no verdict 'fair'", "score", "inconclusive", "--fail-on", "fair", "-o", "unwritten")
    assert not Path("unwritten").exists()
    with pytest.raises(llmfair.RequirementFailed, match="the verdict is disparity"):
        llmfair.score("disparity", fail_on="disparity")


def test_runs_are_listed_with_their_verdicts() -> None:
    ran(*PAIRS, *MODELS["disparity"])
    command(*PAIRS, "--max-calls", "1")
    header, *lines = ran("runs", "list").out.splitlines()
    assert header.split()[:3] == ["run", "status", "verdict"]
    assert any("complete    disparity" in line for line in lines)
    known = {run["status"]: run["verdict"] for run in ran("runs", "list", "--json").json["runs"]}
    assert known["complete"] == "disparity"


SMALL = ("listwise", "-n", "5", "--orders", "1", "--passes", "1", "-m", "fake:biased,malformed=0")


@pytest.mark.whole
def test_a_gate_that_is_met_says_nothing() -> None:
    plain = command(*SMALL)
    met = ran(*SMALL, "--require", "P@20:neutral>=0.1", "--require", "nDCG@20<=1")
    assert met.out == plain.out, "the same run, which a gate does not change"
    written = kept("results")["requirements"]
    assert [(entry["require"], entry["condition"]) for entry in written] == [
        ("P@20:neutral>=0.1", "neutral"),
        *(("nDCG@20<=1", condition) for condition in ("neutral", "male", "female")),
    ]
    assert all(entry["holds"] and entry["reason"] is None for entry in written)


@pytest.mark.whole
def test_a_gate_that_is_not_met_fails_after_everything_is_written() -> None:
    found = command(*SMALL, "-q", "--require", "ExpRatio:male=0.9..1.1")
    assert found.code == 4
    (entry,) = kept("results")["requirements"]
    assert entry["measure"] == "ExpRatio(control=order)", "the one of the table"
    assert f"{entry['value']:.3f} [" in found.out
    assert f"{entry['value']:.3f} is outside 0.9..1.1\n" in found.err
    assert kept("manifest")["status"] == "complete"
    assert command("runs", "check", only_run()).code == 0, "results.json follows from answers and gates"
    assert command(*SMALL).code == 0, "the same run without the gate"


@pytest.mark.whole
def test_the_whole_interval_can_be_asked_for() -> None:
    measured = command(*SMALL, "--measures", "P@20", "--json").json["rows"]
    (row,) = [row for row in measured if (row["measure"], row["condition"]) == ("P@20", "female")]
    gate = ("--measures", "P@20", "--require", f"P@20:female>={(row['low'] + row['value']) / 2}")
    ran(*SMALL, *gate)
    found = command(*SMALL, *gate, "--require-interval")
    assert found.code == 4
    assert f"P@20 (female prompt) [{row['low']:.3f}, {row['high']:.3f}] reaches below" in found.err


@pytest.mark.whole
def test_what_is_required_is_measured() -> None:
    found = ran(*SMALL, "--measures", "P@20", "--require", "P@5>=0", "--require", "P@20>=0", "--json")
    assert found.json["measures"][:2] == ["P@20", "P@5"]
