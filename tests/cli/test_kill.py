"""Long commands stopped at random moments, by signals, and on disks that fill up: nothing is asked twice, and results equal a calm run's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmfair.beginning import stop_code, stoppable
from tests.cli import long_commands
from tests.disks import PAGE, mounted

pytestmark = pytest.mark.whole

STOPS = {
    "listwise": [long_commands.KILL, long_commands.INT],
    "pairwise": [long_commands.CLOSED],
    "sequential": [long_commands.KILL],
    "rag": [long_commands.TERM],
    "judged": [long_commands.KILL],
    "refine": [long_commands.HUP],
    "fetch": [long_commands.KILL],
}
COMMANDS = long_commands.COMMANDS | {"judged": long_commands.audit(long_commands.JUDGED)}
SLOW = ("sequential", "judged")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in STOPS]
)
def test_stopped_in_one_way_or_another(name: str, tmp_path: Path) -> None:
    stops = long_commands.stop_again_and_again(COMMANDS[name], STOPS[name], 1, tmp_path)
    assert len(stops) == len(STOPS[name])


def test_a_stop_within_a_call_back_of_an_import_is_heard() -> None:
    """Python prints what such a function raises, and goes on."""
    functions: dict[str, Any] = {}
    stop = "import os, signal\ndef stop(_):\n    os.kill(os.getpid(), signal.SIGINT)\n    return None\n"
    exec(compile(stop, "<frozen importlib._bootstrap>", "exec"), functions)
    held = {0}
    _ = weakref.ref(held, functions["stop"])
    with pytest.raises(KeyboardInterrupt), stoppable():
        del held
        time.sleep(5)
    assert stop_code() == 130


def test_a_stop_after_the_end_leaves_no_trace() -> None:
    ending = (
        "import atexit, os, signal; from llmfair.beginning import carry_out; "
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT)); carry_out(lambda: None)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", ending], cwd=long_commands.ROOT, stderr=subprocess.PIPE, text=True
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_a_stop_within_the_import_of_torch_waits_until_it_is_past(tmp_path: Path) -> None:
    """torch calls back from C++ while it is imported, and aborts where that raises."""
    (tmp_path / "torch").mkdir()
    module = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('imported', flush=True)"
    (tmp_path / "torch" / "__init__.py").write_text(module)
    code = "import time; from llmfair.beginning import carry_out as run; run(lambda: (__import__('torch'), time.sleep(9)))"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (143, "imported\n"), done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", long_commands.COMMANDS)
def test_every_long_command_is_stopped_twice_in_every_way(name: str, tmp_path: Path) -> None:
    long_commands.stop_again_and_again(long_commands.COMMANDS[name], long_commands.ENDINGS * 2, 3, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STOPS)
def test_twenty_five_kills(name: str, tmp_path: Path) -> None:
    long_commands.stop_again_and_again(COMMANDS[name], [long_commands.KILL] * 25, 0, tmp_path)


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


@pytest.mark.parametrize(
    ("number", "meanwhile"),
    [
        (signal.SIGINT, "something is imported"),
        (signal.SIGHUP, "the command works"),
        (signal.SIGTERM, "an error is told"),
    ],
)
def test_a_signal_while(number: signal.Signals, meanwhile: str) -> None:
    program = f"{SENT}{WHILE[meanwhile]}\nfrom llmfair.__main__ import main\nmain()"
    command = [sys.executable, "-c", program.replace("NUMBER", str(int(number)))]
    found = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (found.returncode, found.stdout, found.stderr) == (128 + number, "", "Stopped.\n")


SAYS = re.compile("no space left|the disk is full", re.IGNORECASE)
MOST_ATTEMPTS = 300
SHORT = {
    "score": long_commands.Long(("score", "../drawn", "-o", "out"), ("out/*",), watched=long_commands.run_to_draw),
    "rerank": long_commands.Long(
        ("rerank", *(f"../drawn/rankings/{name}.run" for name in ("neutral", "male")), "-d", "sample", "--with", "fair-star", "-o", "out"),
        ("out/*",),
        watched=long_commands.run_to_draw,
    ),
    "figures": long_commands.Long(
        ("report", "../drawn", "-o", "out/page.html", "--figures", "svg,pdf,png"),
        ("out/*", "out/plots/*"),
        watched=long_commands.run_to_draw,
        grows="out/**/*",
    ),
    "junit": long_commands.Long(
        ("listwise", "-n", "2", "--orders", "1", "--no-repeat", "-o", "run", "--max-invalid", "1", "--junit", "suites.xml"),
        ("suites.xml", "run/results.json", "run/*.csv"),
    ),
}  # fmt: skip
"""Commands that are soon through, over a run that is there."""
NOT_HERE = ("calibrate", "fetch")
"""The first writes nothing; a fetch on a full disk stands in tests/datasets/test_trec_fair.py."""
WRITING = {name: long for name, long in long_commands.COMMANDS.items() if name not in NOT_HERE} | SHORT
WRITING["finetune"] = replace(
    long_commands.COMMANDS["finetune"], grows="out/**/*"
)  # by pages it would be begun a thousand times


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", WRITING)
def test_a_disk_that_fills_up_from_the_beginning(name: str, tmp_path: Path) -> None:
    assert full_again_and_again(WRITING[name], tmp_path)


def full_again_and_again(long: long_commands.Long, scratch: Path) -> list[str]:
    """Begins a command on a disk that is too small, until it is not; returns the file that each attempt names.

    Asserts that each attempt ends in one sentence, keeps what it wrote and leaves nothing half-written, that
    nothing is asked again, and that all equals what the command writes where there is room, byte for byte.
    """
    with long.watched(scratch) as watch, mounted(scratch / "small") as disk:
        calm = long_commands.new_folder(long, scratch / "calm")
        watch.before(calm)
        code, expected, err = long_commands.Started(long, calm, watch).end()
        assert code == 0, err
        files = [str(path.relative_to(calm)) for path in calm.rglob("*") if path.is_file()]
        long.prepare(disk.folder)
        size, at = disk.used() + PAGE, list[str]()
        while True:
            disk.resize(size)
            watch.before(disk.folder)
            code, out, err = long_commands.Started(long, disk.folder, watch).end()
            watch.after(disk.folder, orderly=code == 0)  # answers in flight find no room
            if code == 0:
                break
            at.append(sentence(code, err, files))
            assert len(at) < MOST_ATTEMPTS, at
            assert not long_commands.left_over(disk.folder), err
            size += max(PAGE, (long.written(calm) - long.written(disk.folder)) // 2)
        watch.through(disk.folder)
        assert out == expected or not long.prints
        long_commands.same_files(long, disk.folder, calm)
    return at


def sentence(code: int, err: str, files: Sequence[str]) -> str:
    """The file that an attempt names which found no room, or what it says of none of these."""
    assert code in (1, 2, 3), (code, err)
    assert "Traceback" not in err and "Exception ignored" not in err, err
    errors = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert errors and all(map(SAYS.search, errors)), err  # a study says it of each of its settings
    return max((file for file in files if file in errors[0]), key=len, default=errors[0])
