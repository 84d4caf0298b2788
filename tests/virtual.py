"""Minutes of dispatch in a second: an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Clock:
    """Stands in for the `time` module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic


class _Jumping(selectors.DefaultSelector):
    """Waits only for what other threads say; otherwise sets the clock forward."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.clock.now += max(timeout, 0.0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        super().__init__(_Jumping(clock))

    def time(self) -> float:
        return self.clock.now


@contextmanager
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """`dispatch` in virtual time, its draws seeded; backends that only sleep take none."""
    clock = Clock()
    monkeypatch.setattr("llmfair.retries.random", random.Random(0))
    for module in ("adaptive", "asking", "pacing", "retries", "slots"):
        monkeypatch.setattr(f"llmfair.{module}.time", clock)
    loop = _Loop(clock)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    monkeypatch.setattr("llmfair.dispatch._loop", lambda: loop)
    yield clock
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
