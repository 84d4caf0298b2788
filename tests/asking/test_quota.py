"""A server that allows so many requests a minute and says so only by refusing: the pace is learned from that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.dispatch import Program
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits
from llmfair.backends.base import RateLimited, Transient
from llmfair.io.net import Allowance
from llmfair.nouns import Chat, Completion, Finish, Message, Request, Steps, Text
from tests.asking.scripted import Scripted, run
from tests.virtual import Clock, virtual_time

CHAINS = 100


class Metered(Scripted):
    """Answers after `latency`; beyond `rate` a second in a bucket `depth` deep it refuses at once.

    `tells` when to come again; a share `chance` of what it took in fails all the same, half of it as 429.
    """

    identity = "metered"
    capabilities = frozenset({"adaptive"})

    def __init__(
        self, clock: Clock, rate: float, depth: float, latency: float, tells: bool = True, chance: float = 0.0
    ) -> None:
        super().__init__()
        self.clock, self.rate, self.depth = clock, rate, depth
        self.latency, self.tells, self.chance = latency, tells, chance
        self.level, self.at = depth, clock.now
        self.random = random.Random(0)
        self.log: list[tuple[float, bool]] = []

    async def complete(self, request: Request) -> Completion:
        now = self.clock.now
        self.level, self.at = min(self.depth, self.level + (now - self.at) * self.rate), now
        self.log.append((now - 1000, self.level >= 1))
        if self.level < 1:
            await asyncio.sleep(0.001)
            raise RateLimited((1 - self.level) / self.rate if self.tells else None)
        self.level -= 1
        await asyncio.sleep(self.latency)
        if (draw := self.random.random()) < self.chance:
            raise RateLimited() if draw < self.chance / 2 else Transient("HTTP 500")
        return Completion("an answer", Finish.STOP)


class Telling(Metered):
    """Says with every answer what it will still take: requests, or with `tokens` a request so many of these.

    Without `refills` its bucket is full again at every minute only.
    """

    def __init__(
        self, clock: Clock, rate: float, depth: float, latency: float, refills: bool = True, tokens: int = 0
    ) -> None:
        super().__init__(clock, rate, depth, latency, tells=False)
        self.refills, self.tokens = refills, tokens
        self.allowance: Allowance | None = None

    async def complete(self, request: Request) -> Completion:
        minute = self.clock.now // 60
        if not self.refills:
            if minute > self.at // 60:
                self.level = self.depth
            self.at = self.clock.now
        completion = await super().complete(request)
        missing = (self.depth - self.level) / self.rate
        reset = missing if self.refills else 60 * (self.clock.now // 60 + 1) - self.clock.now
        left = max(self.level, 1.0) / max(reset, 1e-3)
        self.allowance = Allowance(None, left * self.tokens) if self.tokens else Allowance(left, None)
        return replace(completion, prompt_tokens=self.tokens, completion_tokens=0)


def chains(length: int) -> Iterator[Program]:
    def start(chain: int) -> Program:
        def steps() -> Steps[int]:
            for number in range(length):
                yield [Chat((Message("user", f"{chain}-{number}"),), Text())]
            return length

        return Program(str(chain), steps)

    return (start(chain) for chain in range(CHAINS))


def ask(backend: Metered, folder: Path, minutes: float, rpm: float | None = None) -> None:
    """Asks for about as long as the quota needs for that many minutes; nothing may fail."""
    journal = Journal(folder / "journal.jsonl", "run", "metered")
    length = int((backend.rate * 60 * minutes + backend.depth) / CHAINS)
    results = run(chains(length), backend, journal, Limits(rpm=rpm))
    assert len(journal) == CHAINS * length
    journal.close()
    assert set(results.values()) == {length} and len(results) == CHAINS


def used(backend: Metered, start: float = 60) -> tuple[float, float]:
    """Share of the quota that was used, and share of requests refused, after the first minute."""
    end = max(at for at, _ in backend.log) - 5  # at the end there are fewer chains than it takes
    later = [accepted for at, accepted in backend.log if start <= at < end]
    return sum(later) / (backend.rate * (end - start)), later.count(False) / len(later)


@dataclass(frozen=True)
class Quota:
    """A server's quota, what it says of it, and what may be refused after the first minute, or from the start on."""

    make: Callable[[Clock], Metered]
    refused: float = 0.02
    minutes: float = 6
    start: float = 60
    seed: int | None = None


def metered(
    depth: float, latency: float, tells: bool = True, chance: float = 0.0
) -> Callable[[Clock], Metered]:
    return lambda clock: Metered(clock, 5.0, depth, latency, tells, chance)


def telling(**says: Any) -> Callable[[Clock], Metered]:
    """300 a minute, told with every answer."""
    return lambda clock: Telling(clock, 5.0, 300.0, 0.5, **says)


QUOTAS = {
    "told": Quota(metered(300.0, 0.05)),
    "told, slow, shallow": Quota(metered(10.0, 2.0)),
    "untold": Quota(metered(300.0, 0.05, False)),
    # a first sample that is 2 % too high, and a pace just below that has no room: refused every few seconds
    **{f"a sample too high, {seed}": Quota(metered(300.0, 0.05, False), 0.0125, 4, seed=seed) for seed in (2, 11, 23)},
    "faults by chance": Quota(metered(100.0, 0.05, chance=0.08), minutes=4),
    "told from the start, refilling": Quota(telling(), 0.002, start=0),
    "told from the start, anew each minute": Quota(telling(refills=False), 0.002, start=0),
    "tokens told from the start": Quota(telling(tokens=100), 0.002, start=0),
}  # fmt: skip
OTHERS = {
    f"{tells}, {latency}, {depth}": pytest.param(Quota(metered(depth, latency, tells)), marks=pytest.mark.slow)
    for tells, latency, depth in (
        (True, 0.05, 10.0), (True, 2.0, 300.0), (False, 0.05, 10.0), (False, 2.0, 300.0), (False, 2.0, 10.0),
    )
}  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("quota", [*QUOTAS.values(), *OTHERS.values()], ids=[*QUOTAS, *OTHERS])
def test_a_quota_is_used_and_hardly_ever_refused(
    quota: Quota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with virtual_time(monkeypatch) as clock:
        if quota.seed is not None:
            monkeypatch.setattr("llmfair.io.net.random", random.Random(quota.seed))
        backend = quota.make(clock)
        ask(backend, tmp_path, quota.minutes)
    share, refused = used(backend, quota.start)
    assert share >= 0.95 and refused <= quota.refused


def test_a_quota_that_grows_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual_time(monkeypatch) as clock:
        backend = Metered(clock, 5.0, 10.0, 0.05)
        complete = backend.complete

        async def growing(request: Request) -> Completion:
            backend.rate = 5.0 if clock.now < 1060 else 15.0
            return await complete(request)

        monkeypatch.setattr(backend, "complete", growing)
        ask(backend, tmp_path, minutes=20)
    assert used(backend, start=240)[0] >= 0.95


@pytest.mark.whole
def test_a_rate_that_is_set_is_met_without_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual_time(monkeypatch) as clock:
        backend = Metered(clock, 5.0, 6.0, 0.05)
        ask(backend, tmp_path, minutes=3, rpm=300)
    assert all(accepted for _, accepted in backend.log)
    assert used(backend, start=0)[0] >= 0.95
