"""A model in processes of a Ray cluster, each with a backend of its own, asked as one.

Programs, journal, cache, budgets and retries stay with whoever asks: what travels are questions and answers, as many at
a time as have gathered, so an answer is on disk as soon as it has come, and what a process held when it died is asked
again, of the others. Keys come from the environment of each node.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from llmfair import registry
from llmfair.backends.base import Backend, BackendOptions, RateLimited, Transient
from llmfair.cluster import LOGS, START_SECONDS, check_same, joined, library, no_place
from llmfair.errors import BackendError, LlmfairError, Unavailable, UsageError, line_of
from llmfair.nouns import Completion, Request

MOST_DEATHS = 3
"""How often a process is started again without an answer in between, and a question asked again whose process died."""
AHEAD = 4
"""Questions that a query's own process may hold above the average before others take its next ones."""
CLOSE_SECONDS = 3.0

Numbered = tuple[int, Completion | Exception]


class Died(Transient):
    """A process ended before it answered."""


class Answering:
    """What runs in a process of the cluster: a backend that is asked many questions at a time."""

    def __init__(self, prefix: str, name: str, options: BackendOptions, folder: str) -> None:
        with suppress(OSError):  # a node that does not have it has the model elsewhere
            os.chdir(folder)
        self.answers: asyncio.Queue[Numbered] = asyncio.Queue()
        self.asking: set[asyncio.Task[None]] = set()
        self.spec = prefix, name, options

    async def open(self) -> tuple[str, Mapping[str, Any]] | LlmfairError:
        """Which model it is, and the backend's facts; or why it cannot be asked."""
        prefix, name, options = self.spec
        try:
            self.backend: Backend = registry.lookup("backend", prefix)(name, options)
            await self.backend.open()
        except LlmfairError as error:
            return error
        return self.backend.identity, getattr(self.backend, "facts", {})

    async def ask(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Begins on questions; `take` has their answers."""
        for number, request in requests:
            task = asyncio.create_task(self._answer(number, request))
            self.asking.add(task)
            task.add_done_callback(self.asking.discard)

    async def take(self) -> list[Numbered]:
        """The answers since it was called last, at least one."""
        answers = [await self.answers.get()]
        while not self.answers.empty():
            answers.append(self.answers.get_nowait())
        return answers

    async def close(self) -> None:
        await self.backend.close()

    async def _answer(self, number: int, request: Request) -> None:
        answer: Completion | Exception
        try:
            answer = await self.backend.complete(request)
        except (LlmfairError, RateLimited, Transient) as error:
            answer = error
        except Exception as error:  # which may be of a class that only this process knows
            answer = BackendError(f"{type(error).__name__}: {line_of(error)}.")
        self.answers.put_nowait((number, answer))


class _Process:
    """A process of the cluster as it is seen from here.

    `standing`: it takes questions. `waiting`: who waits for an answer of it, by the question's number. `deaths`: since
    it last answered.
    """

    def __init__(self) -> None:
        self.actor: Any = None
        self.standing = False
        self.deaths = 0
        self.waiting: dict[int, asyncio.Future[Completion | Exception]] = {}
        self.unsent: list[tuple[int, Request]] = []

    def put(self, number: int, request: Request) -> asyncio.Future[Completion | Exception]:
        """Sends a question, together with all that are put before the loop's next pass."""
        loop = asyncio.get_running_loop()
        future = self.waiting[number] = loop.create_future()
        if not self.unsent:
            loop.call_soon(self._send)
        self.unsent.append((number, request))
        return future

    def _send(self) -> None:
        requests, self.unsent = self.unsent, []
        if self.standing:
            self.actor.ask.remote(requests)

    def took(self, answers: Sequence[Numbered]) -> None:
        self.deaths = 0
        for number, answer in answers:
            future = self.waiting.pop(number)
            if not future.done():
                future.set_result(answer)

    def died(self) -> None:
        self.standing = False
        self.deaths += 1
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(Died("its process of the Ray cluster has died"))


class OnRay:
    """`here` is the backend as it would be in this process, which is never opened: it says what is asked and how.

    `address`: of the cluster, `local` for one of this run's own; None: as RAY_ADDRESS says, or the one on this machine.
    """

    def __init__(
        self, model: str, options: BackendOptions, here: Backend, processes: int, address: str | None
    ) -> None:
        self.identity, self.reads_about = here.identity, here.reads_about
        self.capabilities = here.capabilities - {"batch"}
        self.max_workers = (here.max_workers + AHEAD) * processes  # none waits for its next question
        self.server_name: str = getattr(here, "server_name", "")
        self.facts: Mapping[str, Any] = {}
        self._here, self._options, self._address = here, options, address
        self._prefix, _, self._name = model.partition(":")
        self._gpus: int = getattr(here, "gpus", 0)
        self._processes = [_Process() for _ in range(processes)]
        self._receiving: list[asyncio.Task[None]] = []
        self._numbers = itertools.count()
        self._lost: Counter[str] = Counter()
        self._alone = asyncio.Lock()

    def ready(self) -> None:
        """Whether Ray is installed. Raises MissingExtra."""
        library()

    async def open(self) -> None:
        """Joins the cluster and starts all processes. Raises UsageError, MissingExtra and what the backend does."""
        ray = library()
        self._changed = asyncio.Event()
        await asyncio.wrap_future(joined(self._address))
        resources = ray.cluster_resources()
        if not resources.get("GPU"):
            self._gpus = 0
        elif (needed := self._gpus * len(self._processes)) > resources["GPU"]:
            raise UsageError(
                f"--ray-workers {len(self._processes)} need {needed} GPUs, and the cluster has {resources['GPU']:g}.",
                "fewer workers, or more nodes: ray start --address HEAD:6379",
            )
        for facts in await asyncio.gather(*(self._start(one) for one in self._processes)):
            self.facts = facts
        self._receiving = [asyncio.create_task(self._receive(one)) for one in self._processes]

    async def complete(self, request: Request) -> Completion:
        """One attempt by one of the processes. Raises what a backend does; Transient where the process died."""
        # of those that lost two, one at a time: the one at fault is told from those beside it
        async with self._alone if self._lost[request.key] > 1 else nullcontext():
            process = await self._process_of(request)
            answer = await process.put(next(self._numbers), request)
        if isinstance(answer, Completion):
            return answer
        if isinstance(answer, Died):
            self._lost[request.key] += 1
            if self._lost[request.key] > MOST_DEATHS:
                raise Unavailable(
                    f"{MOST_DEATHS + 1} processes of the Ray cluster died while they had this question.", LOGS
                )
        raise answer

    async def close(self) -> None:
        receiving, self._receiving = self._receiving, []
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)
        await asyncio.gather(*(self._end(one) for one in self._processes if one.actor is not None))

    async def _process_of(self, request: Request) -> _Process:
        """The first in its query's order that is not far ahead of the others: they share what a cache of prompts saves
        only as long as all are busy.
        """
        while not (standing := [one for one in self._processes if one.standing]):
            if all(task.done() for task in self._receiving):
                raise BackendError("all processes of the Ray cluster have died.", LOGS)
            await self._changed.wait()
        query_id = str(request.chat.about.get("query_id", request.probe_id))
        first = crc32(query_id.encode("utf-8", "backslashreplace")) % len(standing)
        most = sum(len(one.waiting) for one in standing) / len(standing) + AHEAD
        return next(one for one in (*standing[first:], *standing) if len(one.waiting) <= most)

    async def _start(self, process: _Process) -> Mapping[str, Any]:
        """Starts a process and what answers in it; the backend's facts. Raises what the backend does."""
        ray = library()
        # else each would hold a core for good, and those beyond the cores would wait for ever
        remote = ray.remote(Answering).options(num_gpus=self._gpus, num_cpus=0, scheduling_strategy="SPREAD")
        process.actor = remote.remote(self._prefix, self._name, self._options, str(Path.cwd()))
        try:
            await asyncio.wait_for(process.actor.__ray_ready__.remote(), START_SECONDS)
            opened: tuple[str, Mapping[str, Any]] | LlmfairError = await process.actor.open.remote()
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise BackendError(f"no process of the Ray cluster starts: {line_of(cause)}.", LOGS) from None
        except TimeoutError:
            ray.kill(process.actor)
            process.deaths = MOST_DEATHS  # the next would wait as long
            raise no_place(START_SECONDS) from None
        if isinstance(opened, LlmfairError):
            raise opened
        identity, facts = opened
        check_same(identity, self.identity)
        process.standing = True
        return facts

    async def _receive(self, process: _Process) -> None:
        """Takes a process's answers, and starts another in its place when it has died; ends when that is no use."""
        ray = library()
        while process.deaths <= MOST_DEATHS:
            try:
                if not process.standing:
                    await self._start(process)
                    self._change()
                process.took(await process.actor.take.remote())
            except (ray.exceptions.RayError, LlmfairError):
                process.died()
        self._change()

    def _change(self) -> None:
        """Wakes those that wait for a process."""
        self._changed.set()
        self._changed.clear()

    async def _end(self, process: _Process) -> None:
        """Ends a process, whose engine may have processes of its own."""
        ray = library()
        actor, process.actor, process.standing = process.actor, None, False
        with suppress(ray.exceptions.RayError, TimeoutError):
            await asyncio.wait_for(actor.close.remote(), CLOSE_SECONDS)
        ray.kill(actor)
