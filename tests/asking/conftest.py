"""What tests of dispatch start from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfair.asking.dispatch import Asker
from llmfair.asking.journal import Journal
from tests.virtual import Clock, virtual_time


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once dispatch knows of an interrupt."""
    event, interrupt = threading.Event(), Asker.interrupt

    def interrupt_and_tell(driver: Asker) -> None:
        interrupt(driver)
        event.set()

    monkeypatch.setattr(Asker, "interrupt", interrupt_and_tell)
    return event


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.jsonl", "run", "scripted")
    yield journal
    journal.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Dispatch in virtual time, which backends note too."""
    with virtual_time(monkeypatch) as clock:
        monkeypatch.setattr("tests.asking.scripted.time", clock)
        yield clock
