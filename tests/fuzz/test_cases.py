"""Generated cases of every generator: few by default, thousands with -m slow; LLMFAIR_FUZZ_SEED moves the seed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fuzz import running
from tests.fuzz.running import Case, Ended, faults, of_cases, wrong_with

SEED = int(os.environ.get("LLMFAIR_FUZZ_SEED", "0"))
CASES: dict[str, tuple[int, int]] = {
    "flags": (10, 1_750),
    "inputs": (10, 1_750),
    "runs": (30, 1_500),
    "stored": (15, 1_000),
}
"""How many cases of a generator come first, and up to how many come with -m slow."""
COSTLY = ("runs", "stored")
"""What these need is made by a dozen commands."""
AT_ONCE = 250


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.whole if name in COSTLY else ()) for name in CASES]
)
def test_few(name: str) -> None:
    assert not (found := faults(name, 0, CASES[name][0], SEED)), "\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "first"),
    [(name, first) for name, (few, many) in CASES.items() for first in range(few, many, AT_ONCE)],
)
def test_many(name: str, first: int) -> None:
    assert not (found := faults(name, first, min(AT_ONCE, CASES[name][1] - first), SEED)), "\n".join(found)


@pytest.mark.parametrize(
    ("ended", "what"),
    [
        (Ended(7 << 8, 1, 99, b"", b"Error: no.\n"), "exit code 7"),
        (
            Ended(0, 1, 99, b"", b"Traceback (most recent call last):\nKeyError: 'a'\n"),
            "traceback: KeyError: 'a'",
        ),
        (Ended(1 << 8, 1, 99, b"", b"Error: unexpected KeyError: 'a'\n"), "unexpected KeyError"),
        (Ended(signal.SIGALRM, 1, 99, b"", b""), "past its time"),
        (Ended(signal.SIGSEGV, 1, 99, b"", b""), "died of SIGSEGV"),
        (Ended(0, 1, 901, b"", b""), "past 900 MB"),
        (Ended(0, 1, 99, b"a\x1b[2J", b""), "raw U+001B in stdout"),
        (Ended(0, 1, 99, b"", "\u202eb".encode()), "raw U+202E in stderr"),
    ],
)
def test_every_fault_is_seen(ended: Ended, what: str) -> None:
    assert list(wrong_with(Case((), ""), ended, [])) == [what]


def test_what_ends_well_is_no_fault() -> None:
    told = "a\tb\n日本語 \U0001f600\n".encode()
    assert not list(wrong_with(Case((), ""), Ended(3 << 8, 1, 99, told, told), []))


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_is_measured_and_ended_and_its_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(arguments: Sequence[str]) -> int:
        Path("page.html").write_text("\x9b", encoding="utf-8")
        os.write(1, b"told")
        time.sleep(float(arguments[0]))
        return 2

    monkeypatch.setattr(running, "_run", run)
    monkeypatch.setattr(running, "warm", lambda base: None)
    whats = {"0": ["raw U+009B in page.html"], "9": ["past its time", "raw U+009B in page.html"]}
    for seconds, what in whats.items():
        scratch = tmp_path / seconds
        scratch.mkdir()
        generator: Any = SimpleNamespace(
            __name__="none",
            prepare=lambda base: None,
            case=lambda rng, folder, base, seconds=seconds: Case((seconds,), "", frozenset({2})),
        )
        found = list(of_cases(generator, [0], 0, scratch, seconds=1))
        assert [fault.what for fault in found] == what
        assert (scratch / "stdout").read_text() == "told"
