"""How a download and a pass over a large file are shown: bars on a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from llmfair import terminal

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from llmfair.datasets.download import DownloadProgress


@contextmanager
def transfers() -> Iterator[DownloadProgress]:
    """Shows the steps of a fetch on stderr."""
    from llmfair.datasets.download import Silent

    stderr = terminal.console(stderr=True)
    if terminal.output.quiet or not terminal.output.progress:
        yield Silent()
    elif stderr.is_terminal and not stderr.is_dumb_terminal:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichProgress

        columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with RichProgress(TextColumn("{task.description}"), BarColumn(30), *columns, console=stderr) as shown:
            yield _Bars(shown)
    else:
        lines = _Lines()
        yield lines
        lines.tell()


class _Bars:
    def __init__(self, shown: RichProgress) -> None:
        self.shown = shown
        self.task: TaskID | None = None

    def step(self, name: str, total: int | None, done: int = 0) -> None:
        self.task = self.shown.add_task(name, total=total, completed=done)

    def advance(self, count: int) -> None:
        if self.task is not None:
            self.shown.advance(self.task, count)

    def say(self, text: str) -> None:
        self.shown.console.print(text, markup=False)


class _Lines:
    """One line every 30 seconds, and one when a step is over."""

    def __init__(self) -> None:
        self.name, self.total, self.first, self.done = "", 0, 0, 0
        self.started = self.told = time.monotonic()

    def step(self, name: str, total: int | None, done: int = 0) -> None:
        self.tell()
        self.name, self.total, self.first, self.done = name, total or 0, done, done
        self.started = self.told = time.monotonic()

    def advance(self, count: int) -> None:
        self.done += count
        if time.monotonic() - self.told > terminal.PLAIN_EVERY:
            self.tell()

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def tell(self) -> None:
        """Bytes, rate and time left; nothing before the first step."""
        if not self.name:
            return
        self.told = time.monotonic()
        rate = (self.done - self.first) / max(self.told - self.started, 1e-9)
        of_total = f" of {self.total / 1e6:,.1f}" if self.total else ""
        parts = [self.name, f"{self.done / 1e6:,.1f}{of_total} MB", f"{rate / 1e6:,.1f} MB/s"]
        if rate and self.total > self.done:
            parts.append(f"{(self.total - self.done) / rate:,.0f} s left")
        print("  ".join(parts), file=sys.stderr, flush=True)
