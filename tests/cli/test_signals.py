"""A signal ends the command with its code and one word, wherever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
SENT = """\
import os, signal, sys, time

def sent(*_, **__):
    os.kill(os.getpid(), NUMBER)
    time.sleep(0.01)  # it is taken by the next line at the latest
    print("went on")

"""
WHILE = {
    "something is imported": """\
class Slow:
    def find_spec(self, name, *_):
        if name == "llmfair.cli.app":
            sent()
sys.meta_path.insert(0, Slow())
""",
    "the command works": """\
from llmfair.cli import app
app._asked_for = lambda arguments: sent
""",
    "an error is told": """\
from llmfair.cli import app
app.terminal.fail = sent
sys.argv[1:] = ["bogus"]
""",
}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("number", "meanwhile"),
    [(INT, "something is imported"), (HUP, "the command works"), (TERM, "an error is told")],
)
def test_a_signal_while(number: signal.Signals, meanwhile: str) -> None:
    program = f"{SENT}{WHILE[meanwhile]}\nfrom llmfair.__main__ import main\nmain()"
    found = subprocess.run(
        [sys.executable, "-c", program.replace("NUMBER", str(int(number)))],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (found.returncode, found.stdout, found.stderr) == (128 + number, "", "Stopped.\n")
