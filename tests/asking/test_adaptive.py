"""How many requests a server takes at once is found by asking it."""

from __future__ import annotations

import random

import pytest

from llmfair.asking.rate import Adaptive, Slots
from tests.virtual import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("llmfair.asking.rate.time", clock)
    return clock


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
