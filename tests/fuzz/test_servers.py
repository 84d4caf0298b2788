"""Commands against a server that misbehaves: each ends by itself, says why, and loses and repeats no answer.

`LLMFAIR_FUZZ_MODES=REGEX` picks modes by their names: `pytest -m slow tests/fuzz/test_servers.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.running import SETTINGS
from tests.fuzz.server.modes import FREQUENCIES, MODES
from tests.fuzz.server.trial import ROADS, damaged, undisturbed, wrong

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
PICKED = re.compile(os.environ.get("LLMFAIR_FUZZ_MODES", ""))
FEW = (
    ("listwise", "chunks for ever", "always"),
    ("pairwise", "302 to another origin", "always"),
    ("pairwise", "completion: choices.0.logprobs a text", "always"),
    ("create", "connection reset after the work is done", "the first five"),
)
MORE = (
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
        patch.setattr("llmfair.backends.batch.SETTLE_SECONDS", 0.05)
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
