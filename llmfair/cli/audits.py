"""The commands of every kind of audit: itself, `llmfair plan`, `calibrate` and `study`."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from llmfair import terminal
from llmfair.audits.kind import Kind, Study, kinds, studies
from llmfair.cli.options import command, group
from llmfair.errors import Incomplete, LlmfairError, RequirementFailed, UsageError
from llmfair.io.files import SCHEMA, plain
from llmfair.io.text import count
from llmfair.results import TIDY, Results, lines_of
from llmfair.rundir import REPORT, Manifest, RunDir, named_model
from llmfair.settings.commands import AuditSettings, CalibrationSettings, StudySettings

if TYPE_CHECKING:
    from llmfair.asking.limits import Progress
    from llmfair.audits.gates import Suite
    from llmfair.audits.runs.run import RunOutcome, Spending
    from llmfair.audits.study import SettingRun
    from llmfair.audits.subject import Subject


def add(app: typer.Typer, kind: Kind) -> None:
    words, run = kind.help(), partial(run_audits, kind)
    command(app, *words.examples, name=kind.name, panel="Audit", settings=kind.settings, does=words.does)(run)


def run_audits(kind: Kind, settings: AuditSettings, style: str) -> None:
    """Audits every model that the settings name, then shows them side by side; one that fails stops no other. Ends
    with the gravest error's exit code."""
    from llmfair.audits.comparing import compare
    from llmfair.audits.gates import statuses_of, suite_of, write_junit
    from llmfair.audits.plan import plan
    from llmfair.audits.runs.run import Spending
    from llmfair.audits.subject import subjects
    from llmfair.report.compare import compare_table
    from llmfair.report.table import Table

    runs = [(single, subject) for single in settings.each() for subject in subjects(single)]
    several = len(runs) > 1
    if settings.output is not None and several:
        raise UsageError("--output names one folder, but several runs are asked for.", "use --runs-dir")
    if settings.dry_run:
        planned = plan(kind, settings)
        terminal.show(style, planned, lambda: kind.words.plan_text(planned))
        return
    for single, subject in runs if several else ():  # nothing is spent while another model's name is wrong
        if not (kind.ranks and subject.ranks):
            subject.backend(single)
    documents: list[dict[str, Any]] = []
    errors: list[LlmfairError] = []
    complete: dict[str, list[RunDir]] = {}
    verdicts: list[tuple[str, ...]] = []
    suites: list[Suite] = []
    error: LlmfairError | None
    spending = Spending()
    try:
        for single, subject in runs:
            name = single.called(subject.label, among=settings) if several else "this command"
            try:
                written = audit(kind, single, subject, style, spending, name)
            except LlmfairError as failure:
                suites.append(suite_of(subject.label, kind.name, None, failure))
                if not several:
                    raise
                document, error = {"model": name}, failure
            else:
                results, error = written.results, written.error
                label = named_model(subject.label, results.server, results.label)
                suites.append(suite_of(label, kind.name, results, error))
                document = plain(results)
                if error is None or isinstance(error, RequirementFailed):
                    complete.setdefault(results.attribute, []).append(written.folder)
                if (verdict := results.verdict) is not None:
                    verdicts.append((name, verdict.status, verdict.sentence))
            if error is not None:
                document |= terminal.failure(error)
                error.message = f"{name}: {error.message}" if several else error.message
                errors.append(error)
            documents.append(document)
    finally:
        if settings.junit is not None and suites:
            write_junit(settings.junit, suites, statuses_of(settings.fail_on, kind.words.statuses[:-1]))
    compared = [compare(alike) for alike in complete.values() if len(alike) > 1]
    by_attribute = len(settings.attribute) > 1
    tables = [compare_table(of) for of in compared]
    tables += [Table("All attributes", ("run", "status", "verdict"), tuple(verdicts))] * by_attribute
    for table in tables if style == "table" else ():
        print()
        terminal.print_table(table)
    if style == "json":
        together = {"schema": SCHEMA, "runs": documents, "comparison": compared[0] if compared else None}
        together |= {"comparisons": compared} if by_attribute else {}
        terminal.print_json(together if several else documents[0])
    _end_with(max(errors, key=lambda error: error.exit_code, default=None), errors)
    if style != "json" and all(model.startswith("fake:") for model in settings.model):
        lists = " ".join(filter(None, [kind.name, settings.as_flags(("dataset", "attribute", "contrast"))]))
        terminal.say(f"Simulated; a real model: llmfair {lists} -m openai:gpt-4o-mini --dry-run")


def _end_with(gravest: LlmfairError | None, errors: list[LlmfairError]) -> None:
    """Says all errors of a command whose results are shown, and raises what ends it by the gravest, if there is one."""
    for error in errors:
        if error is not gravest:
            terminal.say_message(error)
    if gravest is not None:
        raise terminal.failed_after_output(gravest)


def audit(
    kind: Kind, settings: AuditSettings, subject: Subject, style: str, spending: Spending, spender: str
) -> RunOutcome:
    """One model's audit, shown. Raises the errors after which there are no results.

    `spending`: what other runs of the command have used. `spender`: whose cost is told.
    """
    from llmfair.audits.commands import continuing
    from llmfair.audits.runs.run import perform
    from llmfair.report.table import headed

    watch = terminal.Watching(
        f"Asking {subject.label}",
        lambda planned: "\n".join([kind.words.before(planned), *planned["remarks"]]),
        settings.batch,
    )

    def draw(run: RunDir, results: Results) -> None:
        if settings.report and ranked(results):
            write_report(run)

    def how_far(folder: Path) -> str:
        if not folder.is_dir():
            return "Stopped before the first answer. The same command begins again."
        return f"Stopped at {watch.how_far()}. The same command continues: {folder}"

    try:
        with spending.run(settings, subject, watch) as (affordable, noting):
            written = perform(kind.design(affordable, subject), noting, draw)
    except KeyboardInterrupt:
        if watch.folder is None:
            raise
        left = str(watch.folder) if watch.folder.is_dir() else None
        ending = terminal.interrupted(how_far(watch.folder), run=left)
        say_cost(watch, spender)
        raise ending from None
    run, results, error = written.folder, written.results, written.error
    report = run.path / REPORT if (run.path / REPORT).is_file() else None
    if report and settings.open:
        open_page(report)
    if style not in ("json", "tsv") and not ranked(results):
        print(f"No result: none of the {kind.words.unit} has all its answers.")
    elif style != "json":
        terminal.show(
            style,
            results,
            lambda: headed(kind.words.table(results), results.verdict, run.path, continuing(run)),
            (TIDY, lines_of(results.rows, TIDY)),
            report,
            [report or run.path],
        )
    if isinstance(error, Incomplete):
        terminal.say(how_far(run.path))
    elif error is None and results.status == "incomplete":
        terminal.say(
            f"Stopped where it was asked to. Without --stop-after the same command goes on: {run.path}"
        )
    say_cost(watch, spender)
    return written


def say_cost(watch: terminal.Watching, spender: str) -> None:
    """What a run has cost, where prices are known, after what `spender` asked and cost now."""
    run = RunDir(watch.folder) if watch.folder else None
    if run and run.manifest.is_file() and (text := cost_text(run.read_manifest(), watch.progress, spender)):
        terminal.say(text)


def cost_text(manifest: Manifest, progress: Progress | None = None, spender: str = "this command") -> str:
    """What a run has cost over all its commands, after what `spender` asked and cost now; "" without prices."""
    from llmfair.report.page import cost_of

    if not (cost := cost_of(manifest)):
        return ""
    calls = sum(past.calls or 0 for past in manifest.invocations if past.cost is not None)
    text = f"the run in all: {count(calls, 'call')}, cost {cost}"
    if progress is None:
        return text
    return f"{spender}: {count(progress.calls, 'call')}, cost {progress.cost or 0:,.4f}; {text}"


def ranked(results: Results) -> int:
    """How many chains or pairs have all their answers; without one there is nothing to show."""
    return sum(condition.ranked for condition in results.chains.values())


def write_report(run: RunDir, open_it: bool = False) -> Path | None:
    """`report.html` beside an audit's results; None, with a warning, where there can be none."""
    from llmfair.api import report_beside

    try:
        path = report_beside(run)
    except LlmfairError as error:
        terminal.warn(error.message)
        terminal.trace(error)
        return None
    if open_it:
        open_page(path)
    return path


def open_page(path: Path) -> None:
    """Opens a file in the user's browser, where there is one."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        terminal.warn(f"no browser could be opened for {path}")


def plan_audits(kind: Kind, settings: AuditSettings, style: str) -> None:
    """The plan of an audit."""
    from llmfair.audits.plan import plan as plan_of

    quiet = terminal.output.quiet or not terminal.output.progress
    stderr = terminal.console(stderr=True)
    with nullcontext() if quiet else stderr.status("Counting and simulating"):  # which takes seconds
        planned = plan_of(kind, settings)
    terminal.show(style, planned, lambda: kind.words.plan_table(planned) or kind.words.plan_text(planned))


def calibrate_audits(kind: Kind, settings: CalibrationSettings, style: str) -> None:
    """Simulated audits of one kind."""
    done: list[None] = []
    count = terminal.Count("Simulating", settings.simulations(), "audits", lambda: len(done))
    with terminal.drawn(count):
        results = kind.calibrate(settings, lambda: done.append(None))
    rows = results["injected"]
    names = [name for name in rows[0] if name != "undefined"]
    lines = (names, [[row[name] for name in names] for row in rows])
    terminal.show(style, results, lambda: kind.words.calibration_table(results), lines)


def run_study(kind: Kind, named: Study, settings: StudySettings, style: str) -> None:
    """The audits of one study, and its table."""
    from llmfair.audits.study import plan_study, told
    from llmfair.report.table import headed

    if settings.dry_run:
        planned = plan_study(kind, named, settings)
        terminal.show(style, planned, lambda: named.words.plan_table(planned))
        if style != "json":
            for line in {line: None for setting in planned["settings"] for line in setting["unready"]}:
                terminal.say(line)
        return
    tried = _ask(kind, named, settings)
    results, gravest = told(kind, named, tried, settings)
    report = None
    if settings.output is not None and settings.report:
        report = write_report(RunDir(settings.output), settings.open)
    if style in ("table", "md") and not any(ranked(run.results) for run in tried if run.results):
        print(f"No result: no setting has a {kind.words.unit.removesuffix('s')} with all its answers.")
    else:
        terminal.show(
            style,
            results,
            lambda: headed(named.words.table(results), results.verdict),
            named.lines(results),
            report,
            [*results.runs, *filter(None, [report])],
            gravest,
        )
    _end_with(gravest, [run.error for run in tried if run.error is not None])


def _ask(kind: Kind, named: Study, settings: StudySettings) -> list[SettingRun]:
    """Every setting's run, each with its progress shown."""
    from llmfair.audits.study import sweep

    watches: list[terminal.Watching] = []
    tried: list[SettingRun] = []

    def watch_of(setting: str) -> terminal.Watching:
        name = f"Asking {settings.model[0]}, {setting}"
        watches.append(terminal.Watching(name, kind.words.before, settings.batch))
        return watches[-1]

    try:
        for run in sweep(kind, named, settings, watch_of):
            tried.append(run)
            if run.folder is not None:
                say_cost(watches[-1], run.setting)
    except KeyboardInterrupt:
        if not watches:
            raise
        watch = watches[-1]
        setting = watch.name.removeprefix(f"Asking {settings.model[0]}, ")
        how_far = f" at {watch.how_far()}" if watch.folder else ""
        ending = terminal.interrupted(f"Stopped in setting {setting}{how_far}. The same command continues.")
        say_cost(watch, setting)
        raise ending from None
    return tried


ABOUT = {
    "plan": "Power, calls, cost and time of a design before it runs.",
    "calibrate": "The audit procedure against injected preferences.",
    "study": "The same model under several settings.",
}


def about(name: str) -> typer.Typer:
    """The application `llmfair plan`, `calibrate` or `study`, with a command for each kind or study that it serves."""
    app = group(name, ABOUT[name], "Plan")
    if name == "study":
        for kind, of in studies().values():
            named = command(app, *of.examples, name=of.name, settings=of.settings, does=of.does)
            named(partial(run_study, kind, of))
        return app
    for kind in kinds():
        settings, words = kind.plan_settings if name == "plan" else kind.calibrated, kind.help(name)
        if settings is not None:
            named = command(app, *words.examples, name=kind.name, settings=settings, does=words.does)
            named(partial(plan_audits if name == "plan" else calibrate_audits, kind))
    return app
