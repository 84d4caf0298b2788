"""The commands of rankings that exist: `llmfair score` measures them, `llmfair rerank` orders them anew, `llmfair
mitigate` tries remedies on those of a run, `llmfair finetune-lora` trains an adapter."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import typer

from llmfair import terminal
from llmfair.cli.options import RUNS_DIR, argument, command, flag
from llmfair.errors import RequirementFailed, RunConflict, UsageError
from llmfair.io.files import plain
from llmfair.io.text import count, visible
from llmfair.results import TIDY, lines_of
from llmfair.rundir import COLUMNS, REPORT, RunDir, csv_lines, find_run
from llmfair.settings.commands import FinetuneSettings, MitigateSettings, RerankSettings, ScoreSettings

root = typer.Typer()
RUNS = argument("RUN…", "TREC run files (gzip too), ranx JSON or CSV, or run folders.")


@command(
    root,
    "llmfair score bm25.run monot5.run.gz --qrels qrels.txt --groups groups.tsv",
    "llmfair score my.run -d sample --measures P@20,ExpRatio --per-query",
    panel="Audit",
    settings=ScoreSettings,
)
def score(settings: ScoreSettings, style: str, runs: list[Path] = RUNS) -> None:
    """Fairness and utility of existing TREC runs; no model is asked."""
    from llmfair.audits.gates import suites_of_score, write_junit
    from llmfair.audits.scoring import failing, require_all
    from llmfair.audits.scoring import score as measure
    from llmfair.cli.audits import write_report
    from llmfair.report.compare import score_table, score_warnings

    scored = measure(runs, settings)
    results = scored.results
    written = None
    if settings.report and settings.output is not None:
        written = write_report(RunDir(settings.output), settings.open)
    if style in ("json", "tsv") or settings.per_query:
        for warning in score_warnings(results):  # rows have no place for them
            terminal.warn(warning)
    if settings.junit is not None:
        write_junit(settings.junit, suites_of_score(results), failing(settings, results.runs))
    failed: RequirementFailed | None = None
    try:
        require_all(results, settings)
    except RequirementFailed as error:
        failed = error
    rows = [*(scored.per_query if settings.per_query else ()), *results.rows]
    if settings.per_query and style != "json":
        sys.stdout.writelines(csv_lines(COLUMNS, lines_of(rows), "\t"))
    else:
        document = {**plain(results), "rows": rows}
        below, lines = [] if written is None else [written], (TIDY, lines_of(rows, TIDY))
        terminal.show(style, document, lambda: score_table(results), lines, written, below, failed)
    if failed is not None:
        raise terminal.failed_after_output(failed)


RUN_FILES = argument("RUN…", "TREC run files (gzip too).")
WITH = flag(
    ..., "Who orders them, fair-star, mmr, greedy or any other ranker; parameters as in fair-star:p=0.3,alpha=0.15.",
    "--with", metavar="RANKER", panel="Data",
)  # fmt: skip


@command(
    root,
    "llmfair rerank bm25.run --with fair-star:p=0.3,alpha=0.15 -d trec-fair/2022/gender -o fair.run",
    "llmfair rerank bm25.run.gz monot5.run --with greedy --qrels qrels.txt --groups groups.tsv -o greedy",
    panel="Mitigate",
    settings=RerankSettings,
)
def rerank(settings: RerankSettings, style: str, runs: list[Path] = RUN_FILES, ranker: str = WITH) -> None:
    """Rankings that exist in another order: TREC run in, TREC run out; no model is asked."""
    from llmfair.audits.rerank import rerank as ordered

    reranked = ordered(runs, ranker, settings)
    for run in reranked.runs:
        for warning in run.warnings:
            terminal.warn(warning)
    lines = [
        f"{run.output}: {run.queries:,} queries, {run.changed:,} of them in another order"
        for run in reranked.runs
    ]
    terminal.show(style, reranked, lambda: "\n".join([*lines, f"NEXT     {reranked.next}"]))


RUN = argument("RUN", "The folder of a listwise run, or the beginning of its name.")


@command(
    root,
    "llmfair mitigate listwise-sample --free",
    "llmfair mitigate runs/my-run --remedy offset --remedy fair-star:p=0.4 --dry-run",
    panel="Mitigate",
    settings=MitigateSettings,
)
def mitigate(settings: MitigateSettings, style: str, run: str = RUN, runs_dir: Path = RUNS_DIR) -> None:
    """Remedies for a listwise run, side by side: what each buys and costs, on the same queries.

    Consensus, logit offset, FA*IR and greedy re-ranking need no call; a fair-instruction prompt and a LoRA adapter are
    asked, each in a run folder of its own that its own command would take, too.
    """
    from llmfair.cli.audits import write_report
    from llmfair.mitigation.mitigate import mitigate as held
    from llmfair.mitigation.mitigate import plan_mitigation
    from llmfair.mitigation.words import headed_table, plan_table
    from llmfair.report.phrases import on_disk

    folder = find_run(run, runs_dir)
    if settings.dry_run:
        planned = plan_mitigation(folder, settings)
        terminal.show(style, planned, lambda: plan_table(planned))
        return
    watches: dict[str, terminal.Watching] = {}

    def watch_of(remedy: str) -> terminal.Watching:
        watches[remedy] = terminal.Watching(
            f"Asking, {remedy}",
            lambda planned: f"{remedy}: {count(planned['calls'], 'call')}{on_disk(planned)}",
        )
        return watches[remedy]

    try:
        done = held(folder, settings, watch_of)
    except KeyboardInterrupt:
        begun = [remedy for remedy, watch in watches.items() if watch.folder]
        if not begun:
            raise
        raise terminal.interrupted(f"Stopped at {begun[-1]}. The same command continues.") from None
    report = write_report(RunDir(done.folder), settings.open) if settings.report else None
    results, below = done.results, [report or done.folder]
    lines = (TIDY, lines_of(results.rows, TIDY))
    terminal.show(style, results, lambda: headed_table(results), lines, report, below, done.error)
    if done.error is not None:
        raise terminal.failed_after_output(done.error)


@command(
    root,
    "llmfair finetune-lora -d my-folder --base-model mistralai/Mistral-7B-Instruct-v0.3 --dry-run",
    "torchrun --nproc-per-node 8 -m llmfair finetune-lora -d my-folder --base-model my-model",
    panel="Mitigate",
    settings=FinetuneSettings,
)
def finetune_lora(settings: FinetuneSettings, style: str) -> None:
    """Trains a LoRA adapter that brings pairs of both groups nearer to parity, and measures what else it changes."""
    from llmfair.tuning.processes import rank

    if rank() == 0:
        _finetune(settings, style)
        return
    terminal.output.quiet = True  # the first process alone speaks
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            _finetune(settings, style)
    except (UsageError, RunConflict) as error:  # which the first one says as well
        raise typer.Exit(error.exit_code) from None


def _finetune(settings: FinetuneSettings, style: str) -> None:
    """Merges an adapter into its base, says what a training would take and asks nothing, or trains."""
    from llmfair.audits.gates import refused, statuses_of
    from llmfair.tuning import processes, words
    from llmfair.tuning.finetune import finetune, merge_adapter, plan_finetune

    if settings.merge is not None:
        merged = merge_adapter(settings)
        terminal.show(style, merged, lambda: words.merge_text(merged))
        return
    if settings.dry_run:
        planned = plan_finetune(settings)
        for warning in planned.warnings:
            terminal.warn(warning)
        terminal.show(style, planned, lambda: "\n".join(map(visible, words.plan_text(planned).splitlines())))
        return
    display, error = words.TrainingProgress(), None
    fail_on = statuses_of(settings.fail_on, words.STATUSES)
    try:
        done = finetune(settings, display)
    except KeyboardInterrupt:
        if display.folder is None:
            raise
        sentence = f"Stopped {display.how_far()}. The same command continues: {display.folder}"
        raise terminal.interrupted(sentence, run=str(display.folder)) from None
    if done.before:
        terminal.say(f"Already complete: {done.folder.path}")
    if done.results.status == "rejected":
        error = RequirementFailed(str(done.results.training.why), words.NEAREST)
    elif failed := refused(done.results.verdict, fail_on):
        error = RequirementFailed(failed, "everything is written")
    results, page = done.results, done.folder.path / REPORT
    terminal.show(
        style,
        results,
        lambda: words.headed_table(results),
        (words.TSV, lines_of(results.rows, words.TSV)),
        page if page.is_file() else None,
        [done.folder.path],
        error,
    )
    if error is not None:
        terminal.output.as_json = False  # said already
        code = terminal.fail(error)
        processes.first(
            lambda: None
        )  # a launcher ends all processes once one leaves with another code than 0
        raise typer.Exit(code if processes.rank() == 0 else 0)
