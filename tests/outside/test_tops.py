"""A study from outside is a command like ours, without a line changed in the package."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.outside.command import llmfair
from tests.outside.test_numbers import CALLS, installed, numbers, valid  # noqa: F401

pytestmark = pytest.mark.whole


def tops(*arguments: str, queries: int = 2, named: str = "5, 9", code: int = 0) -> Any:
    asked = ("study", "tops", "-m", "counter:x", "-n", str(queries), "--tops", named, *arguments, "--json")
    return json.loads(llmfair(*asked, code=code))


def asked_last() -> list[int]:
    """What the last command asked for each run of a study."""
    manifests = sorted(Path("runs").glob("*/manifest.json"), key=lambda path: path.stat().st_mtime)
    return [json.loads(path.read_text())["invocations"][-1]["calls"] for path in manifests]


def test_help_dry_run_and_what_is_refused() -> None:
    assert "How much the highest number matters." in llmfair("study", "--help")
    shown = llmfair("study", "tops", "--help")
    assert "--tops TEXT" in shown and "Folder for study.json and study.csv." in shown and "-o tops" in shown
    planned = tops("--dry-run")
    counted = [(one["setting"], one["calls"], one["answered"]) for one in planned["settings"]]
    assert counted == [("5", 160, 0), ("9", 160, 0)]
    assert "study_plan" in valid(planned) and not Path("runs").exists()
    table = llmfair("study", "tops", "-m", "counter:x", "--dry-run")
    assert table.startswith(f"Tops · 2 settings · {2 * CALLS:,} calls") and "answered already" in table
    assert "--top names one setting" in tops("--top", "7", code=2)["error"]["message"]
    assert "'wide' in --tops is no number" in tops(named="wide", code=2)["error"]["message"]


def test_it_asks_once_shares_its_runs_and_is_reported() -> None:
    found = tops("-o", "table", "--report")
    assert (found["status"], found["task"], found["runs"]) == (
        "complete", "study tops", [str(path) for path in sorted(Path("runs").iterdir(), key=top_of)],
    )  # fmt: skip
    assert "study_tops" in valid(found) and asked_last() == [160, 160]
    assert json.loads(Path("table/study.json").read_text()) == found
    assert "MeanRatio" in Path("table/report.html").read_text()
    again = tops("-o", "table")
    assert not Path("table/report.html").exists(), "none contradicts the results of now"
    assert again == found and asked_last() == [0, 0]
    whole = numbers("-n", "2", "--top", "9")
    of_nine = [row for row in found["rows"] if row["setting"] == "9"]
    assert [row | {"setting": "9"} for row in whole["rows"]] == of_nine
    assert asked_last() == [0, 0]

    flags = ("study", "tops", "-m", "counter:x", "-n", "2", "--tops", "5,9")
    table, markdown = llmfair(*flags), llmfair(*flags, "--format", "md")
    verdict, _, below = table.partition("\n\n")
    assert verdict.startswith(
        "VERDICT  not assessable: with 5 and 9; 5: nothing is concluded of MeanRatio\nNEXT "
    )
    assert below.startswith("Tops · sample · gender (protected: female) · counter:x · 2 queries")
    assert [line.split()[:2] for line in below.splitlines()[3:7]] == [
        ["5", "plain"], ["5", "warned"], ["9", "plain"], ["9", "warned"],
    ]  # fmt: skip
    assert table.splitlines()[-2:] == found["runs"] and "| 9 | warned |" in markdown
    lines = [line.split("\t") for line in llmfair(*flags, "--format", "tsv").splitlines()]
    assert lines == [line.split(",") for line in Path("table/study.csv").read_text().splitlines()]
    assert len(lines) == 1 + len(found["rows"]) == 5
    assert found["runs"][0].removeprefix("runs/")[:20] in llmfair("runs", "list")
    assert "every file can be recomputed" in llmfair("runs", "check", found["runs"][0])
    llmfair("report", "table", found["runs"][0], "-o", "both.html")
    assert "Tops · sample" in Path("both.html").read_text()
    assert "| 9 | warned |" in llmfair("report", "table", "--format", "md")

    code = (
        "import llmfair\n"
        "asked = dict(model='counter:x', tops=['5', '9'], limit=2, report=False)\n"
        "result = llmfair.study_tops(**asked, output='api')\n"
        "again = llmfair.open_run('api')\n"
        "assert result.results == again.results and list(result.to_frame().setting) == ['5', '5', '9', '9']\n"
        "assert 'tops: The highest' in llmfair.study_tops.__doc__\n"
        "print(again)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    assert table.startswith(printed.stdout.strip()) and asked_last() == [0, 0]


def top_of(run: Path) -> int:
    top: int = json.loads((run / "manifest.json").read_text())["settings"]["top"]
    return top


def test_the_budget_is_the_study_s_and_the_gravest_error_ends_it() -> None:
    half = tops("--max-calls", "200", code=3)
    assert "study_tops" in valid(half) and [one["setting"] for one in half["failed"]] == ["9"]
    assert asked_last() == [160, 40]
    assert tops()["status"] == "complete" and asked_last() == [0, 120]
    failed = tops("--require", "MeanRatio>=1", queries=5, code=4)
    assert "study_tops" in valid(failed) and [one["setting"] for one in failed["failed"]] == ["5", "9"]
    nothing = llmfair("study", "tops", "-m", "openai:x", code=1)
    assert nothing == "No result: no setting has a probe with all its answers.\n"


def test_stopped_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_COUNTER", "0.05")
    command = [sys.executable, *"-m llmfair study tops -m counter:x -n 2 --tops 5,9 --json".split()]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(path.read_bytes().count(b"\n") > 9 for path in Path("runs").glob("*/journal.jsonl")):
            break
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and "Stopped in setting 5 at" in err
    assert valid(json.loads(out)) == {"failure"}
    monkeypatch.setenv("SLOW_COUNTER", "0")
    assert tops()["status"] == "complete" and 0 < asked_last()[0] < 160
