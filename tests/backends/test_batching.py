"""The micro-batcher: what arrives together goes together, nobody waits for company that does not come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from llmfair.backends.local import MicroBatcher, permutation_grammar
from llmfair.errors import UsageError
from tests.coroutines import asynchronous
from tests.pace import within


class Engine:
    """Doubles numbers, remembers its batches, and where it is `held` ends none before `free` is set."""

    def __init__(self, held: bool = False) -> None:
        self.free = threading.Event()
        if not held:
            self.free.set()
        self.batches: list[list[int]] = []

    def __call__(self, jobs: Sequence[int]) -> list[int]:
        self.batches.append(list(jobs))
        assert self.free.wait(30)
        if 13 in jobs:
            raise ValueError("thirteen")
        return [2 * job for job in jobs]


async def at_work(engine: Engine) -> None:
    while not engine.batches:
        await asyncio.sleep(0.001)


@asynccontextmanager
async def batching(engine: Engine, tokens: int) -> AsyncIterator[MicroBatcher[int, int]]:
    batcher = MicroBatcher(engine, batch_tokens=tokens)
    yield batcher
    await batcher.close()


@asynchronous
async def test_what_arrives_together_goes_together_the_longest_first() -> None:
    engine = Engine()
    async with batching(engine, 100) as batcher:
        # rows × longest: 3 rows of 30, then 5 of at most 20
        found = await asyncio.gather(*(batcher.ask(n, "kind", n) for n in (20, 30, 10, 25, 5, 28, 15, 1)))
    assert found == [40, 60, 20, 50, 10, 56, 30, 2]
    assert engine.batches == [[30, 28, 25], [20, 15, 10, 5, 1]]


@asynchronous
async def test_kinds_do_not_mix_and_one_longer_than_a_batch_goes_alone() -> None:
    engine = Engine()
    async with batching(engine, 10) as batcher:
        await asyncio.gather(*(batcher.ask(n, n % 2, n) for n in (2, 3, 4, 50)))
    assert sorted(map(sorted, engine.batches)) == [[2, 4], [3], [50]]


@asynchronous
async def test_while_the_engine_works_the_next_batch_gathers() -> None:
    engine = Engine(held=True)
    async with batching(engine, 1000) as batcher:
        asked = [asyncio.create_task(batcher.ask(1, 0, 1))]
        await at_work(engine)
        for n in range(2, 8):  # one by one, all while the first is worked on
            asked.append(asyncio.create_task(batcher.ask(n, 0, 1)))
            await asyncio.sleep(0.001)
        engine.free.set()
        await asyncio.gather(*asked)
    assert [len(batch) for batch in engine.batches] == [1, 6]


def test_a_lone_job_hardly_waits() -> None:
    async def ask() -> None:
        async with batching(Engine(), 1000) as batcher:
            for n in range(20, 40):
                await batcher.ask(n, 0, 1)

    within(0.2, lambda: asyncio.run(ask()))


@asynchronous
async def test_an_error_is_its_batch_s_and_the_next_batch_goes_on() -> None:
    async with batching(Engine(), 1000) as batcher:
        asked = (batcher.ask(n, n == 7, 1) for n in (12, 13, 7))
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(one) for one in found] == ["thirteen", "thirteen", "14"]
        assert await batcher.ask(5, 0, 1) == 10


@asynchronous
async def test_jobs_that_nobody_waits_for_are_dropped() -> None:
    engine = Engine(held=True)
    async with batching(engine, 1) as batcher:
        tasks = [asyncio.create_task(batcher.ask(n, 0, 1)) for n in range(5)]
        await at_work(engine)
        for task in tasks[2:]:
            task.cancel()
        engine.free.set()
        assert await asyncio.gather(*tasks[:2]) == [0, 2]
        with pytest.raises(asyncio.CancelledError):
            await tasks[4]
        assert await batcher.ask(9, 0, 1) == 18
    assert [job for batch in engine.batches for job in batch] == [0, 1, 9]


@asynchronous
async def test_closing_leaves_what_is_under_way_and_takes_no_more() -> None:
    engine = Engine(held=True)
    batcher = MicroBatcher(engine, batch_tokens=1)
    tasks = [asyncio.create_task(batcher.ask(n, 0, 1)) for n in range(3)]
    await at_work(engine)
    await asyncio.wait_for(batcher.close(), 20)
    engine.free.set()
    for task in tasks:
        task.cancel()
    assert len(engine.batches) == 1


# The grammar that holds a model to whole orders


def test_every_item_once() -> None:
    assert permutation_grammar(2).splitlines() == [
        "start: p0::0x0",
        'p0::_ : "[1]" rest::set_bit(0) | "[2]" rest::set_bit(1)',
        'rest::_ : "" %if is_ones([0:2])'
        ' | " > [1]" rest::set_bit(0) %if bit_clear(0) | " > [2]" rest::set_bit(1) %if bit_clear(1)',
    ]


@pytest.mark.parametrize("n", [1, 65])
def test_windows_that_no_grammar_holds(n: int) -> None:
    with pytest.raises(UsageError, match="2 to 64 items"):
        permutation_grammar(n)


def test_the_best_few_and_no_others() -> None:
    assert permutation_grammar(3, 2).splitlines()[2] == (
        'rest::_ : "" %if bit_count_eq([0:3], 2)'
        ' | " > [1]" rest::set_bit(0) %if and(bit_clear(0), bit_count_lt([0:3], 2))'
        ' | " > [2]" rest::set_bit(1) %if and(bit_clear(1), bit_count_lt([0:3], 2))'
        ' | " > [3]" rest::set_bit(2) %if and(bit_clear(2), bit_count_lt([0:3], 2))'
    )
