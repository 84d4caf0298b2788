"""`llmfair listwise`: the listwise audit on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from llmfair.cli import console
from llmfair.cli.options import Color, Config, Json, NoProgress, Preset, Quiet, Verbose
from llmfair.errors import Incomplete, LlmfairError, UsageError
from llmfair.settings import ListwiseSettings

if TYPE_CHECKING:
    from llmfair.dispatch import Progress


def listwise(
    settings: ListwiseSettings,
    *,
    ctx: typer.Context,
    preset: Preset = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_progress: NoProgress = False,
    color: Color = "auto",
    config: Config = None,
) -> None:
    """Exposure and utility of a ranker under neutral and sensitive prompts."""
    style = "json" if as_json else settings.format
    console.output = console.Output(quiet, verbose, not no_progress, color, style == "json")
    if settings.output is not None and len(settings.model) > 1:
        raise UsageError("--output names one folder, but several models are audited.", "use --runs-dir")
    if settings.dry_run:
        _dry_run(settings, style)
        return
    if len(settings.model) == 1:
        results, error = _audit(settings, settings.model[0], style)
        if style == "json":
            console.print_json(results)
    else:
        error = _audit_all(settings, style)
    if error is not None:
        console.output.as_json = False  # said already
        raise typer.Exit(console.fail(error))


def _audit_all(settings: ListwiseSettings, style: str) -> LlmfairError | None:
    """Several models, one run each; one that fails stops no other. Returns the gravest error."""
    from llmfair.audits.listwise import check_models

    check_models(settings)  # nothing is spent while another model's name is wrong
    runs: list[dict[str, Any]] = []
    errors: list[LlmfairError] = []
    for model in settings.model:
        try:
            results, error = _audit(settings, model, style)
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


def _audit(settings: ListwiseSettings, model: str, style: str) -> tuple[dict[str, Any], LlmfairError | None]:
    """One model's audit, shown; returns its results, and the error that left them incomplete or under a gate.

    Raises the errors after which there are no results.
    """
    from llmfair.audits.listwise import audit_listwise
    from llmfair.cli.app import Terminated
    from llmfair.rundir import RunDir

    seen: dict[str, Any] = {}

    @contextmanager
    def watch(folder: Path, calls: int, progress: Progress, limit: int) -> Iterator[None]:
        seen.update(folder=folder, calls=calls, progress=progress)
        with console.bar(f"Asking {model}", calls, progress, limit) if calls else nullcontext():
            yield

    def how_far() -> str:
        return (
            f"Stopped at {seen['progress'].answered:,} of {seen['calls']:,} answers. "
            f"The same command continues: {seen['folder']}"
        )

    error: LlmfairError | None = None
    try:
        audit_listwise(settings, model, watch)
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
    _show(results, seen["folder"], style)
    if error is not None:
        results |= console.failure(error)
        if isinstance(error, Incomplete):
            console.say(how_far())
    return results, error


def _show(results: dict[str, Any], folder: Path, style: str) -> None:
    from llmfair.report.listwise import listwise_table
    from llmfair.report.tables import markdown, tidy_tsv

    if style == "json":
        return
    table = listwise_table(results)
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
            "Next: llmfair listwise -m openai:gpt-4o-mini     (a real model; --dry-run first counts its calls)"
        )


def _dry_run(settings: ListwiseSettings, style: str) -> None:
    """Says what would be asked; asks nothing."""
    from llmfair.audits.plan import plan_listwise
    from llmfair.report.listwise import plan_text

    planned = plan_listwise(settings)
    if style == "json":
        console.print_json({"schema": 1, **planned})
    else:
        print(plan_text(planned), end="")
