"""A micro-batcher: jobs that arrive one by one go through an engine of this process together.

A model takes hardly longer for thirty prompts than for one. Jobs gather for a few milliseconds, and while the engine
is busy the next batch gathers by itself. One thread runs the engine, so that it sees one batch at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

J = TypeVar("J")
A = TypeVar("A")
T = TypeVar("T")

GATHER_SECONDS = 0.008
LOOKS = 8


@dataclass(eq=False, slots=True)
class _Waiting(Generic[J, A]):
    job: J
    kind: Hashable
    length: int
    answer: asyncio.Future[A]


class MicroBatcher(Generic[J, A]):
    """Gathers jobs for `run`, which answers a batch in its order. Lives on the loop that first asks it.

    A batch holds jobs of one kind, the longest first, and at most `batch_tokens` positions: rows × longest. An
    error of a batch is each of its jobs'.
    """

    def __init__(self, run: Callable[[Sequence[J]], Sequence[A]], batch_tokens: int) -> None:
        self.batch_tokens = batch_tokens
        self._run = run
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llmfair-model")
        self._waiting: list[_Waiting[J, A]] = []
        self._arrived = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def call(self, work: Callable[[], T]) -> T:
        """Does other work of the engine's, such as loading it, on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def ask(self, job: J, kind: Hashable, length: int) -> A:
        """The job's answer, once its batch is through. `length` counts the positions it takes."""
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        waiting: _Waiting[J, A] = _Waiting(job, kind, length, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.answer

    async def close(self) -> None:
        """Takes no more batches; one that is under way is not waited for."""
        if self._serving is not None:
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await self._serving
        self._thread.shutdown(wait=False)

    async def _serve(self) -> None:
        while True:
            await self._arrived.wait()
            await self._gather()
            if not (batch := self._take()):
                continue
            try:
                answers = await self.call(lambda batch=batch: self._run([one.job for one in batch]))  # type: ignore[misc]
            except Exception as error:
                for one in batch:
                    if not one.answer.done():
                        one.answer.set_exception(error)
            else:
                for one, answer in zip(batch, answers, strict=True):
                    if not one.answer.done():
                        one.answer.set_result(answer)

    async def _gather(self) -> None:
        """Waits for company: while more keeps coming, a few milliseconds at most, until a batch is full."""
        for _ in range(LOOKS):
            before = len(self._waiting)
            if sum(one.length for one in self._waiting) >= self.batch_tokens:
                return
            await asyncio.sleep(GATHER_SECONDS / LOOKS)
            if len(self._waiting) == before:
                return

    def _take(self) -> list[_Waiting[J, A]]:
        """The next batch; jobs that nobody waits for any more are dropped."""
        self._waiting = [one for one in self._waiting if not one.answer.done()]
        kind = self._waiting[0].kind if self._waiting else None
        alike = sorted((one for one in self._waiting if one.kind == kind), key=lambda one: -one.length)
        batch = alike[: max(1, self.batch_tokens // max(1, alike[0].length))] if alike else []
        self._waiting = [one for one in self._waiting if one not in batch]
        if not self._waiting:
            self._arrived.clear()
        return batch
