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
LONGEST_OUTAGE_WAIT = 5.0  # a server that is back is not kept waiting
RETRIES_BEFORE_SUCCESS = 3


class Retries:
    """`retries` attempts after passing failures, and `outage` seconds where nobody is answered any more, however many
    attempts those take; while the server limits the rate, `max_wait` seconds without any answer. Waits start near
    the latency seen so far: a chain can do nothing else meanwhile (`listwise.md` 9).
    """

    def __init__(self, retries: int, max_wait: float, outage: float) -> None:
        self.retries, self.max_wait, self.outage = retries, max_wait, outage
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

    def wait_after(
        self,
        failure: RateLimited | Transient,
        attempts: int,
        failures: int,
        since: float,
        heard: float,
        elsewhere: bool = False,
    ) -> float:
        """Seconds until the next attempt, `failures` of the `attempts` being no refusals.

        `since`: when the attempt before failed, or the first was sent; `heard`: when this server last answered;
        `elsewhere`: what is no refusal can be asked of another server at once. Raises Unavailable, also for a wait that
        `max_wait` has no room for.
        """
        now = time.monotonic()
        asked, left = failure.retry_after or 0.0, heard + self.max_wait - now
        if isinstance(failure, Transient):
            if self._given_up(failures, now, since):
                raise Unavailable(
                    f"no answer after {attempts} attempts: {failure.cause}.",
                    "check the server; the same command continues",
                )
            if elsewhere:
                return 0.0
            own = min(self._growing(attempts, FIRST_WAIT), LONGEST_OUTAGE_WAIT)
        else:
            if left < 0:
                raise Unavailable(
                    f"rate limited (429) for {self.max_wait:.0f} s without one answer{failure.quote}.",
                    "try later; the same command continues",
                )
            own = self._growing(attempts, FIRST_WAIT_REFUSED)
        if asked > max(left, 0.0):
            raise Unavailable(
                f"{failure.cause}; the server asks to wait {asked:,.0f} s, and --max-wait leaves "
                f"{max(left, 0.0):,.0f} s of them.",
                "try later, or wait with a longer --max-wait; the same command continues",
            )
        return max(asked, own)

    def _given_up(self, failures: int, now: float, since: float) -> bool:
        """Whether no further attempt is made. A server is down that answered nobody since; it was up before."""
        if not self._latencies:
            return failures > min(RETRIES_BEFORE_SUCCESS, self.retries)
        down = self._last_success <= since and now - self._last_success < self.outage
        return failures > self.retries and not down

    def _growing(self, attempts: int, unknown: float) -> float:
        first = self.latency() / 4 if self._latencies else unknown
        return min(first * 2.0 ** min(attempts - 1, 20), LONGEST_WAIT) * random.uniform(0.75, 1.25)
