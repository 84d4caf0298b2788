"""How hard a backend may be asked, what it may cost, and what has happened so far."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from llmfair.errors import Incomplete
from llmfair.nouns import Completion, Request

SHOWN_WAIT = 1.0
"""Seconds that whoever watches is told of."""


@dataclass(frozen=True)
class Limits:
    """How hard the backend may be asked, and what that may cost.

    Of several servers each may be asked as hard as `workers`, `rpm` and `tpm` say; all else is of all together.
    `workers` requests at most are in flight; `adaptive` looks for how many a server takes, where the backend is one.
    `rpm`, `tpm`: requests and tokens a minute. `max_wait`: of a server that limits the rate, `outage`: of one that
    answers nobody any more; times in seconds. `max_calls`, `max_cost` and the prices, per million
    tokens, are of this invocation: what its Progress holds already counts.
    """

    workers: int = 64
    retries: int = 8
    max_wait: float = 1800.0
    outage: float = 60.0
    max_calls: int | None = None
    adaptive: bool = True
    rpm: float | None = None
    tpm: float | None = None
    max_cost: float | None = None
    price_in: float | None = None
    price_out: float | None = None


MANY_TOKENS = 256  # no server cuts prompts that short
MUCH_LONGER = 1.25


@dataclass
class Fullest:
    """The prompts with the most tokens, as a server counts them: how many, and how long, in characters."""

    tokens: int = 0
    prompts: int = 0
    shortest: int = 0
    longest: int = 0

    def add(self, tokens: int, characters: int) -> None:
        if tokens > self.tokens:
            self.tokens, self.prompts, self.shortest, self.longest = tokens, 0, characters, characters
        if tokens == self.tokens:
            self.prompts += 1
            self.shortest, self.longest = min(self.shortest, characters), max(self.longest, characters)

    @property
    def cut(self) -> bool:
        """Whether prompts of quite different lengths share the largest number of tokens."""
        return self.tokens >= MANY_TOKENS and self.prompts > 2 and self.longest > MUCH_LONGER * self.shortest


@dataclass
class Progress:
    """What has happened so far, for whoever shows it; written on dispatch's loop, read anywhere.

    `finished`: programs. `limit`: places in flight at the moment. `cost`: of this invocation, None without prices.
    `waiting_for` says why nothing is sent until `waiting_until`, by `time.monotonic`. `tell` says a sentence that a
    person who waits for hours should see.
    """

    finished: int = 0
    calls: int = 0
    answered: int = 0
    replayed: int = 0
    cached: int = 0
    retries: int = 0
    in_flight: int = 0
    limit: int = 0
    unparseable: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    waiting_until: float = 0.0
    waiting_for: str = ""
    bug: Exception | None = None
    models: set[str] = field(default_factory=set)
    fingerprints: set[str] = field(default_factory=set)
    fullest: Fullest = field(default_factory=Fullest)
    tell: Callable[[str], None] = lambda text: None

    def waits(self, cause: str, seconds: float) -> None:
        """Notes a pause for whoever watches, if it is long enough to be seen and the last to end."""
        until = time.monotonic() + seconds
        if seconds >= SHOWN_WAIT and until > self.waiting_until:
            self.waiting_until, self.waiting_for = until, cause


# What it may cost

CHARACTERS_PER_TOKEN = 4
GO_ON = "the same command continues"


def characters(request: Request) -> int:
    return sum(len(message.content) for message in request.chat.messages)


class Budget:
    """Counts calls and cost of one invocation.

    A request leaves only if what is spent, what requests in flight may cost and what it may cost itself stay within
    `max_cost`. It may cost its whole `max_tokens`, and a token for every four characters, or as many as the server
    has been seen to count. A reply without token counts is charged by its characters, a failure nothing.
    """

    def __init__(self, limits: Limits) -> None:
        self.calls = 0
        self.spent = 0.0
        self.priced = limits.price_in is not None and limits.price_out is not None
        self._max_calls, self._max_cost = limits.max_calls, limits.max_cost
        self._price_in, self._price_out = (limits.price_in or 0.0) / 1e6, (limits.price_out or 0.0) / 1e6
        self._reserved, self._in_flight = 0.0, 0
        self._tokens_per_character = 1 / CHARACTERS_PER_TOKEN
        self._settled = asyncio.Event()

    async def call(self, request: Request) -> float:
        """Takes one call and returns the cost it reserves; waits for what others really cost. Raises Incomplete."""
        while True:
            if self._max_calls is not None and self.calls >= self._max_calls:
                raise Incomplete(f"the budget of {self._max_calls} calls is spent.", GO_ON)
            cost = 0.0
            if self._max_cost is not None:
                tokens = characters(request) * self._tokens_per_character
                cost = tokens * self._price_in + request.sampling.max_tokens * self._price_out
            if self._max_cost is None or self.spent + self._reserved + cost <= self._max_cost:
                self.calls += 1
                self._in_flight += 1
                self._reserved += cost
                return cost
            if not self._in_flight:
                raise Incomplete(
                    f"the budget of {self._max_cost:g} has no room for another call: {self.spent:.4g} is spent, "
                    f"and the next may cost {cost:.2g}.",
                    GO_ON,
                )
            await self._settled.wait()

    def settle(self, reserved: float, request: Request, completion: Completion | None) -> None:
        """Puts what a call has cost, nothing for a failed one, in the place of what it reserved."""
        self._in_flight -= 1
        self._reserved -= reserved
        if completion is not None and self.priced:
            sent, answered = completion.prompt_tokens, completion.completion_tokens
            if sent is None:
                sent = characters(request) // CHARACTERS_PER_TOKEN
            elif self._max_cost is not None:
                seen = sent / max(characters(request), 1)
                self._tokens_per_character = max(self._tokens_per_character, seen)
            if answered is None:
                answered = len(completion.text) // CHARACTERS_PER_TOKEN
            self.spent += sent * self._price_in + answered * self._price_out
        if self._max_cost is not None:  # else nobody waits
            self._settled.set()
            self._settled.clear()
