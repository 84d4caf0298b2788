"""The places in flight: who may ask now, who is next, and when nobody may."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable

from llmfair.asking.pacing import Bucket


class Slots:
    """A first-come queue for the places in flight, whose head belongs to requests that are tried again.

    `limit` places at most are taken at a time. Besides, each request waits until every bucket in `requests` has
    room for one, and `tokens` for its tokens.
    """

    def __init__(self, limit: float, requests: Iterable[Bucket] = (), tokens: Bucket | None = None) -> None:
        self.limit = limit
        self.taken = 0
        self.requests = list(requests)
        self.tokens = tokens
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._held_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, tokens: int = 0, first: bool = False) -> None:
        """Waits for a place; `leave` gives it back."""
        if not self._waiting and self.taken < self.limit and not self._pause(tokens):
            self._take(tokens)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft((turn, tokens))
        else:
            self._waiting.append((turn, tokens))
        if self._timer is None or first:
            self.wake()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        self.taken -= 1
        self.wake()

    def settle(self, unused_tokens: int) -> None:
        """Gives back tokens that were reserved and not used (negative: takes those beyond)."""
        if self.tokens is not None:
            self.tokens.take(-unused_tokens)

    def hold(self, seconds: float) -> None:
        """Lets nobody in for a while."""
        self._held_until = max(self._held_until, time.monotonic() + seconds)
        self.wake()

    def release_all(self) -> None:
        """Lets everybody in: the run is stopping, and each must hear of it."""
        self._held_until = 0.0
        self.limit = math.inf
        self.requests, self.tokens = [], None
        self.wake()

    def wake(self) -> None:
        """Lets in whoever may; where only time is in the way, looks again when it has passed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self.taken < self.limit:
            turn, tokens = self._waiting[0]
            if not turn.done():
                if pause := self._pause(tokens):
                    self._timer = asyncio.get_running_loop().call_later(pause, self.wake)
                    return
                self._take(tokens)
                turn.set_result(None)
            self._waiting.popleft()

    def _pause(self, tokens: int) -> float:
        """Seconds until the buckets and the server's own word let a request leave."""
        pause = self._held_until - time.monotonic() if self._held_until else 0.0
        for bucket in self.requests:
            pause = max(pause, bucket.wait(1))
        if self.tokens is not None:
            pause = max(pause, self.tokens.wait(tokens))
        return max(pause, 0.0)

    def _take(self, tokens: int) -> None:
        self.taken += 1
        for bucket in self.requests:
            bucket.take(1)
        if self.tokens is not None:
            self.tokens.take(tokens)
