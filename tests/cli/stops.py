"""Long commands stopped at random moments, in every way there is, and what must hold afterwards."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.command import llmfair
from tests.folders import content

ROOT = Path(__file__).resolve().parents[2]
ITS_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes stdin the terminal of a new session: it gets SIGHUP when the other end is closed."""
LEFT_OVER = ("*.tmp", "*.partial")


@dataclass(frozen=True)
class Ending:
    """A way to stop a command, by a signal or by closing its `terminal`, and the exit code it then has."""

    name: str
    number: signal.Signals
    code: int
    terminal: bool = False

    @property
    def orderly(self) -> bool:
        """Whether the command has a say in it."""
        return self.code > 0


TERM = Ending("TERM", signal.SIGTERM, 143)
INT = Ending("INT", signal.SIGINT, 130)
HUP = Ending("HUP", signal.SIGHUP, 129)
KILL = Ending("KILL", signal.SIGKILL, -signal.SIGKILL)
CLOSED = Ending("terminal closed", signal.SIGHUP, 129, terminal=True)
ENDINGS = (TERM, INT, HUP, KILL, CLOSED)


class Watch:
    """Whom a command asks, what it is told to find them, and what it may not ask again."""

    words: Sequence[str] = ()
    environment: Mapping[str, str] = {}

    def before(self, folder: Path) -> None:
        """Notes what is answered before a command begins."""

    def after(self, folder: Path, orderly: bool) -> None:
        """Asserts that it was not asked again, and that what was asked was kept where the command ended `orderly`."""

    def through(self, folder: Path) -> None:
        """Asserts what a command has that came to its end."""

    def answers(self, folder: Path) -> int:
        """How many answers are on disk."""
        return 0


@dataclass(frozen=True)
class Long:
    """A command that takes a while: its words, what it reads, who is asked, and the files that must be equal.

    `same`: patterns below its folder; what it `prints` must be equal, too. It is stopped once it has written up to `step` bytes more below `grows`, and up
    to `seconds` later.
    """

    words: tuple[str, ...]
    same: tuple[str, ...]
    prepare: Callable[[Path], object] = lambda folder: None
    watched: Callable[[Path], AbstractContextManager[Watch]] = lambda scratch: contextlib.nullcontext(Watch())
    start: tuple[str, ...] = ("-m", "llmfair")
    prints: bool = True
    grows: str = "**/*.jsonl"
    step: int = 30_000
    seconds: float = 0.3

    def written(self, folder: Path) -> int:
        """Bytes of what grows while it runs."""
        total = 0
        for path in folder.glob(self.grows):
            with contextlib.suppress(OSError):  # renamed meanwhile
                total += path.stat().st_size
        return total


@dataclass
class Started:
    """A command as a process, on a terminal of its own or with pipes."""

    long: Long
    folder: Path
    watch: Watch
    terminal: bool = False
    _master: int = field(init=False, default=-1)
    _process: subprocess.Popen[Any] = field(init=False)

    def __post_init__(self) -> None:
        words = [sys.executable, *self.long.start, *self.long.words, *self.watch.words]
        environment = {"PYTHONPATH": str(ROOT), **os.environ, **self.watch.environment}
        if not self.terminal:
            self._process = subprocess.Popen(
                words, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            return
        self._master, slave = pty.openpty()
        words = [sys.executable, "-c", ITS_TERMINAL, *words]
        self._process = subprocess.Popen(
            words, cwd=self.folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self._master, False)

    def handles_signals(self) -> bool:
        """Whether it has said what is to become of SIGHUP: before that no command has begun."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return False
        caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
        return bool(int(caught, 16) >> (signal.SIGHUP - 1) & 1)

    def runs(self) -> bool:
        if self._master >= 0:
            with contextlib.suppress(OSError):
                os.read(self._master, 1 << 16)  # or it would wait for a reader
        return self._process.poll() is None

    def wait_for_a_moment(self, moments: random.Random) -> None:
        """Anywhere in a run, however fast the machine is; some are before the first answer, most after a few."""
        while self.runs() and not self.handles_signals():
            time.sleep(0.002)
        early = moments.random() < 0.2
        enough = self.long.written(self.folder) + (0 if early else moments.uniform(0, self.long.step))
        while self.runs() and self.long.step and not early and self.long.written(self.folder) <= enough:
            time.sleep(0.002)
        until = time.monotonic() + moments.uniform(0, self.long.seconds)
        while self.runs() and time.monotonic() < until:
            time.sleep(0.002)

    def stop(self, ending: Ending) -> None:
        if self.terminal:
            os.close(self._master)
            self._master = -1
        else:
            self._process.send_signal(ending.number)

    def end(self) -> tuple[int, str, str]:
        """Its exit code and what it said."""
        try:
            out, err = self._process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return self._process.returncode, out or "", err or ""


def stop_again_and_again(long: Long, endings: Sequence[Ending], seed: int, scratch: Path) -> list[int]:
    """Stops a command in these ways, going on each time, and anew where it is through; returns the answers at each stop.

    Asserts the exit codes, that no answered question is asked again, that an orderly end leaves nothing half-written,
    and that everything equals an undisturbed run, byte for byte.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    moments, left, answers, disturbed = random.Random(seed), [*endings], list[int](), list[Path]()
    moments.shuffle(left)
    outs: list[str] = []
    with long.watched(scratch) as watch:
        while left:
            folder = new_folder(long, scratch / f"run{len(disturbed)}")
            disturbed.append(folder)
            assert len(disturbed) <= 3 * len(endings), "it is always through before it is stopped"
            while left and stopped(long, watch, folder, left[0], moments):
                left.pop(0)
                answers.append(watch.answers(folder))
            outs += [through(long, watch, folder), through(long, watch, folder)]
        calm = new_folder(long, scratch / "calm")
        outs.append(through(long, watch, calm))
    assert not long.prints or set(outs) == {outs[-1]}
    for folder in disturbed:
        same_files(long, folder, calm)
        shutil.rmtree(folder)
    return answers


def same_files(long: Long, folder: Path, calm: Path) -> None:
    """Asserts that what a command wrote equals what it writes undisturbed, and that nothing half-written is left."""
    names = sorted(
        {str(path.relative_to(calm)) for one in long.same for path in calm.glob(one) if path.is_file()}
    )
    assert names or not long.same
    for name in names:
        assert content(folder / name) == content(calm / name), name
    assert not left_over(folder)


def new_folder(long: Long, folder: Path) -> Path:
    """A folder with what the command reads."""
    folder.mkdir()
    long.prepare(folder)
    return folder


def stopped(long: Long, watch: Watch, folder: Path, ending: Ending, moments: random.Random) -> bool:
    """Whether the command was stopped before it was through."""
    watch.before(folder)
    started = Started(long, folder, watch, ending.terminal)
    started.wait_for_a_moment(moments)
    started.stop(ending)
    code, _, err = started.end()
    watch.after(folder, ending.orderly and code == ending.code)
    if ending.orderly and code == -ending.number:
        return False  # it was through: Python lets go of signals when it takes itself down
    assert code in (0, ending.code), (ending.name, code, err)
    assert "Traceback" not in err and "Exception ignored" not in err, (ending.name, err)
    if code == ending.code and ending.orderly:
        assert ending.terminal or "Stopped" in err, (ending.name, err)
        assert not left_over(folder), ending.name
    return code != 0


def through(long: Long, watch: Watch, folder: Path) -> str:
    """Lets the command come to its end; returns what it prints."""
    watch.before(folder)
    if long.start == Long.start and not watch.environment:  # no process is needed where none is stopped
        with contextlib.chdir(folder):
            found = llmfair(*long.words, *watch.words)
        code, out, err = found.code, found.out, found.err
    else:
        code, out, err = Started(long, folder, watch).end()
    assert code == 0, err
    watch.after(folder, orderly=True)
    watch.through(folder)
    return out


def left_over(folder: Path) -> list[str]:
    """Files that were not written to their end."""
    return [str(path) for pattern in LEFT_OVER for path in folder.rglob(pattern)]
