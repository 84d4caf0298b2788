"""A model whose answers, delays and failures a test writes down, and programs that ask it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from llmfair.asking.cache import Cache
from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import Journal, request_keys
from llmfair.asking.limits import Limits, Progress
from llmfair.backends.base import Backend
from llmfair.nouns import Chat, Completion, Finish, Message, Request, Sampling, Steps, Text

Answer = Callable[[str, int], Any]


class Scripted:
    """A backend whose answers, delays and failures a test writes down."""

    identity = "scripted"
    capabilities = frozenset[str]()
    max_workers = 64
    reads_about = False

    def __init__(
        self,
        answer: Answer = lambda text, attempt: text.upper(),
        latency: float = 0.0,
        on_peak: Callable[[int], None] = lambda peak: None,
        until: Callable[[], bool] = lambda: True,
    ) -> None:
        self.answer, self.latency, self.on_peak, self.until = answer, latency, on_peak, until
        self.asked: Counter[str] = Counter()
        self.opened = self.closed = self.in_flight = self.peak = 0
        self.times: list[float] = []

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    async def complete(self, request: Request) -> Completion:
        text = request.chat.messages[0].content
        self.asked[text] += 1
        self.times.append(time.monotonic())
        self.in_flight += 1
        if self.in_flight > self.peak:
            self.peak = self.in_flight
            self.on_peak(self.peak)
        try:
            await asyncio.sleep(self.latency)
            while not self.until():
                await asyncio.sleep(0.005)
            answer = self.answer(text, self.asked[text])
        finally:
            self.in_flight -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Completion) else Completion(answer, Finish.STOP)


def interrupt(seconds: float) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def chat(text: str, draw: int = 0) -> Chat:
    return Chat((Message("user", text),), Text(), draw)


def request_key(identity: str, of: Chat, sampling: Sampling, about: bool = False) -> str:
    return request_keys(identity, of, sampling, about)(of)


def chain(name: str, length: int, search: float = 0.0, threaded: bool = False) -> Program:
    """Asks `length` chats one after the other, each holding the answer before; `search`: seconds of work before each."""

    def steps() -> Steps[str]:
        said = name
        for _ in range(length):
            if search:
                time.sleep(search)
            (answer,) = yield [chat(f"{said}.")]
            said = answer.text
        return said

    return Program(name, steps, threaded)


def single(name: str, text: str) -> Program:
    def steps() -> Steps[str]:
        (answer,) = yield [chat(text)]
        return answer.text

    return Program(name, steps)


def run(
    programs: Iterable[Program],
    backend: Backend,
    journal: Journal,
    limits: Limits = Limits(),
    progress: Progress | None = None,
    cache: Cache | None = None,
    sampling: Sampling | None = None,
) -> dict[str, Any]:
    """What all programs come to, by probe."""
    return dict(dispatch(programs, backend, journal, sampling or Sampling(), limits, progress, cache))


def singles(count: int) -> list[Program]:
    return [single(f"p{number}", f"t{number}") for number in range(count)]
