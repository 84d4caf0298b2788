"""`llmfair listwise`: the listwise audit on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from llmfair.cli import console
from llmfair.cli.options import Color, Config, Json, NoProgress, Preset, Quiet, Verbose
from llmfair.errors import LlmfairError, UsageError
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
    console.output = console.Output(quiet, verbose, not no_progress, color)
    style = "json" if as_json else settings.format
    if settings.output is not None and len(settings.model) > 1:
        raise UsageError("--output names one folder, but several models are audited.", "use --runs-dir")
    if settings.dry_run:
        _dry_run(settings, style)
        return
    found, code = [], 0
    for model in settings.model:
        results, error = _audit(settings, model, style)
        if results is not None:
            found.append(results)
        code = max(code, error)
    if style == "json" and found:
        console.print_json(found[0] if len(settings.model) == 1 else {"schema": 1, "runs": found})
    if code:
        raise typer.Exit(code)


def _audit(settings: ListwiseSettings, model: str, style: str) -> tuple[dict[str, Any] | None, int]:
    """One model's audit, shown; returns its results, if any, and its exit code. One failing model ends alone."""
    from llmfair.audits.listwise import audit_listwise
    from llmfair.cli.app import Terminated
    from llmfair.rundir import RunDir

    seen: dict[str, Any] = {}

    @contextmanager
    def watch(folder: Path, calls: int, progress: Progress, limit: int) -> Iterator[None]:
        seen.update(folder=folder, calls=calls, progress=progress)
        with console.bar(f"Asking {model}", calls, progress, limit):
            yield

    error: LlmfairError | None = None
    try:
        audit_listwise(settings, model, watch)
    except KeyboardInterrupt as stop:
        if "progress" not in seen:
            raise
        done = seen["progress"].answered
        console.say(
            f"Stopped at {done:,} of {seen['calls']:,} answers. The same command continues: {seen['folder']}"
        )
        raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None
    except LlmfairError as failure:
        error = failure
    results = None
    if error is None or error.exit_code >= 3:
        run = RunDir(seen["folder"])
        results = run.read_results()
        for line in run.read_manifest().get("journal_lines_skipped", []):
            console.warn(f"{run.journal}:{line}: not readable, skipped; its answer was asked again if needed")
    alone = len(settings.model) == 1
    if results is None:
        assert error is not None
        if alone:
            raise error
        return None, console.fail(error, as_json=False)
    if error is not None:
        results["exit_code"] = error.exit_code
        results["error"] = {
            "class": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
        }
    _show(results, seen["folder"], style)
    return results, console.fail(error, as_json=False) if error is not None else 0


def _show(results: dict[str, Any], folder: Path, style: str) -> None:
    from llmfair.report.tables import delimited, listwise_table, markdown

    if style == "json":
        return
    table = listwise_table(results)
    if style == "tsv":
        print(delimited(table, "\t"), end="")
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
    from llmfair.report.tables import plan_text

    planned = plan_listwise(settings)
    if style == "json":
        console.print_json({"schema": 1, **planned})
    else:
        print(plan_text(planned), end="")
