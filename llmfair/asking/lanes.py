"""How hard servers are asked, each within limits of its own, and which of several a question goes to.

`Slots` is the queue that all wait in, `Bucket` a rate that is kept, `Adaptive` finds out what a server allows, `Lane`
is a server with its limits. A backend alone is a fleet of one, whose lane takes every question and is never left.
Times are those of `time.monotonic`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from zlib import crc32

from llmfair.asking.limits import Limits
from llmfair.backends.base import Backend, RateLimited, Transient, members_of
from llmfair.errors import LlmfairError
from llmfair.io.net import LONGEST_WAIT
from llmfair.nouns import Request

# Places and rates


class Bucket:
    """Units a second, refilled continuously, one second deep; `waited` says that it has held something back.

    What is larger than the bucket waits until it is full and leaves a debt, so that any rate is met on average.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.waited = False
        self._level = rate
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
        self._waiting = deque[tuple[asyncio.Future[bool], int]]()
        self._held_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, tokens: int = 0, first: bool = False) -> bool:
        """Waits for a place, which `leave` gives back; False for one who was turned away."""
        if not self._waiting and self.taken < self.limit and not self._pause(tokens):
            self._take(tokens)
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft((turn, tokens))
        else:
            self._waiting.append((turn, tokens))
        if self._timer is None or first:
            self.wake()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
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
        self._held_until = max(self._held_until, time.monotonic() + seconds)
        self.wake()

    def turn_away(self) -> None:
        for turn, _ in self._waiting:
            if not turn.done():
                turn.set_result(False)
        self._waiting.clear()

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
                turn.set_result(True)
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


# What a server allows

START = 16
BUSY = 0.8
GROWTH_AFTER_REFUSAL = 50
LAST_ANSWERS = 50
MANY = 0.2
SOME = 0.05  # more than by chance, where a quota is known to be there
LEAST_ACCEPTED = 10
LEAST_SECONDS = 2.0
LONGEST_SAMPLE = 100
BELOW = 0.98  # a rate just under the quota, so that the server's own bucket fills meanwhile
GROWTH_SECONDS = 15.0
FIRST_GROWTH = 0.005
GROWN = 1.1


class Adaptive:
    """Sets the limit of `slots`, up to `most`, and once a server goes on refusing, the requests a second.

    The limit doubles until the first refusal that is no chance, then grows by one for every fifty answers, and only
    while nearly all places are taken. From one refusal for a spent quota to another, the server has let in quota ×
    time, however deep its bucket: so the requests let in between refusals tell the quota. The rate starts just below,
    grows while nothing is refused, faster the longer, and is measured anew at the next refusal. By Little's law a rate
    bounds what is in flight, too.
    """

    def __init__(self, slots: Slots, most: int) -> None:
        self.slots, self.most = slots, most
        self.slots.limit = min(START, most)
        self.bucket: Bucket | None = None
        self._successes = 0
        self._last = deque[bool]()
        self._tells = False  # its refusals have a Retry-After
        self._since: float | None = None  # the sample began with a refusal
        self._accepted = 0
        self._quota = self._least = 0.0
        self._last_sent = self._refused_at = self._grown_at = 0.0
        self._growth, self._held = FIRST_GROWTH, 0.0  # and the last rate that held for a while

    def answered(self, sent: float) -> None:
        """A request sent at this time was answered."""
        self.failed(sent)
        slots = self.slots
        if slots.limit >= self.most or slots.taken < BUSY * slots.limit:
            return
        self._successes += 1
        doubles = self._since is None
        if self._successes >= (slots.limit if doubles else GROWTH_AFTER_REFUSAL):
            slots.limit = min(2 * slots.limit if doubles else slots.limit + 1, self.most)
            self._successes = 0
            slots.wake()

    def failed(self, sent: float) -> None:
        """A request sent at this time failed otherwise than for a limit, so it has used up some of the quota."""
        self._refused_share(False)
        self._let_in(sent)

    def refused(self, sent: float, retry_after: float | None) -> None:
        """A request sent at this time was refused."""
        share = self._refused_share(True)
        plainly = bool(retry_after) or share > MANY
        self._tells = self._tells or bool(retry_after)
        if plainly or (self.bucket is not None and share > SOME and not self._tells):
            self._measure(sent, plainly)
        elif self._tells:
            self._let_in(sent)  # and refused for another reason than the quota

    def _refused_share(self, refused: bool) -> float:
        """The share refused of the last answers, of as many at least as are in flight: refusals come back first."""
        last = max(LAST_ANSWERS, self.slots.taken)
        self._last.append(refused)
        while len(self._last) > last:
            self._last.popleft()
        return self._last.count(True) / last if refused else 0.0

    def _let_in(self, sent: float) -> None:
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

    def _measure(self, sent: float, plainly: bool) -> None:
        """Sets the rate by a refusal; `plainly`: surely for a quota, not by chance."""
        now = time.monotonic()
        if self._since is None:
            if plainly:
                self._begin(now)
            return
        if sent < self._refused_at:
            return
        self._refused_at = now
        seconds = self._last_sent - self._since
        if self._accepted >= LEAST_ACCEPTED and seconds >= LEAST_SECONDS:
            measured = self._accepted / seconds
            if plainly and self._held > GROWN * measured:  # it allows more now than when the sample began
                measured = self._held
            # A refusal by chance (no bucket behind it) must not slow the run down for good: it lowers the quota once,
            # and by no more than the last plain sample was uncertain, a request.
            self._quota = measured if plainly else max(self._least, measured)
            self._least = self._quota * (1 - plainly / self._accepted)
            if self._accepted >= LONGEST_SAMPLE:
                self._begin(now)
            if self.bucket is None:
                self.bucket = Bucket(self._quota)
                self.slots.requests.append(self.bucket)
        if self.bucket is not None:
            self.bucket.set(BELOW * self._quota)
            self._growth, self._grown_at, self._held = FIRST_GROWTH, now, 0.0

    def _begin(self, now: float) -> None:
        self._since = self._refused_at = now
        self._accepted = 0


# Several servers

LEFT_AFTER = 3
"""Attempts that fail one after the other until a server counts as down: one alone says little."""
LEFT_FOR = 5.0
"""Seconds: one that says itself that it is away for longer counts as down at once."""
LOOK_SECONDS = 1.0


class Lane:
    """A server, and how hard it is asked; `name` tells it from the others, "" where there are none.

    `standing`: questions go to it. `heard`: when it last answered, or came back, by `time.monotonic`.
    """

    def __init__(self, backend: Any, limits: Limits, name: str) -> None:
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
        self.heard, self.failures, self.returns = time.monotonic(), 0, 0
        if self.adaptive is not None:
            self.adaptive.answered(sent)

    def failed(self, sent: float) -> None:
        self.failures += sent >= self.heard
        if self.adaptive is not None:
            self.adaptive.failed(sent)

    def refused(self, sent: float, retry_after: float | None) -> None:
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
        self._looking = set[asyncio.Task[None]]()

    @property
    def standing(self) -> int:
        """How many are asked; never 0."""
        return sum(lane.standing for lane in self.all)

    @property
    def places(self) -> int:
        """Requests that may be in flight now, at all that are asked."""
        return sum(int(lane.slots.limit) for lane in self.all if lane.standing)

    def others(self, *lanes: Lane) -> bool:
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

    def lane_of(self, request: Request, failed: Collection[Lane]) -> Lane:
        """The first lane in its query's order that stands, none of those where it has failed if there is another."""
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
    """The servers, by number, in the order in which a query goes to them while those before are down.

    The first is CRC-32 modulo their number, so that what a query's prompts have in common is kept in one server's
    cache; those of a server that is down are dealt to all others alike.
    """
    rest, left = crc32(query_id.encode("utf-8", "backslashreplace")), list(range(servers))
    while left:
        rest, place = divmod(rest, len(left))
        yield left.pop(place)
