"""`llmfair runs`: what was run, and whether what is on disk holds together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmfair import terminal
from llmfair.cli import complete
from llmfair.cli.options import Config, Json, RunsDir, Verbose, flag
from llmfair.errors import UsageError
from llmfair.io.text import visible

if TYPE_CHECKING:
    from llmfair.rundir import RunDir

runs = typer.Typer(name="runs", help="List, show and check run folders.")
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Run folder, or the beginning of its name.", autocompletion=complete.runs
    ),
]


@runs.command("list", epilog="llmfair runs list\n\nllmfair runs list --runs-dir elsewhere --json")
def list_all(
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    verbose: Verbose = False,
    config: Config = None,
) -> None:
    """Run folders, newest first, each with its verdict."""
    from llmfair.report.tables import Table
    from llmfair.rundir import list_runs

    found = [run.summary() | {"verdict": _status(run)} for run in list_runs(runs_dir)]
    if as_json:
        terminal.print_json({"schema": 1, "runs": found})
        return
    header = ("run", "status", "verdict", "model", "answers", "started (UTC)")
    cells = tuple(
        (
            *(str(row[name] or "") for name in header[:-1]),
            row["started"][:16].replace("T", " "),
        )
        for row in found
    )
    terminal.print_table(Table("", header, cells, () if cells else ("none yet",)))


@runs.command(
    "show",
    epilog="llmfair runs show listwise-sample\n\nllmfair runs show listwise-sample --query physics --invalid",
)
def show(
    name: Run,
    query: Annotated[str | None, flag("Only answers about this query.", named="show_query")] = None,
    answers: Annotated[bool, flag("Every answer, raw.", "--answers", named="show_answers")] = False,
    failures: Annotated[bool, flag("Probes without an answer.", "--failures", named="show_failures")] = False,
    invalid: Annotated[
        bool,
        flag("Only answers that are not well-formed.", "--invalid", named="show_invalid"),
    ] = False,
    furthest: Annotated[
        bool, flag("The queries furthest from parity.", "--furthest", named="show_furthest")
    ] = False,
    trail: Annotated[
        bool, flag("How each query was refined, round by round.", "--trail", named="show_trail")
    ] = False,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    verbose: Verbose = False,
    config: Config = None,
) -> None:
    """A run's table again, or its evidence."""
    from llmfair.audits.commands import continuing
    from llmfair.audits.kind import kind_of, results_of
    from llmfair.audits.runs.evidence import answers_of, failures_of
    from llmfair.cli.audits import cost_text
    from llmfair.io.files import plain
    from llmfair.report.tables import Table, headed
    from llmfair.rundir import REPORT, find_run

    run = find_run(name, runs_dir)
    if furthest:
        _show_furthest(run, as_json)
        return
    if trail:
        _show_trail(run, query, as_json)
        return
    if not (answers or failures or invalid or query):
        manifest, command = run.read_manifest(), continuing(run)
        if command and not run.results.is_file():
            raise UsageError(f"{run.path} has no results yet.", f"{command}    completes it")
        results = results_of(run, manifest)
        if as_json:
            calls = sum(one.calls or 0 for one in manifest.invocations)
            terminal.print_json({**plain(results), "calls": calls, "cost": manifest.cost})
        else:
            table = headed(kind_of(results.task).table(results), results.verdict, run.path, command)
            cost = cost_text(manifest)
            terminal.print_table(table, page if (page := run.path / REPORT).is_file() else None)
            if cost:
                print(f"  {cost}")
        return
    rows = failures_of(run, query) if failures else answers_of(run, query, only_bad=invalid)
    if as_json:
        terminal.print_json({"schema": 1, "run": run.path.name, "rows": rows})
        return
    header = tuple(rows[0]) if rows else ("nothing",)
    cells = tuple(tuple(str(value) for value in row.values()) for row in rows)
    terminal.print_table(Table("", header, cells, ()))


def _status(run: RunDir) -> str | None:
    """The status of a run's verdict; None where it has no results yet, or none that can be read."""
    from llmfair.audits.kind import results_of

    if not run.results.is_file():
        return None
    try:
        status: str = results_of(run).verdict.status
    except UsageError:
        return None
    return status


def _show_trail(run: RunDir, query_id: str | None, as_json: bool) -> None:
    """How a run went about its queries, step by step."""
    from llmfair.audits.kind import kind_in

    lines = kind_in(run.manifest, run.read_manifest().task).trail(run, query_id)
    if as_json:
        terminal.print_json({"schema": 1, "run": run.path.name, "trail": [*lines]})
        return
    for line in lines:
        print(visible(line))


def _show_furthest(run: RunDir, as_json: bool) -> None:
    """Queries by their own figures, the one furthest from parity first."""
    from llmfair.audits.kind import kind_of, results_of
    from llmfair.audits.runs.exhibits import exhibits_of
    from llmfair.report.tables import Table

    results = results_of(run)
    found = kind_of(results.task).section(results, run.path, exhibits_of(run, 0)).furthest
    rows = [] if found is None else [{"query": one.query, "figures": one.figures} for one in found.queries]
    if as_json:
        terminal.print_json({"schema": 1, "run": run.path.name, "queries": rows})
        return
    if found is None:
        print("no query has a figure of its own; the report has every answer")
        return
    cells = tuple(tuple(row.values()) for row in rows)
    notes = ("llmfair report has their rankings, or pairs, item by item",)
    terminal.print_table(Table(f"{found.title}, over all {found.over}", ("query", "figures"), cells, notes))


@runs.command(epilog="llmfair runs check listwise-sample\n\nllmfair runs check runs/my-run --json")
def check(
    name: Run,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    verbose: Verbose = False,
    config: Config = None,
) -> None:
    """Is the journal readable, and do its answers give what is on disk?"""
    from llmfair.audits.runs.replay import check_run
    from llmfair.rundir import find_run

    run = find_run(name, runs_dir)
    found = check_run(run)
    if as_json:
        terminal.print_json({"schema": 1, "run": run.path.name, **found})
    else:
        for line in found["problems"] or ["the journal is readable and its answers give what is on disk"]:
            terminal.print_text(line)
        for line in found["notes"]:
            terminal.print_text(line)
    if found["problems"]:
        raise typer.Exit(1)


def add(app: typer.Typer) -> None:
    app.add_typer(runs, rich_help_panel="Look")
