"""How hard a backend may be asked, and what has happened so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

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
