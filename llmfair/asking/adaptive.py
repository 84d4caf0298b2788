"""How many requests a server takes at once, found by asking: grows while answers come, falls when it refuses."""

from __future__ import annotations

import time
from collections import deque

from llmfair.asking.pacing import Bucket, Pace
from llmfair.asking.slots import Slots

START = 16
BUSY = 0.8
GROWTH_AFTER_CUT = 50
CUT = 0.8
LAST_ANSWERS = 50
MANY = 0.2
SOME = 0.05  # more than by chance, where a quota is known to be there
SHORTEST_COOLDOWN, LONGEST_COOLDOWN = 1.0, 15.0


class Adaptive:
    """Sets the limit of `slots` between 1 and `most` by what comes back; times are those of `time.monotonic`.

    It doubles after as many answers as it allows in flight until the first cut, then grows by one for every fifty,
    and only while nearly all places are taken. Isolated refusals leave it alone. A server that goes on refusing has
    a quota by time: once its pace is known that rules, and the limit returns to what it was before the cuts.
    """

    def __init__(self, slots: Slots, most: int) -> None:
        self.slots, self.most = slots, most
        self.slots.limit = min(START, most)
        self.pace = Pace()
        self._before_cuts: float | None = None
        self._successes = 0
        self._tells = False
        self._last: deque[bool] = deque()
        self._refused = 0
        self._cool_until = 0.0
        self._told: Bucket | None = None

    def told(self, rate: float) -> None:
        """The server says that it will take so many requests a second."""
        if self._told is None:
            self._told = Bucket(rate)
            self.slots.requests.append(self._told)
        self._told.rate = rate

    def answered(self, sent: float) -> None:
        """A request sent at this time was answered."""
        self._count(False)
        self.pace.accepted(sent)
        slots = self.slots
        if (
            slots.limit >= self.most
            or slots.taken < BUSY * slots.limit
            or time.monotonic() < self._cool_until
        ):
            return
        self._successes += 1
        if self._before_cuts is None and self._successes >= slots.limit:
            self._grow(2 * slots.limit)
        elif self._before_cuts is not None and self._successes >= GROWTH_AFTER_CUT:
            self._grow(slots.limit + 1)

    def failed(self, sent: float) -> None:
        """A request sent at this time failed otherwise than for a limit, so it has used up some of the quota."""
        self._count(False)
        self.pace.accepted(sent)

    def refused(self, sent: float, retry_after: float | None, latency: float) -> None:
        """A request sent at this time was refused; `latency` is the median in seconds."""
        share = self._count(True)
        plainly = bool(retry_after) or share > MANY
        known = self.pace.bucket is not None
        self._tells = self._tells or bool(retry_after)
        if plainly or (known and share > SOME and not self._tells):
            self.pace.refused(sent, plainly)
        elif self._tells:
            self.pace.accepted(sent)  # and refused for another reason than the quota
        if self.pace.bucket is not None:
            if not known:
                self.slots.requests.append(self.pace.bucket)
                self.slots.limit = self._before_cuts or self.slots.limit
            return
        now = time.monotonic()
        if plainly and now >= self._cool_until:
            self._before_cuts = self._before_cuts or self.slots.limit
            self.slots.limit = max(1, int(CUT * self.slots.limit))
            self._successes = 0
            cooldown = max(retry_after or 0.0, 2 * latency, SHORTEST_COOLDOWN)
            self._cool_until = now + min(cooldown, LONGEST_COOLDOWN)

    def _count(self, refused: bool) -> float:
        """The share refused of the last answers, of as many at least as are in flight: refusals come back first."""
        last = max(LAST_ANSWERS, self.slots.taken)
        self._last.append(refused)
        self._refused += refused
        while len(self._last) > last:
            self._refused -= self._last.popleft()
        return self._refused / last

    def _grow(self, limit: float) -> None:
        self.slots.limit = min(limit, self.most)
        self._successes = 0
        self.slots.wake()
