"""`llmfair study windows` end to end, offline: its table, its files, and the runs it shares with `llmfair listwise`."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.command import llmfair, only_run, process, ran, refuses, table, until_answers

pytestmark = pytest.mark.whole

STUDY = ("study", "windows", "-n", "2", "--orders", "1", "--settings", "10/5,20/10")


def calls() -> dict[int, int]:
    """Calls that each run's last invocation made, by window."""
    manifests = [json.loads(path.read_text()) for path in Path("runs").glob("*/manifest.json")]
    return {manifest["settings"]["window"]: manifest["calls"] for manifest in manifests}


def test_one_row_a_setting_and_nothing_asked_twice() -> None:
    first = llmfair(*STUDY)
    assert first.code == 0, first.err
    assert calls() == {10: 14, 20: 6}
    again = llmfair(*STUDY)
    assert (again.code, again.out) == (0, first.out)
    assert calls() == {10: 0, 20: 0}


def test_answers_are_shared_with_listwise_in_both_directions() -> None:
    listwise = (
        "listwise",
        *["-n", "2", "--orders", "1", "--passes", "1", "--conditions", "neutral", "--no-repeat"],
    )
    assert llmfair(*listwise, "--window", "20", "--step", "10").code == 0
    assert llmfair(*STUDY).code == 0
    assert calls() == {10: 14, 20: 0}
    assert llmfair(*listwise, "--window", "10", "--step", "5").code == 0
    assert calls() == {10: 0, 20: 0}


def test_it_writes_into_no_run_folder() -> None:
    ran("listwise", "-n", "2", "--orders", "1", "-m", "fake:oracle", "-o", "run")
    before = {path: path.read_bytes() for path in Path("run").iterdir() if path.is_file()}
    refuses("run is the folder of another run", *STUDY, "-o", "run", code=1)
    assert {path: path.read_bytes() for path in Path("run").iterdir() if path.is_file()} == before
    assert not Path("runs").exists(), "refused before anything was asked"


def test_formats_and_files() -> None:
    found = llmfair(*STUDY, "--json", "-o", "out")
    assert found.code == 0, found.err
    study = found.json
    assert (study["schema"], study["status"], study["task"]) == (1, "complete", "study windows")
    assert [row["setting"] for row in study["rows"]] == ["10/5", "10/5", "20/10", "20/10"]
    assert all((Path(run) / "results.json").is_file() for run in study["runs"])
    assert json.loads(Path("out/study.json").read_text()) == study
    lines = table(Path("out/study.csv"))
    printed = llmfair(*STUDY, "--format", "tsv").out.splitlines()
    assert [line.split("\t") for line in printed] == [
        list(lines[0]),
        *(list(line.values()) for line in lines),
    ]
    assert not list(Path().glob("study.*")) and sorted(
        path.name for path in Path("runs").iterdir()
    ) == sorted(Path(run).name for run in study["runs"])


def test_the_installed_command_writes_a_report_of_the_study() -> None:
    """Of one that is through, of one that is not, and of one of which hardly anything is known."""
    for more, code in (
        ((), 0),
        (("--fresh", "--no-cache", "--max-calls", "8"), 3),
        (("--fresh", "--no-cache", "--max-calls", "1"), 3),
    ):
        shutil.rmtree("st", ignore_errors=True)
        running = process(*STUDY, *more, "-o", "st", "--report")
        _, err = running.communicate(timeout=100)
        assert running.returncode == code, err
        assert "no report was written" not in err and "Traceback" not in err
        page = Path("st/report.html").read_text()
        assert "<h1" in page and "Windows study" in page
        assert "20/10" in page, "a setting without results is named, too"


def test_a_dry_run_asks_nothing_and_knows_what_is_answered() -> None:
    planned = llmfair(*STUDY, "--dry-run", "--json").json
    assert [(one["setting"], one["calls"], one["answered"]) for one in planned["settings"]] == [
        ("10/5", 14, 0),
        ("20/10", 6, 0),
    ]
    assert planned["calls"] == 20 and not Path("runs").exists()
    assert llmfair(*STUDY[:-1], "20/10").code == 0
    told = llmfair(*STUDY, "--dry-run").out.splitlines()
    assert [line.split()[:3] for line in told[3:5]] == [["10/5", "14", "0"], ["20/10", "6", "6"]]
    assert calls() == {20: 6}


def test_the_gravest_error_decides_and_every_one_is_said() -> None:
    model = ("-m", "fake:biased,malformed=0.5")
    found = llmfair(*STUDY, *model, "--json")
    assert found.code == found.json["exit_code"] == 4
    assert [one["setting"] for one in found.json["failed"]] == ["10/5", "20/10"] and found.json["rows"]
    assert found.err.count("Error: ") == 2
    assert llmfair(*STUDY, *model, "--max-invalid", "1").code == 0
    stopped = llmfair(*STUDY, "--max-calls", "13")  # of 14 that the smaller windows take
    assert stopped.code == 3 and "0 of 2 chains" not in stopped.out and "1 of 2 chains" in stopped.out
    assert llmfair(*STUDY).code == 0


def test_a_file_sets_what_a_study_asks() -> None:
    Path("llmfair.toml").write_text('seed = 5\nwindow = 7\n[study]\nsettings = "20/10"\npasses = 2\n')
    (planned,) = llmfair("study", "windows", "--dry-run", "--json").json["settings"]
    assert (planned["setting"], planned["window"], planned["passes"]) == ("20/10x2", 20, 2)


def test_ctrl_c_says_how_to_go_on() -> None:
    slow = (*STUDY, "-m", "fake:biased,latency=0.2", "--no-progress", "--json")
    running = process(*slow)
    until_answers(running, 1)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130 == json.loads(out)["exit_code"]
    assert json.loads(out)["runs"] == [str(only_run())]
    assert "Stopped in setting 10/5 at" in err and "The same command continues." in err
    assert llmfair(*slow).code == 0
