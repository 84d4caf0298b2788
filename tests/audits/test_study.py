"""The windows study: which runs it is made of, and what its rows hold."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.kind import studies
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings, WindowsSettings
from llmfair.audits.runs.run import no_watch
from llmfair.audits.study import SettingRun, sweep, told
from llmfair.audits.subject import Subject
from llmfair.errors import Incomplete, RunConflict, UsageError
from llmfair.report.table import headed
from llmfair.rundir import RunDir
from tests.cli.command import llmfair, ran, refuses

LISTWISE, WINDOWS = studies()["windows"]
SMALL: dict[str, Any] = {"limit": 2, "orders": 1, "settings": "10/5,20/10"}


def tried(**given: Any) -> list[SettingRun]:
    return list(sweep(LISTWISE, WINDOWS, WindowsSettings.make(**SMALL | given), lambda setting: no_watch))


def study_of(runs: list[SettingRun]) -> Any:
    return told(LISTWISE, WINDOWS, runs, WindowsSettings.make())[0]


STUDY = ("study", "windows", "-n", "2", "--orders", "1", "--settings", "10/5,20/10")


def listwise_settings(settings: WindowsSettings) -> Mapping[str, Any]:
    return WINDOWS.audits(settings, Subject("fake:biased"))


def test_the_settings_of_table_2() -> None:
    """Wang et al. 2024, Table 2: the neutral prompt alone, one pass."""
    settings = listwise_settings(WindowsSettings.make())
    # windows of a file for other commands give way, and so does the preset's 5/1
    for study in (settings, listwise_settings(WindowsSettings.make("paper", window=7))):
        assert list(study) == ["5/1", "10/5", "10/3", "20/10"]
    found = {(s.passes, s.conditions, s.repeat, s.output) for s in settings.values()}
    assert found == {(1, "neutral", False, None)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("5/1,10", "'10' in --settings is not a window"),
        ("5/1,5/7", "--step 7 is larger than --window 5"),
        ("5/1x0", "--passes is 0"),
    ],
)
def test_a_wrong_setting_is_named(settings: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        listwise_settings(WindowsSettings.make(settings=settings))


@pytest.mark.whole
def test_its_verdict_says_which_settings_agree() -> None:
    few, more = study_of(tried()), study_of(tried(limit=8, orders=3, settings="5/1,20/10"))
    assert (few.verdict.status, more.verdict.status) == ("not assessable", "disparity")
    assert few.verdict.sentence.startswith("with 10/5 and 20/10; 10/5: under the neutral prompt ")
    assert "ask at least 5 queries" in few.verdict.next
    assert more.verdict.sentence.startswith("with 20/10: under the neutral ")
    table = headed(WINDOWS.words.table(more), more.verdict)
    assert table.lead[0] == ("VERDICT", f"disparity: {more.verdict.sentence}")
    alone = study_of(tried(limit=8, orders=3, settings="20/10")).verdict
    assert alone.sentence.startswith("under the neutral prompt ")


def test_each_setting_is_the_run_that_listwise_makes() -> None:
    study = WindowsSettings.make(settings="5/2x2", seed=3, output=Path("study"))
    listwise = ListwiseSettings.make(window=5, step=2, passes=2, seed=3, conditions="neutral", repeat=False)
    (asked,) = listwise_settings(study).values()
    assert asked == listwise
    assert make_design(asked).identity() == make_design(listwise).identity()


def test_the_budget_is_that_of_the_whole_study() -> None:
    stopped = tried(max_calls=3)
    assert all(isinstance(run.error, Incomplete) for run in stopped)
    assert stopped[0].results is not None and stopped[1].folder is None
    assert study_of(stopped).status == "incomplete"
    plenty = tried()
    assert [run.error for run in plenty] == [None, None] and asked_of(plenty[0]) == [3, 11]


def asked_of(run: SettingRun) -> list[int]:
    """The calls of each command on a run."""
    assert run.folder is not None
    return [each.calls or 0 for each in RunDir(run.folder).read_manifest().invocations]


def test_one_failing_setting_stops_no_other() -> None:
    first, _ = tried()
    assert first.folder is not None
    (first.folder / "journal.jsonl").write_text("garbage\n")
    failed, done = tried()
    assert isinstance(failed.error, RunConflict) and failed.results is None
    assert done.error is None and asked_of(done)[-1] == 0
    assert {row.setting for row in study_of([failed, done]).rows} == {"20/10"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"dataset": "sampel"}, "no dataset 'sampel'"), ({"design": "partition"}, "that has windows and steps")],
)
def test_what_is_wrong_with_all_settings_is_said_once(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tried(**wrong)


@pytest.mark.whole
def test_it_writes_into_no_run_folder() -> None:
    ran("listwise", "-n", "2", "--orders", "1", "-m", "fake:oracle", "-o", "run")
    before = {path: path.read_bytes() for path in Path("run").iterdir() if path.is_file()}
    refuses("run is the folder of another run", *STUDY, "-o", "run", code=1)
    assert {path: path.read_bytes() for path in Path("run").iterdir() if path.is_file()} == before
    assert not Path("runs").exists(), "refused before anything was asked"


@pytest.mark.whole
def test_a_report_of_the_study_is_written_wherever_it_ends() -> None:
    for calls, code in (("1", 3), ("99", 0)):
        shutil.rmtree("st", ignore_errors=True)
        ended = llmfair(*STUDY, "--max-calls", calls, "-o", "st", "--report")
        assert ended.code == code, ended.err
        assert "no report was written" not in ended.err and "Traceback" not in ended.err
        page = Path("st/report.html").read_text()
        assert "<h1" in page and "Windows study" in page
        assert "20/10" in page, "a setting without results is named, too"


@pytest.mark.whole
def test_a_dry_run_asks_nothing_and_knows_what_is_answered() -> None:
    ran(*STUDY[:-1], "20/10")
    told = llmfair(*STUDY, "--dry-run").out.splitlines()
    assert [line.split()[:3] for line in told[3:5]] == [["10/5", "14", "0"], ["20/10", "6", "6"]]
    assert len([*Path("runs").iterdir()]) == 1
