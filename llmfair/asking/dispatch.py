"""Drives ranking programs against a backend: many at once, each as far as its answers allow.

Programs know nothing of time; here every chat they yield becomes a request, answered by the run's journal, by the
cache that runs share, or by the backend. One event loop per process, in a thread of its own, so that HTTP sessions
and engines live on the loop that made them and a notebook's own loop is left alone. Everything above is synchronous.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits, Progress
from llmfair.asking.one_chat import Asker, Stopped
from llmfair.backends.base import Backend
from llmfair.errors import BackendError, Incomplete, LlmfairError, UsageError
from llmfair.records import Chat, Completion, Failure, Sampling
from llmfair.steps import Steps

if TYPE_CHECKING:
    from llmfair.asking.cache import Cache

GRACE_SECONDS = 5.0
PASSES_TO_ASK = 8
"""Of the event loop, from a chain's start until its first question is on its way to a server: chains begun within would
delay it. A model in this process takes questions in batches, which are fuller the sooner all have begun."""


@dataclass(frozen=True)
class Program:
    """A ranking program that has not begun: `start()` makes its steps."""

    probe_id: str
    start: Callable[[], Steps[Any]]


def dispatch(
    programs: Iterable[Program],
    backend: Backend,
    journal: Journal,
    sampling: Sampling,
    limits: Limits = Limits(),
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> Generator[tuple[str, Any | Failure], None, None]:
    """Runs the programs and yields `(probe_id, result or Failure)` as they finish.

    Synchronous for its caller. A failure inside one program ends that program only. What ends the run leaves
    the journal complete: raises BackendError when nothing could be asked at all, Incomplete when it broke off
    after the first answer or a budget was spent. A KeyboardInterrupt (or a subclass raised by a signal
    handler) sends nothing new, waits for answers in flight, which are paid for, and is raised again; a
    second one cancels at once.
    """
    progress = progress if progress is not None else Progress()
    finished: queue.SimpleQueue[tuple[str, Any | Failure] | None] = queue.SimpleQueue()
    driver = _Driver(Asker(backend, journal, cache, sampling, limits, progress), finished)
    loop = _loop()
    done = asyncio.run_coroutine_threadsafe(driver.run(iter(programs)), loop)
    try:
        # SimpleQueue.get() wakes up for signals, Future.result() alone would not show results as they come.
        done.add_done_callback(lambda _: finished.put(None))
        while (item := finished.get()) is not None:
            yield item
        done.result()
    except (KeyboardInterrupt, GeneratorExit):
        loop.call_soon_threadsafe(driver.interrupt)
        try:
            done.exception(timeout=GRACE_SECONDS + 1)
        except (KeyboardInterrupt, TimeoutError):
            done.cancel()
            driver.ended.wait(timeout=1)  # until no chain can write any more
        raise


def _loop() -> asyncio.AbstractEventLoop:
    """The process's event loop, in the daemon thread `llmfair-io`."""
    with _loop_lock:
        if not _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="llmfair-io", daemon=True).start()
            _loops.append(loop)
        return _loops[0]


_loops: list[asyncio.AbstractEventLoop] = []
_loop_lock = threading.Lock()


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancels what is not done yet, and waits until it is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Driver:
    """One call of `dispatch` on the loop's side."""

    def __init__(self, asker: Asker, finished: queue.SimpleQueue[tuple[str, Any | Failure] | None]) -> None:
        self.asker = asker
        self.finished = finished
        asker.stop = self.stop
        # Retries must not leave places empty; but on a budget chains are finished before others begin.
        limits = asker.limits
        spare = limits.max_calls is None and limits.max_cost is None
        self.chains = limits.workers * (2 if spare else 1)
        self.passes = PASSES_TO_ASK if "adaptive" in asker.backend.capabilities else 0
        self.cause: LlmfairError | None = None
        self.interrupted = asyncio.Event()
        self.ended = threading.Event()

    async def run(self, programs: Iterator[Program]) -> None:
        try:
            if not len(self.asker.journal):  # so that the first questions do not wait for it together
                await self.asker.open()
            await self._run_all(programs)
        except Stopped:
            pass  # told why by `stop`
        finally:
            await self.asker.backend.close()
            self.ended.set()
        if self.cause is not None:
            raise self.cause

    async def _run_all(self, programs: Iterator[Program]) -> None:
        everything = asyncio.create_task(self._chain_all(programs))
        interrupted = asyncio.create_task(self.interrupted.wait())
        try:
            # Answers in flight are paid for, so a stop waits for them; only an interrupt loses patience.
            await asyncio.wait([everything, interrupted], return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                await asyncio.wait([everything], timeout=GRACE_SECONDS)
            if everything.done():
                await everything
        finally:
            await _end(everything, interrupted)

    async def _chain_all(self, programs: Iterator[Program]) -> None:
        """So many tasks share the programs, so memory does not grow with the programs' number."""
        tasks: list[asyncio.Task[None]] = []
        try:
            for program in islice(programs, self.chains):
                tasks.append(asyncio.create_task(self._work(chain([program], programs))))
                for _ in range(self.passes):
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks)
        finally:
            # Whatever ends the run, no chain may go on behind its back and write into a closed journal.
            await _end(*tasks)

    async def _work(self, programs: Iterator[Program]) -> None:
        for program in programs:
            if self.asker.stopping.is_set():
                return
            await self._run_one(program)
            await asyncio.sleep(0)  # one whose answers were all known has never let go of the loop

    async def _run_one(self, program: Program) -> None:
        try:
            result = await self._answer_all(program)
        except Stopped:
            return
        except LlmfairError as error:
            self._fail(Failure(program.probe_id, type(error).__name__, error.message))
            if isinstance(error, UsageError) or (
                isinstance(error, BackendError) and (error.stops_run or self.asker.hopeless(error))
            ):
                self.stop(error)
        except Exception as error:
            progress = self.asker.progress
            progress.bug = progress.bug or error
            self._fail(Failure(program.probe_id, type(error).__name__, str(error)))
        else:
            self.finished.put((program.probe_id, result))

    async def _answer_all(self, program: Program) -> Any:
        steps = program.start()
        try:
            chats = next(steps)
            while True:
                if len(chats) == 1:
                    answers = [await self.asker.answer(program.probe_id, chats[0])]
                else:
                    answers = await self._answer_together(program.probe_id, chats)
                chats = steps.send(answers)
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    async def _answer_together(self, probe_id: str, chats: Sequence[Chat]) -> list[Completion]:
        """The answers of one step; when one fails the others are still waited for, since they are paid for."""
        asked = (self.asker.answer(probe_id, chat) for chat in chats)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if isinstance(answer, Completion)]

    def stop(self, cause: LlmfairError | None = None) -> None:
        """Sends nothing new; answers in flight are still taken. Runs on the loop."""
        if self.cause is None and cause is not None:
            if self.asker.answers or len(self.asker.journal):
                cause = Incomplete(cause.message, cause.hint)
            self.cause = cause
        self.asker.halt()

    def interrupt(self) -> None:
        """Stops because somebody asked to: answers in flight have a few seconds left."""
        self.stop()
        self.interrupted.set()

    def _fail(self, failure: Failure) -> None:
        self.asker.journal.put_failure(failure)
        self.finished.put((failure.probe_id, failure))
