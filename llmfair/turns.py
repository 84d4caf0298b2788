"""One chain after the other: when many answers come at once, each next question leaves as soon as it is made."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Lets one chain go on in each pass of the event loop.

    Without it, chains whose answers came in one pass all make their next question before the first of them is
    written to its socket (an HTTP client writes one pass later). So their answers come together again: the chains
    stay in step, and each waits for the work of all in every window.
    """

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Returns at once in a pass of which nobody had the turn, else when it comes."""
        loop = asyncio.get_running_loop()
        if not self._taken:
            self._taken = True
            loop.call_soon(self._pass_on)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its chain was cancelled
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._pass_on)
                return
        self._taken = False
