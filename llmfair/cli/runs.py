"""The commands of run folders: `llmfair report`, `compare`, `runs`, and of the answers that runs share: `cache`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from llmfair import terminal
from llmfair.cli import complete
from llmfair.cli.audits import EVIDENCE, cost_text, open_page
from llmfair.cli.options import Config, Json, RunsDir, Shared, Verbose, flag
from llmfair.errors import UsageError
from llmfair.io.text import visible

if TYPE_CHECKING:
    from llmfair.rundir import RunDir


Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN…",
        help="Run folders, or the beginnings of their names; folders of study windows, score or an adapter.",
        show_default=False,
        autocompletion=complete.runs,
    ),
]
ReportFile = Annotated[
    Path | None,
    flag(
        "The file; report.html in the run folder, of several runs in this folder.",
        "--output",
        "-o",
        named="report_file",
    ),
]
Figures = Annotated[
    str | None,
    flag("Also as files in plots/: svg, pdf, png.", "--figures"),
]
Evidence = Annotated[
    int,
    flag("Answers shown with their prompts.", "--evidence", min=0, max=100_000),
]
PageFormat = Annotated[
    Literal["html", "md", "card"],
    flag(
        "html: the page; md: its tables on stdout; card: a section for a model card on stdout.",
        "--format",
        named="report_format",
    ),
]
Open = Annotated[bool, flag("Open it in the browser.", "--open")]


def report(
    runs: Runs,
    # not `output`: a configuration file names the run folder of audits by that word
    file: ReportFile = None,
    figures: Figures = None,
    evidence: Evidence = EVIDENCE,
    # nor `format`, what their tables are printed as
    shape: PageFormat = "html",
    open_it: Open = False,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    verbose: Verbose = False,
    shared: Shared = False,
    config: Config = None,
) -> None:
    """The report of one run, or of several side by side, in one self-contained HTML file.

    Of several runs it has models down, attributes and prompts across, as in the papers' tables. It only reads run
    folders: nothing is asked.
    """
    from llmfair.pages import formats_of, page_of, write_page
    from llmfair.report.card import model_card, tables_markdown
    from llmfair.report.page import read_source
    from llmfair.rundir import REPORT, find_run

    formats = formats_of(figures or "", "--figures ")
    sources = [read_source(find_run(name, runs_dir)) for name in dict.fromkeys(runs)]
    page = page_of(sources, evidence)
    if shape == "md":
        print(tables_markdown(page), end="")
        return
    if shape == "card":
        print(model_card(page), end="")
        return
    path = file or (sources[0].run.path / REPORT if len(sources) == 1 else Path(REPORT).resolve())
    try:
        write_page(path, page, formats)
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or path}: {error.strerror}.", "choose another --output"
        ) from None
    if as_json:
        terminal.print_json({"schema": 1, "status": "complete", "report": str(path), "missing": page.missing})
    else:
        for line in page.missing:
            terminal.say(f"Not complete: {line}")
        print(path)
    if open_it:
        open_page(path)


def add_report(app: typer.Typer) -> None:
    app.command(
        rich_help_panel="Read",
        epilog="llmfair report listwise-sample --open\n\n"
        "llmfair report runs/one runs/two runs/three -o models.html --figures pdf",
    )(report)


ComparedRuns = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN RUN…",
        help="Run folders, or the beginnings of their names. The first is the base.",
        show_default=False,
        autocompletion=complete.runs,
    ),
]
Measures = Annotated[
    str | None,
    flag(
        "Measures, comma-separated (default: those of both runs that have a better direction).", "--measures"
    ),
]
TableFormat = Annotated[
    Literal["table", "tsv", "json", "md"],
    flag("What stdout gets.", "--format"),
]


def compare(
    runs: ComparedRuns,
    # not `measures`: a configuration file names those of audits by that word
    wanted: Measures = None,
    format: TableFormat = "table",
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    verbose: Verbose = False,
    config: Config = None,
) -> None:
    """Runs side by side, paired by query: what another model, adapter or setting changes."""
    from llmfair.audits.comparing import compare as compared_of
    from llmfair.report.compare import compare_table, compare_tsv
    from llmfair.rundir import find_run

    compared = compared_of([find_run(name, runs_dir) for name in runs], wanted)
    style = "json" if as_json else format
    terminal.show(style, compared, lambda: compare_table(compared), lambda: compare_tsv(compared))


def add_compare(app: typer.Typer) -> None:
    app.command(
        rich_help_panel="Read",
        epilog="llmfair compare pairwise-base pairwise-lora\n\n"
        "llmfair compare runs/one runs/two runs/three --measures P@20,ExpRatio --format md",
    )(compare)


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
    from llmfair.audits.runs.exhibits import answers_of, failures_of
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


def add_runs(app: typer.Typer) -> None:
    app.add_typer(runs, rich_help_panel="Look")


cache = typer.Typer(name="cache", help="Answers that runs share: where, how many, remove.")
AGE = re.compile(r"([0-9]{1,6})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}


@cache.command("path", epilog="llmfair cache path\n\nLLMFAIR_CACHE_DIR=elsewhere llmfair cache path")
def show_path(as_json: Json = False) -> None:
    """The file that holds them."""
    if as_json:
        terminal.print_json({"schema": 1, "path": str(_cache_file())})
    else:
        print(_cache_file())


@cache.command(epilog="llmfair cache info\n\nllmfair cache info --json")
def info(as_json: Json = False) -> None:
    """How many answers of which models, and their size."""
    from llmfair.asking.cache import facts
    from llmfair.report.tables import Table

    found = facts(_cache_file())
    if as_json:
        terminal.print_json({"schema": 1, **found})
        return
    rows = tuple(
        (row["model"], f"{row['entries']:,}", row["oldest"][:10], row["newest"][:10])
        for row in found["models"]
    )
    title = f"{_count(found['entries'])}, {_size(found['bytes'])}"
    terminal.print_table(Table(title, ("model", "answers", "first", "last"), rows, (found["path"],)))


@cache.command(
    epilog="llmfair cache clear --older-than 30d\n\nllmfair cache clear --model openai:gpt-4o-mini --yes"
)
def clear(
    model: Annotated[
        str | None,
        flag("Only this model's: PREFIX:NAME, or as `info` shows it.", named="clear_model"),
    ] = None,
    older_than: Annotated[
        str | None,
        flag("Only answers older than this: 12h, 30d, 8w.", named="clear_older_than"),
    ] = None,
    yes: Annotated[bool, flag("Do not ask.", "--yes")] = False,
    as_json: Json = False,
) -> None:
    """Remove cached answers; run folders keep theirs."""
    from llmfair.asking import cache as answers

    path, before = _cache_file(), _before(older_than)
    identity = None if model is None else model.replace(":", " ", 1) if " " not in model else model
    found = answers.count(path, identity, before)
    if found == 0:
        whose = "" if model is None else f" of {model}"
        terminal.say(f"Nothing to remove: no such answer{whose} in {path}.")
    elif not yes:
        what = "the damaged cache" if found is None else _count(found)
        hint = "add --yes to remove without asking"
        if not terminal.agreed(f"Remove {what} from {path}?", False, f"remove {what}", hint):
            terminal.say("Nothing was removed.")
            raise typer.Exit(1)
    removed = answers.clear(path, identity, before) if found != 0 else 0
    if as_json:
        terminal.print_json({"schema": 1, "path": str(path), "removed": removed})
    elif found != 0:
        print("Removed the damaged cache." if removed is None else f"Removed {_count(removed)}.")


def _cache_file() -> Path:
    from llmfair.asking.cache import FILE
    from llmfair.datasets.base import cache_folder

    return cache_folder() / FILE


def _before(age: str | None) -> datetime | None:
    """The moment that lies so long ago. Raises UsageError."""
    if age is None:
        return None
    match = AGE.fullmatch(age)
    if match is None:
        raise UsageError(f"--older-than {age} is not an age.", "hours, days or weeks: 12h, 30d, 8w")
    try:
        return datetime.now(UTC) - timedelta(hours=int(match[1]) * HOURS[match[2]])
    except OverflowError:
        raise UsageError(f"--older-than {age} is before the calendar.", "for example 30d") from None


def _count(count: int) -> str:
    return "1 answer" if count == 1 else f"{count:,} answers"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def add_cache(app: typer.Typer) -> None:
    app.add_typer(cache, rich_help_panel="Look")
