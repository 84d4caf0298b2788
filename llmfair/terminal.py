"""What a person sees: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from llmfair.beginning import stop_code
from llmfair.errors import LlmfairError, UsageError, shortened
from llmfair.io import secrets
from llmfair.io.files import SCHEMA, json_text, plain
from llmfair.io.text import count, in_json, visible, wrapped

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from llmfair.asking.limits import Progress
    from llmfair.report.table import Table

PLAIN_EVERY = 10.0
RATE_SECONDS = 60.0
GAP = "  "
MOST_NOTES = 4
"""Notes below a table with a verdict that a terminal shows; the first change most how it is read."""


@dataclass
class Output:
    """How this invocation speaks, set once by the command; what it said, and the run folders it began."""

    quiet: bool = False
    verbose: bool = False
    progress: bool = True
    color: str = "auto"
    as_json: bool = False
    stopped: bool = False
    warned: set[str] = field(default_factory=set)
    begun: list[Path] = field(default_factory=list)


output = Output()


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    forced = {"always": True, "never": None}.get(output.color)
    plain = output.color == "never" or (output.color == "auto" and bool(os.environ.get("NO_COLOR")))
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=getattr(stream, "as_it_is", stream),  # what draws needs escape sequences of its own
        force_terminal=forced,
        color_system=None if plain else "auto",
        highlight=False,
        soft_wrap=True,
    )


def failure(error: LlmfairError) -> dict[str, Any]:
    """An error as JSON has it."""
    return {
        "schema": SCHEMA,
        "status": "incomplete" if error.exit_code == 3 else "failed",
        "exit_code": error.exit_code,
        "error": {
            "class": type(error).__name__,
            "message": _safe(error.message),
            "hint": secrets.said(error.hint),
        },
    }


def _safe(text: str) -> str:
    """A text without what is secret in it, and no longer than an error may be."""
    return shortened(secrets.said(text))


def fail(error: LlmfairError) -> int:
    """Says an error in a sentence with the way out, and returns its exit code."""
    if output.as_json:
        with suppress(LlmfairError, OSError):  # a full disk, which may be the very error
            print_json(failure(error))
    say_message(error)
    if error.hint:
        print_text(secrets.said(f"  {error.hint}"), sys.stderr)
    trace(error)
    return error.exit_code


def trace(error: LlmfairError) -> None:
    """Where an error comes from, with --verbose."""
    if output.verbose:
        print(secrets.said("".join(traceback.format_exception(error))), end="", file=sys.stderr)


def failed_after_output(error: LlmfairError) -> Exception:
    """What ends a command whose result is on stdout already, the error in it."""
    import typer

    output.as_json = False
    return typer.Exit(fail(error))


def say_message(error: LlmfairError) -> None:
    """An error's sentence, of which others may follow."""
    print_text(_safe(f"Error: {error.message}"), sys.stderr)


def interrupted(text: str, **left: Any) -> Exception:
    """What ends a command that was stopped; says how far it came, as JSON with what it `left`, too."""
    import typer

    code = stop_code()
    stopped(code, **left)
    say(text)
    output.stopped = True
    return typer.Exit(code)


def stopped(code: int, **left: Any) -> None:
    """Says as JSON that a command was stopped, what it `left`, and every run folder that it began."""
    if output.as_json:
        runs = [str(folder) for folder in dict.fromkeys(output.begun) if folder.is_dir()]
        named = {"runs": runs} if runs else {}
        print_json({"schema": SCHEMA, "status": "incomplete", "exit_code": code, **left, **named})


def warn(text: str) -> None:
    """One line on stderr, said once."""
    if text not in output.warned:
        output.warned.add(text)
        print_text(_safe(f"Warning: {text}"), sys.stderr)


def say(text: str) -> None:
    """A line on stderr, unless only results are wanted."""
    if not output.quiet:
        print_text(secrets.said(text), sys.stderr)


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Lines on stdout, or another stream; on a terminal in its width, indented as they begin."""
    stream = stream or sys.stdout
    lines = text.split("\n")
    if stream.isatty():
        width = console(stderr=stream is sys.stderr).width
        parts = (wrapped(line, width, indent=" " * (len(line) - len(line.lstrip()))) for line in lines)
        lines = [part for of_line in parts for part in of_line or ("",)]
    print("\n".join(lines), file=stream)


def size_text(count: int) -> str:
    """So many bytes, in the unit that people use."""
    for least, unit, name in ((1e8, 1e9, "GB"), (1e5, 1e6, "MB")):
        if count >= least:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1e3:,.1f} kB"


def agreed(question: str, default: bool, alone: str, flag: str) -> bool:
    """Whether the user says yes; an empty answer is the default. Raises UsageError where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UsageError(f"without a terminal nobody can be asked whether to {alone}.", flag)
    choices = "[Y/n]" if default else "[y/N]"
    print(f"{question} {choices} ", end="", file=sys.stderr, flush=True)  # stdout is for results alone
    answer = sys.stdin.readline()
    word = answer.strip().lower()
    return word in ("y", "yes") or (default and bool(answer) and not word)


def print_json(content: Any) -> None:
    print(in_json(json_text(content)), end="")


def show(
    style: str,
    document: Any,
    table: Callable[[], Table | str],
    lines: tuple[Sequence[str], Iterable[Sequence[Any]]] | None = None,
    report: Path | None = None,
    below: Sequence[object] = (),
    error: LlmfairError | None = None,
) -> None:
    """A result on stdout in the style that was asked for.

    A text in place of the table stands as it is. `lines`: columns and lines for programs, where they are not the
    table's; `below`: lines under the table of a terminal; `error`: what ends the command, which the JSON document has.
    """
    from llmfair.report.table import markdown
    from llmfair.rundir import csv_text

    if style == "json":
        print_json(document if error is None else {**plain(document), **failure(error)})
        return
    shown = table()
    if isinstance(shown, str):
        print_text(shown.rstrip("\n"))
    elif style == "tsv":
        header, rows = lines or (shown.header, shown.rows)
        print(csv_text(header, rows, "\t"), end="")
    elif style == "md":
        print(markdown(shown), end="")
    else:
        print_table(shown, report)
        if below:
            print("", *below, sep="\n")


def draw(text: str = "") -> None:
    """Prints what the program itself draws; texts from outside in it are `visible` already."""
    print(text, file=getattr(sys.stdout, "as_it_is", sys.stdout))


def print_table(table: Table, report: Path | None = None) -> None:
    """The table on stdout: a terminal shows it in its width.

    Below a verdict stand the first notes, and how many more there are, which -v shows or the page `report`.
    """
    from rich.text import Text

    from llmfair.report.table import drawing

    stdout, more = console(), len(table.notes) - MOST_NOTES
    width = stdout.width if stdout.is_terminal else sys.maxsize
    if table.lead and not output.verbose and more > 0:
        last = f"{count(more, 'more note')}: -v" + ", or the report" * (report is not None)
        table = replace(table, notes=(*table.notes[:MOST_NOTES], last))
    for line in drawing(table, width):
        stdout.print(Text.assemble(*((text, "bold" * strong) for text, strong in line)))


class Line(ABC):
    """How far something is, in one line; on a terminal it is drawn anew several times a second, with a bar."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.looks = deque[tuple[float, int]]()

    @abstractmethod
    def done_now(self) -> int:
        """How many of `total` are done."""

    @abstractmethod
    def parts(self) -> list[str]:
        """What the line says, the first and the last the most worth knowing."""

    def rate(self, done: int) -> float:
        """How many a second were done over the last minute, 0 when first looked at."""
        now, looks = time.monotonic(), self.looks
        if not looks or now - looks[-1][0] >= 1:
            looks.append((now, done))
        while len(looks) > 1 and now - looks[1][0] >= RATE_SECONDS:
            looks.popleft()
        since, earlier = looks[0]
        return (done - earlier) / (now - since) if now > since else 0.0

    def left(self, rate: float) -> str:
        """How long it takes still at this rate; nothing where that is unknown, or nothing is left."""
        seconds = (self.total - self.done_now()) / rate if rate else 0.0
        return f"{int(seconds // 60)}:{int(seconds % 60):02d} left" * (seconds > 0)

    def line(self) -> str:
        return GAP.join(filter(None, self.parts()))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """One line of the terminal, cut at its end where that is narrow."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table as Grid
        from rich.text import Text

        width, name = options.max_width, Text(visible(self.name), no_wrap=True)
        name.truncate(width // 3, overflow="ellipsis")
        bar = ProgressBar(max(self.total, 1), min(self.done_now(), self.total), width=width // 8)
        grid = Grid.grid(padding=(0, len(GAP), 0, 0))
        grid.add_row(name, bar, Text(visible(self.line()), no_wrap=True, overflow="ellipsis"))
        yield grid


class Bar(Line):
    """The state of a run: what was asked, what came back, at which rate, and when it will be all."""

    def __init__(self, name: str, total: int, progress: Progress, limit: int) -> None:
        super().__init__(name, total)
        self.progress, self.limit = progress, limit

    def done_now(self) -> int:
        return self.progress.answered

    def parts(self) -> list[str]:
        progress, waiting = self.progress, self.progress.waiting_until - time.monotonic()
        rate = self.rate(progress.answered - progress.replayed - progress.cached)
        return [
            f"{progress.answered:,}/{self.total:,}",
            f"{progress.unparseable:,} unparseable",
            f"{progress.replayed:,} from the journal",
            f"{progress.cached:,} cached",
            f"{progress.in_flight}/{progress.limit or self.limit} in flight",
            f"{rate:,.1f}/s" * bool(rate),
            f"{progress.retries:,} tried again" * bool(progress.retries),
            "" if progress.cost is None else f"cost {progress.cost:,.4f}",
            f"{progress.waiting_for}, waiting {waiting:,.0f} s" if waiting > 0 else self.left(rate),
        ]


class Count(Line):
    """How many of so many things are done, `done()` of them so far, at which rate, and when it will be all.

    What was done when first looked at, by an earlier command, took none of this one's time. `words` may be added.
    """

    def __init__(self, name: str, total: int, unit: str, done: Callable[[], int]) -> None:
        super().__init__(name, total)
        self.unit, self.done, self.words = unit, done, ""

    def done_now(self) -> int:
        return self.done()

    def parts(self) -> list[str]:
        done = self.done()
        rate = self.rate(done) if done else 0.0
        return [
            f"{done:,}/{self.total:,} {self.unit}", f"{rate:,.1f}/s" * bool(rate), self.left(rate), self.words
        ]  # fmt: skip


@dataclass
class Watching:
    """Shows a run while it asks, after a line `before` of what is planned; where it goes, and how far it is.

    `calls` are those planned; `batch`: there is nothing to draw for hours. Called as a `Watch` of `audits.runs.run`.
    """

    name: str
    before: Callable[[Mapping[str, Any]], str] = lambda planned: ""
    batch: bool = False
    folder: Path | None = None
    calls: int = 0
    progress: Progress | None = None

    @contextmanager
    def __call__(
        self, folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
    ) -> Iterator[None]:
        self.folder, self.calls, self.progress = folder, planned["calls"], progress
        output.begun.append(folder)
        progress.tell = lambda text: say(visible(text))
        if self.calls and (before := self.before(planned)):
            say(before)
        state: Line = Bar(self.name, self.calls, progress, limit)
        if not self.calls:  # a ranker that asks nobody
            for remark in planned["remarks"]:
                say(remark)
            chains = getattr(planned.get("design"), "chains", 0)
            name = self.name.replace("Asking", "Ranking by", 1)
            state = Count(name, chains, "lists", lambda: progress.finished)
        with nullcontext() if self.batch else drawn(state):
            yield

    def how_far(self) -> str:
        """How many answers of those planned the run has on disk."""
        from llmfair.rundir import RunDir

        return f"{RunDir(self.folder or Path()).answers():,} of {self.calls:,} answers"


@contextmanager
def drawn(state: Line) -> Iterator[None]:
    """Shows a state that changes meanwhile on stderr: as a bar on a terminal, else as a line now and then."""
    if output.quiet or not output.progress:
        yield
        return
    stderr = console(stderr=True)
    if stderr.is_terminal and not stderr.is_dumb_terminal:
        from rich.live import Live

        with Live(state, console=stderr, transient=True, refresh_per_second=5):
            yield
        return
    import threading

    over = threading.Event()

    def tell_on() -> None:
        while not over.wait(PLAIN_EVERY):
            print(f"{state.name}  {state.line()}", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell_on, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
