"""A clock that is set back between two attempts of a command and while it runs changes nothing that it does."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import kept
from tests.cli.kills import LISTWISE, OWN, asked
from tests.cli.long_commands import COMMANDS
from tests.cli.stops import ROOT, TERM, Long, Watch, new_folder, same_files, stopped, through
from tests.folders import balanced, write_folder

pytestmark = pytest.mark.whole
HOUR, TEN_YEARS = 3_600, 315_576_000
ATTEMPTS = (f"0:{HOUR}", f"0:{HOUR},0.3:{TEN_YEARS}")
"""By how much the clock of the second and of the third is set back, and when."""


def set_back(watch: Watch, steps: str) -> None:
    """The clock of whatever command is begun from now on."""
    before = watch.environment.get("PYTHONPATH") or os.environ.get("PYTHONPATH", str(ROOT))
    path = f"{Path(__file__).parents[1] / 'clock'}{os.pathsep}{before}"
    watch.environment = {**watch.environment, "PYTHONPATH": path, "CLOCK_SET_BACK": steps}


def negative(folder: Path) -> Iterator[str]:
    """The durations below nothing that files hold."""

    def of(value: Any, place: str) -> Iterator[str]:
        if isinstance(value, list):
            for one in value:
                yield from of(one, place)
        elif isinstance(value, dict):
            for name, one in value.items():
                yield from of(one, f"{place} {name}")
            if value.get("ended") and value["ended"] < value["started"]:
                yield place
        elif place.endswith("seconds") and (value or 0) < 0:
            yield place

    for path in folder.rglob("*.json"):
        yield from of(json.loads(path.read_text()), str(path))
    for path in folder.rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            yield from of(json.loads(line), str(path))


def set_back_again_and_again(long: Long, scratch: Path) -> None:
    """Stops a command, goes on an hour before, and comes to the end ten years before.

    Asserts that nothing is asked again, that no duration is negative, and that all equals a calm run, byte for byte.
    """
    moments = random.Random(0)
    with long.watched(scratch) as watch:
        calm, folder = (new_folder(long, scratch / name) for name in ("calm", "run"))
        out = through(long, watch, calm)
        stopped(long, watch, folder, TERM, moments)
        set_back(watch, ATTEMPTS[0])
        stopped(long, watch, folder, TERM, moments)
        set_back(watch, ATTEMPTS[1])
        assert through(long, watch, folder) == out or not long.prints
    same_files(long, folder, calm)
    assert not [*negative(folder)]


def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    set_back_again_and_again(COMMANDS["listwise"], tmp_path)


def test_answers_of_later_are_still_known(tmp_path: Path) -> None:
    """A run ten years before another that asks the same finds its answers in the cache."""
    log, watch, sent = tmp_path / "requests.jsonl", Watch(), list[int]()
    write_folder(tmp_path / "lists", balanced(3, 20, 20))
    with OWN.running(log) as port:
        server = ("-d", "lists", "-m", "openai:any", "--base-url", f"http://127.0.0.1:{port}/v1")
        for output in ("later", "earlier"):
            through(Long((*LISTWISE.command, *server, "-o", output), ()), watch, tmp_path)
            sent.append(len(asked(log)))
            set_back(watch, f"0:{TEN_YEARS}")
    assert sent[0] == sent[1] > 0 and kept("manifest", tmp_path / "earlier")["cached"] == sent[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_clock_that_is_set_back_in_every_long_command(name: str, tmp_path: Path) -> None:
    set_back_again_and_again(COMMANDS[name], tmp_path)
