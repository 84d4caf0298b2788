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
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from llmfair.asking.journal import SHARED, Journal, Unwritable, requests
from llmfair.asking.lanes import LEFT_AFTER, LEFT_FOR, Lane, Lanes
from llmfair.asking.limits import Budget, Limits, Progress, characters
from llmfair.backends.base import Backend, RateLimited, Transient
from llmfair.errors import BackendError, Incomplete, LlmfairError, Unavailable, UsageError
from llmfair.io import files, net, secrets
from llmfair.io.net import Retries, in_thread
from llmfair.nouns import Chat, Completion, Failure, Finish, Request, Sampling, Steps

if TYPE_CHECKING:
    from llmfair.asking.cache import Cache

T = TypeVar("T")

GRACE_SECONDS = 5.0
FAILURES_IN_A_ROW = 5
THINKING_CHECK = 20


@dataclass(frozen=True)
class Program:
    """A ranking program that has not begun: `start()` makes its steps.

    `threaded`: it works between its questions (a search), and does so in threads of its own; what it shares with other
    programs must bear that. `condition`: what it asks about, where somebody counts.
    """

    probe_id: str
    start: Callable[[], Steps[Any]]
    threaded: bool = False
    condition: str = ""


def dispatch(
    programs: Iterable[Program],
    backend: Backend,
    journal: Journal,
    sampling: Sampling,
    limits: Limits = Limits(),
    progress: Progress | None = None,
    cache: Cache | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Generator[tuple[str, Any | Failure], None, None]:
    """Runs the programs and yields `(probe_id, result or Failure)` as they finish.

    Synchronous for its caller, which may have something to do `meanwhile`: it is called once, when asking has
    begun. A failure inside one program ends that program only. What ends the run leaves the journal complete:
    raises BackendError when nothing could be asked at all, Incomplete when it broke off after the first answer
    or a budget was spent. A KeyboardInterrupt (or a subclass raised by a signal handler) sends nothing new,
    waits for answers in flight, which are paid for, and is raised again; a second one cancels at once.
    """
    progress = progress if progress is not None else Progress()
    asker = Asker(backend, journal, cache, sampling, limits, progress)
    loop = net.loop()
    try:  # from before the first question: a signal may come as soon as the loop has this work
        done = asyncio.run_coroutine_threadsafe(asker.run(iter(programs)), loop)
        # SimpleQueue.get() wakes up for signals, Future.result() alone would not show results as they come.
        done.add_done_callback(lambda _: asker.finished.put(None))
        if meanwhile is not None:
            meanwhile()
        while (item := asker.finished.get()) is not None:
            yield item
        done.result()
        if asker.interrupter is not None:
            raise asker.interrupter
    except (KeyboardInterrupt, GeneratorExit):
        loop.call_soon_threadsafe(asker.interrupt)
        try:
            patient = asker.ended.wait(timeout=GRACE_SECONDS + 1)
        except KeyboardInterrupt:
            patient = False
        if not patient:
            loop.call_soon_threadsafe(asker.cancel)
            asker.ended.wait(timeout=1)  # until no chain can write any more
        raise


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancels what is not done yet, and waits until it is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Stopped(Exception):
    """A chat was not asked because the run is stopping."""


@dataclass(eq=False)
class Asker:
    """One call of `dispatch` on the loop's side: drives programs, and answers their chats within the limits."""

    backend: Backend
    journal: Journal
    cache: Cache | None
    sampling: Sampling
    limits: Limits
    progress: Progress

    def __post_init__(self) -> None:
        limits, progress = self.limits, self.progress
        self.finished: queue.SimpleQueue[tuple[str, Any | Failure] | None] = queue.SimpleQueue()
        self.lanes = Lanes(self.backend, limits, progress.tell)
        self.retries = Retries(limits.retries, limits.max_wait, limits.outage)
        self.budget = Budget(limits)
        self.budget.calls, self.budget.spent = progress.calls, progress.cost or 0.0
        self.request = requests(self.backend, self.sampling)
        self.asked = dict[str, asyncio.Future[Completion]]()
        self.noted = set[str]()
        self.answers = self.unspoken = self.in_a_row = 0
        self.opened = False
        self._opening = asyncio.Lock()
        # Retries must not leave places empty; but on a budget chains are finished before others begin.
        spare = limits.max_calls is None and limits.max_cost is None
        workers = limits.workers * len(self.lanes.all)
        self.chains = workers * (2 if spare else 1)
        # Steps of many chats fill the places by themselves: while they do, no further program begins.
        self.most, self.begun, self.room = 2 * workers, 0, asyncio.Event()
        self.cause: LlmfairError | None = None
        self.interrupter: BaseException | None = None
        self.stopping, self.ended = asyncio.Event(), threading.Event()
        self.task: asyncio.Task[None] | None = None
        self.patience: asyncio.Timeout | None = None
        self.interrupted = False

    async def run(self, programs: Iterator[Program]) -> None:
        self.task, tasks = asyncio.current_task(), list[asyncio.Task[None]]()
        try:
            if not len(self.journal):  # so that the first questions do not wait for it together
                await self.open()
            # Answers in flight are paid for, so a stop waits for them; only an interrupt loses patience.
            async with asyncio.timeout(None) as self.patience:
                for _ in range(self.chains):  # memory does not grow with the number of programs
                    tasks.append(asyncio.create_task(self._work(programs)))
                    # what is answered already may be all that is needed: it is read one by one
                    if len(self.journal):
                        await asyncio.sleep(0)
                    if tasks[-1].done():  # no program is left
                        break
                await asyncio.gather(*tasks)
        except Stopped:
            pass  # told why by `stop`
        except TimeoutError:
            if not self.interrupted:
                raise
        finally:
            # Whatever ends the run, no chain may go on behind its back and write into a closed journal.
            await _end(*tasks)
            await self.lanes.close()
            await self.backend.close()
            self.ended.set()
        if self.cause is not None:
            raise self.cause

    async def _work(self, programs: Iterator[Program]) -> None:
        while True:
            while self.begun >= self.most:  # the first that is woken may take all the room there is
                await self.room.wait()
            if self.stopping.is_set() or (program := next(programs, None)) is None:
                return
            try:
                self.finished.put((program.probe_id, await self._answer_all(program)))
            except Stopped:
                pass
            except Unwritable as error:
                self.stop(error)
            except LlmfairError as error:
                self._fail(Failure(program.probe_id, type(error).__name__, error.message, error.hint))
                if isinstance(error, UsageError) or (
                    isinstance(error, BackendError) and (error.stops_run or self.hopeless(error))
                ):
                    self.stop(error)
            except Exception as error:
                self.progress.bug = self.progress.bug or error
                self._fail(Failure(program.probe_id, type(error).__name__, str(error)))
            except (KeyboardInterrupt, SystemExit) as error:  # which would end the loop for good
                self.interrupter = error
                self.interrupt()
            await asyncio.sleep(0)  # one whose answers were all known has never let go of the loop

    async def _answer_all(self, program: Program) -> Any:
        steps, search = program.start(), None
        answers = None

        def advance() -> tuple[bool, Any]:
            """Whether the program has ended, and its result, else its next chats."""
            try:
                return False, next(steps) if answers is None else steps.send(answers)
            except StopIteration as end:  # which no Future can hold
                return True, end.value

        try:
            while True:
                if program.threaded:
                    search = in_thread(advance)
                    done, value = await asyncio.wrap_future(search)
                else:
                    done, value = advance()
                if done:
                    return value
                if len(value) == 1:
                    answers = [await self.answer(program.probe_id, value[0])]
                else:
                    answers = await self._answer_together(program.probe_id, value)
        finally:
            if search is None or search.done():
                steps.close()
            else:  # the run was interrupted, and it searches still
                search.add_done_callback(lambda _: steps.close())

    async def _answer_together(self, probe_id: str, chats: Sequence[Chat]) -> list[Completion]:
        """The answers of one step in its order; no more are begun than keep every place taken, none after a failure."""
        answers, failed = dict[int, Completion](), dict[int, Exception]()
        waiting = iter(enumerate(chats))

        async def work() -> None:
            try:
                for place, chat in waiting:
                    try:
                        answers[place] = await self.answer(probe_id, chat)
                    except Exception as error:
                        failed[place] = error
                    if failed:
                        return
                    if len(chats) > self.most:
                        await asyncio.sleep(0)  # answers that are known never let go of the loop
            finally:
                self._taken(-1)

        tasks = min(self.most, len(chats))
        self._taken(tasks)
        await asyncio.gather(*(work() for _ in range(tasks)))
        if failed:
            raise failed[min(failed)]
        return [answers[place] for place in range(len(chats))]

    def _taken(self, more: int) -> None:
        """Counts the chats of steps of several that are begun at a time."""
        self.begun += more
        if self.begun < self.most:
            self.room.set()
        else:
            self.room.clear()

    def stop(self, cause: LlmfairError | None = None) -> None:
        """Sends nothing new; answers in flight are still taken. Runs on the loop."""
        if self.cause is None and cause is not None:
            if self.answers or len(self.journal):
                cause = Incomplete(cause.message, cause.hint)
            self.cause = cause
        self.stopping.set()
        for lane in self.lanes.all:
            lane.halt()

    def interrupt(self) -> None:
        """Stops because somebody asked to: answers in flight have a few seconds left."""
        self.stop()
        if self.task is None:  # nothing is asked, whether or not `run` has been handed over
            self.ended.set()
        elif self.patience is not None and not self.interrupted:
            self.interrupted = True
            with suppress(RuntimeError):  # all have come to their end
                self.patience.reschedule(asyncio.get_running_loop().time() + GRACE_SECONDS)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def _fail(self, failure: Failure) -> None:
        # what a user's own code raises may quote a key
        failure = replace(failure, message=secrets.said(failure.message), hint=secrets.said(failure.hint))
        try:
            self.journal.put_failure(failure)
        except Unwritable as error:
            self.stop(error)
        self.finished.put((failure.probe_id, failure))

    # One chat to its answer

    async def open(self) -> None:
        """Opens the backend, once. What a backend raises here ends the run; a run that is stopping waits for none."""
        async with self._opening:
            if self.stopping.is_set():
                raise Stopped
            if self.opened:
                return

            async def begin() -> None:
                with files.usual():  # it may download weights
                    await self.backend.open()
                await self.lanes.open()

            beginning = asyncio.ensure_future(begin())
            stopping = asyncio.ensure_future(self.stopping.wait())
            try:
                await asyncio.wait([beginning, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not beginning.done():
                    raise Stopped
                await beginning
            except LlmfairError as error:
                self.stop(error)
                raise Stopped from None
            except Exception:
                self.stop()
                raise
            finally:
                await _end(beginning, stopping)
            self.opened = True

    def hopeless(self, error: BackendError) -> bool:
        """Whether a failure of one request means that no other will fare better."""
        unavailable = isinstance(error, Unavailable)
        if unavailable != bool(self.answers):
            return unavailable
        return self.in_a_row >= FAILURES_IN_A_ROW

    async def answer(self, probe_id: str, chat: Chat) -> Completion:
        """Looks the answer up in journal and cache, else asks; the same chat in flight twice is asked once."""
        request = self.request(probe_id, chat)
        key = request.key
        if (answer := self.journal.get(key)) is not None:
            self.progress.replayed += 1
            self._note(request, answer)
            return answer
        if (twin := self.asked.get(key)) is not None:
            return await asyncio.shield(twin)
        if self.cache is not None and (answer := self.cache.get(key)) is not None:
            self.journal.put(request, answer, attempts=0, source=SHARED)  # filed as this run's own evidence
            self.progress.cached += 1
            self._note(request, answer)
            return answer
        if not self.opened:  # nothing was missing so far: a run that has all its answers loads no model
            await self.open()
            return await self.answer(probe_id, chat)  # another may have asked the same meanwhile
        future = self.asked[key] = asyncio.get_running_loop().create_future()
        try:
            completion = await self._ask(request)
            if self.cache is not None:
                self.cache.put(key, completion)
            future.set_result(completion)
            return completion
        except BaseException as error:
            self.in_a_row += isinstance(error, BackendError)  # once, however many programs wait for it
            future.set_exception(error)
            future.exception()  # a twin need not exist to hear of it
            raise
        finally:
            del self.asked[key]

    async def _ask(self, request: Request) -> Completion:
        """Asks until there is an answer: waits after a failure, then goes to the head of the queue.

        A server that would answer nobody is left; only where all that are asked refuse so does that end the run.
        """
        attempts, failures, failed = 0, 0, 0.0
        left, refusing = set[Lane](), set[Lane]()
        tokens = 0 if self.limits.tpm is None else characters(request) // 4 + request.sampling.max_tokens
        while True:
            lane = self.lanes.lane_of(request, left | refusing)
            if not await lane.slots.enter(tokens, first=attempts > 0):
                continue  # its server is down
            sent = time.monotonic()
            try:
                attempts += 1
                completion = await self._attempt(request, lane.backend)
                used = completion.prompt_tokens, completion.completion_tokens
                if None not in used:
                    lane.slots.settle(tokens - sum(count or 0 for count in used))
                self.journal.put(request, completion, attempts, server=lane.name)
            except (RateLimited, Transient) as failure:
                failures += isinstance(failure, Transient)
                elsewhere = self.lanes.others(lane, *refusing) and (
                    failure.retry_after is not None or attempts % self.lanes.standing > 0
                )
                wait = self.retries.wait_after(
                    failure, attempts, failures, failed or sent, lane.heard, elsewhere
                )
                failed = time.monotonic()
                left = set()
                if isinstance(failure, RateLimited):
                    lane.refused(sent, failure.retry_after)
                else:
                    left = {lane}
                    lane.failed(sent)
                    if lane.failures >= LEFT_AFTER or (failure.retry_after or 0.0) > LEFT_FOR:
                        self.lanes.leave(lane, f"is down ({failure.cause})")
                    if lane.standing:
                        lane.hold(failure.retry_after)
                self.progress.waits(str(failure), wait)
            except BackendError as error:
                refusing.add(lane)
                if not error.stops_run or not self.lanes.others(*refusing):
                    raise
                self.lanes.leave(lane, f"cannot be asked ({error.message.rstrip('.')})")
                wait = 0.0
            else:
                self.retries.succeeded(sent)
                self._note(request, completion)
                lane.answered(sent)
                self._answered(completion)
                return completion
            finally:
                lane.slots.leave()
            self.progress.retries += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), wait)
                raise Stopped

    async def _attempt(self, request: Request, backend: Backend) -> Completion:
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
            progress.limit = self.lanes.places
            try:
                answer = await backend.complete(request)
                if not isinstance(answer, Completion):
                    raise UsageError(
                        f"the backend {backend.identity} answers with a {type(answer).__name__}, not a Completion.",
                        "return llmfair.Completion(text, llmfair.Finish.STOP)",
                    )
                completion = answer
                return answer
            finally:
                progress.in_flight -= 1
        finally:
            budget.settle(reserved, request, completion)
            progress.cost = budget.spent if budget.priced else None

    def _note(self, request: Request, completion: Completion) -> None:
        """Counts an answer, and its tokens once, however often its question comes again."""
        progress = self.progress
        progress.answered += 1
        if request.key in self.noted:
            return
        self.noted.add(request.key)
        progress.fullest.add(completion.prompt_tokens or 0, characters(request))
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
        thought = completion.finish is Finish.UNFINISHED_THINKING or (
            completion.finish in (Finish.LENGTH, Finish.EMPTY)
            and bool(completion.reasoning or completion.reasoning_tokens)
        )
        self.unspoken += thought  # among the first of them, where it is looked at
        if self.answers == THINKING_CHECK and self.unspoken > THINKING_CHECK / 2:
            room = "more room with --max-tokens" if self.sampling.thinking_tokens else "room with --thinking"
            self.stop(
                Incomplete(
                    f"{self.unspoken} of the first {THINKING_CHECK} answers ended while the model was thinking.",
                    f"give it {room}, or switch thinking off with --template-arg enable_thinking=false",
                )
            )
