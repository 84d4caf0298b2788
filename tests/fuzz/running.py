"""Runs one llmfair command a generated case, and holds it to what every command owes, whatever it is given.

A generator is a module of this folder with two functions:

    prepare(folder)           what all its cases start from, made once; it may run commands (`tests.cli.command.ran`)
    case(rng, folder, base)   writes what one case needs into the empty `folder`, which the command works in; `base`
                              is what was prepared, to be copied from. Returns the Case

`rng` is seeded by generator, seed and number, so a case comes again by its number, whatever ran before it:

    python -m tests.fuzz.running runs 1234            this case alone, with what it printed
    python -m tests.fuzz.running runs 0-499 --seed 7  these, and only what was wrong with them

One process imports all that commands load and forks a child for each case, so that a case takes tens of milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20
MEGABYTES = 900
"""Beside what the process has imported when it begins a case, about 100: 1 GB in all."""
ADDRESSES = 6 << 30
"""Bytes a case may map, far above what it may use: the machine is not to suffer from a fault."""
CODES = frozenset({0, 1, 2, 3, 4})
"""The exit codes that docs/commands.md has for commands that nobody stops."""
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What steers a terminal or turns text around: C0 but tab and newline, C1, and the marks of direction."""
SHOWN = {".md", ".csv", ".svg", ".html"}
"""Files that people open."""
SETTINGS = {"LLMFAIR_REPORT": "0", "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class Case:
    """A command line, how it may end, and what makes it up in words: faults are counted by `kind`.

    `drawn` False: a page has no figures, which take most of its time.
    """

    arguments: Sequence[str]
    kind: str
    codes: frozenset[int] = CODES
    drawn: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""


@dataclass(frozen=True)
class Fault:
    """What was wrong with a case; `said`: the end of what it told."""

    number: int
    kind: str
    arguments: Sequence[str]
    what: str
    said: str = ""

    def __str__(self) -> str:
        return f"case {self.number} ({self.kind}): {self.what}\n  llmfair {' '.join(self.arguments)!r}\n  {self.said}"


@dataclass(frozen=True)
class Ended:
    """How a command ended; `status` as os.wait has it, `megabytes` what it took beside what was there before."""

    status: int
    seconds: float
    megabytes: float
    out: bytes
    err: bytes


def faults(name: str, first: int, count: int, seed: int = 0) -> list[str]:
    """Runs these cases of the generator `name` in a process of its own; what was wrong, in words."""
    command = [sys.executable, "-m", "tests.fuzz.running", name, f"{first}-{first + count - 1}"]
    run = subprocess.run([*command, "--seed", str(seed), "--json"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [str(Fault(**fault)) for fault in json.loads(run.stdout)]


def of_cases(
    generator: ModuleType,
    numbers: Sequence[int],
    seed: int,
    scratch: Path,
    seconds: int = SECONDS,
    tell: bool = False,
) -> Iterator[Fault]:
    """Runs them one by one, each for so many seconds at most; `tell`: prints each case with what it printed."""
    base = scratch / "base"
    base.mkdir()
    with contextlib.chdir(base):
        generator.prepare(base)
    warm(base)
    for number in numbers:
        folder = scratch / "case"
        folder.mkdir()
        rng = random.Random(f"{generator.__name__} {seed} {number}")
        with contextlib.chdir(folder):
            case: Case = generator.case(rng, folder, base)
        before = {path: path.stat() for path in _files(folder)}
        ended = in_a_child(case, folder, seconds)
        changed = [path for path in _files(folder) if path not in before or _differs(path, before[path])]
        if tell:
            printed = (ended.out + ended.err).decode(errors="backslashreplace")
            print(f"{case.kind}\n$ llmfair {' '.join(case.arguments)}\n{printed}")
            print(f"status {ended.status}  {ended.seconds:.2f} s  {ended.megabytes:.0f} MB")
        for what in wrong_with(case, ended, changed):
            said = ended.err.decode(errors="backslashreplace").encode("unicode_escape").decode()
            yield Fault(number, case.kind, list(case.arguments), what, said[-600:])
        shutil.rmtree(folder)


def wrong_with(case: Case, ended: Ended, written: Sequence[Path]) -> Iterator[str]:
    """What a command owes and did not keep."""
    if os.WIFSIGNALED(ended.status):
        number = os.WTERMSIG(ended.status)
        yield "past its time" if number == signal.SIGALRM else f"died of {signal.Signals(number).name}"
    elif (code := os.waitstatus_to_exitcode(ended.status)) not in case.codes:
        yield f"exit code {code}"
    told = ended.err.decode("utf-8", "backslashreplace")
    if "Traceback (most recent call last)" in told:
        yield f"traceback: {told.strip().splitlines()[-1][:100]}"
    elif found := re.search(r"Error: unexpected (\w+)", told):
        yield f"unexpected {found[1]}"
    if ended.megabytes > MEGABYTES:
        yield f"past {MEGABYTES:,} MB"
    for name, content in (
        ("stdout", ended.out),
        ("stderr", ended.err),
        *((p.name, p.read_bytes()) for p in written),
    ):
        if found := RAW.search(content.decode("utf-8", "backslashreplace")):
            yield f"raw U+{ord(found[0]):04X} in {name}"


def in_a_child(case: Case, folder: Path, seconds: int) -> Ended:
    """Runs the command in a child of this process, which has imported everything."""
    out, err, given = (folder.with_name(f"std{name}") for name in ("out", "err", "in"))
    given.write_bytes(case.stdin)
    began, held = time.monotonic(), _resident()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        code = 99
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for number, path, mode in ((0, given, os.O_RDONLY), (1, out, _NEW), (2, err, _NEW)):
                os.dup2(os.open(path, mode, 0o600), number)
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  a test that forks has others
            sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            os.chdir(folder)
            os.environ |= case.environment
            if not case.drawn:
                import_module("llmfair.report.html").__dict__["inline_svg"] = lambda plot: (
                    f"<svg>{plot.name}</svg>"
                )
            code = _run(case.arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    took = time.monotonic() - began
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it may have left running
    return Ended(status, took, used.ru_maxrss / 1024 - held, out.read_bytes(), err.read_bytes())


def _resident() -> float:
    """Megabytes that this process has in memory, all of which a child begins with."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def _run(arguments: Sequence[str]) -> int:
    """As the command is run from a shell."""
    from llmfair.cli.app import main

    sys.argv = ["llmfair", *arguments]
    try:
        main()
    except SystemExit as ends:
        return ends.code if isinstance(ends.code, int) else int(ends.code is not None)


def warm(folder: Path) -> None:
    """Imports what commands import while they run, and builds the command line once."""
    from tests.cli.command import llmfair

    with contextlib.chdir(folder):
        audit = (*"listwise -n 2 --orders 1 --conditions neutral --no-repeat -o warm".split(),)
        for command in (
            audit,
            ("runs", "list", "--runs-dir", "."),
            ("runs", "check", "warm"),
            ("score", "warm"),
            ("compare", "warm", "warm"),
            ("report", "warm"),
            ("pairwise", "-n", "2", "--pairs", "2", "-o", "warm-pairs"),
            ("plan", "listwise"),
            ("doctor",),
        ):
            llmfair(*command)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in SHOWN and path.is_file())


def _differs(path: Path, before: os.stat_result) -> bool:
    now = path.stat()
    return (now.st_ino, now.st_mtime_ns, now.st_size) != (before.st_ino, before.st_mtime_ns, before.st_size)


def main() -> None:
    asked: Any = argparse.ArgumentParser(prog="python -m tests.fuzz.running")
    asked.add_argument("generator")
    asked.add_argument("cases", help="a number, or FIRST-LAST")
    asked.add_argument("--seed", type=int, default=int(os.environ.get("LLMFAIR_FUZZ_SEED", "0")))
    asked.add_argument("--seconds", type=int, default=SECONDS, help="that a case may take")
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    first, _, last = given.cases.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    with tempfile.TemporaryDirectory(prefix="llmfair-fuzz-") as scratch:
        clean_environment(Path(scratch))
        began = time.monotonic()
        generator = import_module(f"tests.fuzz.{given.generator}")
        found = []
        for fault in of_cases(generator, numbers, given.seed, Path(scratch), given.seconds, not last):
            found.append(fault)
            if not given.json:
                print(fault, flush=True)
    if given.json:
        print(json.dumps([asdict(fault) for fault in found]))
        return
    for what, times in Counter(fault.what for fault in found).most_common():
        print(f"{times:6,}  {what}")
    print(f"{len(numbers):,} cases, {len(found):,} faults, {time.monotonic() - began:.1f} s")


def clean_environment(scratch: Path) -> None:
    """No key and no setting of the machine's own."""
    kept = {n: os.environ[n] for n in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if n in os.environ}
    os.environ.clear()
    os.environ |= {**kept, **SETTINGS, "HOME": str(scratch), "LLMFAIR_CACHE_DIR": str(scratch / "cache")}


if __name__ == "__main__":
    main()
