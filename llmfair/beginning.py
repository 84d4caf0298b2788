"""What ends a command from outside: Ctrl-C, a scheduler (SIGTERM) and a terminal that is closed (SIGHUP), all alike."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
STOPPING = (signal.SIGINT, *ENDING)
_ended_by: list[int] = []


def open_streams() -> None:
    """A closed stdin, stdout or stderr (`>&-`) leads nowhere: else the next file that is opened would be it."""
    for place, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), place)
            setattr(sys, name, os.fdopen(place, mode, encoding="utf-8", closefd=False))


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt meanwhile, the first of them alone: groups of processes get two."""
    before = {number: signal.getsignal(number) for number in ENDING}
    _ended_by.clear()
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:  # `nohup`
                signal.signal(number, _end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    if not _ended_by:
        _ended_by.append(number)
        raise KeyboardInterrupt


def was_stopped() -> bool:
    """Whether a scheduler or a closed terminal ended the command."""
    return bool(_ended_by)


def stop_code() -> int:
    """The exit code of a command that was stopped."""
    return 128 + (_ended_by[0] if _ended_by else signal.SIGINT)
