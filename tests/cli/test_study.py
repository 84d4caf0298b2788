"""`study windows` and `calibrate` end to end, offline: tables, files, the runs that are shared, what is injected."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.command import llmfair, only_run, process, ran, refuses, table, until_answers
from tests.folders import write_folder

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


LISTWISE = ("calibrate", "listwise", "--runs", "10", "--injected", "-0.5")
PAIRWISE = ("calibrate", "pairwise", "--runs", "10", "--injected", "-0.3", "--conditions", "relevant")


@pytest.mark.parametrize(
    ("command", "injected", "settings", "first"),
    [
        (LISTWISE, -0.5, {"window": 20}, ["injected", "injected_odds", "odds"]),
        (PAIRWISE, -0.3, {"query_sd": 0.3}, ["condition", "injected", "injected_odds"]),
    ],
    ids=["listwise", "pairwise"],
)
def test_json_has_it_all_and_tsv_its_rows(
    command: tuple[str, ...], injected: float, settings: dict[str, float], first: list[str]
) -> None:
    found = llmfair(*command, "--json")
    results = found.json
    assert [row["injected"] for row in results["injected"]] == [injected, 0.0]
    assert (results["seed"], results["runs"]) == (0, 10) and results["settings"].items() >= settings.items()
    assert llmfair(*command, "--json").out == found.out, "twice the same"
    assert llmfair(*command, "--seed", "1", "--json").json["injected"] != results["injected"]
    header, *rows = [line.split("\t") for line in llmfair(*command, "--format", "tsv").out.splitlines()]
    assert header[:3] == first and [row[header.index("injected")] for row in rows] == [str(injected), "0.0"]
    if command == PAIRWISE:
        assert {row["condition"] for row in results["injected"]} == {"relevant"}
    assert not Path("runs").exists()


def test_the_audit_s_configuration_is_simulated() -> None:
    Path("llmfair.toml").write_text("[pairwise]\npairs = 7\n[calibrate]\nposition = 1\nslots = 1\n")
    settings = llmfair(*PAIRWISE, "--json").json["settings"]
    assert (settings["pairs"], settings["position"]) == (7, 1.0)


def test_no_pairs() -> None:
    apart = {f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)}
    found = llmfair(*PAIRWISE, "-d", write_folder(Path("apart"), apart))
    assert found.code == 2
    assert found.err.startswith("Error: no query has pairs of a protected and an unprotected item.")


def test_lists_of_one_side_are_left_out_and_counted() -> None:
    two: list[tuple[str, str | None, int]] = [(f"f{i}", "female", i % 2) for i in range(4)]
    two += [(f"m{i}", "male", i % 2) for i in range(4)]
    one: list[tuple[str, str | None, int]] = [(f"f{i}", "female", 0) for i in range(4)]
    folder = write_folder(Path("mine"), {**{f"q{i}": two for i in range(6)}, "q6": one})
    assert (
        "1 query without equally relevant items of both groups left out" in ran(*LISTWISE, "-d", folder).out
    )
    alone = llmfair(*LISTWISE, "-d", folder, "--queries", "q6")
    assert alone.code == 2 and alone.err.startswith(
        "Error: no list has items of both groups with the same grade of relevance."
    )
