"""The first moment of a command, before anything is imported that takes a while."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""What ends a command from outside: a scheduler, and a terminal that is closed."""
STOPPING = (signal.SIGINT, *ENDING)


def end(number: int, frame: FrameType | None) -> None:
    """Ends at once: nothing is begun yet, and what is raised during an import may be swallowed."""
    with suppress(OSError):  # a terminal that is closed
        if select.select((), (2,), (), 0)[1]:  # a pipe that is full would hold it here for good
            os.write(2, b"Stopped.\n")
    os._exit(128 + number)


def open_streams() -> None:
    """A closed stdin, stdout or stderr (`>&-`) leads nowhere: else the next file that is opened would be it."""
    for place, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), place)
            setattr(sys, name, os.fdopen(place, mode, encoding="utf-8", closefd=False))


def catch() -> None:
    """Has signals end the command at once, where it does not handle them itself."""
    for number in STOPPING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, end)  # `nohup` and shells that ignore one go on doing so
