"""A rerank endpoint on loopback: what it answers, how slowly, and what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[dict[str, Any], int], Any]


@dataclass
class Endpoint:
    """Answers with what `answer(body, number)` gives: JSON, bytes, or (status, headers, JSON)."""

    answer: Answer
    delay: float = 0.0
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    url: str = ""

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        self.keys.add(request.headers["Authorization"])
        number = len(self.asked)
        await asyncio.sleep(self.delay)
        reply = self.answer(body, number)
        status, headers, document = reply if isinstance(reply, tuple) else (200, {}, reply)
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        return web.Response(body=text, status=status, headers={"Content-Type": "application/json", **headers})


@contextmanager
def endpoint(answer: Answer, delay: float = 0.0) -> Iterator[Endpoint]:
    """On a thread of its own, as long as the block runs."""
    served, loop, started = Endpoint(answer, delay), asyncio.new_event_loop(), threading.Event()
    runners: list[web.AppRunner] = []

    async def start() -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/rerank", served.serve)
        runners.append(web.AppRunner(app, access_log=None, shutdown_timeout=0.1))
        await runners[0].setup()
        await web.TCPSite(runners[0], "127.0.0.1", 0).start()
        served.url = f"http://127.0.0.1:{runners[0].addresses[0][1]}/v1"
        started.set()

    def run() -> None:
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runners[0].cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def by_length(body: dict[str, Any], number: int = 0) -> list[dict[str, Any]]:
    """Rows as endpoints sort them: best first."""
    documents = body.get("documents") or body.get("texts") or []
    rows = [{"index": place, "relevance_score": len(text) / 100} for place, text in enumerate(documents)]
    return sorted(rows, key=lambda row: -row["relevance_score"])
