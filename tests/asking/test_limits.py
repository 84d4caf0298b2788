"""How hard a server is asked, at which pace, and what that may cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import Journal
from llmfair.asking.lanes import Adaptive, Bucket, Slots
from llmfair.asking.limits import Budget, Limits, Progress
from llmfair.backends.base import RateLimited, Transient
from llmfair.errors import Incomplete
from llmfair.nouns import Chat, Completion, Finish, Message, Request, Sampling, Steps, Text
from tests.asking.scripted import Scripted, run
from tests.virtual import Clock, asynchronous, in_virtual_time, virtual_clock, virtual_time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return virtual_clock(monkeypatch)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@in_virtual_time
async def test_places_are_taken_in_turn_and_a_retry_goes_first(clock: Clock) -> None:
    slots, order = Slots(1), []

    async def ask(name: str, first: bool = False) -> None:
        await slots.enter(first=first)
        order.append(name)

    await slots.enter()
    asking = [asyncio.create_task(ask(name, name == "again")) for name in ("a", "b", "again")]
    await settled()
    for _ in range(3):
        slots.leave()
        await settled()
    await asyncio.gather(*asking)
    assert order == ["again", "a", "b"] and slots.taken == 1


@in_virtual_time
async def test_who_gives_up_waiting_takes_no_place(clock: Clock) -> None:
    slots = Slots(1)
    await slots.enter()
    waiting = [asyncio.create_task(slots.enter()) for _ in range(3)]
    await settled()
    waiting[0].cancel()
    slots.leave()
    waiting[1].cancel()  # its turn may have come already
    await settled()
    assert waiting[2].done() and slots.taken == 1
    slots.leave()
    assert slots.taken == 0


@in_virtual_time
async def test_a_hold_keeps_everybody_out_and_ends_by_itself(clock: Clock) -> None:
    slots, started = Slots(8), clock.now
    slots.hold(0.2)
    slots.hold(0.05)  # a shorter word changes nothing
    await asyncio.gather(*(slots.enter() for _ in range(5)))
    assert clock.now - started == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("per_second", "count", "seconds"), [(100.0, 150, 0.5), (2.0, 4, 1.0), (0.5, 2, 2.0)]
)
@in_virtual_time
async def test_a_bucket_is_one_second_deep_and_its_rate_is_met(
    per_second: float, count: int, seconds: float, clock: Clock
) -> None:
    """Under one a second the bucket holds less than a whole request, which may leave all the same and is owed."""
    slots, started = Slots(1000, [Bucket(per_second)]), clock.now
    await asyncio.gather(*(slots.enter() for _ in range(count)))
    assert clock.now - started == pytest.approx(seconds)


@in_virtual_time
async def test_tokens_wait_and_what_was_not_used_comes_back(clock: Clock) -> None:
    slots = Slots(1000, tokens=Bucket(1000.0))
    await slots.enter(900)
    waiting = asyncio.create_task(slots.enter(900))
    await settled()
    assert not waiting.done()
    slots.settle(880)
    slots.wake()
    await settled()
    assert waiting.done()
    slots.settle(-500)  # more than was reserved: the next one waits for it
    started = clock.now
    await slots.enter(900)
    assert clock.now - started == pytest.approx(1.32), "900 - (1000 - 900 + 880 - 900 - 500) tokens"


@in_virtual_time
async def test_a_stop_lets_everybody_in_whatever_they_wait_for(clock: Clock) -> None:
    slots = Slots(1, [Bucket(0.01)], Bucket(0.01))
    waiting = [asyncio.create_task(slots.enter(5)) for _ in range(5)]
    await settled()
    slots.hold(60)
    assert sum(task.done() for task in waiting) == 1
    slots.release_all()
    await asyncio.gather(*waiting, slots.enter(5))


# How many requests a server takes at once is found by asking it


def full(most: int = 64) -> Adaptive:
    adaptive = Adaptive(Slots(most), most)
    adaptive.slots.taken = most
    return adaptive


def answers(adaptive: Adaptive, count: int, clock: Clock) -> None:
    for _ in range(count):
        adaptive.answered(clock.now)


def test_the_limit_doubles_until_the_first_refusal_then_grows_by_one(clock: Clock) -> None:
    adaptive = full()
    limits = []
    for count in (15, 1, 31, 1):
        answers(adaptive, count, clock)
        limits.append(adaptive.slots.limit)
    assert limits == [16, 32, 32, 64]
    adaptive = full()
    answers(adaptive, 16, clock)
    adaptive.refused(clock.now, 0.5)
    answers(adaptive, 49, clock)
    assert adaptive.slots.limit == 32
    answers(adaptive, 1, clock)
    assert adaptive.slots.limit == 33


def test_a_limit_that_is_not_used_does_not_grow(clock: Clock) -> None:
    adaptive = full()
    adaptive.slots.taken = 12
    answers(adaptive, 1000, clock)
    assert adaptive.slots.limit == 16
    assert Adaptive(Slots(4), 4).slots.limit == 4


def test_refusals_that_come_back_before_the_answers_of_their_wave_are_no_quota(clock: Clock) -> None:
    """2 % of 453 requests in flight are refused at once, one after the other; the answers take a while."""
    adaptive = full(512)
    adaptive.slots.taken, adaptive.slots.limit = 453, 512
    for _ in range(20):
        for _ in range(12):
            adaptive.refused(clock.now, None)
        clock.now += 0.02
        answers(adaptive, 441, clock)
    assert adaptive.slots.limit == 512 and adaptive.bucket is None


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
    """A server's quota, what it says of it, and what may be refused after the first minute."""

    make: Callable[[Clock], Metered]
    refused: float = 0.02
    minutes: float = 6
    seed: int | None = None


def metered(
    depth: float, latency: float, tells: bool = True, chance: float = 0.0
) -> Callable[[Clock], Metered]:
    return lambda clock: Metered(clock, 5.0, depth, latency, tells, chance)


QUOTAS = {
    "told": Quota(metered(300.0, 0.05)),
    "told, slow, shallow": Quota(metered(10.0, 2.0)),
    "untold": Quota(metered(300.0, 0.05, False)),
    # a first sample that is 2 % too high, and a pace just below that has no room: refused every few seconds
    **{f"a sample too high, {seed}": Quota(metered(300.0, 0.05, False), 0.0125, 4, seed=seed) for seed in (2,)},
    "faults by chance": Quota(metered(100.0, 0.05, chance=0.08), minutes=4),
}  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("quota", [*QUOTAS.values()], ids=[*QUOTAS])
def test_a_quota_is_used_and_hardly_ever_refused(
    quota: Quota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with virtual_time(monkeypatch) as clock:
        if quota.seed is not None:
            monkeypatch.setattr("llmfair.io.net.random", random.Random(quota.seed))
        backend = quota.make(clock)
        ask(backend, tmp_path, quota.minutes)
    share, refused = used(backend)
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


WORDS = "x" * 400  # 100 tokens at four characters each
REQUEST = Request(Chat((Message("user", WORDS),), Text()), Sampling(max_tokens=50), "key", "probe")
PRICES = (1e4, 2e4)  # a token costs 0.01 and 0.02: at most 1 + 1 a request


def counted(prompt_tokens: int | None = 100, completion_tokens: int | None = 10) -> Completion:
    return Completion("y" * 80, Finish.STOP, prompt_tokens, completion_tokens)


@pytest.mark.parametrize(
    ("completion", "spent"),
    [
        (counted(), 1.2),
        (counted(90, 50), 1.9),
        (counted(None, None), 1.0 + 0.4),
        (counted(0, 0), 0.0),
        (None, 0.0),
    ],
)
@asynchronous
async def test_what_a_call_has_cost_takes_the_place_of_what_it_reserved(
    completion: Completion | None, spent: float
) -> None:
    budget = Budget(Limits(max_cost=10, price_in=PRICES[0], price_out=PRICES[1]))
    reserved = await budget.call(REQUEST)
    assert reserved == pytest.approx(2.0) and budget.spent == 0
    budget.settle(reserved, REQUEST, completion)
    assert budget.spent == pytest.approx(spent)


@asynchronous
async def test_a_call_waits_for_what_those_in_flight_really_cost() -> None:
    budget = Budget(Limits(max_cost=5, price_in=PRICES[0], price_out=PRICES[1]))
    reserved = [await budget.call(REQUEST), await budget.call(REQUEST)]
    third = asyncio.create_task(budget.call(REQUEST))
    await asyncio.sleep(0.01)
    assert not third.done()
    budget.settle(reserved[0], REQUEST, counted())  # 1.2 + 2 + 2 are too much still
    await asyncio.sleep(0.01)
    assert not third.done()
    budget.settle(reserved[1], REQUEST, counted())
    assert await third == pytest.approx(2.0) and budget.calls == 3
    budget.settle(2.0, REQUEST, counted())
    with pytest.raises(
        Incomplete, match=r"budget of 5 has no room for another call: 3\.6 is spent, and the next may cost 2"
    ):
        await budget.call(REQUEST)


@asynchronous
async def test_a_server_that_counts_more_tokens_is_reserved_for() -> None:
    budget = Budget(Limits(max_cost=100, price_in=PRICES[0], price_out=PRICES[1]))
    budget.settle(await budget.call(REQUEST), REQUEST, counted(prompt_tokens=300))
    assert await budget.call(REQUEST) == pytest.approx(3 + 1)


class Counting(Scripted):
    """Answers after a moment, and counts as a provider does what it is owed."""

    identity = "counting"
    owed = 0.0

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(0.002)
        text = request.chat.messages[0].content
        self.asked[text] += 1
        answered = 5 + len(self.asked) % 40
        self.owed += len(text) * 0.25 * 0.01 + answered * 0.02
        return Completion("y", Finish.STOP, len(text) // 4, answered)


def costly(threaded: bool = False) -> Iterator[Program]:
    def start(chain: int) -> Program:
        def steps() -> Steps[None]:
            for number in range(5):
                yield [Chat((Message("user", f"{chain:04}-{number:04}{'x' * 391}"),), Text())]

        return Program(str(chain), steps, threaded)

    return (start(chain) for chain in range(20))


@pytest.mark.parametrize("threaded", [False, True])
def test_a_run_holds_its_budget_and_the_same_command_continues(threaded: bool, tmp_path: Path) -> None:
    """100 calls of 1 + 0.1 to 0.9 in all about 150: three invocations at 60."""
    journal = Journal(tmp_path / "journal.jsonl", "run", "counting")
    counts, sampling = [], Sampling(max_tokens=50)
    limits = Limits(workers=16, max_cost=60, price_in=PRICES[0], price_out=PRICES[1])
    for invocation in range(3):
        backend, progress = Counting(), Progress()
        run = dispatch(costly(threaded), backend, journal, sampling, limits, progress)
        if invocation < 2:
            with pytest.raises(Incomplete, match="budget of 60 has no room") as caught:
                list(run)
            assert caught.value.exit_code == 3
            assert 60 - 2 < backend.owed <= 60, "neither more, nor a whole call less than could be paid"
        else:
            assert len(list(run)) == 20
        assert progress.cost == pytest.approx(backend.owed)
        assert set(backend.asked.values()) == {1}
        counts.append(sum(backend.asked.values()))
        assert len(journal) == sum(counts)
    journal.close()
    assert sum(counts) == 100


def test_prices_alone_only_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", "run", "counting")
    progress, backend = Progress(), Counting()
    run(costly(), backend, journal, Limits(price_in=PRICES[0], price_out=PRICES[1]), progress)
    assert progress.cost == pytest.approx(backend.owed) and progress.calls == 100
    journal.close()
