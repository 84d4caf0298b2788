"""The servers that answer for one model: each asked within limits of its own, and which of them a question goes to.

A backend alone is a fleet of one, whose lane takes every question and is never left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any
from zlib import crc32

from llmfair.asking.limits import Limits
from llmfair.asking.rate import Adaptive, Bucket, Slots
from llmfair.backends.base import Backend, RateLimited, Transient, members_of
from llmfair.errors import LlmfairError
from llmfair.io.net import LONGEST_WAIT
from llmfair.nouns import Request

LEFT_AFTER = 3
"""Attempts that fail one after the other until a server counts as down: one alone says little."""
LEFT_FOR = 5.0
"""Seconds: one that says itself that it is away for longer counts as down at once."""
LOOK_SECONDS = 1.0


class Lane:
    """A server, and how hard it is asked; `name` tells it from the others, "" where there are none.

    `standing`: questions go to it. `heard`: when it last answered, or came back, by `time.monotonic`.
    """

    def __init__(self, backend: Any, limits: Limits, name: str = "") -> None:
        self.backend, self.name = backend, name
        requests = [] if limits.rpm is None else [Bucket(limits.rpm / 60)]
        self.slots = Slots(limits.workers, requests, None if limits.tpm is None else Bucket(limits.tpm / 60))
        adapts = limits.adaptive and "adaptive" in backend.capabilities
        self.adaptive = Adaptive(self.slots, limits.workers) if adapts else None
        self.standing = True
        self.heard = time.monotonic()
        self.failures = 0  # in a row, of what was sent since then
        self.returns = 0  # since it last answered

    def answered(self, sent: float) -> None:
        """A request sent at this time was answered."""
        self.heard, self.failures, self.returns = time.monotonic(), 0, 0
        if self.adaptive is not None:
            self.adaptive.answered(sent)

    def failed(self, sent: float) -> None:
        """A request sent at this time failed otherwise than for a limit."""
        self.failures += sent >= self.heard
        if self.adaptive is not None:
            self.adaptive.failed(sent)

    def refused(self, sent: float, retry_after: float | None) -> None:
        """A request sent at this time was refused for a limit."""
        self.failures = 0
        self.hold(retry_after)
        if self.adaptive is not None:
            self.adaptive.refused(sent, retry_after)

    def halt(self) -> None:
        """Lets everybody in, to hear that the run is stopping."""
        self.adaptive = None
        self.slots.release_all()

    def hold(self, retry_after: float | None) -> None:
        """The server speaks for itself, so nothing else is sent to it either (but not forever)."""
        if retry_after:
            self.slots.hold(min(retry_after, LONGEST_WAIT))


class Lanes:
    """All of a backend's lanes. `tell` says a sentence to whoever waits."""

    def __init__(self, backend: Backend, limits: Limits, tell: Callable[[str], None]) -> None:
        self.all = [Lane(member, limits, name) for name, member in members_of(backend).items()]
        self.tell = tell
        self._looking: set[asyncio.Task[None]] = set()

    @property
    def standing(self) -> int:
        """How many are asked; never 0."""
        return sum(lane.standing for lane in self.all)

    @property
    def places(self) -> int:
        """Requests that may be in flight now, at all that are asked."""
        return sum(int(lane.slots.limit) for lane in self.all if lane.standing)

    def others(self, *lanes: Lane) -> bool:
        """Whether any other is asked."""
        return any(lane.standing for lane in self.all if lane not in lanes)

    async def open(self) -> None:
        """Looks at each of several servers; leaves those that give no reply. Raises LlmfairError for a wrong one."""
        several = self.all if len(self.all) > 1 else []
        looks = (lane.backend.look() for lane in several)
        for lane, error in zip(several, await asyncio.gather(*looks, return_exceptions=True), strict=True):
            if isinstance(error, RateLimited | Transient):
                self.leave(lane, f"is down ({error})")
            elif error is not None:
                raise error

    async def close(self) -> None:
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)

    def lane_of(self, request: Request, failed: Collection[Lane] = ()) -> Lane:
        """Where a request goes: the first lane in its query's order that stands, none of those where it has failed if
        there is another.
        """
        query_id = str(request.chat.about.get("query_id", request.probe_id))
        standing = [lane for place in order(query_id, len(self.all)) if (lane := self.all[place]).standing]
        return next((lane for lane in standing if lane not in failed), standing[0])

    def leave(self, lane: Lane, why: str) -> None:
        """Asks the others in its stead until it is back; the last one that stands is not left. `why`: what it is."""
        if not lane.standing or self.standing == 1:
            return
        lane.standing = False
        self.tell(f"{lane.name} {why}: until it is back, its questions go to the others.")
        self._looking.add(asyncio.create_task(self._until_back(lane)))
        lane.slots.turn_away()

    async def _until_back(self, lane: Lane) -> None:
        """Looks at a server that was left, less often if it was back before and answered nothing."""
        while not lane.standing:
            await asyncio.sleep(min(LOOK_SECONDS * 2**lane.returns, LONGEST_WAIT))
            try:
                await lane.backend.look()
            except (RateLimited, Transient):
                continue
            except LlmfairError as error:
                if not lane.returns:
                    self.tell(f"{lane.name} is back, but cannot be asked: {error.message}")
                lane.returns += 1
                continue
            lane.standing, lane.heard, lane.failures = True, time.monotonic(), 0
            lane.returns += 1
            self.tell(f"{lane.name} is back.")


def order(query_id: str, servers: int) -> Iterator[int]:
    """The servers, by number, in the order in which a query goes to them: the next one only while those before it are
    down.

    The first is CRC-32 modulo their number, so that what a query's prompts have in common is kept in one server's
    cache. The others follow from the rest of it, so that those of a server that is down are dealt to all others alike.
    """
    rest, left = crc32(query_id.encode("utf-8", "backslashreplace")), list(range(servers))
    while left:
        rest, place = divmod(rest, len(left))
        yield left.pop(place)
