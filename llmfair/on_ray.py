"""A Ray cluster, and what runs in its processes: a model that is asked as one, and a ranker whose lists are dealt out.

Programs, journal, cache, budgets and retries stay with whoever asks: what travels are questions and answers, as many at
a time as have gathered, and what a process held when it died is asked again, of the others. Keys come from the
environment of each node.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import logging
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any
from zlib import crc32

from llmfair import registry
from llmfair.backends.base import Backend, BackendOptions, RateLimited, Transient
from llmfair.errors import BackendError, LlmfairError, MissingExtra, Unavailable, UsageError, line_of
from llmfair.nouns import Candidates, Completion, Request
from llmfair.rankers.base import ScoringRanker

INSTALL = "pip install 'llmfair[ray]'"
LOCAL = "local"
CONNECT_SECONDS = 5.0
START_SECONDS = 300.0
"""Until a process has a place in the cluster, which may be full."""
LOGS = "Ray's logs on its node say why; the same command continues"


def library() -> Any:
    """Ray itself. Raises MissingExtra."""
    # else it tells of deaths on stdout, where the result stands
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of several, the first is told
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtra("--engine ray needs Ray.", INSTALL) from None
    return ray


def joined(address: str | None) -> Future[None]:
    """Joins a cluster, unless this process is in one. Raises MissingExtra; the future, UsageError where there is none.

    In a thread that lives as long as the process: with the thread that started it a cluster is killed.
    """
    ray, state = library(), Future[None]()
    state.set_running_or_notify_cancel()

    def run() -> None:
        try:
            with _joining:
                if not ray.is_initialized():  # by one that was given up
                    _join(ray, address)
        except BaseException as error:
            state.set_exception(error)
        else:
            state.set_result(None)
            threading.Event().wait()

    if ray.is_initialized():
        state.set_result(None)
    else:
        threading.Thread(target=run, name="llmfair-ray", daemon=True).start()
    return state


_joining = threading.Lock()


def _join(ray: Any, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it is told to its makers
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    host, colon, port = where.rpartition(":")
    # Ray's own handler of SIGTERM would print a trace and abort; any thread may put the process's back so
    handler, libc = ctypes.create_string_buffer(512), ctypes.CDLL(None)
    libc.sigaction(signal.SIGTERM, None, handler)
    try:
        if colon and "/" not in host:  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        ray.init(
            address=where,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=None if where != LOCAL else False,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            "no Ray cluster on this machine accepted the connection."
            if where == "auto"
            else f"there is no Ray cluster at {where}: {line_of(error)}.",
            "ray start --head, whose ~/.ray/auth_token has to be on every node, or --ray-address local for one of "
            "this run's own",
        ) from None
    finally:
        libc.sigaction(signal.SIGTERM, handler, None)


def result_of(reply: Any) -> Any:
    """What a process replied. Raises the error that it replied with."""
    if isinstance(reply, LlmfairError):
        raise reply
    return reply


def check_same(there: str, here: str) -> None:
    """Raises UsageError where a process has another model than this one."""
    if there != here:
        raise UsageError(
            f"a process of the Ray cluster has another model: {there}, not {here}.",
            "every node needs what this one has: files, the ranker's code, OPENAI_BASE_URL",
        )


def failed(what: str, error: Exception) -> BackendError:
    """The error of processes that Ray could not run, or had no place for."""
    if isinstance(error, TimeoutError):
        return BackendError(
            f"a process of the Ray cluster has had no place for {START_SECONDS:.0f} s.",
            "ray status says what is taken; fewer --ray-workers, or more nodes",
        )
    cause = getattr(error, "cause", None) or error
    return BackendError(f"no process of the Ray cluster {what}: {line_of(cause)}.", LOGS)


# A model in processes, each with a backend of its own


MOST_DEATHS = 3
"""How often a process is started again in a row (of a ranker in all), and what it held asked again."""
AHEAD = 4
"""Questions that a query's own process may hold above the average before others take its next ones."""
CLOSE_SECONDS = 3.0

Numbered = tuple[int, Completion | Exception]


class ProcessDeath(Transient):
    """A process ended before it answered."""


class Answering:
    """What runs in a process of the cluster: a backend that is asked many questions at a time."""

    def __init__(self, model: str, identity: str, options: BackendOptions, folder: str) -> None:
        with suppress(OSError):  # a node that does not have it has the model elsewhere
            os.chdir(folder)
        self.answers: asyncio.Queue[Numbered] = asyncio.Queue()
        self.asking: set[asyncio.Task[None]] = set()
        self.spec = model, identity, options

    async def open(self) -> Mapping[str, Any] | LlmfairError:
        """The backend's facts, or why it cannot be asked."""
        model, identity, options = self.spec
        prefix, _, name = model.partition(":")
        try:
            self.backend: Backend = registry.lookup("backend", prefix)(name, options)
            check_same(self.backend.identity, identity)
            await self.backend.open()
        except LlmfairError as error:
            return error
        return getattr(self.backend, "facts", {})

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

    `standing`: it takes questions. `waiting`: who waits for which answer. `deaths`: since it last answered.
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

        def send() -> None:
            requests, self.unsent = self.unsent, []
            if self.standing:
                self.actor.ask.remote(requests)

        if not self.unsent:
            loop.call_soon(send)
        self.unsent.append((number, request))
        return future

    def settle(self, answers: Iterable[Numbered]) -> None:
        for number, answer in answers:
            future = self.waiting.pop(number)
            if not future.done():
                future.set_result(answer)


class ModelOnRay:
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
        self._model, self._options, self._address = model, options, address
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
        self.facts = (await asyncio.gather(*map(self._start, self._processes)))[-1]
        self._receiving = [asyncio.create_task(self._receive(process)) for process in self._processes]

    async def complete(self, request: Request) -> Completion:
        """One attempt by one of the processes. Raises what a backend does; Transient where the process died."""
        # of those that lost two, one at a time: the one at fault is told from those beside it
        async with self._alone if self._lost[request.key] > 1 else nullcontext():
            process = await self._process_of(request)
            answer = await process.put(next(self._numbers), request)
        if isinstance(answer, Completion):
            return answer
        if isinstance(answer, ProcessDeath):
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
        await asyncio.gather(
            *(self._end(process) for process in self._processes if process.actor is not None)
        )

    async def _process_of(self, request: Request) -> _Process:
        """The first in its query's order that is not far ahead of the others."""
        while not (standing := [process for process in self._processes if process.standing]):
            if all(task.done() for task in self._receiving):
                raise BackendError("all processes of the Ray cluster have died.", LOGS)
            self._changed.clear()
            await self._changed.wait()
        query_id = str(request.chat.about.get("query_id", request.probe_id))
        first = crc32(query_id.encode("utf-8", "backslashreplace")) % len(standing)
        most = sum(len(process.waiting) for process in standing) / len(standing) + AHEAD
        return next(process for process in (*standing[first:], *standing) if len(process.waiting) <= most)

    async def _start(self, process: _Process) -> Mapping[str, Any]:
        """Starts a process and what answers in it; the backend's facts. Raises what the backend does."""
        ray = library()
        # else each would hold a core for good, and those beyond the cores would wait for ever
        remote = ray.remote(Answering).options(num_gpus=self._gpus, num_cpus=0, scheduling_strategy="SPREAD")
        process.actor = remote.remote(self._model, self.identity, self._options, str(Path.cwd()))
        try:
            await asyncio.wait_for(process.actor.__ray_ready__.remote(), START_SECONDS)
            facts: Mapping[str, Any] = result_of(await process.actor.open.remote())
        except (ray.exceptions.RayError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                ray.kill(process.actor)
                process.deaths = MOST_DEATHS  # the next would wait as long
            raise failed("starts", error) from None
        process.standing = True
        return facts

    async def _receive(self, process: _Process) -> None:
        """Takes a process's answers, and starts another in its place when it has died; ends when that is no use."""
        ray = library()
        while process.deaths <= MOST_DEATHS:
            try:
                if not process.standing:
                    await self._start(process)
                    self._changed.set()
                answers = await process.actor.take.remote()
                process.deaths = 0
                process.settle(answers)
            except (ray.exceptions.RayError, LlmfairError):
                process.standing = False
                process.deaths += 1
                died = ProcessDeath("its process of the Ray cluster has died")
                process.settle([(number, died) for number in process.waiting])
        self._changed.set()

    async def _end(self, process: _Process) -> None:
        ray = library()
        actor, process.actor, process.standing = process.actor, None, False
        with suppress(ray.exceptions.RayError, TimeoutError):
            await asyncio.wait_for(actor.close.remote(), CLOSE_SECONDS)
        ray.kill(actor)


# Scores of a ranker, made by processes that each have the same one


PARTS = 4
"""Of a shared list for each process, so that none waits long for the last one."""

Scores = list[list[float]]
"""Of each list, of each of its items."""


class Scoring:
    """What runs in a process of the cluster: a ranker of this identity, made by `make`, that scores lists."""

    def __init__(self, make: Callable[[], ScoringRanker], identity: str, folder: str) -> None:
        with suppress(OSError):
            os.chdir(folder)
        self.make, self.identity = make, identity

    @cached_property
    def ranker(self) -> ScoringRanker:
        ranker = self.make()
        check_same(ranker.identity, self.identity)
        return ranker

    def scores(self, lists: Sequence[Candidates]) -> Scores | LlmfairError:
        """Those of one part, or why there are none."""
        try:
            return [list(self.ranker.scores(candidates)) for candidates in lists]
        except LlmfairError as error:
            return error


class RankerOnRay(ScoringRanker):
    """`here` is the ranker as it would be in this process, which loads no model; `make` makes the same elsewhere."""

    costly = True

    def __init__(
        self, make: Callable[[], ScoringRanker], here: ScoringRanker, processes: int, address: str | None
    ) -> None:
        self.identity, self.scored_together = here.identity, here.scored_together
        self._make, self._processes, self._address = make, processes, address

    def scores(self, candidates: Candidates) -> Sequence[float]:
        (scores,) = self.scores_of_each([candidates])
        return scores

    def scores_of_each(self, lists: Iterable[Candidates]) -> Iterator[Sequence[float]]:
        """The scores of each list. Raises UsageError, MissingExtra, BackendError for processes that die."""
        lists = [*lists]
        parts = self._parts(lists)
        of_lists: list[list[float]] = [[] for _ in lists]
        for (places, _), scores in zip(parts, self._scored([of for _, of in parts]), strict=True):
            for place, of_part in zip(places, scores, strict=True):
                of_lists[place] += of_part
        return iter(of_lists)

    def _parts(self, lists: Sequence[Candidates]) -> list[tuple[range, list[Candidates]]]:
        """What is scored at once: whose lists, and the lists or parts of them."""
        each = self.scored_together
        if not each or len({id(of.documents) for of in lists}) != 1:
            return [(range(place, place + 1), [candidates]) for place, candidates in enumerate(lists)]
        documents = lists[0].documents
        size = each * max(1, -(-len(documents) // (each * PARTS * self._processes)))
        parts = (documents[start : start + size] for start in range(0, len(documents), size))
        return [
            (range(len(lists)), [replace(candidates, documents=part, scores=None) for candidates in lists])
            for part in parts
        ]

    def _scored(self, parts: Sequence[list[Candidates]]) -> list[Scores]:
        """The scores of each part, by as many processes as there are: each takes the next part when it has done one."""
        joined(self._address).result()
        ray = library()
        from ray.util import ActorPool

        processes = max(1, min(self._processes, len(parts)))
        gpus = int(ray.cluster_resources().get("GPU", 0))
        remote = ray.remote(Scoring).options(
            num_gpus=1 / ceil(processes / gpus) if gpus else 0,  # a process's share lies on one of them
            num_cpus=0,  # else each would hold a core for good, and those beyond the cores would wait for ever
            max_restarts=MOST_DEATHS,
            max_task_retries=MOST_DEATHS,
            scheduling_strategy="SPREAD",
        )
        actors = [remote.remote(self._make, self.identity, str(Path.cwd())) for _ in range(processes)]
        try:
            ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=START_SECONDS)
            replies = ActorPool(actors).map(lambda actor, part: actor.scores.remote(part), parts)
            return [*map(result_of, replies)]
        except ray.exceptions.RayError as error:
            raise failed("scores", error) from None
        finally:
            for actor in actors:
                ray.kill(actor)
