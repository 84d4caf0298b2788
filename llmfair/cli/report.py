"""`llmfair report`, and the report that every audit leaves in its run folder."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from llmfair import terminal
from llmfair.cli import complete
from llmfair.cli.options import Config, Json, RunsDir, Shared, Verbose, flag
from llmfair.errors import LlmfairError, UsageError

if TYPE_CHECKING:
    from llmfair.rundir import RunDir

EVIDENCE = 20
Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN…",
        help="Run folders, or the beginnings of their names; folders of study windows, score or an adapter.",
        show_default=False,
        autocompletion=complete.runs,
    ),
]
Output = Annotated[
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
Format = Annotated[
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
    file: Output = None,
    figures: Figures = None,
    evidence: Evidence = EVIDENCE,
    # nor `format`, what their tables are printed as
    shape: Format = "html",
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
        show(path)


def write_report(run: RunDir, open_it: bool = False) -> Path | None:
    """`report.html` beside an audit's results; None, with a warning, where there can be none: no run is lost by it."""
    from llmfair.pages import page_of, write_page
    from llmfair.report.page import read_source
    from llmfair.rundir import REPORT

    path = run.path / REPORT
    try:
        write_page(path, page_of([read_source(run)], EVIDENCE))
    except Exception as error:
        why = error.message if isinstance(error, LlmfairError) else f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.filename:
            why = f"{error.filename}: {error.strerror}"
        terminal.warn(f"no report was written, everything else was: {why}")
        if terminal.output.verbose:
            traceback.print_exception(error)
        return None
    if open_it:
        show(path)
    return path


def show(path: Path) -> None:
    """Opens a file in the user's browser, where there is one."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        terminal.warn(f"no browser could be opened for {path}")


def add(app: typer.Typer) -> None:
    app.command(
        rich_help_panel="Read",
        epilog="llmfair report listwise-sample --open\n\n"
        "llmfair report runs/one runs/two runs/three -o models.html --figures pdf",
    )(report)
