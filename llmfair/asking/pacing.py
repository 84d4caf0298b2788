"""How fast requests may leave: rates that somebody set, and the rate that a server is found to allow."""

from __future__ import annotations

import time

LEAST_ACCEPTED = 10
LEAST_SECONDS = 2.0
LONGEST_SAMPLE = 100
BELOW = 0.98  # a rate just under the quota, so that the server's own bucket fills meanwhile
GROWTH_SECONDS = 15.0
FIRST_GROWTH = 0.005
GROWN = 1.1


class Bucket:
    """Units a second, refilled continuously, one second deep; `waited` says that it has held something back.

    What is larger than the bucket waits until it is full and leaves a debt, so that any rate is met on average.
    """

    def __init__(self, rate: float, full: bool = True) -> None:
        self.rate = rate
        self.waited = False
        self._level = rate if full else 0.0
        self._at = time.monotonic()

    def wait(self, units: float) -> float:
        """Seconds until so many units may leave."""
        now = time.monotonic()
        self._level = min(self.rate, self._level + (now - self._at) * self.rate)
        self._at = now
        short = min(units, self.rate) - self._level
        if short < 1e-9 * self.rate:
            return 0.0
        self.waited = True
        return short / self.rate

    def take(self, units: float) -> None:
        """Counts what leaves; a negative number gives back what was reserved and not used."""
        self._level -= units

    def set(self, rate: float) -> None:
        """Another rate from now on, beginning empty."""
        self.rate, self._level, self._at, self.waited = rate, 0.0, time.monotonic(), False


class Pace:
    """The requests a second that a server allows, learned from what it refuses.

    From one refusal for a spent quota to another, the server has let in quota × time, however deep its bucket: so
    the requests let in between refusals tell the quota. The pace starts just below, grows while nothing is refused,
    faster the longer, and is measured anew at the next refusal. A refused request that was sent before the last
    refusal tells nothing new.
    """

    def __init__(self) -> None:
        self.bucket: Bucket | None = None
        self._quota = self._least = 0.0
        self._since: float | None = None
        self._accepted = 0
        self._last_sent = self._refused_at = self._grown_at = 0.0
        self._growth, self._held = FIRST_GROWTH, 0.0  # and the last pace that held for a while

    def accepted(self, sent: float) -> None:
        """A request sent at this time was let in."""
        if self._since is None or sent < self._since:
            return
        self._accepted += 1
        self._last_sent = max(self._last_sent, sent)
        bucket, now = self.bucket, time.monotonic()
        if bucket is None or now - self._grown_at < GROWTH_SECONDS:
            return
        if bucket.waited:  # else there is nothing to learn from more room
            self._held = bucket.rate
            bucket.rate *= 1 + self._growth
            bucket.waited = False
            self._growth = min(2 * self._growth, 1.0)
        self._grown_at = now

    def refused(self, sent: float, plainly: bool) -> None:
        """A request sent at this time was refused; `plainly`: surely for a quota, not by chance."""
        now = time.monotonic()
        if self._since is None:
            if plainly:
                self._begin(now)
            return
        if sent < self._refused_at:
            return
        self._refused_at = now
        seconds = self._last_sent - self._since
        if self._accepted < LEAST_ACCEPTED or seconds < LEAST_SECONDS:
            if self.bucket is None:
                return
        else:
            measured = self._accepted / seconds
            if plainly and self._held > GROWN * measured:  # it allows more now than when the sample began
                measured = self._held
            # A refusal by chance (no bucket behind it) must not slow the run down for good: it lowers the quota once,
            # and by no more than the last plain sample was uncertain, a request.
            self._quota = measured if plainly else max(self._least, measured)
            self._least = self._quota * (1 - plainly / self._accepted)
            if self._accepted >= LONGEST_SAMPLE:
                self._begin(now)
        if self._quota:
            self.bucket = self.bucket or Bucket(self._quota)
            self.bucket.set(BELOW * self._quota)
            self._growth, self._grown_at, self._held = FIRST_GROWTH, now, 0.0

    def _begin(self, now: float) -> None:
        self._since = self._refused_at = now
        self._accepted = 0
