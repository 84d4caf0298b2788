"""The commands of every kind of audit: itself, `llmfair plan`, `calibrate` and `study`."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from llmfair import terminal
from llmfair.audits.kind import Help, Kind, kinds, studies
from llmfair.audits.study import Study
from llmfair.cli.options import add_command
from llmfair.errors import Incomplete, LlmfairError, RequirementFailed, UsageError
from llmfair.io.files import SCHEMA, plain
from llmfair.settings import AuditSettings, CalibrationSettings, StudySettings

if TYPE_CHECKING:
    from llmfair.asking.limits import Progress
    from llmfair.audits.gates import Suite
    from llmfair.audits.runs.run import Spending, Watch
    from llmfair.audits.subject import Subject
    from llmfair.audits.sweep import SettingRun
    from llmfair.report.table import Table
    from llmfair.results import Results, StudyResults
    from llmfair.rundir import Manifest, RunDir


EVIDENCE = 20
"""Answers that a report shows with their prompts."""


def add(app: typer.Typer, kind: Kind) -> None:
    def run(settings: AuditSettings, style: str, *, ctx: typer.Context) -> None:
        (_dry_run if settings.dry_run else run_audits)(kind, settings, style)

    add_command(app, kind.name, kind.settings, run, kind.help(), "Audit")


def _dry_run(kind: Kind, settings: AuditSettings, style: str) -> None:
    """Says what would be asked; asks nothing."""
    from llmfair.audits.plan import plan

    _runs(settings)
    planned = plan(kind, settings)
    if style == "json":
        terminal.print_json(planned)
    else:
        terminal.print_text(kind.words.plan_text(planned).rstrip("\n"))


def run_audits(kind: Kind, settings: AuditSettings, style: str) -> None:
    """Audits every model that the settings name, and ends with the gravest error's exit code."""
    from llmfair.audits.gates import statuses_of, write_junit
    from llmfair.audits.runs.run import Spending

    asked = _runs(settings)
    suites: list[Suite] = []
    try:
        if len(asked) == 1:
            ((one, subject),) = asked
            document, error, _ = _audit(kind, one, subject, style, Spending(), suites)
            if style == "json":
                terminal.print_json(document)
        else:
            error = _audit_all(kind, settings, asked, style, suites)
    finally:
        if settings.junit is not None and suites:
            write_junit(settings.junit, suites, statuses_of(settings.fail_on, kind.words.statuses[:-1]))
    if error is not None:
        raise terminal.failed_after_output(error)
    if style != "json" and all(model.startswith("fake:") for model in settings.model):
        lists = " ".join(filter(None, [kind.name, settings.as_flags(("dataset", "attribute"))]))
        terminal.say(f"Simulated; a real model: llmfair {lists} -m openai:gpt-4o-mini --dry-run")


def _runs(settings: AuditSettings) -> list[tuple[AuditSettings, Subject]]:
    """The runs that the settings name, each with whom it asks. Raises UsageError for several in one folder."""
    from llmfair.audits.subject import subjects

    asked = [(one, subject) for one in settings.each() for subject in subjects(one)]
    if settings.output is not None and len(asked) > 1:
        hint = "use --runs-dir" if settings.adapter is None else "use --runs-dir, or add --adapter-only"
        raise UsageError("--output names one folder, but several runs are asked for.", hint)
    return asked


def _audit_all(
    kind: Kind,
    settings: AuditSettings,
    asked: Sequence[tuple[AuditSettings, Subject]],
    style: str,
    suites: list[Suite],
) -> LlmfairError | None:
    """Several runs, then side by side; one that fails stops no other. Returns the gravest error."""
    from llmfair.audits.comparing import compare
    from llmfair.audits.runs.run import Spending
    from llmfair.report.compare import compare_table

    for one, subject in asked:  # nothing is spent while another model's name is wrong
        if not (kind.ranks and subject.ranks):
            subject.backend(one)
    runs: list[dict[str, Any]] = []
    errors: list[LlmfairError] = []
    complete: list[RunDir] = []
    spending = Spending()
    for one, subject in asked:
        name = one.called(subject.label, among=settings)
        try:
            document, error, run = _audit(kind, one, subject, style, spending, suites, name)
            if error is None or isinstance(error, RequirementFailed):
                complete.append(run)
        except LlmfairError as failure:
            document, error = {"model": name, **terminal.failure(failure)}, failure
        runs.append(document)
        if error is not None:
            error.message = f"{name}: {error.message}"
            errors.append(error)
    compared = compare(complete) if len(complete) > 1 else None
    if compared is not None and style == "table":
        print()
        terminal.print_table(compare_table(compared))
    if style == "json":
        terminal.print_json({"schema": SCHEMA, "runs": runs, "comparison": compared})
    gravest = max(errors, key=lambda error: error.exit_code, default=None)
    for error in errors:
        if error is not gravest:
            terminal.say_message(error)
    return gravest


def _audit(
    kind: Kind,
    settings: AuditSettings,
    subject: Subject,
    style: str,
    spending: Spending,
    suites: list[Suite],
    spender: str = "this command",
) -> tuple[dict[str, Any], LlmfairError | None, RunDir]:
    """One model's audit, shown; returns its results as JSON, what left them incomplete or under a gate, its folder.

    `spending`: what other runs of the command have used. `suites` gets what comes of it. `spender`: whose cost is told.
    Raises the errors after which there are no results.
    """
    from llmfair.audits.gates import suite_of
    from llmfair.audits.runs.run import perform
    from llmfair.rundir import REPORT, named_model

    name = subject.label
    seen: dict[str, Any] = {}

    @contextmanager
    def watch(folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int) -> Iterator[None]:
        before = "\n".join([kind.words.before(planned), *planned["remarks"]])
        with terminal.asking(
            f"Asking {name}", seen, folder, planned, progress, limit, before, settings.batch
        ):
            if planned["calls"]:
                yield
                return
            for remark in planned["remarks"]:
                terminal.say(remark)
            chains = getattr(planned["design"], "chains", 0)
            count = terminal.Count(f"Ranking by {name}", chains, "lists", lambda: progress.finished)
            with terminal.drawn(count):
                yield

    def draw(run: RunDir, results: Results) -> None:
        if settings.report and ranked(results):
            write_report(run)

    def how_far() -> str:
        if not seen["folder"].is_dir():
            return "Stopped before the first answer. The same command begins again."
        return (
            f"Stopped at {answers_of(seen['folder'], seen['progress'], seen['calls'])}. "
            f"The same command continues: {seen['folder']}"
        )

    try:
        with spending.run(settings, subject, watch) as (asked, noting):
            written = perform(kind.design(asked, subject), noting, draw)
    except KeyboardInterrupt:
        if "progress" not in seen:
            raise
        left = str(seen["folder"]) if seen["folder"].is_dir() else None
        code = terminal.interrupted(how_far(), run=left)
        say_cost(seen["folder"], seen["progress"], spender)
        raise typer.Exit(code) from None
    except LlmfairError as failure:
        suites.append(suite_of(name, kind.name, None, failure))
        raise
    run, results, error = written.folder, written.results, written.error
    suites.append(suite_of(named_model(name, results.server, results.label), kind.name, results, error))
    report = run.path / REPORT if (run.path / REPORT).is_file() else None
    if report and settings.open:
        open_page(report)
    if style != "json":
        _show(kind, results, seen["folder"], report, style)
    if isinstance(error, Incomplete):
        terminal.say(how_far())
    elif error is None and results.status == "incomplete":
        terminal.say(
            f"Stopped where it was asked to. Without --stop-after the same command goes on: {run.path}"
        )
    say_cost(seen["folder"], seen["progress"], spender)
    return {**plain(results), **(terminal.failure(error) if error is not None else {})}, error, run


def answers_of(run: Path, progress: Progress, calls: int) -> str:
    """How many answers of those planned a run has on disk, as it is told everywhere; and what else may be fewer."""
    from llmfair.rundir import RunDir

    answers = RunDir(run).answers()
    again = " (a question that comes again is asked once)" if progress.answered > answers else ""
    return f"{answers:,} of {calls:,} answers{again}"


def say_cost(folder: Path, progress: Progress, spender: str) -> None:
    """What a run has cost, where prices are known, after what `spender` asked and cost now."""
    from llmfair.rundir import RunDir

    run = RunDir(folder)
    if run.manifest.is_file() and (told := cost_text(run.read_manifest(), progress, spender)):
        terminal.say(told)


def cost_text(manifest: Manifest, progress: Progress | None = None, spender: str = "this command") -> str:
    """What a run has cost over all its commands, after what `spender` asked and cost now; "" without prices."""
    from llmfair.io.text import count
    from llmfair.report.page import cost_of

    if not (cost := cost_of(manifest)):
        return ""
    past = manifest.invocations
    calls = sum(one.calls or 0 for one in past if one.cost is not None)
    text = f"the run in all: {count(calls, 'call')}, cost {cost}"
    if progress is None:
        return text
    return f"{spender}: {count(progress.calls, 'call')}, cost {progress.cost or 0:,.4f}; {text}"


def _show(kind: Kind, results: Results, folder: Path, report: Path | None, style: str) -> None:
    """The table below its verdict, and under it where the report is, or the run folder where there is none."""
    from llmfair.audits.commands import continuing
    from llmfair.report.table import headed
    from llmfair.results import TIDY, lines_of
    from llmfair.rundir import RunDir

    def table() -> Table:
        return headed(kind.words.table(results), results.verdict, folder, continuing(RunDir(folder)))

    if style != "tsv" and not ranked(results):
        print(f"No result: none of the {kind.words.unit} has all its answers.")
    else:
        lines = (TIDY, lines_of(results.rows, TIDY))
        terminal.show(style, results, table, lambda: lines, report, [report or folder])


def ranked(results: Results) -> int:
    """How many chains or pairs have all their answers; without one there is nothing to show."""
    return sum(condition.ranked for condition in results.chains.values())


def write_report(run: RunDir, open_it: bool = False) -> Path | None:
    """`report.html` beside an audit's results; None, with a warning, where there can be none: no run is lost by it."""
    from llmfair.pages import page_of, write_page
    from llmfair.report.page import read_source
    from llmfair.rundir import REPORT

    path = run.path / REPORT
    try:
        write_page(path, page_of([read_source(run)], EVIDENCE))
    except Exception as error:
        why = error.message if isinstance(error, LlmfairError) else f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.filename:
            why = f"{error.filename}: {error.strerror}"
        terminal.warn(f"no report was written, everything else was: {why}")
        if terminal.output.verbose:
            traceback.print_exception(error)
        return None
    if open_it:
        open_page(path)
    return path


def open_page(path: Path) -> None:
    """Opens a file in the user's browser, where there is one."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        terminal.warn(f"no browser could be opened for {path}")


def _planning(kind: Kind) -> Callable[..., None]:
    """The plan of one kind of audits."""

    def run(settings: AuditSettings, style: str, *, ctx: typer.Context) -> None:
        from llmfair.audits.plan import plan as plan_of

        output, stderr = terminal.output, terminal.console(stderr=True)
        quiet = output.quiet or not output.progress
        with nullcontext() if quiet else stderr.status("Counting and simulating"):  # which takes seconds
            planned = plan_of(kind, settings)
        table = kind.words.plan_table(planned)
        if table is None and style != "json":
            terminal.print_text(kind.words.plan_text(planned).rstrip("\n"))
            return
        terminal.show(style, planned, lambda: cast("Table", table))

    return run


def add_plan(app: typer.Typer) -> None:
    group = typer.Typer(name="plan", help="Power, calls, cost and time of a design before it runs.")
    for kind in kinds():
        add_command(group, kind.name, kind.plan_settings, _planning(kind), kind.help("plan"))
    app.add_typer(group, rich_help_panel="Plan")


def _calibrating(kind: Kind) -> Callable[..., None]:
    """Simulated audits of one kind."""

    def run(settings: CalibrationSettings, style: str, *, ctx: typer.Context) -> None:
        simulated = 0

        def advance() -> None:
            nonlocal simulated
            simulated += 1

        count = terminal.Count("Simulating", settings.simulations(), "audits", lambda: simulated)
        with terminal.drawn(count):
            found = kind.calibrate(settings, advance)
        rows = found["injected"]
        names = [name for name in rows[0] if name != "undefined"]
        lines = (names, [[row[name] for name in names] for row in rows])
        terminal.show(style, found, lambda: kind.words.calibration_table(found), lambda: lines)

    return run


def add_calibrate(app: typer.Typer) -> None:
    group = typer.Typer(name="calibrate", help="The audit procedure against injected preferences.")
    for kind in kinds():
        if kind.calibrated is not None:
            add_command(group, kind.name, kind.calibrated, _calibrating(kind), kind.help("calibrate"))
    app.add_typer(group, rich_help_panel="Plan")


def _studying(kind: Kind, named: Study) -> Callable[..., None]:
    """The command of one study."""

    def run(settings: StudySettings, style: str, *, ctx: typer.Context) -> None:
        from llmfair.audits.sweep import plan_study, told
        from llmfair.rundir import RunDir

        for flag, instead in settings.varied.items():
            source = ctx.get_parameter_source(flag)
            if source is not None and source.name == "COMMANDLINE":
                raise UsageError(f"--{flag} names one setting, but a study has several.", instead)
        if settings.dry_run:
            planned = plan_study(kind, named, settings)
            terminal.show(
                "json" if style == "json" else "table", planned, lambda: named.words.plan_table(planned)
            )
            if style != "json":
                for line in {line: None for setting in planned["settings"] for line in setting["unready"]}:
                    terminal.say(line)
            return
        tried = _ask(kind, named, settings)
        found, gravest = told(kind, named, tried, settings)
        for one in tried:
            if one.error is not None and one.error is not gravest:
                terminal.say_message(one.error)
        report = None
        if settings.output is not None and settings.report:
            report = write_report(RunDir(settings.output), settings.open)
        _show_study(kind, named, found, gravest, tried, style, report)
        if gravest is not None:
            raise terminal.failed_after_output(gravest)

    return run


def _ask(kind: Kind, named: Study, settings: StudySettings) -> list[SettingRun]:
    """Every setting's run, each with its progress shown."""
    from llmfair.audits.sweep import sweep

    seen: dict[str, Any] = {}
    tried: list[SettingRun] = []

    def watch_of(setting: str) -> Watch:
        seen.clear()
        seen["setting"] = setting

        def watch(
            folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
        ) -> AbstractContextManager[None]:
            name, before = f"Asking {settings.model[0]}, {setting}", kind.words.before(planned)
            return terminal.asking(name, seen, folder, planned, progress, limit, before, settings.batch)

        return watch

    try:
        for one in sweep(kind, named, settings, watch_of):
            tried.append(one)
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


def _show_study(
    kind: Kind,
    named: Study,
    found: StudyResults,
    gravest: LlmfairError | None,
    tried: Sequence[SettingRun],
    style: str,
    report: Path | None,
) -> None:
    from llmfair.report.table import headed

    if style in ("table", "md") and not any(ranked(one.results) for one in tried if one.results):
        print(f"No result: no setting has a {kind.words.unit.removesuffix('s')} with all its answers.")
        return
    below = [*found.runs, *([report] if report else [])]
    document = {**plain(found), **(terminal.failure(gravest) if gravest else {})}
    terminal.show(
        style,
        document,
        lambda: headed(named.words.table(found), found.verdict),
        lambda: named.lines(found),
        report,
        below,
    )


def add_study(app: typer.Typer) -> None:
    group = typer.Typer(name="study", help="The same model under several settings.")
    for kind, named in studies().values():
        add_command(
            group, named.name, named.settings, _studying(kind, named), Help(named.does, named.examples)
        )
    app.add_typer(group, rich_help_panel="Plan")
