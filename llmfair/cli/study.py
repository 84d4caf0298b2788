"""`llmfair study`: the same model under several settings."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from llmfair.audits.listwise.settings import StudySettings
from llmfair.cli import console
from llmfair.cli.options import with_flags
from llmfair.errors import UsageError

if TYPE_CHECKING:
    from llmfair.asking.limits import Progress
    from llmfair.audits.listwise.sweep import Tried
    from llmfair.audits.run import Watch
    from llmfair.rundir import RunDir

study = typer.Typer(name="study", help="The same model under several settings.", no_args_is_help=True)


def windows(
    settings: StudySettings,
    style: str,
    *,
    ctx: typer.Context,
) -> None:
    """Windows and steps side by side, as in the paper's Table 2.

    Unless told otherwise the neutral prompt alone is asked, in one pass. Each setting is the run that llmfair
    listwise makes with the same flags, so answers of one serve the other.
    """
    from llmfair.audits.listwise.sweep import gravest_of, make_folder, study_of, write_study

    for flag in ("window", "step"):
        source = ctx.get_parameter_source(flag)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"--{flag} names one setting, but a study has several.", "--settings 5/1,20/10")
    if settings.dry_run:
        _dry_run(settings, style)
        return
    if settings.output is not None:
        make_folder(settings.output)
    tried = _ask(settings, style)
    found, gravest = study_of(tried), gravest_of(tried)
    for one in tried:
        if one.error is not None and one.error is not gravest:
            print(f"Error: {one.error.message}", file=sys.stderr)
    if settings.output is not None:
        write_study(found, settings.output)
    report = _report(settings)
    _show(found | (console.failure(gravest) if gravest else {}), style, report)
    if gravest is not None:
        console.output.as_json = False  # said already
        raise typer.Exit(console.fail(gravest))


study.command(
    "windows",
    epilog="llmfair study windows -m openai:gpt-4o-mini --settings 5/1,20/10x3 --dry-run\n\n"
    "llmfair study windows --preset paper -d my-folder -o table-2",
)(with_flags(StudySettings, windows))


def _ask(settings: StudySettings, style: str) -> list[Tried]:
    """Every setting's run, each with its progress shown."""
    from llmfair.audits.listwise.sweep import study_windows
    from llmfair.audits.listwise.table import before_text
    from llmfair.cli.audits import answers_of
    from llmfair.rundir import RunDir

    seen: dict[str, Any] = {}
    tried: list[Tried] = []

    def watch_of(setting: str) -> Watch:
        seen.clear()
        seen["setting"] = setting

        @contextmanager
        def watch(folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int) -> Iterator[None]:
            calls, name = planned["calls"], f"Asking {settings.model[0]}, {setting}"
            seen.update(folder=folder, calls=calls, progress=progress)
            if calls:
                console.say(before_text(planned))
            with console.bar(name, calls, progress, limit) if calls else nullcontext():
                yield

        return watch

    try:
        for one in study_windows(settings, watch_of):
            tried.append(one)
            if one.folder is not None:
                _warn_of_skipped(RunDir(one.folder))
                _say_cost(one.setting, one.folder, seen["progress"])
    except KeyboardInterrupt as stop:
        if not seen:
            raise
        how_far = ""
        if "calls" in seen:
            answers = answers_of(seen["folder"], seen["progress"])
            how_far = f" at {answers:,} of {seen['calls']:,} answers"
        told = f"Stopped in setting {seen['setting']}{how_far}. The same command continues."
        code = console.interrupted(stop, told, runs=[str(one.folder) for one in tried if one.folder])
        if "folder" in seen:
            _say_cost(seen["setting"], seen["folder"], seen["progress"])
        raise typer.Exit(code) from None
    return tried


def _warn_of_skipped(run: RunDir) -> None:
    for line in run.read_manifest().journal_lines_skipped:
        console.warn(f"{run.journal}:{line}: not readable, skipped; its answer was asked again if needed")


def _say_cost(setting: str, folder: Path, progress: Progress) -> None:
    """What a setting's run has cost, where prices are known."""
    from llmfair.cli.audits import cost_text
    from llmfair.rundir import RunDir

    run = RunDir(folder)
    if run.manifest.is_file() and (told := cost_text(run.read_manifest(), progress, setting)):
        console.say(told)


def _report(settings: StudySettings) -> Path | None:
    """The study's report in the folder of `--output`."""
    from llmfair.cli.report import write_report
    from llmfair.rundir import RunDir

    if settings.output is None or not settings.report:
        return None
    return write_report(RunDir(settings.output), settings.open)


def _show(found: dict[str, Any], style: str, report: Path | None) -> None:
    from llmfair.audits.kind import found_of
    from llmfair.audits.listwise.sweep import LINE, study_lines
    from llmfair.audits.listwise.sweep_table import study_table
    from llmfair.report.tables import markdown

    if style == "json":
        console.print_json(found)
    elif style == "tsv":
        csv.writer(sys.stdout, "excel-tab", lineterminator="\n").writerows([LINE, *study_lines(found)])
    elif not any(row["chains"]["ranked"] for row in found["rows"] if row["chains"]):
        print("No result: no setting has a chain with all its answers.")
    elif style == "md":
        print(markdown(study_table(found_of(found))), end="")
    else:
        console.print_table(study_table(found_of(found)))
        print("", *found["runs"], *([report] if report else []), sep="\n")


def _dry_run(settings: StudySettings, style: str) -> None:
    """Says what each setting would ask; asks nothing."""
    from llmfair.audits.listwise.sweep import plan_windows
    from llmfair.audits.listwise.sweep_table import plan_table

    planned = plan_windows(settings)
    if style == "json":
        console.print_json(planned)
    else:
        console.print_table(plan_table(planned))
        for line in {line: None for setting in planned["settings"] for line in setting["unready"]}:
            console.say(line)
