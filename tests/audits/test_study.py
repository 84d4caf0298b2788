"""The windows study: which runs it is made of, and what its rows hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.kind import studies
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings, WindowsSettings
from llmfair.audits.runs.run import no_watch
from llmfair.audits.subject import Subject
from llmfair.audits.sweep import SettingRun, sweep, told
from llmfair.errors import Incomplete, RunConflict, UsageError
from llmfair.report.table import headed
from llmfair.rundir import RunDir

LISTWISE, WINDOWS = studies()["windows"]
SMALL: dict[str, Any] = {"limit": 2, "orders": 1, "settings": "10/5,20/10"}


def tried(**given: Any) -> list[SettingRun]:
    return list(sweep(LISTWISE, WINDOWS, WindowsSettings.make(**SMALL | given), lambda setting: no_watch))


def study_of(runs: list[SettingRun]) -> Any:
    return told(LISTWISE, WINDOWS, runs, WindowsSettings.make())[0]


def listwise_settings(settings: WindowsSettings) -> Mapping[str, Any]:
    return WINDOWS.audits(settings, Subject("fake:biased"))


def test_the_settings_of_table_2() -> None:
    """Wang et al. 2024, Table 2: the neutral prompt alone, one pass."""
    settings = listwise_settings(WindowsSettings.make())
    assert list(settings) == ["5/1", "10/5", "10/3", "20/10"]
    assert {(s.passes, s.conditions, s.repeat, s.output) for s in settings.values()} == {
        (1, "neutral", False, None)
    }


def test_passes_belong_to_a_setting_or_to_all() -> None:
    settings = listwise_settings(WindowsSettings.make(settings=" 5/1, 20/10x3 ,5/1x2,20/10×1", passes=2))
    assert {name: (s.window, s.step, s.passes) for name, s in settings.items()} == {
        "5/1x2": (5, 1, 2),
        "20/10x3": (20, 10, 3),
        "20/10": (20, 10, 1),
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "'' in --settings is not a window"),
        ("5/1,10", "'10' in --settings is not a window"),
        ("٥/١", "'٥/١' in --settings is not a window"),
        ("5/1,5/7", "'5/7' in --settings: --step 7 is larger than --window 5"),
        ("1/1", "'1/1' in --settings: --window is 1"),
        ("5/1x0", "'5/1x0' in --settings: --passes is 0"),
    ],
)
def test_a_wrong_setting_is_named(settings: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        listwise_settings(WindowsSettings.make(settings=settings))
    assert "5/1,10/5" in caught.value.hint


def test_random_windows_have_no_steps() -> None:
    with pytest.raises(UsageError, match="that has windows and steps"):
        tried(design="partition")


@pytest.mark.whole
def test_its_verdict_says_which_settings_agree() -> None:
    few, more = study_of(tried()), study_of(tried(limit=8, orders=3, settings="5/1,20/10"))
    assert (few.verdict.status, more.verdict.status) == ("not assessable", "disparity")
    assert few.verdict.sentence.startswith("with 10/5 and 20/10; 10/5: under the neutral prompt ")
    assert "ask at least 5 queries" in few.verdict.next
    assert more.verdict.sentence.startswith("with 20/10 (inconclusive with 5/1): under the neutral ")
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


def test_windows_said_elsewhere_give_way() -> None:
    """A file that sets windows for other commands must not break this one; nor does the preset's 5/1."""
    study = WindowsSettings.make("paper", window=7)
    assert (study.orders, study.control_variate, study.passes) == (1, False, 1)
    assert list(listwise_settings(study)) == ["5/1", "10/5", "10/3", "20/10"]


def test_rows_are_those_of_the_runs() -> None:
    runs = tried(conditions="neutral,female", repeat=True)
    study = study_of(runs)
    assert [(row.setting, row.condition) for row in study.rows] == [
        (setting, condition)
        for setting in ("10/5", "20/10")
        for condition in ("neutral", "female", "repeat", "initial")
    ]
    for run in runs:
        assert run.results is not None and run.error is None
        rows = [row for row in study.rows if row.setting == run.setting]
        assert sum(row.calls for row in rows) == run.results.design.calls == run.calls
        assert sum(row.answers.windows for row in rows) == run.calls
        for row in rows[:-1]:
            assert row.reach == run.results.reach
            assert row.finding == run.results.findings[row.condition]
        of_female = {r.measure: r.value for r in run.results.rows if r.condition == "female"}
        assert {name: figure.value for name, figure in rows[1].figures.items()} == of_female
    first, second = (row.figures["P@20"] for row in study.rows if row.condition == "initial")
    assert first == second, "every setting starts from the same orders"
    assert (study.status, study.failed, len(study.runs)) == ("complete", [], 2)


def test_lines_have_one_figure_each_and_reach_where_it_bounds_one() -> None:
    study = study_of(tried())
    columns, found = WINDOWS.lines(study)
    lines = [dict(zip(columns, line, strict=True)) for line in found]
    assert len(lines) == sum(len(row.figures) for row in study.rows)
    for line in lines:
        bounded = line["condition"] != "initial" and line["measure"] in (
            "P@20", "ExpRatio", "ExpRatio(control=order)"
        )  # fmt: skip
        assert (line["reach_high"] is not None) == bounded
        assert (line["reach_low"] is not None) == (bounded and line["measure"] != "P@20")


def test_the_budget_is_that_of_the_whole_study() -> None:
    stopped = tried(max_calls=3)
    assert [run.calls for run in stopped] == [3, 0]
    assert all(isinstance(run.error, Incomplete) for run in stopped)
    assert stopped[0].results is not None and stopped[1].folder is None
    assert study_of(stopped).status == "incomplete"
    plenty = tried()
    assert [run.error for run in plenty] == [None, None]
    assert sum(run.calls for run in (*stopped, *plenty)) == study_calls(plenty)


def test_money_is_the_whole_study_s_too() -> None:
    prices: dict[str, Any] = {"price_in": 1.0, "price_out": 1.0}
    first, second = map(cost_of, tried(**prices, runs_dir=Path("whole")))
    stopped = tried(**prices, max_cost=first + second / 2)
    assert stopped[0].error is None and isinstance(stopped[1].error, Incomplete)
    assert sum(map(cost_of, stopped)) <= first + second / 2


def cost_of(one: SettingRun) -> float:
    assert one.folder is not None
    return RunDir(one.folder).read_manifest().invocations[-1].cost or 0.0


def study_calls(runs: list[SettingRun]) -> int:
    return sum(row.calls for row in study_of(runs).rows)


def test_one_failing_setting_stops_no_other() -> None:
    first, _ = tried()
    assert first.folder is not None
    (first.folder / "journal.jsonl").write_text("garbage\n")
    failed, done = tried()
    assert isinstance(failed.error, RunConflict) and failed.results is None
    assert done.error is None and done.calls == 0
    assert [row.setting for row in study_of([failed, done]).rows] == ["20/10", "20/10"]


def test_what_is_wrong_with_all_settings_is_said_once() -> None:
    with pytest.raises(UsageError, match="no dataset 'sampel'"):
        tried(dataset="sampel")
