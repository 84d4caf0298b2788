"""The windows study: one model under several windows and steps, as in Wang et al. 2024, Table 2.

Every setting is the very run that `llmfair listwise` makes, in the same folder, so answers serve both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from llmfair.asking.limits import Progress
from llmfair.audits.kind import kind_of
from llmfair.audits.listwise.design import INPUT
from llmfair.audits.listwise.settings import ListwiseSettings, StudySettings
from llmfair.audits.plan import plan
from llmfair.audits.run import Watch, audit
from llmfair.audits.spending import Spending
from llmfair.audits.subject import Subject
from llmfair.errors import Incomplete, LlmfairError, RequirementFailed, UsageError
from llmfair.jsonfiles import SCHEMA, json_text
from llmfair.rankers.base import strategy_of
from llmfair.rundir import RunDir, csv_text
from llmfair.trec import write_whole

TASK = "study windows"
FORM = "window/step, with xPASSES where wanted, comma-separated: 5/1,10/5,20/10x3"
SETTING = re.compile(r"([0-9]{1,6})/([0-9]{1,6})(?:[x×]([0-9]{1,6}))?")
FIGURE = ("value", "low", "high", "n", "p", "p_adjusted", "conclusion", "reason")
LINE = (
    "setting", "window", "step", "passes", "run", "variant", "calls", "measure", *FIGURE, "reach_low", "reach_high",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting's run: its folder once begun, its results where there are any, the error that broke it off."""

    setting: str
    folder: Path | None = None
    results: Mapping[str, Any] | None = None
    error: LlmfairError | None = None
    calls: int = 0


def study_windows(study: StudySettings, watch_of: Callable[[str], Watch]) -> Iterator[Tried]:
    """Runs or continues the settings one after another; one that fails stops no other.

    `watch_of(setting)` shows each. The budget is the whole study's. Raises UsageError for wrong input:
    what is wrong with the first setting's other flags is wrong with all.
    """
    subject, spending = _subject(study), Spending()
    for place, (name, asked) in enumerate(listwise_settings(study).items()):
        tried = _try(name, asked, subject, watch_of(name), spending)
        if place == 0 and isinstance(tried.error, UsageError):
            raise tried.error
        yield tried


def _try(name: str, asked: ListwiseSettings, subject: Subject, watch: Watch, spending: Spending) -> Tried:
    begun: list[tuple[Path, Progress]] = []

    def seeing(
        folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
    ) -> AbstractContextManager[None]:
        begun.append((folder, progress))
        return watch(folder, planned, progress, limit)

    error: LlmfairError | None = None
    try:
        with spending.run(asked, subject, seeing) as (left, noting):
            audit(kind_of("listwise").design(left, subject), noting)
    except LlmfairError as failure:
        error = failure
    if not begun or not begun[0][0].is_dir():  # a run that ends before its first answer leaves no folder
        return Tried(name, error=error)
    folder, progress = begun[0]
    written = error is None or isinstance(error, Incomplete | RequirementFailed)
    return Tried(name, folder, RunDir(folder).read_results() if written else None, error, progress.calls)


def listwise_settings(study: StudySettings) -> dict[str, ListwiseSettings]:
    """The listwise audit of each setting by name; `20/10x3` is window 20, step 10, 3 passes. Raises UsageError."""
    shared = {item.name: getattr(study, item.name) for item in fields(ListwiseSettings)} | {"output": None}
    found = {}
    for part in map(str.strip, study.settings.split(",")):
        match = SETTING.fullmatch(part)
        if match is None:
            raise UsageError(f"'{part}' in --settings is not a window and a step.", FORM)
        window, step, passes = (int(number) if number else study.passes for number in match.groups())
        windows = {"window": window, "step": step, "passes": passes}
        try:
            asked = ListwiseSettings.make(**shared | windows)
        except UsageError as error:
            raise UsageError(f"'{part}' in --settings: {error.message}", FORM) from None
        found[f"{window}/{step}" + f"x{passes}" * (passes > 1)] = asked
    return found


def _subject(study: StudySettings) -> Subject:
    """The model of a study. Raises UsageError for several, and for a ranker or strategy without windows."""
    if len(study.model) != 1:
        raise UsageError(
            f"a study has one model, but {len(study.model)} are named.", "one command for each -m"
        )
    subject = Subject(study.model[0], study.adapter)
    if subject.ranks:
        raise UsageError(f"{subject.spec} has no windows to study.", f"llmfair listwise -m {subject.spec}")
    if strategy_of(study.strategy, vars(study)).facts()["window"] is None:
        asked = f"llmfair listwise --strategy {study.strategy}"
        raise UsageError(f"{study.strategy} has no windows to study.", asked)
    return subject


def plan_windows(study: StudySettings) -> dict[str, Any]:
    """Calls of every setting, how many are answered already, and what each can reach; nothing is asked."""
    _subject(study)
    settings = [
        {"setting": name, **plan(kind_of("listwise"), s)} for name, s in listwise_settings(study).items()
    ]
    return {
        "schema": SCHEMA,
        "task": TASK,
        "calls": sum(planned["calls"] for planned in settings),
        "settings": settings,
    }


def study_of(tried: Sequence[Tried]) -> dict[str, Any]:
    """The study as `study.json` has it: a row for each setting and arm, and one for the orders they began with."""
    found = [(one.setting, one.results) for one in tried if one.results is not None]
    first: Mapping[str, Any] = found[0][1] if found else {}
    same = ("dataset", "attribute", "words", "model", "level", "intervals", "band", "shown", "labels")
    kept = ("queries", "candidates", "arms", "initial", "orders", "repeats", "seed", "drawn")
    complete = len(found) == len(tried) and all(results["status"] == "complete" for _, results in found)
    return {
        "schema": SCHEMA,
        "status": "complete" if complete else "incomplete",
        "task": TASK,
        **{key: first[key] for key in same if first},
        **{key: first["design"][key] for key in kept if first and key in first["design"]},
        "rows": [row for setting, results in found for row in _rows(setting, results)],
        "runs": [str(one.folder) for one in tried if one.folder is not None],
        "failed": [
            {"setting": one.setting, "class": type(one.error).__name__, "message": one.error.message}
            for one in tried
            if one.error is not None
        ],
    }


def _rows(setting: str, results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    design = results["design"]
    for arm in (*design["arms"], INPUT):
        asked = arm != INPUT
        answers = results["answers"].get(arm, {})
        yield {
            "setting": setting,
            **{key: design[key] for key in ("window", "step", "passes")},
            "run": results["run"],
            "variant": arm,
            "calls": design["calls"] // len(design["arms"]) if asked else 0,
            "chains": results["chains"].get(arm),
            "answers": {key: answers.get(key, 0) for key in ("windows", "unreadable", "repaired")},
            "never_ranked": design["never_ranked"] if asked else [],
            "reach": results["reach"] if asked else {},
            "finding": results["findings"].get(arm),
            "figures": {
                row["measure"]: {key: row[key] for key in FIGURE}
                for row in results["rows"]
                if row["variant"] == arm and row["group"] == ""
            },
        }


def gravest_of(tried: Sequence[Tried]) -> LlmfairError | None:
    """The error with the largest exit code; every error is told with its setting."""
    errors = []
    for one in tried:
        if one.error is not None:
            one.error.message = f"{one.setting}: {one.error.message}"
            errors.append(one.error)
    return max(errors, key=lambda error: error.exit_code, default=None)


def make_folder(folder: Path) -> None:
    """The folder of `--output`, before anything is spent. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        problem = None if os.access(folder, os.W_OK) else "permission denied"
    except OSError as error:
        problem = error.strerror
    if problem is not None:
        raise UsageError(f"cannot write {folder}: {problem}.", "choose another --output")


def write_study(study: Mapping[str, Any], folder: Path) -> None:
    """`study.json`, and `study.csv` with its lines."""
    RunDir(folder).drop_report()
    write_whole(folder / "study.json", [json_text(study)])
    write_whole(folder / "study.csv", [csv_text(LINE, study_lines(study))])


def study_lines(study: Mapping[str, Any]) -> list[list[Any]]:
    """The rows of a study with one figure a line, in the order of LINE; reach stands with the measures it bounds."""
    return [
        [
            *(row[column] for column in LINE[:7]),
            measure,
            *figure.values(),
            *(
                row["reach"].get(measure.replace("(control=order)", ""), {}).get(end)
                for end in ("low", "high")
            ),
        ]
        for row in study["rows"]
        for measure, figure in row["figures"].items()
    ]
