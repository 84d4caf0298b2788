"""The places in flight: who may ask now, who is next, and when nobody may."""

from __future__ import annotations

import asyncio
import time
from collections import deque


class Slots:
    """A first-come queue for the places in flight, whose head belongs to requests that are tried again."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._held_until = 0.0

    async def enter(self, first: bool = False) -> None:
        if self._free > 0 and not self._waiting and self._held_until <= time.monotonic():
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        self._free += 1
        self._wake()

    def hold(self, seconds: float) -> None:
        """Lets nobody in for a while."""
        until = time.monotonic() + seconds
        if until > self._held_until:
            self._held_until = until
            asyncio.get_running_loop().call_later(seconds, self._wake)

    def release_all(self) -> None:
        """Lets everybody in: the run is stopping, and each must hear of it."""
        self._held_until = 0.0
        self._free += len(self._waiting)
        self._wake()

    def _wake(self) -> None:
        if self._held_until > time.monotonic():
            return
        while self._free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
