"""Exchanges that end in time, whatever they wait for: a name, a connection, or a byte now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

SLOWEST = 10_000
"""Bytes a second: a file that moves slower than this does not arrive."""


def in_time(exchange: Callable[[], T], seconds: float, moved: Callable[[], int]) -> T:
    """What the exchange returns or raises, within so many seconds and more for the bytes that `moved` at `SLOWEST`.

    It runs in a thread that is left behind when it takes longer (TimeoutError).
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(exchange())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="llmfair-exchange", daemon=True).start()
    began = time.monotonic()
    while True:
        left = began + seconds + moved() / SLOWEST - time.monotonic()
        try:
            return found.result(max(0.0, left))
        except TimeoutError:
            if found.done():
                return found.result()
            if left <= 0:
                raise
