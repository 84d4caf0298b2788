"""A server that allows so many requests a minute and says so only by refusing: the pace is learned from that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llmfair.asking.dispatch import Program
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits
from llmfair.backends.base import RateLimited, Transient
from llmfair.backends.headers import Allowance
from llmfair.records import Chat, Completion, Finish, Message, Request, Text
from llmfair.steps import Steps
from tests.asking.scripted import run
from tests.virtual import Clock, virtual_time

CHAINS = 100


class Metered:
    """Answers after `latency`; beyond `rate` a second in a bucket `depth` deep it refuses at once.

    `tells` when to come again; a share `chance` of what it took in fails all the same, half of it as 429.
    """

    identity = "metered"
    capabilities = frozenset({"adaptive"})
    max_workers = 64
    reads_about = False

    def __init__(
        self, clock: Clock, rate: float, depth: float, latency: float, tells: bool = True, chance: float = 0.0
    ) -> None:
        self.clock, self.rate, self.depth = clock, rate, depth
        self.latency, self.tells, self.chance = latency, tells, chance
        self.level, self.at = depth, clock.now
        self.random = random.Random(0)
        self.log: list[tuple[float, bool]] = []

    async def open(self) -> None: ...

    async def close(self) -> None: ...

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


EVERY = [
    (tells, latency, depth) for tells in (True, False) for latency in (0.05, 2.0) for depth in (300.0, 10.0)
]
DEFAULT = {(True, 0.05, 300.0), (True, 2.0, 10.0), (False, 0.05, 300.0)}


@pytest.mark.parametrize(
    ("tells", "latency", "depth"),
    [pytest.param(*case, marks=[] if case in DEFAULT else pytest.mark.slow) for case in EVERY],
)
def test_a_quota_is_used_and_hardly_ever_refused(
    tells: bool, latency: float, depth: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with virtual_time(monkeypatch) as clock:
        backend = Metered(clock, 5.0, depth, latency, tells)
        ask(backend, tmp_path, minutes=6)
    share, refused = used(backend)
    assert share >= 0.95
    assert refused <= 0.02


@pytest.mark.parametrize("seed", [2, 11, 23])
def test_a_first_sample_that_told_too_much_is_corrected(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With these draws it is 2 % too high, and a pace just below that has no room: refused every few seconds."""
    with virtual_time(monkeypatch) as clock:
        monkeypatch.setattr("llmfair.asking.retries.random", random.Random(seed))
        backend = Metered(clock, 5.0, 300.0, 0.05, tells=False)
        ask(backend, tmp_path, minutes=4)
    share, refused = used(backend)
    assert share >= 0.95
    assert refused <= 0.0125


def test_faults_by_chance_do_not_slow_a_run_under_a_quota_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with virtual_time(monkeypatch) as clock:
        backend = Metered(clock, 5.0, 100.0, 0.05, chance=0.08)
        ask(backend, tmp_path, minutes=4)
    share, refused = used(backend)
    assert share >= 0.95
    assert refused <= 0.02


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


@pytest.mark.parametrize("refills", [True, False])
def test_a_quota_that_is_told_is_kept_from_the_start(
    refills: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 a minute, as OpenAI counts them (refilling all the time) or anew each minute; told with every answer."""
    with virtual_time(monkeypatch) as clock:
        backend = Telling(clock, 5.0, 300.0, 0.5, refills=refills)
        ask(backend, tmp_path, minutes=6)
    share, refused = used(backend, start=0)
    assert share >= 0.95
    assert refused <= 0.002


def test_tokens_that_are_told_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual_time(monkeypatch) as clock:
        backend = Telling(clock, 5.0, 300.0, 0.5, tokens=100)
        ask(backend, tmp_path, minutes=6)
    share, refused = used(backend, start=0)
    assert share >= 0.95
    assert refused <= 0.002


def test_a_rate_that_is_set_is_met_without_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual_time(monkeypatch) as clock:
        backend = Metered(clock, 5.0, 6.0, 0.05)
        ask(backend, tmp_path, minutes=3, rpm=300)
    assert all(accepted for _, accepted in backend.log)
    assert used(backend, start=0)[0] >= 0.95
