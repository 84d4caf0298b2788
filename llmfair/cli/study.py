"""`llmfair study`: the same model under several settings."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from llmfair import terminal
from llmfair.audits.kind import Help, Kind, studies
from llmfair.audits.study import Study
from llmfair.cli.options import add_command
from llmfair.errors import LlmfairError, UsageError
from llmfair.io.text import visible
from llmfair.settings import StudySettings

if TYPE_CHECKING:
    from llmfair.asking.limits import Progress
    from llmfair.audits.runs.run import Watch
    from llmfair.audits.sweep import SettingRun
    from llmfair.results import StudyResults

study = typer.Typer(name="study", help="The same model under several settings.")


def _of(kind: Kind, named: Study) -> Callable[..., None]:
    """The command of one study."""

    def run(settings: StudySettings, style: str, *, ctx: typer.Context) -> None:
        from llmfair.audits.sweep import plan_study, told
        from llmfair.cli.report import write_report
        from llmfair.rundir import RunDir

        for flag, instead in settings.varied.items():
            source = ctx.get_parameter_source(flag)
            if source is not None and source.name == "COMMANDLINE":
                raise UsageError(f"--{flag} names one setting, but a study has several.", instead)
        if settings.dry_run:
            _show_plan(named, plan_study(kind, named, settings), style)
            return
        tried = _ask(kind, named, settings)
        found, gravest = told(kind, named, tried, settings)
        for one in tried:
            if one.error is not None and one.error is not gravest:
                terminal.say_message(one.error)
        report = None
        if settings.output is not None and settings.report:
            report = write_report(RunDir(settings.output), settings.open)
        _show(kind, named, found, gravest, tried, style, report)
        if gravest is not None:
            terminal.output.as_json = False  # said already
            raise typer.Exit(terminal.fail(gravest))

    return run


for kind, named in studies().values():
    add_command(study, named.name, named.settings, _of(kind, named), Help(named.does, named.examples))


def _ask(kind: Kind, named: Study, settings: StudySettings) -> list[SettingRun]:
    """Every setting's run, each with its progress shown."""
    from llmfair.audits.sweep import sweep
    from llmfair.cli.audits import answers_of, say_cost

    seen: dict[str, Any] = {}
    tried: list[SettingRun] = []

    def watch_of(setting: str) -> Watch:
        seen.clear()
        seen["setting"] = setting

        @contextmanager
        def watch(folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int) -> Iterator[None]:
            calls, name = planned["calls"], f"Asking {settings.model[0]}, {setting}"
            terminal.output.begun.append(folder)
            seen.update(folder=folder, calls=calls, progress=progress)
            progress.tell = lambda text: terminal.say(visible(text))
            if calls:
                terminal.say(kind.before(planned))
            drawn = calls and not settings.batch  # which has nothing to draw for hours
            with terminal.bar(name, calls, progress, limit) if drawn else nullcontext():
                yield

        return watch

    try:
        for one in sweep(kind, named, settings, watch_of):
            tried.append(one)
            for line in one.written.skipped if one.written else ():
                terminal.warn(line)
            if one.folder is not None:
                say_cost(one.folder, seen["progress"], one.setting)
    except KeyboardInterrupt:
        if not seen:
            raise
        how_far = ""
        if "calls" in seen:
            how_far = f" at {answers_of(seen['folder'], seen['progress'], seen['calls'])}"
        said = f"Stopped in setting {seen['setting']}{how_far}. The same command continues."
        code = terminal.interrupted(said)
        if "folder" in seen:
            say_cost(seen["folder"], seen["progress"], seen["setting"])
        raise typer.Exit(code) from None
    return tried


def _show(
    kind: Kind,
    named: Study,
    found: StudyResults,
    gravest: LlmfairError | None,
    tried: Sequence[SettingRun],
    style: str,
    report: Path | None,
) -> None:
    from llmfair.cli.audits import ranked
    from llmfair.io.files import plain
    from llmfair.report.tables import markdown

    if style == "json":
        terminal.print_json({**plain(found), **(terminal.failure(gravest) if gravest else {})})
    elif style == "tsv":
        columns, lines = named.lines(found)
        csv.writer(sys.stdout, "excel-tab", lineterminator="\n").writerows([columns, *lines])
    elif not any(ranked(one.results) for one in tried if one.results):
        print(f"No result: no setting has a {kind.unit.removesuffix('s')} with all its answers.")
    elif style == "md":
        print(markdown(named.headed_table(found)), end="")
    else:
        terminal.print_table(named.headed_table(found), report)
        print("", *found.runs, *([report] if report else []), sep="\n")


def _show_plan(named: Study, planned: Mapping[str, Any], style: str) -> None:
    """What each setting would ask."""
    if style == "json":
        terminal.print_json(planned)
    else:
        terminal.print_table(named.plan_table(planned))
        for line in {line: None for setting in planned["settings"] for line in setting["unready"]}:
            terminal.say(line)


def add(app: typer.Typer) -> None:
    app.add_typer(study, rich_help_panel="Plan")
