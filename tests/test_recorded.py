"""Run folders that an earlier version wrote: they check, they go on, and nothing they found has changed.

`tests/recorded` is only ever added to. A folder that no longer passes is one that users have, too.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import llmfair
from llmfair import former
from llmfair.audits.runs.digits import agree
from llmfair.audits.runs.replay import check_run
from llmfair.results import plain
from llmfair.rundir import RunDir
from tests.cli.command import kept, ran

RECORDED = Path(__file__).parent / "recorded"
LISTS = (
    "listwise", "-n", "5", "--orders", "2", "--conditions", "neutral,female", "--passes", "1", "--no-repeat",
)  # fmt: skip
COMMANDS = {
    "listwise": LISTS,
    "pairwise": ("pairwise", "-n", "5", "--pairs", "4"),
    "sequential": ("pairwise", "-n", "5", "--sequential", "--max-pairs", "30"),
}


@pytest.fixture(params=COMMANDS)
def name(request: pytest.FixtureRequest) -> str:
    """A recorded run, copied to where it can be worked on."""
    found: str = request.param
    shutil.copytree(RECORDED / found, found)
    return found


def unchanged(name: str) -> None:
    """What was recorded is there under the names of today, but for two files that hold times; results may have more."""
    for path in (RECORDED / name).rglob("*"):
        if path.is_file() and path.name not in ("manifest.json", "journal.jsonl", "results.json"):
            relative = path.relative_to(RECORDED)
            assert alike(read(Path(relative)), read(path)), relative
    recorded = former.results(json.loads((RECORDED / name / "results.json").read_text()))
    found = kept("results", name)
    assert recorded.pop("labels", {}).items() <= found["labels"].items(), "figures have more names in words"
    assert alike({key: found[key] for key in recorded}, recorded)


def alike(found: Any, recorded: Any) -> bool:
    """Whether two are the same but for the last digits: versions add up in other orders."""
    return found == recorded or agree(*(json.dumps(one, sort_keys=True) for one in (found, recorded)))


def read(path: Path) -> Any:
    """A file's rows by the names of today, or its text."""
    if path.suffix != ".csv":
        return path.read_text("utf-8")
    with path.open(encoding="utf-8", newline="") as file:
        return list(former.rows(csv.DictReader(file)))


def test_a_verdict_is_read_off_what_it_holds(name: str) -> None:
    assert "verdict" not in kept("results", name)
    read = llmfair.open_run(name).verdict
    assert ran("runs", "show", name).out.startswith(f"VERDICT  {read.status}: ")
    ran(*COMMANDS[name], "-o", name)
    written = kept("results", name)["verdict"]
    written["next"] = written["next"].partition("; what a design can find")[
        0
    ]  # of settings, which results do not hold
    assert written == plain(read)


def test_its_answers_give_what_is_on_disk(name: str) -> None:
    (problem,) = check_run(RunDir(Path(name)))["problems"]
    assert (
        "has the names of an earlier version: the command that made the run writes its files anew" in problem
    )
    ran(*COMMANDS[name], "-o", name)
    assert check_run(RunDir(Path(name)))["problems"] == []


def test_it_is_listed_shown_and_reported(name: str) -> None:
    assert name in ran("runs", "list", "--runs-dir", ".").out
    assert "VERDICT" in ran("report", name, "-o", "page.html").out + ran("runs", "show", name).out
    shutil.copytree(name, "copy")
    assert ran("compare", name, "copy").out
    assert ran("runs", "show", name, "--furthest").out


def test_it_is_compared_with_a_new_run_of_the_same_lists(name: str) -> None:
    """Which are named by the groups of the audited attribute alone, where earlier ones were named by all groups."""
    ran(*COMMANDS[name], "-m", "fake:oracle,malformed=0", "-o", "new")
    of_all, of_one = (kept("manifest", run)["settings"]["lists_sha256"] for run in (name, "new"))
    assert of_all != of_one
    for runs in ((name, "new"), ("new", name)):
        assert ran("compare", *runs).out


def test_flags_of_its_time_are_taken_and_told() -> None:
    found = ran("listwise", "-q", "--variants", "neutral", "--no-control", "--dry-run")
    assert (
        "--variants is called --conditions now." in found.err
        and "--no-control is called --no-repeat" in found.err
    )
    assert llmfair.plan_listwise(variants="neutral", control=False).results["calls"] == 216
    Path("llmfair.toml").write_text("[listwise]\nvariants = 'neutral'\ncontrol = false\n")
    assert ran("listwise", "--dry-run", "--json").json["calls"] == 216


def test_the_command_again_asks_nothing_and_finds_the_same(name: str) -> None:
    ran(*COMMANDS[name], "-o", name)
    assert kept("manifest", name)["calls"] == 0
    unchanged(name)


def test_half_of_it_goes_on(name: str) -> None:
    journal, manifest = Path(name, "journal.jsonl"), Path(name, "manifest.json")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[: len(lines) // 2]))
    told = json.loads(manifest.read_text()) | {"journal_answers": 0}
    manifest.write_text(json.dumps(told))
    ran(*COMMANDS[name], "-o", name)
    assert 0 < json.loads(manifest.read_text())["calls"] < told["calls"]
    unchanged(name)


def test_what_was_measured_otherwise_is_told_and_measured_anew() -> None:
    shutil.copytree(RECORDED / "listwise", "listwise")
    ran(*LISTS, "-o", "listwise")
    path = Path("listwise/results.json")
    path.write_text(path.read_text().replace('"PreferenceOdds"', '"ImpliedOdds(control=order)"'))
    (problem,) = check_run(RunDir(Path("listwise")))["problems"]
    assert "another version, which measured otherwise (ImpliedOdds(control=order))" in problem
    ran(*LISTS, "-o", "listwise")
    unchanged("listwise")
