"""What ends a command from outside: Ctrl-C, a scheduler (SIGTERM) and a terminal that is closed (SIGHUP), all alike."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MOMENT = 0.02
TORCH = f"{os.sep}torch{os.sep}"
_ended_by: list[int] = []


def open_streams() -> None:
    """A closed stdin, stdout or stderr (`>&-`) leads nowhere: else the next file that is opened would be it."""
    for place, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), place)
            setattr(sys, name, os.fdopen(place, mode, encoding="utf-8", closefd=False))


@contextmanager
def stopped_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """What stops a command goes to this handler meanwhile, but what is ignored (`nohup`); in the main thread alone."""
    in_main = threading.current_thread() is threading.main_thread()
    earlier = {number: signal.getsignal(number) for number in STOPPING if in_main}
    before = {number: of for number, of in earlier.items() if of != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, of in before.items():
            signal.signal(number, of)


@contextmanager
def stoppable() -> Iterator[None]:
    """Signals raise KeyboardInterrupt meanwhile; of SIGTERM and SIGHUP the first alone: groups of processes get two."""
    _ended_by.clear()
    with stopped_by(_end):
        yield


def _end(number: int, frame: FrameType | None) -> None:
    name, file = ("", "") if frame is None else (frame.f_code.co_name, frame.f_code.co_filename)
    if file.startswith("<frozen importlib") or (name == "<module>" and TORCH in file):
        # where nothing that is raised is heard, or torch, half imported, aborts: a moment later it is past
        threading.Timer(MOMENT, os.kill, (os.getpid(), number)).start()
        return
    copy = number != signal.SIGINT and any(earlier != signal.SIGINT for earlier in _ended_by)
    _ended_by.append(number)
    if not copy:
        raise KeyboardInterrupt


def carry_out(command: Callable[[], object]) -> None:
    """Runs what ends the process; where it was stopped, by the code of the signal, wherever that came."""
    try:
        with stoppable():
            command()
    except KeyboardInterrupt:
        with suppress(OSError):  # a terminal that is closed
            print("Stopped.", file=sys.stderr, flush=True)
    finally:
        if _ended_by:  # Python itself would end by SIGINT where a stop came as an import made a class
            atexit._run_exitfuncs()  # Ray's among them, which ends its processes
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError):
                    stream.flush()
            os._exit(stop_code())
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is done: what is left has nobody to hear of it


def stop_code() -> int:
    """The exit code of a command that was stopped."""
    return 128 + (_ended_by[0] if _ended_by else signal.SIGINT)
