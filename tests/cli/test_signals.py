"""A signal ends the command with its code and one word, wherever it comes: as an error is told, or in C that drops it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
BEGUN = """\
import gc, os, signal, sys, time, weakref
from llmfair.beginning import catch, end
catch()
from llmfair.cli import app

def sent(once=[True]):
    if once and once.pop():
        os.kill(os.getpid(), NUMBER)
        time.sleep(0.01)  # it is taken by the next line at the latest

"""
WHILE = {
    "an error is told": """\
app.terminal.fail = lambda error: sent() or print("went on")
sys.argv[1:] = ["bogus"]
""",
    "a stop is told": """\
app._asked_for = lambda arguments: lambda *_, **__: os.kill(os.getpid(), signal.SIGINT) or time.sleep(60)
app.terminal.stopped = lambda code: sent() or print("went on")
""",
    "signals begin to be handled": """\
handle = signal.signal
def handled(number, handler):
    before = handle(number, handler)
    if handler is app._stop and number == NUMBER:
        sent()
    return before
signal.signal = handled
""",
    "signals are no longer handled": """\
handle = signal.signal
def handled(number, handler):
    if handler is end:
        sent()
    return handle(number, handler)
signal.signal = handled
sys.argv[1:] = ["--version"]
""",
}
DROPPED = {
    "__del__": """\
class Dropping:
    def __del__(self):
        sent()
def drop():
    Dropping()
""",
    "a callback of weakref": """\
class Dropped: pass
def drop():
    one = Dropped()
    callback = weakref.ref(one, lambda _: sent())
    del one
""",
    "a callback of gc": """\
def drop():
    gc.callbacks.append(lambda *_: sent() if not gc.callbacks.clear() else None)
    gc.collect()
""",
}


def command(number: int, code: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with such code before it."""
    program = BEGUN.replace("NUMBER", str(int(number))) + code.replace("NUMBER", str(int(number)))
    return subprocess.run(
        [sys.executable, "-c", f"{program}\napp.main()\n"], capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize(
    ("number", "meanwhile"),
    [
        *((number, "an error is told") for number in (INT, TERM, HUP)),
        (TERM, "a stop is told"),
        (HUP, "signals begin to be handled"),
        (INT, "signals are no longer handled"),
    ],
)
def test_a_signal_while(number: signal.Signals, meanwhile: str) -> None:
    found = command(number, WHILE[meanwhile])
    assert (found.returncode, found.stderr) == (128 + number, "Stopped.\n"), found
    assert "went on" not in found.stdout


@pytest.mark.parametrize(
    ("number", "dropped"), [(INT, "__del__"), (TERM, "a callback of weakref"), (HUP, "a callback of gc")]
)
def test_a_stop_that_c_drops_comes_again(number: signal.Signals, dropped: str) -> None:
    """Also where the command waits for something by then, and though a further SIGTERM is taken for a copy."""
    code = f"{DROPPED[dropped]}app._asked_for = lambda arguments: lambda *_, **__: drop() or time.sleep(60)\n"
    found = command(number, code)
    assert (found.returncode, found.stdout, found.stderr) == (128 + number, "", "Stopped.\n"), found


def test_what_else_c_drops_is_told() -> None:
    code = "class Failing:\n    def __del__(self): 1 / 0\napp._asked_for = lambda arguments: lambda *_, **__: (Failing(), 0)[1]\n"
    found = command(INT, code)
    assert found.returncode == 0 and "ZeroDivisionError" in found.stderr, found


def test_a_full_pipe_holds_no_command_that_is_ended() -> None:
    """Nobody may read it any more."""
    reading, writing = os.pipe()
    flags = fcntl.fcntl(writing, fcntl.F_GETFL)
    fcntl.fcntl(writing, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"." * 4096)
    fcntl.fcntl(writing, fcntl.F_SETFL, flags)
    code = "from llmfair.beginning import catch; catch(); import os, time; os.kill(os.getpid(), 15); time.sleep(9)"
    found = subprocess.run([sys.executable, "-c", code], stderr=writing, timeout=30)
    os.close(reading)
    os.close(writing)
    assert found.returncode == 128 + TERM
