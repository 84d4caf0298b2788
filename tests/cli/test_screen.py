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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

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


def screen(command: str, columns: int, mode: str = "colour") -> Screen:
    """A terminal of so many columns after a command."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    running = subprocess.Popen(
        [sys.executable, "-m", "llmfair", *command.split()],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment | dict(MODES[mode]),
    )  # fmt: skip
    os.close(theirs)
    sent = b""
    with suppress(OSError):  # how a pseudo-terminal ends
        while part := os.read(ours, 1 << 16):
            sent += part
    os.close(ours)
    assert running.wait() in (0, 2), sent.decode()
    shown = pyte.Screen(2 * columns, LINES)  # what is too wide for the terminal stays in its line
    pyte.ByteStream(shown).feed(sent)
    return Screen([line.rstrip() for line in shown.display[: shown.cursor.y]], sent)


@pytest.mark.whole
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_fits_its_terminal(command: str) -> None:
    for making in MAKING * (RUN in command):
        screen(making, 80)
    everything = command in ("listwise", "--help")
    for columns, mode in product((80, 120), MODES) if everything else ((80, "colour"), (120, "plain")):
        after = screen(command, columns, mode)
        assert after.lines and "\\x1b" not in "".join(after.lines)
        assert bool(STYLE.search(after.sent)) == (mode == "colour" and command != WRONG)
        assert not [line for line in after.lines if cell_len(line) > columns and not COPIED.match(line)]


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.whole)])
def test_the_first_command(columns: int, snapshot: Snapshot) -> None:
    lines = screen("listwise", columns).lines
    assert len(lines) <= 40 and max(map(cell_len, lines)) <= columns
    snapshot(f"screen-{columns}", "\n".join(lines) + "\n")


CELLS = st.text(st.sampled_from("ab-/ 1.é語"), max_size=30).map(str.strip)


@given(
    st.integers(1, 7).flatmap(
        lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=2, max_size=5)
    ),
    st.integers(30, 90),
)
def test_no_table_is_wider_than_its_terminal_and_none_loses_a_letter(
    rows: list[list[str]], width: int
) -> None:
    header, *others = map(tuple, rows)
    table = Table("", header, tuple(others), ())
    lines = ["".join(text for text, _ in line) for line in drawing(table, width)]
    assert max(map(cell_len, lines), default=0) <= width
    needed = Counter("".join(map("".join, (header, *others))).replace(" ", ""))
    assert needed <= Counter("".join(lines))
