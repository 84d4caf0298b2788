"""Runs the command line inside the test's process, or as a process of its own."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmfair.cli.app import run

MADE = "-q --no-report"
"""Of runs that another command reads: what they print stands in another snapshot."""
Snapshot = Callable[[str, str], None]
"""The fixture of tests/conftest.py: a name, and the text to be held."""
COMMANDS = {
    "listwise": (
        "listwise", "-n", "5", "--orders", "2", "--conditions", "neutral,female", "--passes", "1", "--no-repeat",
    ),
    "pairwise": ("pairwise", "-n", "5", "--pairs", "4"),
    "sequential": ("pairwise", "-n", "5", "--sequential", "--max-pairs", "30"),
}  # fmt: skip
"""What made the runs that `copied` gives."""
RUNS = tempfile.TemporaryDirectory()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def llmfair(*arguments: str | Path) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def well(found: Outcome) -> Outcome:
    """What came to its end."""
    assert found.code == 0, found.err
    return found


def words_of(flags: Mapping[str, str]) -> list[str]:
    """Flags with a value each; of one that comes again the last value counts."""
    return [word for pair in flags.items() for word in pair]


def ran(*arguments: str | Path) -> Outcome:
    """A command that comes to its end."""
    return well(llmfair(*arguments))


def refusal(found: Outcome, says: str, code: int = 2) -> Outcome:
    """What ended with one error, which says so, and no traceback."""
    assert found.code == code and says in found.err, found
    assert f"\n{found.err}".count("\nError: ") == 1 and "Traceback" not in found.err, found.err
    return found


def refuses(says: str, *arguments: str | Path, code: int = 2) -> Outcome:
    """A command that is refused."""
    return refusal(llmfair(*arguments), says, code)


def process(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "llmfair", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, text=True, **pipes, **options)


def until_answers(running: subprocess.Popen[str], runs: int) -> None:
    """Waits until so many runs hold answers."""
    while sum(path.read_bytes().count(b"\n") > 1 for path in Path("runs").glob("*/journal.jsonl")) < runs:
        assert running.poll() is None
        time.sleep(0.02)


def only_run(folder: Path = Path("runs")) -> Path:
    """The one run folder there is."""
    (found,) = folder.iterdir()
    return found


def kept(name: str, folder: Path | str = "") -> Any:
    """The JSON file of that name in a run folder: the only one there is."""
    return json.loads(Path(folder or only_run(), f"{name}.json").read_text())


def copied(kind: str, to: str) -> Path:
    """A copy of a run, which is made once."""
    run = Path(RUNS.name, kind)
    if not run.exists():
        ran(*COMMANDS[kind], "-o", run)
    return Path(shutil.copytree(run, to))


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def transcript(*commands: str) -> str:
    """Each command with what it printed, or that it printed the same again; lines of stderr begin with `! `."""
    said, tables = [], set[str]()
    for command in commands:
        found = llmfair(*shlex.split(command))
        errors = "".join(f"! {line}\n" for line in found.err.splitlines())
        code = f"exit code {found.code}\n" if found.code else ""
        shown = "the same again\n" if found.out in tables else found.out
        tables.add(found.out)
        said.append(f"$ llmfair {command}\n" + (f"{errors}{shown}{code}\n" if MADE not in command else code))
    return "".join(said)
