"""What every audit's command does: one run per model, shown while it is asked and when it is done."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from llmfair import terminal
from llmfair.audits.kind import Kind
from llmfair.cli.options import add_command
from llmfair.errors import Incomplete, LlmfairError, RequirementFailed, UsageError
from llmfair.io.files import plain
from llmfair.io.text import visible
from llmfair.settings import AuditSettings, default_of

if TYPE_CHECKING:
    from llmfair.asking.limits import Progress
    from llmfair.audits.documents import Comparison
    from llmfair.audits.junit import Suite
    from llmfair.audits.runs.spending import Spending
    from llmfair.audits.subject import Subject
    from llmfair.manifest import Manifest
    from llmfair.report.tables import Table
    from llmfair.results import Results
    from llmfair.rundir import RunDir


def audit_command(kind: Kind) -> Callable[..., None]:
    """The command of one kind of audits."""

    def run(settings: AuditSettings, style: str, *, ctx: typer.Context) -> None:
        (_dry_run if settings.dry_run else run_audits)(kind, settings, style)

    return run


def add(app: typer.Typer, kind: Kind) -> None:
    add_command(app, kind.name, kind.settings, audit_command(kind), kind.help(), "Audit")


def _dry_run(kind: Kind, settings: AuditSettings, style: str) -> None:
    """Says what would be asked; asks nothing."""
    from llmfair.audits.planning.plan import plan

    _runs(settings)
    planned = plan(kind, settings)
    if style == "json":
        terminal.print_json(planned)
    else:
        terminal.print_text(kind.plan_text(planned).rstrip("\n"))


def run_audits(kind: Kind, settings: AuditSettings, style: str) -> None:
    """Audits every model that the settings name, and ends with the gravest error's exit code."""
    from llmfair.audits.gates import statuses_of
    from llmfair.audits.junit import write_junit
    from llmfair.audits.runs.spending import Spending

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
            write_junit(settings.junit, suites, statuses_of(settings.fail_on, kind.failures))
    if error is not None:
        terminal.output.as_json = False  # said already
        raise typer.Exit(terminal.fail(error))
    if style != "json" and all(model.startswith("fake:") for model in settings.model):
        terminal.say(
            f"Simulated; a real model: llmfair {kind.name}{_lists(settings)} -m openai:gpt-4o-mini --dry-run"
        )


def _runs(settings: AuditSettings) -> list[tuple[AuditSettings, Subject]]:
    """The runs that the settings name, each with whom it asks. Raises UsageError for several in one folder."""
    from llmfair.audits.subject import subjects

    asked = [(one, subject) for one in settings.each() for subject in subjects(one)]
    if settings.output is not None and len(asked) > 1:
        hint = "use --runs-dir" if settings.adapter is None else "use --runs-dir, or add --adapter-only"
        raise UsageError("--output names one folder, but several runs are asked for.", hint)
    return asked


def _lists(settings: AuditSettings) -> str:
    """The flags of what was audited, where it is not what an audit without flags takes."""
    flags = {"dataset": "-d", "attribute": "-a"}
    named = [item for item in fields(settings) if item.name in flags]
    return "".join(
        f" {flags[item.name]} {shlex.quote(value)}"
        for item in named
        if (value := getattr(settings, item.name)) != default_of(item)
    )


def _audit_all(
    kind: Kind,
    settings: AuditSettings,
    asked: Sequence[tuple[AuditSettings, Subject]],
    style: str,
    suites: list[Suite],
) -> LlmfairError | None:
    """Several runs, then side by side; one that fails stops no other. Returns the gravest error."""
    from llmfair.audits.runs.spending import Spending

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
    compared = _compare(complete, style)
    if style == "json":
        terminal.print_json({"schema": 1, "runs": runs, "comparison": compared})
    gravest = max(errors, key=lambda error: error.exit_code, default=None)
    for error in errors:
        if error is not gravest:
            terminal.say_message(error)
    return gravest


def _compare(runs: Sequence[RunDir], style: str) -> Comparison | None:
    """Runs side by side, the first as the base; None where there are not two."""
    from llmfair.audits.comparing import compare
    from llmfair.report.compare import compare_table

    if len(runs) < 2:
        return None
    compared = compare(runs)
    if style == "table":
        print()
        terminal.print_table(compare_table(compared))
    return compared


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
    from llmfair.audits.junit import suite_of
    from llmfair.audits.runs.run import perform
    from llmfair.cli.report import show, write_report
    from llmfair.manifest import named_model
    from llmfair.rundir import REPORT

    name = subject.label
    seen: dict[str, Any] = {}

    @contextmanager
    def watch(folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int) -> Iterator[None]:
        calls = planned["calls"]
        terminal.output.begun.append(folder)
        seen.update(folder=folder, calls=calls, progress=progress)
        progress.tell = lambda text: terminal.say(visible(text))
        if calls:
            terminal.say(kind.before(planned))
        for remark in planned["remarks"]:
            terminal.say(remark)
        if settings.batch:  # which has nothing to draw for hours
            shown: AbstractContextManager[None] = nullcontext()
        elif calls:
            shown = terminal.bar(f"Asking {name}", calls, progress, limit)
        else:
            chains = getattr(planned["design"], "chains", 0)
            count = terminal.Count(f"Ranking by {name}", chains, "lists", lambda: progress.finished)
            shown = terminal.drawn(count.name, count)
        with shown:
            yield

    def draw(run: RunDir, results: Results) -> bool:
        return not (settings.report and ranked(results)) or write_report(run) is not None

    def how_far() -> str:
        if not seen["folder"].is_dir():
            return "Stopped before the first answer. The same command begins again."
        return (
            f"Stopped at {answers_of(seen['folder'], seen['progress'], seen['calls'])}. "
            f"The same command continues: {seen['folder']}"
        )

    before = spending.told(settings)
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
    if cached := seen["progress"].cached:
        terminal.say(
            f"{cached:,} of {seen['calls']:,} answers came from other runs; --fresh --no-cache asks them, too"
        )
    if isinstance(error, Incomplete):
        error.message += before
    for line in written.skipped:
        terminal.warn(line)
    report = run.path / REPORT if (run.path / REPORT).is_file() else None
    if report and settings.open:
        show(report)
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
    from llmfair.report.method import cost_of
    from llmfair.report.tables import count

    if not (cost := cost_of(manifest)):
        return ""
    past = manifest.invocations
    calls = sum(one.calls or 0 for one in past if one.cost is not None)
    text = f"the run in all: {count(calls, 'call')}, cost {cost}"
    if unknown := sum(one.calls is None for one in past):  # which left no word of what it asked
        text += f", and {count(unknown, 'command')} killed or still running"
    if progress is None:
        return text
    return f"{spender}: {count(progress.calls, 'call')}, cost {progress.cost or 0:,.4f}; {text}"


def _show(kind: Kind, results: Results, folder: Path, report: Path | None, style: str) -> None:
    """The table, and under it where the report is, or the run folder where there is none."""
    from llmfair.report.tables import markdown, tidy_tsv

    if style == "json":
        return
    if style == "tsv":
        print(tidy_tsv(results.rows), end="")
    elif not ranked(results):
        print(f"No result: none of the {kind.unit} has all its answers.")
    elif style == "md":
        print(markdown(_table(kind, results, folder)), end="")
    else:
        terminal.print_table(_table(kind, results, folder), report)
        print()
        print(report or folder)


def _table(kind: Kind, results: Results, folder: Path) -> Table:
    """The table of a run below its verdict."""
    from llmfair.audits.commands import continuing
    from llmfair.report.tables import headed
    from llmfair.rundir import RunDir

    return headed(kind.table(results), results.verdict, folder, continuing(RunDir(folder)))


def ranked(results: Results) -> int:
    """How many chains or pairs have all their answers; without one there is nothing to show."""
    return sum(condition.ranked for condition in results.chains.values())
