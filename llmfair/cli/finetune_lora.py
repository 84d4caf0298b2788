"""`llmfair finetune-lora`: an adapter on the command line."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from llmfair import terminal
from llmfair.cli.options import WithFlags
from llmfair.errors import RequirementFailed, RunConflict, UsageError
from llmfair.io.files import plain
from llmfair.settings import FinetuneSettings

if TYPE_CHECKING:
    from llmfair.tuning.results import FinetuneResults


def finetune_lora(settings: FinetuneSettings, style: str, *, ctx: typer.Context) -> None:
    """Trains a LoRA adapter that brings pairs of both groups nearer to parity, and measures what else it changes."""
    from llmfair.tuning.lora import rank

    task = _merge if settings.merge is not None else _dry_run if settings.dry_run else _finetune
    if rank() == 0:
        task(settings, style)
        return
    terminal.output.quiet = True  # the first process alone speaks
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            task(settings, style)
    except (UsageError, RunConflict) as error:  # which the first one says as well
        raise typer.Exit(error.exit_code) from None


def _finetune(settings: FinetuneSettings, style: str) -> None:
    from llmfair.audits.gates import refused, statuses_of
    from llmfair.tuning import lora
    from llmfair.tuning.finetune import finetune
    from llmfair.tuning.shown import REJECTED, TrainingProgress
    from llmfair.tuning.words import STATUSES, missed_on_test, model_card

    shown, error = TrainingProgress(), None
    fail_on = statuses_of(settings.fail_on, STATUSES)
    try:
        done = finetune(settings, model_card, shown)
    except KeyboardInterrupt:
        if shown.folder is None:
            raise
        told = f"Stopped {shown.how_far()}. The same command continues: {shown.folder}"
        raise typer.Exit(terminal.interrupted(told, run=str(shown.folder))) from None
    if done.before:
        terminal.say(f"Already complete: {done.folder.path}")
    if done.results.status == "rejected":
        error = RequirementFailed(str(done.results.training.why), REJECTED)
    elif failed := refused(done.results.verdict, fail_on):
        error = RequirementFailed(failed, "everything is written")
    if style == "json":
        terminal.print_json({**plain(done.results), **(terminal.failure(error) if error else {})})
    else:
        _show(done.results, done.folder.path, style)
    if missed := missed_on_test(done.results):
        terminal.warn(missed)
    if error is not None:
        terminal.output.as_json = False  # said already
        code = terminal.fail(error)
        lora.first(lambda: None)  # a launcher ends all processes once one leaves with another code than 0
        raise typer.Exit(code if lora.rank() == 0 else 0)


def _show(results: FinetuneResults, folder: Path, style: str) -> None:
    from llmfair.report.tables import markdown
    from llmfair.rundir import REPORT
    from llmfair.tuning.words import finetune_tsv, headed_table

    if style == "tsv":
        print(finetune_tsv(results), end="")
    elif style == "md":
        print(markdown(headed_table(results)), end="")
    else:
        page = folder / REPORT
        terminal.print_table(headed_table(results), page if page.is_file() else None)
        print()
        print(folder)


def _dry_run(settings: FinetuneSettings, style: str) -> None:
    """Says what a training would take; asks nothing."""

    from llmfair.io.text import visible
    from llmfair.tuning.finetune import plan_finetune
    from llmfair.tuning.words import plan_text

    planned = plan_finetune(settings)
    if style == "json":
        terminal.print_json(planned)
    else:
        terminal.print_text("\n".join(map(visible, plan_text(planned).splitlines())))
    for warning in planned.warnings:
        terminal.warn(warning)


def _merge(settings: FinetuneSettings, style: str) -> None:
    """The base with an adapter merged into it, and what rounding makes of it."""

    from llmfair.tuning.merging import merge_adapter
    from llmfair.tuning.words import merge_text

    merged = merge_adapter(settings)
    if style == "json":
        terminal.print_json(merged)
    else:
        print(merge_text(merged))


def add(app: typer.Typer) -> None:
    app.command(
        "finetune-lora",
        rich_help_panel="Mitigate",
        epilog="llmfair finetune-lora -d my-folder --base-model mistralai/Mistral-7B-Instruct-v0.3 --dry-run\n\n"
        "torchrun --nproc-per-node 8 -m llmfair finetune-lora -d my-folder --base-model my-model",
    )(WithFlags(FinetuneSettings, finetune_lora))
