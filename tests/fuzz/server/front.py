"""A server that misbehaves: it stands before one that does not, and damages some of what passes through.

Raw bytes over loopback, so that status lines, headers, lengths and connections can be as wrong as bodies. How they are
wrong is told by a `Mode` (`tests.fuzz.modes`); `front.mode = None` is a healthy server again, at the same port.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from tests.servers import InThread, Server

STAGES = {
    "chat": r"POST /v1/chat/completions",
    "upload": r"POST /v1/files",
    "create": r"POST /v1/batches",
    "look": r"GET /v1/batches/[^/?]+",
    "list": r"GET /v1/batches(\?.*)?",
    "content": r"GET /v1/files/[^/?]+/content",
}
"""What a client may be asking for, by the first line of its request."""
SURELY = 0.3
"""Seconds within which a reply reaches who asked before losing patience, on a busy machine too."""


@dataclass(frozen=True)
class Reply:
    """A whole reply; without a `Content-Length` or `Transfer-Encoding` among `headers`, the body's length is sent."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = (("Content-Type", "application/json"),)
    line: bytes = b""

    def with_headers(self, **headers: str) -> Reply:
        """Headers beside those that are there, `_` for `-` in their names."""
        more = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return replace(self, headers=[*self.headers, *more])

    def head(self) -> bytes:
        names = {name.lower() for name, _ in self.headers}
        length = (
            [] if names & {"content-length", "transfer-encoding"} else [("Content-Length", len(self.body))]
        )
        lines = [f"{name}: {value}" for name, value in [*self.headers, *length]]
        first = self.line or b"HTTP/1.1 %d Whatever" % self.status
        return (
            first + b"\r\n" + "".join(f"{line}\r\n" for line in lines).encode("latin-1", "replace") + b"\r\n"
        )


@dataclass
class Exchange:
    """One request that is to be answered wrongly; `forward()` gives the right answer, `write` sends bytes."""

    stage: str
    number: int
    when: Callable[[int], bool]
    forward: Callable[[], Awaitable[Reply]]
    writer: asyncio.StreamWriter

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, reply: Reply) -> None:
        await self.write(reply.head() + reply.body)

    def reset(self) -> None:
        """Ends the connection as a process does that is killed."""
        bare = self.writer.get_extra_info("socket")
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Damage = Callable[[Exchange], Awaitable[bool]]
"""Answers one request; returns whether the connection stays open."""


@dataclass(frozen=True)
class Mode:
    """`damage` is done to requests of one of `stages`, where `when` says so of their number, from 1 on.

    `says`: what the sentence must match with which a run ends that does not come through. `ends`: how it may, the
    damage being done to every request: `well`, as if there were none; `fails`; `refused`, a setting that is to be
    given otherwise; `kept`, with answers that are none; or `either`. `each`: the damage itself asks `when`, of every line of a file of answers. `tls`: the client is told to
    speak TLS.
    """

    name: str
    damage: Damage
    says: str = ""
    ends: str = "fails"
    when: Callable[[int], bool] = lambda number: True
    stages: frozenset[str] = frozenset(STAGES)
    each: bool = False
    tls: bool = False


@dataclass
class Front(InThread):
    """Stands before `server`, which it asks what it does not refuse by itself.

    `stages`: where the mode does its damage. `seen`: how many requests of each stage came; `whole`: bodies of
    chats that were answered without damage.
    """

    server: Server
    mode: Mode | None = None
    stages: frozenset[str] = frozenset(STAGES)
    port: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    chats: Counter[bytes] = field(default_factory=Counter)
    whole: set[bytes] = field(default_factory=set)

    @property
    def base_url(self) -> str:
        tls = self.mode is not None and self.mode.tls
        return f"http{'s' if tls else ''}://127.0.0.1:{self.port}/v1"

    def turn(self, mode: Mode | None, stages: frozenset[str] = frozenset(STAGES)) -> None:
        """Another mode from now on, with counts of its own."""
        self.mode, self.stages = mode, stages
        self.seen, self.chats, self.whole = Counter(), Counter(), set()

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**26)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            while await self._answer(reader, writer):
                pass
        writer.transport.abort() if task.cancelling() else writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether the connection stays open."""
        try:
            begins = await reader.readexactly(1)
            if begins == b"\x16":  # a client that speaks TLS
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return False
            head = begins + await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        first, _, rest = head.decode("latin-1").partition("\r\n")
        headers = [
            (name, value.strip())
            for name, colon, value in (line.partition(":") for line in rest.split("\r\n"))
            if colon
        ]
        length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        if any(name.lower() == "transfer-encoding" for name, _ in headers):
            body = b"".join([part async for part in _chunks(reader)])
        else:
            body = await reader.readexactly(length)
        asked = first.rpartition(" ")[0]
        stage = next((name for name, form in STAGES.items() if re.fullmatch(form, asked)), "other")
        self.seen[stage] += 1
        if stage == "chat":
            self.chats[body] += 1
        number = self.seen[stage]

        async def forward() -> Reply:
            return await self._forward(asked, headers, body)

        mode = self.mode
        when = mode.when if mode is not None else lambda number: False
        exchange = Exchange(stage, number, when, forward, writer)
        if mode is not None and stage in self.stages & mode.stages and (mode.each or when(number)):
            return await mode.damage(exchange)
        began = time.monotonic()
        await exchange.send(await forward())
        if stage == "chat" and time.monotonic() - began < SURELY and not writer.is_closing():
            self.whole.add(body)
        return True

    async def _forward(self, asked: str, headers: list[tuple[str, str]], body: bytes) -> Reply:
        method, _, path = asked.partition(" ")
        body = body.replace(b"max_completion_tokens", b"max_tokens")  # whose name must not change the answer
        kept = {name: value for name, value in headers if name.lower() in ("authorization", "content-type")}
        url = f"http://{self.server.host}{path}"
        async with self._session.request(method, url, data=body, headers=kept) as response:
            return Reply(response.status, await response.read())


async def _chunks(reader: asyncio.StreamReader) -> Any:
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
