"""Places in flight: first come first served, retries ahead, and nobody faster than was set."""

from __future__ import annotations

import asyncio
import random

import pytest

from llmfair.asking.rate import Adaptive, Bucket, Slots
from tests.coroutines import in_virtual_time
from tests.virtual import Clock, virtual_clock


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
async def test_a_smaller_limit_lets_nobody_in_until_enough_have_left(clock: Clock) -> None:
    slots = Slots(4)
    for _ in range(4):
        await slots.enter()
    slots.limit = 2
    waiting = asyncio.create_task(slots.enter())
    for _ in range(2):
        slots.leave()
        await settled()
        assert not waiting.done()
    slots.leave()
    await waiting
    assert slots.taken == 2


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
async def test_a_request_beyond_the_bucket_goes_when_it_is_full_and_leaves_a_debt(clock: Clock) -> None:
    slots, started = Slots(1000, tokens=Bucket(1000.0)), clock.now
    await slots.enter(1500)
    assert clock.now == started
    await slots.enter(100)
    assert clock.now - started == pytest.approx(0.6)


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


def test_isolated_refusals_and_other_failures_leave_the_limit_alone(clock: Clock) -> None:
    adaptive, chance = full(), random.Random(0)
    for _ in range(5000):
        clock.now += 0.01
        draw = chance.random()
        if draw < 0.05:
            adaptive.refused(clock.now, None)
        elif draw < 0.07:
            adaptive.failed(clock.now)
        else:
            adaptive.answered(clock.now)
    assert adaptive.slots.limit == 64 and adaptive.bucket is None


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


def test_what_a_server_says_of_its_limits_is_kept_to_until_it_says_nothing() -> None:
    adaptive = full()
    adaptive.allow(None)
    adaptive.allow(2.0)
    (kept,) = adaptive.slots.requests
    assert kept.rate == 2.0
    adaptive.allow(None)
    assert not adaptive.slots.requests
