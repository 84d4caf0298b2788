"""What a person sees: every command that prints a table, and help, through a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from llmfair.report.table import Table, drawing
from tests.cli.command import Snapshot

RUN, OTHER = "runs/biased", "runs/random"
MAKING = tuple(f"listwise --conditions neutral -m fake:{folder[5:]} -o {folder}" for folder in (RUN, OTHER))
WRONG = "listwise --windw 3"
COMMANDS = (
    "listwise", "pairwise --pairs 10", "rag", "refine", "study windows -n 3", f"compare {RUN} {OTHER}",
    f"score {RUN}", f"mitigate {RUN}", f"runs show {RUN}", f"runs show {RUN} --furthest", "runs list",
    "plan listwise -n 3", "plan pairwise -n 3", "calibrate pairwise -n 3 --runs 4", "datasets list",
    "datasets show sample", "prompts list", "strategies list", "measures list", "cache info", "doctor",
    "--help", "listwise --help", "listwise --help-all", "runs --help", WRONG,
)  # fmt: skip
END = b"\x1c"
SESSION = """
import sys
from llmfair.cli.app import run

for command in sys.argv[1:]:
    assert run(command.split()) in (0, 2)
    print(end="\\x1c", flush=True)
"""
"""A program that runs each command that it is given, and sends `END` after it."""
STYLE = re.compile(rb"\x1b\[[0-9;]*m")
LINES = 2000
COPIED = re.compile(r" *(llmfair|runs/|/)")
MODES: Mapping[str, Mapping[str, str]] = {
    "colour": {"TERM": "xterm"},
    "plain": {"TERM": "xterm", "NO_COLOR": "1"},
    "never": {"TERM": "xterm", "LLMFAIR_COLOR": "never"},
    "dumb": {"TERM": "dumb"},
}


@dataclass(frozen=True)
class Screen:
    """What stands on a terminal after a command, line by line, and all that was sent to it."""

    lines: list[str]
    sent: bytes


def screens(commands: Sequence[str], columns: int, mode: str = "colour") -> list[Screen]:
    """A terminal of so many columns after each of these commands, which one process runs in turn."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    running = subprocess.Popen(
        [sys.executable, "-c", SESSION, *commands],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment | dict(MODES[mode]),
    )  # fmt: skip
    os.close(theirs)
    sent = b""
    with suppress(OSError):  # how a pseudo-terminal ends
        while part := os.read(ours, 1 << 16):
            sent += part
    os.close(ours)
    assert running.wait() == 0, sent.decode()
    return [Screen(lines_of(part, columns), part) for part in sent.split(END)[:-1]]


def lines_of(sent: bytes, columns: int) -> list[str]:
    """The lines that stand on a terminal; one that is too wide for it stays whole."""
    shown = pyte.Screen(2 * columns, sent.count(b"\n") + 1)
    pyte.ByteStream(shown).feed(sent)
    return [line.rstrip() for line in shown.display[: shown.cursor.y]]


@pytest.mark.whole
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("columns", [80, 120])
def test_every_command_fits_its_terminal(columns: int, mode: str) -> None:
    every = (columns, mode) in ((80, "colour"), (120, "plain"))
    commands = (*MAKING, *COMMANDS) if every else ("listwise", "--help")
    for command, after in zip(commands, screens(commands, columns, mode), strict=True):
        assert after.lines and "\\x1b" not in "".join(after.lines), command
        assert bool(STYLE.search(after.sent)) == (mode == "colour" and command != WRONG), command
        wide = [line for line in after.lines if cell_len(line) > columns and not COPIED.match(line)]
        assert not wide, command


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.whole)])
def test_the_first_command(columns: int, snapshot: Snapshot) -> None:
    (after,) = screens(["listwise"], columns)
    lines = after.lines
    assert len(lines) <= 40 and max(map(cell_len, lines)) <= columns
    snapshot(f"screen-{columns}", "\n".join(lines) + "\n")


CELLS = st.text(st.sampled_from("ab-/ 1.é語"), max_size=30).map(str.strip)


@given(
    st.integers(1, 7).flatmap(
        lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=2, max_size=5)
    ),
    st.integers(30, 90),
)
def test_no_table_is_wider_than_its_terminal_or_loses_a_letter(rows: list[list[str]], width: int) -> None:
    header, *others = map(tuple, rows)
    table = Table("", header, tuple(others), ())
    lines = ["".join(text for text, _ in line) for line in drawing(table, width)]
    assert max(map(cell_len, lines), default=0) <= width
    needed = Counter("".join(map("".join, (header, *others))).replace(" ", ""))
    assert needed <= Counter("".join(lines))
