"""Drives ranking programs against a backend: many at once, each as far as its answers allow.

Programs know nothing of time; here every chat they yield becomes a request, answered by the run's journal, by the
cache that runs share, or by the backend. One event loop per process, in a thread of its own, so that HTTP sessions
and engines live on the loop that made them and a notebook's own loop is left alone. Everything above is synchronous.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from llmfair.adaptive import Adaptive
from llmfair.backends.base import Backend, RateLimited, Transient
from llmfair.budgets import Budget, characters
from llmfair.errors import BackendError, Incomplete, LlmfairError, Unavailable, UsageError
from llmfair.journal import Journal, request_key
from llmfair.pacing import Bucket
from llmfair.records import (
    Chat,
    Completion,
    Expects,
    Failure,
    Finish,
    Labels,
    Permutation,
    Request,
    Sampling,
    Steps,
)
from llmfair.retries import LONGEST_WAIT, Retries
from llmfair.slots import Slots
from llmfair.turns import Turns

if TYPE_CHECKING:
    from llmfair.cache import Cache

GRACE_SECONDS = 5.0
FAILURES_IN_A_ROW = 5
THINKING_CHECK = 20


@dataclass(frozen=True)
class Program:
    """A ranking program that has not begun: `start()` makes its steps."""

    probe_id: str
    start: Callable[[], Steps[Any]]


@dataclass(frozen=True)
class Limits:
    """How hard the backend may be asked, and what that may cost.

    `workers` requests at most are in flight; `adaptive` looks for how many a server takes, where the backend is one.
    `rpm`, `tpm`: requests and tokens a minute. Times in seconds. `max_calls`, `max_cost` and the prices, per million
    tokens, are of this invocation.
    """

    workers: int = 64
    retries: int = 8
    max_wait: float = 1800.0
    max_calls: int | None = None
    adaptive: bool = True
    rpm: float | None = None
    tpm: float | None = None
    max_cost: float | None = None
    price_in: float | None = None
    price_out: float | None = None


@dataclass
class Progress:
    """What has happened so far, for whoever shows it; written on dispatch's loop, read anywhere.

    `finished`: programs. `limit`: places in flight at the moment. `cost`: of this invocation, None without prices.
    `tell` says a sentence that a person who waits for hours should see.
    """

    finished: int = 0
    calls: int = 0
    answered: int = 0
    replayed: int = 0
    cached: int = 0
    retries: int = 0
    in_flight: int = 0
    limit: int = 0
    unreadable: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    waiting_until: float = 0.0
    bug: Exception | None = None
    models: set[str] = field(default_factory=set)
    fingerprints: set[str] = field(default_factory=set)
    tell: Callable[[str], None] = lambda text: None


class Stopped(Exception):
    """A chat was not asked because the run is stopping."""


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
    driver = _Driver(backend, journal, cache, sampling, limits, progress, finished)
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


def chat_sampling(chat: Chat, sampling: Sampling) -> Sampling:
    """The sampling of one chat: repeats must not share a seed, and `max_tokens` 0 goes by the answer's shape.

    Room for an answer: 16 + 8 n tokens for a permutation of n, 16 for a label, 256 for text, and what the
    model may spend on thinking beside it.
    """
    match chat.expects:
        case Permutation(n):
            room = 16 + 8 * n
        case Labels():
            room = 16
        case _:
            room = 256
    return replace(
        sampling,
        seed=sampling.seed + chat.draw,
        max_tokens=(sampling.max_tokens or room) + sampling.thinking_tokens,
        thinking_tokens=0,
    )


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


class _Driver:
    """One call of `dispatch` on the loop's side."""

    def __init__(
        self,
        backend: Backend,
        journal: Journal,
        cache: Cache | None,
        sampling: Sampling,
        limits: Limits,
        progress: Progress,
        finished: queue.SimpleQueue[tuple[str, Any | Failure] | None],
    ) -> None:
        self.backend = backend
        self.journal = journal
        self.cache = cache
        self.sampling = sampling
        self.limits = limits
        self.progress = progress
        self.finished = finished
        self.slots = _slots(limits)
        self.turns = Turns()
        adapts = limits.adaptive and "adaptive" in backend.capabilities
        self.adaptive = Adaptive(self.slots, limits.workers) if adapts else None
        self.retries = Retries(limits.retries, limits.max_wait)
        self.budget = Budget(limits.max_calls, limits.max_cost, limits.price_in, limits.price_out)
        self.samplings: dict[tuple[Expects, int], Sampling] = {}
        self.asked: dict[str, asyncio.Future[Completion]] = {}
        self.answers = 0
        self.unspoken = 0
        self.cause: LlmfairError | None = None
        self.in_a_row = 0
        self.stopping = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.ended = threading.Event()

    # The whole run

    async def run(self, programs: Iterator[Program]) -> None:
        try:
            await self.backend.open()
            await self._run_all(programs)
        finally:
            await self.backend.close()
            self.ended.set()
        if self.cause is not None:
            raise self.cause

    async def _run_all(self, programs: Iterator[Program]) -> None:
        """2 × workers tasks share the programs, so memory does not grow with the programs' number."""
        tasks = [asyncio.create_task(self._work(programs)) for _ in range(2 * self.limits.workers)]
        everything = asyncio.gather(*tasks)
        interrupted = asyncio.create_task(self.interrupted.wait())
        try:
            # Answers in flight are paid for, so a stop waits for them; only an interrupt loses patience.
            waiting: set[asyncio.Future[Any]] = {everything, interrupted}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                await asyncio.wait([everything], timeout=GRACE_SECONDS)
            if everything.done():
                await everything
        finally:
            # Whatever ends the run, no chain may go on behind its back and write into a closed journal.
            for task in (*tasks, interrupted):
                task.cancel()
            await asyncio.gather(everything, *tasks, interrupted, return_exceptions=True)

    async def _work(self, programs: Iterator[Program]) -> None:
        for program in programs:
            if self.stopping.is_set():
                return
            await self._run_one(program)

    async def _run_one(self, program: Program) -> None:
        try:
            result = await self._answer_all(program)
        except Stopped:
            return
        except LlmfairError as error:
            self._fail(Failure(program.probe_id, type(error).__name__, error.message))
            if isinstance(error, UsageError) or (
                isinstance(error, BackendError) and (error.stops_run or self._hopeless(error))
            ):
                self.stop(error)
        except Exception as error:
            self.progress.bug = self.progress.bug or error
            self._fail(Failure(program.probe_id, type(error).__name__, str(error)))
        else:
            self.finished.put((program.probe_id, result))

    async def _answer_all(self, program: Program) -> Any:
        await self.turns.take()
        steps = program.start()
        try:
            chats = next(steps)
            while True:
                if len(chats) == 1:
                    answers = [await self._answer(program.probe_id, chats[0])]
                else:
                    answers = await self._answer_together(program.probe_id, chats)
                await self.turns.take()
                chats = steps.send(answers)
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    async def _answer_together(self, probe_id: str, chats: Sequence[Chat]) -> list[Completion]:
        """The answers of one step; when one fails the others are still waited for, since they are paid for."""
        asked = (self._answer(probe_id, chat) for chat in chats)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if isinstance(answer, Completion)]

    def stop(self, cause: LlmfairError | None = None) -> None:
        """Sends nothing new; answers in flight are still taken. Runs on the loop."""
        if self.cause is None and cause is not None:
            if self.answers or len(self.journal):
                cause = Incomplete(cause.message, cause.hint)
            self.cause = cause
        self.stopping.set()
        self.adaptive = None
        self.slots.release_all()

    def interrupt(self) -> None:
        """Stops because somebody asked to: answers in flight have a few seconds left."""
        self.stop()
        self.interrupted.set()

    def _fail(self, failure: Failure) -> None:
        self.journal.put_failure(failure)
        self.finished.put((failure.probe_id, failure))

    def _hopeless(self, error: BackendError) -> bool:
        """Whether a failure of one request means that no other will fare better."""
        self.in_a_row += 1
        if isinstance(error, Unavailable) and not self.answers:
            return True
        if self.answers and not isinstance(error, Unavailable):
            return False
        return self.in_a_row >= FAILURES_IN_A_ROW

    # One chat

    async def _answer(self, probe_id: str, chat: Chat) -> Completion:
        """Looks the answer up in journal and cache, else asks; the same chat in flight twice is asked once."""
        sampling = self._sampling(chat)
        key = request_key(self.backend.identity, chat, sampling, about=self.backend.reads_about)
        if (known := self.journal.get(key)) is not None:
            self.progress.replayed += 1
            self._note(known)
            return known
        if (twin := self.asked.get(key)) is not None:
            return await asyncio.shield(twin)
        request = Request(chat, sampling, key, probe_id)
        if (cached := self._cached(request)) is not None:
            return cached
        future = self.asked[key] = asyncio.get_running_loop().create_future()
        try:
            completion = await self._ask(request)
            if self.cache is not None:
                self.cache.put(key, completion)
            future.set_result(completion)
            return completion
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # a twin need not exist to hear of it
            raise
        finally:
            del self.asked[key]

    def _sampling(self, chat: Chat) -> Sampling:
        """`chat_sampling`, made once for all chats of one shape and draw."""
        shape = (chat.expects, chat.draw)
        if (known := self.samplings.get(shape)) is None:
            known = self.samplings[shape] = chat_sampling(chat, self.sampling)
        return known

    def _cached(self, request: Request) -> Completion | None:
        """The answer other runs were given, filed as this run's own evidence first; it counts as no call."""
        if self.cache is None or (known := self.cache.get(request.key)) is None:
            return None
        self.journal.put(request, known, attempts=0, source="cache")
        self.progress.cached += 1
        self._note(known)
        return known

    async def _ask(self, request: Request) -> Completion:
        """Asks until there is an answer: waits after a failure, then goes to the head of the queue."""
        attempts = failures = 0
        tokens = 0 if self.limits.tpm is None else characters(request) // 4 + request.sampling.max_tokens
        while True:
            await self.slots.enter(tokens, first=attempts > 0)
            sent = time.monotonic()
            try:
                attempts += 1
                completion = await self._attempt(request)
                self.slots.settle(tokens - _used(completion, tokens))
                self.journal.put(request, completion, attempts)
            except (RateLimited, Transient) as failure:
                failures += isinstance(failure, Transient)
                wait = self.retries.wait_after(failure, attempts, failures)
                self._failed(failure, sent)
            else:
                self.retries.succeeded(sent)
                self._note(completion)
                if self.adaptive is not None:
                    self.adaptive.answered(sent)
                    self._heed_allowance(self.adaptive)
                self._answered(completion)
                return completion
            finally:
                self.slots.leave()
            self.progress.retries += 1
            await self._sleep(wait)

    async def _attempt(self, request: Request) -> Completion:
        """One call within the budget. Raises Stopped when the run is stopping or the budget is spent."""
        if self.stopping.is_set():
            raise Stopped
        budget, progress, completion = self.budget, self.progress, None
        try:
            reserved = await budget.call(request)
        except Incomplete as spent:
            self.stop(spent)
            raise Stopped from None
        try:
            if self.stopping.is_set():
                budget.calls -= 1
                raise Stopped
            progress.calls = budget.calls
            progress.in_flight += 1
            progress.limit = int(self.slots.limit)
            try:
                completion = await self.backend.complete(request)
                return completion
            finally:
                progress.in_flight -= 1
        finally:
            budget.settle(reserved, request, completion)
            progress.cost = budget.spent if budget.priced else None

    def _heed_allowance(self, adaptive: Adaptive) -> None:
        """Keeps to what the server says that it will still take; tokens count as requests of the size so far."""
        if (allowance := getattr(self.backend, "allowance", None)) is None:
            return
        rates = [] if allowance.requests is None else [allowance.requests]
        used = self.progress.prompt_tokens + self.progress.completion_tokens
        if allowance.tokens is not None and used:
            rates.append(allowance.tokens * self.progress.answered / used)
        if rates:
            adaptive.told(min(rates))

    def _failed(self, failure: RateLimited | Transient, sent: float) -> None:
        """What a passing failure says to requests that were not part of it."""
        if isinstance(failure, Transient):
            if self.adaptive is not None:
                self.adaptive.failed(sent)
            return
        if failure.retry_after:
            # The server speaks for itself, so nothing else is sent to it either (but not forever).
            until = time.time() + failure.retry_after
            self.progress.waiting_until = max(self.progress.waiting_until, until)
            self.slots.hold(min(failure.retry_after, LONGEST_WAIT))
        if self.adaptive is not None:
            self.adaptive.refused(sent, failure.retry_after, self.retries.latency())

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return
        raise Stopped

    def _note(self, completion: Completion) -> None:
        progress = self.progress
        progress.answered += 1
        progress.prompt_tokens += completion.prompt_tokens or 0
        progress.completion_tokens += completion.completion_tokens or 0
        if completion.model:
            progress.models.add(completion.model)
        if completion.fingerprint:
            progress.fingerprints.add(completion.fingerprint)

    def _answered(self, completion: Completion) -> None:
        """Counts a success; stops a run whose model spends every answer on thinking."""
        self.answers += 1
        self.in_a_row = 0
        if self.answers > THINKING_CHECK:
            return
        thought = completion.finish is Finish.UNFINISHED_THINKING or (
            completion.finish in (Finish.LENGTH, Finish.EMPTY)
            and bool(completion.reasoning or completion.reasoning_tokens)
        )
        self.unspoken += thought
        if self.answers == THINKING_CHECK and self.unspoken > THINKING_CHECK / 2:
            self.stop(
                Incomplete(
                    f"{self.unspoken} of the first {THINKING_CHECK} answers ended while the model was thinking.",
                    "give it room with --thinking, or switch thinking off with "
                    "--template-arg enable_thinking=false",
                )
            )


def _slots(limits: Limits) -> Slots:
    """The queue that keeps the limits set by hand."""
    requests = [] if limits.rpm is None else [Bucket(limits.rpm / 60)]
    return Slots(limits.workers, requests, None if limits.tpm is None else Bucket(limits.tpm / 60))


def _used(completion: Completion, reserved: int) -> int:
    """The tokens of an answer as the server counts them, or as many as were reserved."""
    sent, answered = completion.prompt_tokens, completion.completion_tokens
    return reserved if sent is None or answered is None else sent + answered
