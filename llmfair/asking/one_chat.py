"""One chat to its answer: looked up in the run's journal and the cache that runs share, else asked of the backend.

Whoever asks waits for a place in flight, for the rate and for the budget; what fails in passing is tried again. Runs
on dispatch's loop; programs and their order are dispatch's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmfair.asking.journal import SHARED, Journal, Requests
from llmfair.asking.lanes import LEFT_AFTER, LEFT_FOR, Lane, Lanes
from llmfair.asking.limits import Budget, Limits, Progress, characters
from llmfair.backends.base import Backend, RateLimited, Transient
from llmfair.errors import BackendError, Incomplete, LlmfairError, Unavailable, UsageError
from llmfair.io import files
from llmfair.io.net import Retries
from llmfair.nouns import Chat, Completion, Finish, Request, Sampling

if TYPE_CHECKING:
    from llmfair.asking.cache import Cache

FAILURES_IN_A_ROW = 5
THINKING_CHECK = 20


class Stopped(Exception):
    """A chat was not asked because the run is stopping."""


@dataclass(eq=False)
class Asker:
    """Answers chats within the limits; `stop`, which whoever drives may replace, hears why when it must end."""

    backend: Backend
    journal: Journal
    cache: Cache | None
    sampling: Sampling
    limits: Limits
    progress: Progress

    def __post_init__(self) -> None:
        backend, limits, progress = self.backend, self.limits, self.progress
        self.stop: Callable[[LlmfairError], None] = lambda cause: self.halt()
        self.lanes = Lanes(backend, limits, progress.tell)
        self.retries = Retries(limits.retries, limits.max_wait, limits.outage)
        self.budget = Budget(limits)
        self.budget.calls, self.budget.spent = progress.calls, progress.cost or 0.0
        self.request = Requests(backend, self.sampling)
        self.asked: dict[str, asyncio.Future[Completion]] = {}
        self.noted = set[str]()
        self.answers = 0
        self.unspoken = 0
        self.in_a_row = 0
        self.stopping = asyncio.Event()
        self.opened = False
        self._opening = asyncio.Lock()

    def halt(self) -> None:
        """Sends nothing new; answers in flight are still taken."""
        self.stopping.set()
        for lane in self.lanes.all:
            lane.halt()

    async def open(self) -> None:
        """Opens the backend, once. What a backend raises here ends the run; a run that is stopping waits for none."""
        async with self._opening:
            if self.stopping.is_set():
                raise Stopped
            if self.opened:
                return
            tasks = asyncio.ensure_future(self._open_all()), asyncio.ensure_future(self.stopping.wait())
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if not tasks[0].done():
                    raise Stopped
                await tasks[0]
            except LlmfairError as error:
                self.stop(error)
                raise Stopped from None
            except Exception:
                self.halt()
                raise
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            self.opened = True

    async def _open_all(self) -> None:
        with files.usual():  # it may download weights
            await self.backend.open()
        await self.lanes.open()

    async def close(self) -> None:
        await self.lanes.close()
        await self.backend.close()

    def hopeless(self, error: BackendError) -> bool:
        """Whether a failure of one request means that no other will fare better."""
        if isinstance(error, Unavailable) and not self.answers:
            return True
        if self.answers and not isinstance(error, Unavailable):
            return False
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
                if (
                    prompt := completion.prompt_tokens
                ) is not None and completion.completion_tokens is not None:
                    lane.slots.settle(tokens - prompt - completion.completion_tokens)
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
                completion = await backend.complete(request)
                if type(completion) is not Completion:
                    kind = type(completion).__name__
                    raise UsageError(
                        f"the backend {self.backend.identity} answers with a {kind}, not a Completion.",
                        "return llmfair.Completion(text, llmfair.Finish.STOP)",
                    )
                return completion
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
        if self.answers > THINKING_CHECK:
            return
        thought = completion.finish is Finish.UNFINISHED_THINKING or (
            completion.finish in (Finish.LENGTH, Finish.EMPTY)
            and bool(completion.reasoning or completion.reasoning_tokens)
        )
        self.unspoken += thought
        if self.answers == THINKING_CHECK and self.unspoken > THINKING_CHECK / 2:
            room = "more room with --max-tokens" if self.sampling.thinking_tokens else "room with --thinking"
            self.stop(
                Incomplete(
                    f"{self.unspoken} of the first {THINKING_CHECK} answers ended while the model was thinking.",
                    f"give it {room}, or switch thinking off with --template-arg enable_thinking=false",
                )
            )
