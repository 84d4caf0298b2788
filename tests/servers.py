"""A small OpenAI-compatible server for tests: on loopback, deterministic, as unhelpful as a test needs.

In a test: `with Server(respond) as server: … server.base_url … server.requests`. As a process of its own, for
tests that kill and resume: `python -m tests.servers --latency-ms 5 --log requests.jsonl`, which prints its
port on the first line and ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self

from aiohttp import web
from multidict import CIMultiDictProxy

MODEL = "test-model"
PASSAGE = re.compile(r"^\[(\d+)\] ", re.MULTILINE)
LETTER = re.compile(r"^(?:Passage (?=[A-Z]:)|\[(?=[A-Z]\] ))([A-Z])", re.MULTILINE)
YES_OR_NO = "Answer 'Yes' or 'No'"


@dataclass(frozen=True)
class Reply:
    """What one request gets: a completion with this text, or `body` as it stands (JSON, or bytes).

    `message`, `choice` and `usage` add to or replace fields of the completion. `drop` cuts the connection
    `before` or `inside` the answer, after `delay` seconds.
    """

    text: str | None = ""
    finish_reason: str = "stop"
    message: Mapping[str, Any] = field(default_factory=dict)
    choice: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: Literal["", "before", "inside"] = ""


Respond = Callable[[dict[str, Any], int], Reply]
"""(request body, how often this body was seen: 1, 2, …) -> Reply"""


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; `at` is monotonic time."""

    body: dict[str, Any]
    raw: bytes
    headers: CIMultiDictProxy[str]
    at: float


KEYWORDS = "she her first woman students Africa Asia Latin Europe America school".split()


def rank(body: dict[str, Any], attempt: int) -> Reply:
    """Orders the passages `[k] title` of a prompt by chance, seeded by the body; others get `OK`.

    Where refined keywords are asked for, one or two; of letters, or of yes and no, one with its log-probability.
    """
    numbers = [
        match[1] for m in body["messages"] if m["role"] == "user" for match in PASSAGE.finditer(m["content"])
    ]
    chance = random.Random(json.dumps(body, sort_keys=True))
    if "your refined keywords" in body["messages"][-1]["content"]:
        return Reply(json.dumps({"keywords": chance.sample(KEYWORDS, chance.randint(1, 2))}))
    said = body["messages"][-1]["content"]
    if labels := ["Yes", "No"] if YES_OR_NO in said else LETTER.findall(said):
        return _label(chance.sample(labels, len(labels)), body)
    chance.shuffle(numbers)
    return Reply(" > ".join(f"[{number}]" for number in numbers) or "OK")


def _label(best_first: list[str], body: dict[str, Any]) -> Reply:
    """The first label; where log-probabilities are asked for, those of all."""
    if not body.get("logprobs"):
        return Reply(best_first[0])
    shares = [{"token": label, "logprob": -0.1 - place} for place, label in enumerate(best_first)]
    first = {**shares[0], "top_logprobs": shares[: body["top_logprobs"]]}
    return Reply(best_first[0], choice={"logprobs": {"content": [first]}})


def faulty(
    respond: Respond,
    *,
    rate_429: float = 0.0,
    rate_500: float = 0.0,
    rate_reset: float = 0.0,
    rate_malformed: float = 0.0,
    latency: float = 0.0,
    seed: int = 0,
) -> Respond:
    """`respond` with a share of faults. Refusals are drawn anew for each attempt, a damaged answer is not:
    the same question gets the same answer however often it is asked, as after kill and resume."""

    def respond_or_fail(body: dict[str, Any], attempt: int) -> Reply:
        words = json.dumps(body, sort_keys=True)
        draw = random.Random(f"{seed} {attempt} {words}").random()
        limited = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}
        for rate, fault in (
            (rate_429, Reply(status=429, body=limited)),
            (rate_500, Reply(status=500, body={"error": {"message": "try again in 3s"}})),
            (rate_reset, Reply(drop="inside")),
        ):
            if draw < rate:
                return replace(fault, delay=latency)
            draw -= rate
        reply = replace(respond(body, attempt), delay=latency)
        if random.Random(f"{seed} {words}").random() < rate_malformed and reply.text:
            reply = replace(reply, text=reply.text[: len(reply.text) // 2])
        return reply

    return respond_or_fail


class InThread:
    """A context manager: from `start` to `stop` in a thread of its own."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Server(InThread):
    """Answers POST /v1/chat/completions by `respond`, GET /v1/models by one `model`; keeps what it was asked, and the keys
    of those who `looked` at the list.

    With `log`, each request appends a JSON line (sha256 of its body,
    status; 0 for a dropped connection) before it is answered.
    """

    middlewares: Sequence[Any] = ()

    def __init__(self, respond: Respond = rank, *, port: int = 0, log: Path | None = None) -> None:
        self.respond = respond
        self.port = port
        self.model, self.looked = MODEL, list[str | None]()
        self.requests: list[Seen] = []
        self.in_flight = self.peak = 0
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else None
        self._attempts: Counter[bytes] = Counter()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"http://{self.host}/v1"

    @property
    def flags(self) -> tuple[str, ...]:
        """A model of this server, on the command line."""
        return "-m", "openai:any", "--base-url", self.base_url

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [seen.body for seen in self.requests]

    async def start(self) -> None:
        app = web.Application(client_max_size=256 * 2**20, middlewares=self.middlewares)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/rerank", self._complete)
        app.router.add_get("/v1/models", self._models)
        self.add_routes(app.router)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Further things that the server can be asked."""

    async def stop(self) -> None:
        await self._runner.cleanup()
        if self._log is not None:
            os.close(self._log)

    async def _models(self, request: web.Request) -> web.Response:
        self.looked.append(request.headers.get("Authorization"))
        return self.models()

    def models(self) -> web.Response:
        """The list of models."""
        model = {"id": self.model, "object": "model", "created": 0, "owned_by": "tests"}
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        at = time.monotonic()
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            raw = await request.read()
            body = json.loads(raw)
            self.requests.append(Seen(body, raw, request.headers, at))
            digest = hashlib.sha256(raw).digest()
            self._attempts[digest] += 1
            reply = self.respond(body, self._attempts[digest])
            self._write_log(digest, 0 if reply.drop else reply.status)
            if reply.delay:
                await asyncio.sleep(reply.delay)
            return await _send(request, reply, completion(reply, body.get("model", "")))
        finally:
            self.in_flight -= 1

    def _write_log(self, digest: bytes, status: int) -> None:
        if self._log is not None:
            os.write(self._log, json.dumps({"body": digest.hex(), "status": status}).encode() + b"\n")


class Endpoint(Server):
    """A rerank endpoint: what `answer(body, number)` gives is JSON, bytes, or (status, headers, JSON)."""

    def __init__(self, answer: Callable[[dict[str, Any], int], Any], delay: float = 0.0) -> None:
        def respond(body: dict[str, Any], attempt: int) -> Reply:
            reply = answer(body, len(self.requests))
            status, headers, document = reply if isinstance(reply, tuple) else (200, {}, reply)
            return Reply(body=document, status=status, headers=headers, delay=delay)

        super().__init__(respond)

    @property
    def url(self) -> str:
        return self.base_url

    @property
    def asked(self) -> list[dict[str, Any]]:
        return self.bodies

    @property
    def keys(self) -> set[str]:
        return {seen.headers["Authorization"] for seen in self.requests}


def by_length(body: dict[str, Any], number: int = 0) -> list[dict[str, Any]]:
    """Rows as endpoints sort them: best first."""
    documents = body.get("documents") or body.get("texts") or []
    rows = [{"index": place, "relevance_score": len(text) / 100} for place, text in enumerate(documents)]
    return sorted(rows, key=lambda row: -row["relevance_score"])


def completion(reply: Reply, model: str) -> Any:
    """The body of a reply: a whole chat completion unless it has one of its own."""
    if reply.body is not None:
        return reply.body
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **reply.usage}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": reply.text, "refusal": None, **reply.message},
        "finish_reason": reply.finish_reason,
        "logprobs": None,
        **reply.choice,
    }
    return {
        "id": "chatcmpl-test", "object": "chat.completion", "created": 1_700_000_000,
        "model": f"{model}-2026-01-01", "system_fingerprint": "fp_test", "choices": [choice], "usage": usage,
    }  # fmt: skip


async def _send(request: web.Request, reply: Reply, document: Any) -> web.StreamResponse:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = {"Content-Type": "application/json", **reply.headers}
    if not reply.drop:
        return web.Response(body=payload, status=reply.status, headers=headers)
    response = web.StreamResponse(
        status=reply.status, headers={**headers, "Content-Length": str(len(payload))}
    )
    if reply.drop == "inside":
        await response.prepare(request)
        await response.write(payload[: len(payload) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def free_port() -> int:
    """One that no other process is given meanwhile: systems hand out ports from 32768 or 49152 on."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are taken")


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port where requests are handled so, each in a thread of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _serve(server: Server) -> None:
    await server.start()
    print(server.port, flush=True)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    await stop.wait()
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--log", type=Path, help="append one JSON line for each request")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    rates = ("rate_429", "rate_500", "rate_reset", "rate_malformed")
    for rate in rates:
        parser.add_argument("--" + rate.replace("_", "-"), type=float, default=0.0)
    given = parser.parse_args()
    respond = faulty(
        rank, latency=given.latency_ms / 1000, seed=given.seed, **{rate: getattr(given, rate) for rate in rates},
    )  # fmt: skip
    asyncio.run(_serve(Server(respond, port=given.port, log=given.log)))


if __name__ == "__main__":
    main()
