"""Runs a study: its audits one after another with one budget, each in the folder that its own command makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from llmfair.audits.gates import statuses_of, suite_of, write_junit
from llmfair.audits.kind import Kind, Study
from llmfair.audits.plan import plan
from llmfair.audits.runs.run import Spending, Watch, perform
from llmfair.audits.subject import Subject
from llmfair.errors import LlmfairError, UsageError
from llmfair.io.files import SCHEMA, json_text, writing
from llmfair.io.text import listed
from llmfair.nouns import picked
from llmfair.results import Results, RunVerdict, StudyResults, UnfinishedSetting
from llmfair.rundir import RunDir, csv_text
from llmfair.settings.commands import StudySettings


@dataclass(frozen=True, slots=True)
class SettingRun:
    """One setting's run: its folder once begun, its results if it has any, and what broke it off."""

    setting: str
    folder: Path | None
    results: Results | None
    error: LlmfairError | None


def sweep(
    kind: Kind, study: Study, settings: StudySettings, watch_of: Callable[[str], Watch]
) -> Iterator[SettingRun]:
    """Runs or continues the settings one after another with one budget; one that fails stops no other. Raises
    UsageError for wrong input, RunConflict when the output is the folder of a run."""
    if settings.output is not None:  # before anything is spent
        RunDir(settings.output).refuse_run()
        with writing(settings.output, "choose another --output"):
            pass
    subject, spending = _subject(settings), Spending()
    for place, (name, asked) in enumerate(study.audits(settings, subject).items()):
        error, results = None, None
        try:
            with spending.run(asked, subject, watch_of(name)) as (left, noting):
                written = perform(kind.design(left, subject), noting)
                results = written.results
                if written.error is not None:
                    raise written.error
        except LlmfairError as failure:
            if place == 0 and isinstance(failure, UsageError):
                raise
            error = failure
        folder = spending.folder
        # none is left of a run without any answer
        yield SettingRun(name, folder if folder is not None and folder.is_dir() else None, results, error)


def plan_study(kind: Kind, study: Study, settings: StudySettings) -> dict[str, Any]:
    """A plan of every setting's audit; nothing is asked. Raises UsageError."""
    audits = study.audits(settings, _subject(settings))
    planned = [{"setting": name, **plan(kind, asked)} for name, asked in audits.items()]
    calls = sum(each["calls"] for each in planned)
    return {"schema": SCHEMA, "task": study.task, "calls": calls, "settings": planned}


def told(
    kind: Kind, study: Study, tried: Sequence[SettingRun], settings: StudySettings
) -> tuple[StudyResults, LlmfairError | None]:
    """The study as `study.json` has it, written if there is a folder for it; and the error with the largest exit code.
    Every error is told with its setting, which is a test suite of `--junit`."""
    # the rows of all, with what their results or designs share as far as the study's results name it
    by_setting = {run.setting: run.results for run in tried if run.results is not None}
    shared, names = dict[str, Any](), {*study.results.__struct_fields__}
    for first in [*by_setting.values()][:1]:
        for part in (first.design, first):
            shared |= picked(part, names.intersection(part.__struct_fields__))
    complete = all(run.results is not None and run.results.status == "complete" for run in tried)
    errors = {run.setting: run.error for run in tried if run.error is not None}
    of_study = {
        "schema": SCHEMA,
        "status": "complete" if complete else "incomplete",
        "verdict": verdict_of_all(by_setting, kind.words.statuses),
        "task": study.task,
        "rows": [row for name, results in by_setting.items() for row in study.rows(name, results)],
        "runs": [str(run.folder) for run in tried if run.folder is not None],
        "failed": [
            UnfinishedSetting(setting=name, kind=type(error).__name__, message=error.message)
            for name, error in errors.items()
        ],
    }
    results, output = study.results(**shared | of_study), settings.output
    if settings.junit is not None:
        suites = [suite_of(run.setting, kind.name, run.results, run.error) for run in tried]
        write_junit(settings.junit, suites, statuses_of(settings.fail_on, kind.words.statuses[:-1]))
    if output is not None:
        files = {"study.json": json_text(results), "study.csv": csv_text(*study.lines(results))}
        RunDir(output).write_files(files)
    for name, error in errors.items():
        error.message = f"{name}: {error.message}"
    return results, max(errors.values(), key=lambda error: error.exit_code, default=None)


def verdict_of_all(by_setting: Mapping[str, Results], statuses: Sequence[str]) -> RunVerdict | None:
    """The gravest of the settings' verdicts, the first of several, with the settings that have its status."""
    verdicts = {name: verdict for name, results in by_setting.items() if (verdict := results.verdict)}
    gravest = min(verdicts.values(), key=lambda verdict: statuses.index(verdict.status), default=None)
    if gravest is None or len(verdicts) == 1:
        return gravest
    names = [name for name, verdict in verdicts.items() if verdict.status == gravest.status]
    where = f"with {listed(names)}" + f"; {names[0]}" * (len(names) > 1)
    return structs.replace(gravest, sentence=f"{where}: {gravest.sentence}")


def _subject(settings: StudySettings) -> Subject:
    """The model of a study. Raises UsageError for several."""
    if len(settings.model) != 1:
        raise UsageError(
            f"a study has one model, but {len(settings.model)} are named.", "one command for each -m"
        )
    return Subject(settings.model[0], settings.adapter)
