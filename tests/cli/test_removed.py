"""Journals and run folders that somebody removes or moves in the middle of a run: nothing is written in their place.

What the error says leads on: putting back what was moved asks for the rest alone, and --fresh asks everything again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import llmfair, ran, refuses
from tests.servers import Reply, Server, rank

RUN = Path("runs/one")
ASKED = 10
"""Answers after which it happens."""
HINT = "put it back, or ask again with --fresh"


class Disturbed:
    """A server in whose run something happens, and the command that asks it."""

    def __init__(self) -> None:
        self.asked: tuple[str, ...] = tuple("listwise -m openai:any -n 2 --orders 1 --passes 1".split())
        self.happens: Callable[[], object] | None = None
        self.server = Server(self._reply)
        self.seen = 0

    def _reply(self, body: dict[str, Any], attempt: int) -> Reply:
        self.seen += 1
        if self.happens is not None and self.seen == ASKED:
            self.happens()
        return rank(body, attempt)

    @property
    def command(self) -> tuple[str, ...]:
        flags = ("--base-url", self.server.base_url, "-j", "1", "--no-cache", "--no-report", "-o", str(RUN))
        return (*self.asked, *flags)

    def asks(self, *flags: str) -> int:
        """How many questions a command asks that comes to its end."""
        self.happens, before = None, self.seen
        ran(*self.command, *flags)
        return self.seen - before

    def disturbed(self, happens: Callable[[], object], journal: str = "journal.jsonl") -> None:
        self.happens = happens
        found = refuses(f"{RUN}/{journal} was removed during the run.", *self.command, code=1)
        assert HINT in found.err


@pytest.fixture
def run() -> Iterator[Disturbed]:
    run = Disturbed()
    with run.server:
        yield run


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


@pytest.mark.parametrize("flags", [("--fresh",), ()], ids=["fresh", "same"])
def test_a_journal_that_is_removed(run: Disturbed, flags: tuple[str, ...]) -> None:
    run.disturbed((RUN / "journal.jsonl").unlink)
    assert not RUN.exists()
    assert run.asks(*flags) == run.asks("--fresh") > ASKED


def test_a_journal_that_is_removed_as_a_run_goes_on(run: Disturbed) -> None:
    assert llmfair(*run.command, "--max-calls", str(ASKED - 3)).code == 3
    run.disturbed((RUN / "journal.jsonl").unlink)
    refuses("put the journal back, or ask again with --fresh", *run.command, code=1)
    assert run.asks("--fresh") > ASKED


@pytest.mark.whole
def test_a_folder_that_is_moved_and_put_back(run: Disturbed) -> None:
    run.disturbed(lambda: RUN.rename("moved"))
    assert not RUN.exists()
    kept = run.seen
    assert files(Path("moved")) == {"manifest.json", "journal.jsonl"}
    Path("moved").rename(RUN)
    assert run.asks() + kept == run.asks("--fresh"), "an answered question was asked again"


@pytest.mark.parametrize("gone", [RUN, RUN.parent], ids=["it", "all"])
def test_a_folder_that_is_removed(run: Disturbed, gone: Path) -> None:
    run.disturbed(lambda: shutil.rmtree(gone))
    assert not RUN.exists()
    assert run.asks("--fresh") > ASKED


def test_a_folder_that_is_removed_before_its_first_answer(run: Disturbed) -> None:
    run.seen = ASKED - 1
    run.disturbed(lambda: shutil.rmtree(RUN))
    assert not RUN.exists()
    assert run.asks() > ASKED


@pytest.mark.whole
def test_a_journal_of_a_further_stage(run: Disturbed) -> None:
    run.asked = ("rag", "-m", "fake:reader", "--attribution", "openai:any", "-n", "2", "--samples", "2")
    run.disturbed((RUN / "attribution.jsonl").unlink, "attribution.jsonl")
    assert files(RUN) == {"manifest.json", "journal.jsonl"}
    refuses("put the journal back, or ask again with --fresh", *run.command, code=1)
    assert run.asks("--fresh") > ASKED
