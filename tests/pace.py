"""Bars in seconds that hold on a slow or busy machine too: work is compared with a fixed loop beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

QUIET_SECONDS = 0.02
"""What the fixed loop takes on a quiet core of two."""


def pace() -> float:
    """How many times as long as on a quiet machine the fixed loop takes now; at least 1."""
    started = time.perf_counter()
    total = 0
    for number in range(400_000):
        total += number
    return max(1.0, (time.perf_counter() - started) / QUIET_SECONDS)


def within(seconds: float, work: Callable[[], T], waiting: float = 0.0, tries: int = 3) -> T:
    """What `work` returns; fails if every time it took `seconds` (at this machine's pace) beside `waiting`."""
    tried = []
    for _ in range(tries):
        before = pace()
        started = time.perf_counter()
        result = work()
        took = time.perf_counter() - started
        allowed = waiting + seconds * max(before, pace())
        if took < allowed:
            return result
        tried.append(f"{took:.2f} s of {allowed:.2f}")
    raise AssertionError(f"too slow: {', '.join(tried)}")
