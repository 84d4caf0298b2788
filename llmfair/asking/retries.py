"""Whether a request that failed is tried again, and after how long."""

from __future__ import annotations

import random
import statistics
import time
from collections import deque

from llmfair.backends.base import RateLimited, Transient
from llmfair.errors import Unavailable

FIRST_WAIT = 0.1
FIRST_WAIT_REFUSED = 0.025  # a server that refuses is up
LONGEST_WAIT = 60.0
RETRIES_BEFORE_SUCCESS = 3


class Retries:
    """`retries` attempts after passing failures; while the server limits the rate, `max_wait` seconds without any
    answer. Waits start near the latency seen so far: a chain can do nothing else meanwhile (`listwise.md` 9).
    """

    def __init__(self, retries: int, max_wait: float) -> None:
        self.retries, self.max_wait = retries, max_wait
        self._latencies: deque[float] = deque(maxlen=101)
        self._last_success = time.monotonic()

    def succeeded(self, sent: float) -> None:
        """A request sent at this time was answered."""
        now = time.monotonic()
        self._latencies.append(now - sent)
        self._last_success = now

    def latency(self) -> float:
        """The median latency in seconds, 0 before the first answer."""
        return statistics.median(self._latencies) if self._latencies else 0.0

    def wait_after(self, failure: RateLimited | Transient, attempts: int, failures: int) -> float:
        """Seconds until the next attempt, `failures` of the `attempts` being no refusals. Raises Unavailable."""
        if isinstance(failure, Transient):
            allowed = self.retries if self._latencies else min(RETRIES_BEFORE_SUCCESS, self.retries)
            if failures > allowed:
                raise Unavailable(
                    f"no answer after {attempts} attempts: {failure.cause}.",
                    "check the server; the same command continues",
                )
            asked, unknown = 0.0, FIRST_WAIT
        else:
            if time.monotonic() - self._last_success > self.max_wait:
                raise Unavailable(
                    f"rate limited for {self.max_wait:.0f} s without one answer.",
                    "try later; the same command continues",
                )
            asked, unknown = failure.retry_after or 0.0, FIRST_WAIT_REFUSED
        first = self.latency() / 4 if self._latencies else unknown
        growing = min(first * 2.0 ** min(attempts - 1, 20), LONGEST_WAIT) * random.uniform(0.75, 1.25)
        return max(asked, growing)
