"""`llmfair mitigate`: remedies for a finished run, on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmfair import terminal
from llmfair.cli import complete
from llmfair.cli.options import RunsDir, WithFlags
from llmfair.io.files import plain
from llmfair.io.text import visible
from llmfair.settings import MitigateSettings

if TYPE_CHECKING:
    from llmfair.asking.limits import Progress
    from llmfair.audits.runs.run import Watch
    from llmfair.mitigation.mitigate import Mitigated

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The folder of a listwise run, or the beginning of its name.",
        show_default=False,
        autocompletion=complete.runs,
    ),
]


def mitigate(
    settings: MitigateSettings, style: str, *, ctx: typer.Context, run: Run, runs_dir: RunsDir = Path("runs")
) -> None:
    """Remedies for a listwise run, side by side: what each buys and costs, on the same queries.

    Consensus, logit offset, FA*IR and greedy re-ranking need no call; a fair-instruction prompt, FAIR-QR and a LoRA
    adapter are asked, each in a run folder of its own that its own command would take, too.
    """
    from llmfair.cli.report import write_report
    from llmfair.mitigation.mitigate import mitigate as held
    from llmfair.mitigation.mitigate import plan_mitigation
    from llmfair.rundir import RunDir, find_run

    folder = find_run(run, runs_dir)
    if settings.dry_run:
        _show_plan(plan_mitigation(folder, settings), style)
        return
    seen: dict[str, Any] = {}
    try:
        done = held(folder, settings, _watching(seen))
    except KeyboardInterrupt:
        if "folder" not in seen:
            raise
        said = f"Stopped at {seen['remedy']}. The same command continues."
        raise typer.Exit(terminal.interrupted(said)) from None
    report = write_report(RunDir(done.folder), settings.open) if settings.report else None
    _show(done, report, style)
    if done.error is not None:
        terminal.output.as_json = False  # said already
        raise typer.Exit(terminal.fail(done.error))


def _watching(seen: dict[str, Any]) -> Callable[[str], Watch]:
    """Shows each remedy while it is asked."""
    from llmfair.report.tables import count, on_disk

    def watch_of(remedy: str) -> Watch:
        @contextmanager
        def watch(folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int) -> Iterator[None]:
            calls = planned["calls"]
            terminal.output.begun.append(folder)
            seen.update(remedy=remedy, folder=folder)
            progress.tell = lambda text: terminal.say(visible(text))
            if calls:
                terminal.say(f"{remedy}: {count(calls, 'call')}{on_disk(planned)}")
            with terminal.bar(f"Asking, {remedy}", calls, progress, limit) if calls else nullcontext():
                yield

        return watch

    return watch_of


def _show(done: Mitigated, report: Path | None, style: str) -> None:
    from llmfair.mitigation.words import headed_table
    from llmfair.report.tables import markdown, tidy_tsv

    found = done.results
    if style == "json":
        terminal.print_json({**plain(done.results), **(terminal.failure(done.error) if done.error else {})})
    elif style == "tsv":
        print(tidy_tsv(found.rows), end="")
    elif style == "md":
        print(markdown(headed_table(found)), end="")
    else:
        terminal.print_table(headed_table(found), report)
        print("", report or done.folder, sep="\n")


def _show_plan(planned: Any, style: str) -> None:
    from llmfair.mitigation.words import plan_table

    if style == "json":
        terminal.print_json(planned)
    else:
        terminal.print_table(plan_table(planned))


def add(app: typer.Typer) -> None:
    app.command(
        rich_help_panel="Mitigate",
        epilog="llmfair mitigate listwise-sample --free\n\n"
        "llmfair mitigate runs/my-run --remedy offset --remedy fair-star:p=0.4 --dry-run",
    )(WithFlags(MitigateSettings, mitigate))
