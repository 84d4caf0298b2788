"""What every audit's command does: one run per model, shown while it is asked and when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from llmfair.cli import console
from llmfair.errors import Incomplete, LlmfairError, UsageError
from llmfair.settings import AuditSettings

if TYPE_CHECKING:
    from llmfair.dispatch import Progress
    from llmfair.report.tables import Table


@dataclass(frozen=True)
class Kind:
    """An audit as its command knows it: how one model's is run, told before it begins, and tabled."""

    name: str
    run: Callable[..., Any]
    before: Callable[[Mapping[str, Any]], str]
    table: Callable[[Mapping[str, Any]], Table]


def run_audits(kind: Kind, settings: AuditSettings, style: str) -> None:
    """Audits every model that the settings name, and ends with the gravest error's exit code."""
    if settings.output is not None and len(settings.model) > 1:
        raise UsageError("--output names one folder, but several models are audited.", "use --runs-dir")
    if len(settings.model) == 1:
        results, error = _audit(kind, settings, settings.model[0], style)
        if style == "json":
            console.print_json(results)
    else:
        error = _audit_all(kind, settings, style)
    if error is not None:
        console.output.as_json = False  # said already
        raise typer.Exit(console.fail(error))


def _audit_all(kind: Kind, settings: AuditSettings, style: str) -> LlmfairError | None:
    """Several models, one run each; one that fails stops no other. Returns the gravest error."""
    from llmfair.audits.running import check_models

    check_models(settings)  # nothing is spent while another model's name is wrong
    runs: list[dict[str, Any]] = []
    errors: list[LlmfairError] = []
    for model in settings.model:
        try:
            results, error = _audit(kind, settings, model, style)
        except LlmfairError as failure:
            results, error = {"model": model, **console.failure(failure)}, failure
        runs.append(results)
        if error is not None:
            error.message = f"{model}: {error.message}"
            errors.append(error)
    if style == "json":
        console.print_json({"schema": 1, "runs": runs})
    gravest = max(errors, key=lambda error: error.exit_code, default=None)
    for error in errors:
        if error is not gravest:
            print(f"Error: {error.message}", file=sys.stderr)
    return gravest


def _audit(
    kind: Kind, settings: AuditSettings, model: str, style: str
) -> tuple[dict[str, Any], LlmfairError | None]:
    """One model's audit, shown; returns its results, and the error that left them incomplete or under a gate.

    Raises the errors after which there are no results.
    """
    from llmfair.cli.app import Terminated
    from llmfair.rundir import RunDir

    seen: dict[str, Any] = {}

    @contextmanager
    def watch(folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int) -> Iterator[None]:
        calls = planned["calls"]
        seen.update(folder=folder, calls=calls, progress=progress)
        progress.tell = lambda text: console.say(console.visible(text))
        if calls:
            console.say(kind.before(planned))
        shown = calls and not settings.batch  # a batch has nothing to draw for hours
        with console.bar(f"Asking {model}", calls, progress, limit) if shown else nullcontext():
            yield

    def how_far() -> str:
        return (
            f"Stopped at {seen['progress'].answered:,} of {seen['calls']:,} answers. "
            f"The same command continues: {seen['folder']}"
        )

    error: LlmfairError | None = None
    try:
        kind.run(settings, model, watch)
    except KeyboardInterrupt as stop:
        if "progress" not in seen:
            raise
        code = 143 if isinstance(stop, Terminated) else 130
        if style == "json":
            console.print_json(
                {"schema": 1, "status": "incomplete", "exit_code": code, "run": str(seen["folder"])}
            )
        console.say(how_far())
        console.output.stopped = True
        raise typer.Exit(code) from None
    except LlmfairError as failure:
        if failure.exit_code < Incomplete.exit_code:
            raise
        error = failure
    run = RunDir(seen["folder"])
    results = run.read_results()
    for line in run.read_manifest().get("journal_lines_skipped", []):
        console.warn(f"{run.journal}:{line}: not readable, skipped; its answer was asked again if needed")
    _show(kind, results, seen["folder"], style)
    if error is not None:
        results |= console.failure(error)
        if isinstance(error, Incomplete):
            console.say(how_far())
    return results, error


def _show(kind: Kind, results: dict[str, Any], folder: Path, style: str) -> None:
    from llmfair.report.tables import markdown, tidy_tsv

    if style == "json":
        return
    table = kind.table(results)
    if style == "tsv":
        print(tidy_tsv(results), end="")
    elif style == "md":
        print(markdown(table), end="")
    else:
        console.print_table(table)
        print()
        print(folder)
    if results["model"].startswith("fake:"):
        console.say(
            f"Next: llmfair {kind.name} -m openai:gpt-4o-mini     (a real model; --dry-run first counts its calls)"
        )
