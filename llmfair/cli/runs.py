"""The commands of run folders: `llmfair report`, `compare`, `runs`, and of the answers that runs share: `cache`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from llmfair import terminal
from llmfair.cli.audits import cost_text, open_page
from llmfair.cli.options import CONFIG, RUNS_DIR, View, about_audits, argument, command, flag, group
from llmfair.errors import UsageError
from llmfair.io.files import plain, write_whole, writing
from llmfair.io.text import count, visible
from llmfair.results import lines_of
from llmfair.rundir import REPORT, RunDir, find_run, list_runs
from llmfair.settings.commands import EVIDENCE

if TYPE_CHECKING:
    from llmfair.report.page import Source


root = typer.Typer()
ELSEWHERE = "choose another --output"
NAMES = "Run folders, or the beginnings of their names"
RUNS = argument("RUN…", f"{NAMES}; folders of study windows, score or an adapter.")
COMPARED = argument("RUN RUN…", f"{NAMES}. The first is the base.")
RUN = argument("RUN", "Run folder, or the beginning of its name.")
FORMATS = (
    "html: the page; on stdout md, latex: its tables; csv: all figures, one a line; card: a section for a model card; "
    "ll144: the summary of New York City's law on hiring; profile: a bias profile by scenario."
)
FILE = flag(
    None, "The file; report.html in the run folder, of several runs in this folder.", "--output", "-o",
    named="report_file",
)  # fmt: skip
ABOUT = flag(
    None, "Of ll144, attributes of groups.tsv, comma-separated (default: all); every two are also taken together.",
    "--attribute", "-a", named="report_attribute",
)  # fmt: skip
AT = flag(
    None,
    "Of ll144, how many of each list are selected (default: who scores above the median, or the cutoff of measures).",
    named="report_at", min=1,
)  # fmt: skip
MEASURES = flag(
    None,
    "Measures, comma-separated (default: those of both runs that have a better direction).",
    "--measures",
)
MARGIN = flag(
    None, "Runs whose odds differ by a quotient within this are equivalent (default: the band, 0.8..1.25).",
    "--margin", named="compare_margin",
)  # fmt: skip
FAIL_ON = flag(
    None,
    "Verdicts that end in exit 4, comma-separated: worse (farther from parity), open, 'not assessable', 'no difference "
    "shown'.", "--fail-on", named="compare_fail_on",
)  # fmt: skip


@command(
    root,
    "llmfair report listwise-sample --open",
    "llmfair report runs/one runs/two runs/three -o models.html --figures pdf",
    panel="Read",
    shared=("shared",),
)
def report(
    runs: list[str] = RUNS,
    # not `output`: a configuration file names the run folder of audits by that word
    file: Path | None = FILE,
    figures: str | None = flag(None, "Also as files in plots/: svg, pdf, png."),
    evidence: int = flag(EVIDENCE, "Answers shown with their prompts.", min=0, max=100_000),
    # nor `format`, what their tables are printed as
    shape: Literal["html", "md", "latex", "csv", "card", "ll144", "profile"] = flag(
        "html", FORMATS, "--format", named="report_format"
    ),
    about: str | None = ABOUT,
    at: int | None = AT,
    open_it: bool = flag(False, "Open it in the browser.", "--open"),
    runs_dir: Path = RUNS_DIR,
    config: Path | None = CONFIG,
) -> View:
    """The report of one run, or of several side by side, in one self-contained HTML file.

    Of several runs it has models down, attributes and prompts across, as in the papers' tables. It only reads run
    folders: nothing is asked.
    """
    from llmfair.api import formats_of, page_of, write_page
    from llmfair.report.html import figures_csv, model_card, tables_latex, tables_markdown
    from llmfair.report.page import read_source

    formats = formats_of(figures or "")
    sources = [read_source(find_run(name, runs_dir)) for name in dict.fromkeys(runs)]
    if shape in ("ll144", "profile"):
        return _summary(shape, sources, file, about, at, config)
    page = page_of(sources, evidence)
    if shape != "html":
        texts = {"md": tables_markdown, "latex": tables_latex, "card": model_card}
        print(figures_csv(sources) if shape == "csv" else texts[shape](page), end="")
        raise typer.Exit
    path = file or (sources[0].run.path / REPORT if len(sources) == 1 else Path(REPORT).resolve())
    with writing(path.parent, ELSEWHERE):
        write_page(path, page, formats)
    for line in () if terminal.output.as_json else page.missing:
        terminal.say(f"Not complete: {line}")
    if open_it:
        open_page(path)
    return View({"status": "complete", "report": str(path), "missing": page.missing}, str(path))


def _summary(
    shape: str,
    sources: Sequence[Source],
    file: Path | None,
    about: str | None,
    at: int | None,
    config: Path | None,
) -> View:
    """A summary on stdout in Markdown, or in a file in the form that its ending names."""
    from llmfair.report.summaries import FORMS, as_markdown, summary_of

    if len(sources) > 1:
        raise UsageError(f"--format {shape} is of one run.", "one command for each run")
    if file is not None and file.suffix not in FORMS:
        raise UsageError(f"--output {file} has no form.", f"its ending says which: {', '.join(FORMS)}")
    summary = summary_of(shape, sources[0], about_audits(config), about, at)
    if file is None:
        header, *lines = summary.lines
        rows = [dict(zip(header, line, strict=True)) for line in lines]
        return View({"status": "complete", "rows": rows}, as_markdown(summary).rstrip("\n"))
    with writing(file.parent, ELSEWHERE):
        write_whole(file, [FORMS[file.suffix](summary)])
    return View({"status": "complete", "report": str(file), "missing": []}, str(file))


@command(
    root,
    "llmfair compare pairwise-base pairwise-lora --fail-on worse",
    "llmfair compare runs/one runs/two runs/three --measures P@20,ExpRatio --format md",
    panel="Read",
    shared=("config",),
)
def compare(
    runs: list[str] = COMPARED,
    # not `measures`, `margin` and `fail_on`: a configuration file names those of audits by these words
    wanted: str | None = MEASURES,
    within: str | None = MARGIN,
    failing: str | None = FAIL_ON,
    format: Literal["table", "tsv", "json", "md"] = flag("table", "What stdout gets."),
    runs_dir: Path = RUNS_DIR,
) -> View:
    """Runs side by side, paired by query: what another model, adapter or setting changes."""
    from llmfair.audits.comparing import compare as compared_of
    from llmfair.audits.comparing import failed_of
    from llmfair.audits.gates import statuses_of
    from llmfair.report.compare import COLUMNS, compare_table
    from llmfair.report.verdict import FAILING

    fail_on = [FAILING[word] for word in statuses_of(failing, FAILING)]
    compared = compared_of([find_run(name, runs_dir) for name in runs], wanted, within)
    failed = failed_of(compared, fail_on)
    style = "json" if terminal.output.as_json else format
    lines = (COLUMNS, lines_of(compared.rows, COLUMNS))
    terminal.show(style, compared, lambda: compare_table(compared), lines, error=failed)
    raise typer.Exit if failed is None else terminal.failed_after_output(failed)


runs = group("runs", "List, show and check run folders.")


@command(
    runs,
    "llmfair runs list",
    "llmfair runs list --runs-dir elsewhere --json",
    name="list",
    shared=("config",),
)
def list_all(runs_dir: Path = RUNS_DIR) -> View:
    """Run folders, newest first, each with its verdict."""
    from llmfair.audits.kind import results_of

    rows = []
    for run in list_runs(runs_dir):
        status = None
        if run.results.is_file():
            with suppress(UsageError):  # of damaged results, which `runs check` names
                status = results_of(run).verdict.status
        rows.append(run.summary() | {"verdict": status})
    columns = ("run", "status", "verdict", "model", "answers")
    cells = [
        (*(str(row[name] or "") for name in columns), row["started"][:16].replace("T", " ")) for row in rows
    ]
    return View({"runs": rows}, ("", (*columns, "started (UTC)"), cells, () if cells else ("none yet",)))


@command(
    runs,
    "llmfair runs show listwise-sample",
    "llmfair runs show listwise-sample --query physics --invalid",
    shared=("config",),
)
def show(
    name: str = RUN,
    query: str | None = flag(None, "Only answers about this query.", named="show_query"),
    answers: bool = flag(False, "Every answer, raw.", named="show_answers"),
    failures: bool = flag(False, "Probes without an answer.", named="show_failures"),
    invalid: bool = flag(False, "Only answers that are not well-formed.", named="show_invalid"),
    furthest: bool = flag(False, "The queries furthest from parity.", named="show_furthest"),
    trail: bool = flag(False, "How each query was refined, round by round.", named="show_trail"),
    runs_dir: Path = RUNS_DIR,
) -> View:
    """A run's table again, or its evidence."""
    from llmfair.audits.kind import kind_in
    from llmfair.audits.runs.exhibits import answers_of, failures_of

    run = find_run(name, runs_dir)
    named = {"run": run.path.name}
    if furthest:
        return _furthest(run)
    if trail:
        kind = kind_in(run.manifest, run.read_manifest().task)
        if kind.words.trail is None:
            hint = "its answers, one by one: llmfair runs show RUN --answers"
            raise UsageError(f"{run.path}: {kind.name} keeps no trail.", hint)
        lines = [*kind.words.trail(run, query)]
        return View(named | {"trail": lines}, "\n".join(map(visible, lines)))
    if not (answers or failures or invalid or query):
        return _again(run)
    rows = failures_of(run, query) if failures else answers_of(run, query, only_bad=invalid)
    header = tuple(rows[0]) if rows else ("nothing",)
    return View(named | {"rows": rows}, ("", header, [map(str, row.values()) for row in rows], ()))


def _again(run: RunDir) -> View:
    """The table of a run's results. Raises UsageError with the command that completes it where there are none."""
    from llmfair.audits.commands import continuing
    from llmfair.audits.kind import kind_of, results_of
    from llmfair.report.table import headed

    manifest, following = run.read_manifest(), continuing(run)
    if following and not run.results.is_file():
        raise UsageError(f"{run.path} has no results yet.", f"{following}    completes it")
    results, page = results_of(run, manifest), run.path / REPORT
    if not terminal.output.as_json:
        table = headed(kind_of(results.task).words.table(results), results.verdict, run.path, following)
        terminal.print_table(table, page if page.is_file() else None)
    calls, cost = sum(past.calls or 0 for past in manifest.invocations), cost_text(manifest)
    document = {**plain(results), "calls": calls, "cost": manifest.cost}
    return View(document, f"  {cost}" if cost else None)


def _furthest(run: RunDir) -> View:
    """Queries by their own figures, the one furthest from parity first."""
    from llmfair.audits.kind import kind_of, results_of
    from llmfair.audits.runs.exhibits import exhibits_of

    results, document = results_of(run), {"run": run.path.name}
    furthest = kind_of(results.task).words.section(results, run.path, exhibits_of(run, 0)).furthest
    if furthest is None:
        none = "no query has a figure of its own; the report has every answer"
        return View(document | {"queries": []}, none)
    rows = [{"query": of.query, "figures": of.figures} for of in furthest.queries]
    notes = ("llmfair report has their rankings, or pairs, item by item",)
    cells, title = [row.values() for row in rows], f"{furthest.title}, over all {furthest.over}"
    return View(document | {"queries": rows}, (title, ("query", "figures"), cells, notes))


@command(
    runs, "llmfair runs check listwise-sample", "llmfair runs check runs/my-run --json", shared=("config",)
)
def check(name: str = RUN, runs_dir: Path = RUNS_DIR) -> View:
    """Whether every file can be recomputed from the journal."""
    from llmfair.audits.runs.exhibits import check_run

    run = find_run(name, runs_dir)
    checked: Mapping[str, Any] = check_run(run)
    lines = checked["problems"] or ["OK: every file can be recomputed from the journal"]
    if not terminal.output.as_json:
        terminal.print_text("\n".join([*lines, *checked["notes"]]))
    return View({"run": run.path.name, **checked}, None, 1 if checked["problems"] else 0)


cache = group("cache", "Answers that runs share: where, how many, remove.")
AGE = re.compile(r"([0-9]{1,5})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}


def _cache_file() -> Path:
    from llmfair.asking.cache import FILE
    from llmfair.datasets.base import cache_folder

    return cache_folder() / FILE


@command(cache, "llmfair cache path", "LLMFAIR_CACHE_DIR=elsewhere llmfair cache path")
def path() -> View:
    """The file that holds them."""
    return View({"path": str(_cache_file())}, str(_cache_file()))


@command(cache, "llmfair cache info", "llmfair cache info --json")
def info() -> View:
    """How many answers of which models, and their size."""
    from llmfair.asking.cache import facts

    held = facts(_cache_file())
    rows = [
        (row["model"], f"{row['entries']:,}", row["oldest"][:10], row["newest"][:10])
        for row in held["models"]
    ]
    title = f"{count(held['entries'], 'answer')}, {terminal.size_text(held['bytes'])}"
    return View(held, (title, ("model", "answers", "first", "last"), rows, (held["path"],)))


@command(
    cache, "llmfair cache clear --older-than 30d", "llmfair cache clear --model openai:gpt-4o-mini --yes"
)
def clear(
    model: str | None = flag(
        None, "Only this model's: PREFIX:NAME, or as `info` shows it.", named="clear_model"
    ),
    older_than: str | None = flag(
        None, "Only answers older than this: 12h, 30d, 8w.", named="clear_older_than"
    ),
    yes: bool = flag(False, "Do not ask."),
) -> View:
    """Remove cached answers; run folders keep theirs."""
    from llmfair.asking import cache as answers

    file, before = _cache_file(), None
    if older_than is not None:
        if (match := AGE.fullmatch(older_than)) is None:
            hint = "hours, days or weeks: 12h, 30d, 8w"
            raise UsageError(f"--older-than {older_than} is not an age.", hint)
        before = datetime.now(UTC) - timedelta(hours=int(match[1]) * HOURS[match[2]])
    identity = None if model is None else model.replace(":", " ", 1) if " " not in model else model
    held = answers.count(file, identity, before)
    if held == 0:
        terminal.say(f"Nothing to remove: no such answer{f' of {model}' if model else ''} in {file}.")
        return View({"path": str(file), "removed": 0})
    if not yes:
        what = "the damaged cache" if held is None else count(held, "answer")
        hint = "add --yes to remove without asking"
        if not terminal.agreed(f"Remove {what} from {file}?", False, f"remove {what}", hint):
            terminal.say("Nothing was removed.")
            raise typer.Exit(1)
    removed = answers.count(file, identity, before, remove=True)
    done = "the damaged cache" if removed is None else count(removed, "answer")
    return View({"path": str(file), "removed": removed}, f"Removed {done}.")
