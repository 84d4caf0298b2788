"""Minutes of dispatch in a second: an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec

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


def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all that dispatch goes by, its draws seeded."""
    clock = Clock()
    monkeypatch.setattr("llmfair.io.net.random", random.Random(0))
    for module in ("asking.lanes", "asking.dispatch", "io.net"):
        monkeypatch.setattr(f"llmfair.{module}.time", clock)
    return clock


def finish(work: Coroutine[Any, Any, None], clock: Clock, seconds: float = 20) -> None:
    """Runs this to its end, which must come within so many seconds of the clock."""
    with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
        runner.run(asyncio.wait_for(work, seconds))


@contextmanager
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """`dispatch` in virtual time; backends that only sleep take none."""
    clock = virtual_clock(monkeypatch)
    loop = _Loop(clock)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    monkeypatch.setattr("llmfair.io.net.loop", lambda: loop)
    yield clock
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


P = ParamSpec("P")


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs it to its end, which must come within 20 seconds."""

    @wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*given, **named), 20))

    return run


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs it to its end by the fixture `clock`, which jumps to whatever is waited for."""

    @wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        finish(test(*given, **named), named["clock"])  # type: ignore[arg-type]

    return run
