"""Generated cases of every generator: few by default, thousands with -m slow; LLMFAIR_FUZZ_SEED moves the seed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fuzz import running
from tests.fuzz.running import SETTINGS, Case, Ended, faults, of_cases, wrong_with
from tests.fuzz.server.modes import FREQUENCIES, MODES
from tests.fuzz.server.trial import ROADS, damaged, undisturbed, wrong

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
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


PICKED = re.compile(os.environ.get("LLMFAIR_FUZZ_MODES", ""))
"""Modes of servers by their names, with -m slow."""
FEW = (
    ("pairwise", "completion: choices.0.logprobs a text", "always"),
    ("create", "connection reset after the work is done", "the first five"),
)
MORE = (
    ("listwise", "chunks for ever", "always"),
    ("pairwise", "302 to another origin", "always"),
    ("listwise", "connection reset", "every third"),
    ("listwise", "status 500", "from the 20th on"),
    ("pairwise", "429, Retry-After 1e9", "always"),
    ("pairwise", "limits that reset far away", "always"),
    ("pairwise", "body: HTML", "the first five"),
    ("upload", "gzip", "always"),
    ("look", "look: status null", "always"),
    ("content", "content: one id for all", "always"),
    ("content", "status 202 with the answer", "always"),
)
"""Of the table, a few that are quick: each was wrong once, or stands for many."""
STAGES = ("upload", "create", "look", "content")


def cases() -> Iterator[tuple[str, str, str]]:
    """Every mode on every road: one by one always and now and then, and at a stage of batches, in turn."""
    for number, (name, mode) in enumerate(MODES.items()):
        if not PICKED.search(name):
            continue
        stages = [stage for stage in (*STAGES, "list") if stage in mode.stages]
        if "chat" in mode.stages:
            yield "listwise", name, "always"
            yield "pairwise", name, list(FREQUENCIES)[1 + number % 3]
            stages = [stage for stage in stages if stage != "list"]
        yield stages[number % len(stages)], name, "always"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[dict[str, bytes], int]]]:
    """By its road, the files of a run whose server is well, and how many answers they take."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        for where in ("asking.batch.FIRST_POLL", "asking.batch.LONGEST_POLL", "io.net.FIRST_WAIT"):
            patch.setattr(f"llmfair.{where}", 0.02)
        patch.setattr("llmfair.asking.batch.SETTLE_SECONDS", 0.05)
        patch.setenv("LLMFAIR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        found = dict[str, tuple[dict[str, bytes], int]]()
        for road in ("listwise", "pairwise", "upload"):
            folder = tmp_path_factory.mktemp(road) / "run"
            patch.chdir(folder.parent)
            found[road] = undisturbed(road, folder), 26 if road == "listwise" else 24
        yield {road: found.get(road, found["upload"]) for road in ROADS}


def held(
    calm: dict[str, tuple[dict[str, bytes], int]], road: str, name: str, frequency: str, folder: Path
) -> None:
    mode = replace(MODES[name], when=FREQUENCIES[frequency])
    files, total = calm[road]
    faults = list(wrong(road, mode, folder, files, total))
    assert not faults, "\n".join([f"{name}, {frequency}, {road}", *faults])


def test_there_are_more_than_a_hundred_modes_on_every_road() -> None:
    for road in ("listwise", "pairwise", "upload", "create", "look", "content"):
        assert sum(damaged(road) in mode.stages for mode in MODES.values()) > 100


@pytest.mark.parametrize(
    ("road", "name", "frequency"), [*FEW, *(pytest.param(*one, marks=pytest.mark.whole) for one in MORE)]
)
def test_a_few(
    road: str, name: str, frequency: str, calm: dict[str, tuple[dict[str, bytes], int]], tmp_path: Path
) -> None:
    held(calm, road, name, frequency, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("road", "name", "frequency"), list(cases()))
def test_all(
    road: str, name: str, frequency: str, calm: dict[str, tuple[dict[str, bytes], int]], tmp_path: Path
) -> None:
    held(calm, road, name, frequency, tmp_path)
