"""Posting to a server that answers byte for byte what a test wants, on one connection or several."""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from llmfair.backends.posting import Poster, ReplyTooLong
from tests.coroutines import asynchronous

HEADERS = {"authorization": "Bearer canary", "content-type": "application/json"}
PAUSE = b"<pause>"
"""Where a reply is cut, to arrive in several pieces."""
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Left: 5\r\n\r\nok"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
SILENCE = b""


@dataclass
class Script:
    """A server's replies, one a request, and what it was asked: connection, head and body."""

    replies: list[bytes]
    asked: list[tuple[int, str, bytes]] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    written: int = 0
    hang_up: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while True:
                self.asked.append((number, *await _question(reader)))
                reply = self.replies[len(self.asked) - 1]
                for part in (reply if PAUSE in reply else reply[:40] + PAUSE + reply[40:]).split(PAUSE):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.005)
                self.written += 1
                if self.hang_up or b"close" in reply:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _question(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Head and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
    return head, await reader.readexactly(length)


@asynccontextmanager
async def serving(*replies: bytes, **given: Any) -> Any:
    script = Script(list(replies), **given)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()


@asynccontextmanager
async def posting(url: str, proxy: str | None = None, timeout: float = 5.0, most: int = 1_000_000) -> Any:
    poster = Poster(url, HEADERS, proxy, timeout, most)
    try:
        yield poster
    finally:
        await poster.close()


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))


@asynccontextmanager
async def talking(*replies: bytes, timeout: float = 5.0, most: int = 1_000_000, **given: Any) -> Any:
    """A server with these replies, and what posts to it."""
    async with (
        serving(*replies, **given) as script,
        posting(f"http://127.0.0.1:{script.port}/", timeout=timeout, most=most) as poster,
    ):
        yield script, poster


@asynchronous
async def test_what_is_sent_and_what_comes_back() -> None:
    async with serving(PLAIN, PLAIN) as script, posting(f"http://127.0.0.1:{script.port}/v1/c?x=1") as poster:
        for body in (b"{}", "{„Ω“}".encode()):
            status, headers, reply = await poster.post(body)
            assert (status, headers["x-left"], reply) == (200, "5", b"ok")
    assert [(number, body) for number, _, body in script.asked] == [(1, b"{}"), (1, "{„Ω“}".encode())]
    for _, head, body in script.asked:
        first, *lines = head.rstrip().split("\r\n")
        sent = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        assert len(sent) == len(lines), "no header twice"
        assert first == "POST /v1/c?x=1 HTTP/1.1"
        assert sent["host"] == f"127.0.0.1:{script.port}"
        assert int(sent["content-length"]) == len(body)
        assert sent.items() >= HEADERS.items()
        assert "gzip" in sent["accept-encoding"]


def _chunked(chunk: bytes, times: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + times * (
        b"%x\r\n%b\r\n" % (len(chunk), chunk)
    )


@pytest.mark.parametrize(
    "endless",
    [
        _chunked(b"x" * 10_000, 300),
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * 3_000_000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(bomb := gzip.compress(bytes(50_000_000))), bomb),
    ],
    ids=["chunks", "until it hangs up", "unpacked"],
)
@asynchronous
async def test_a_reply_is_read_no_further_than_it_may_be_long(endless: bytes) -> None:
    async with talking(endless, PLAIN, most=1_000_000) as (_, poster):
        with pytest.raises(ReplyTooLong):
            await poster.post(b"{}")
        assert (await poster.post(b"{}"))[2] == b"ok", "on another connection"


ZIPPED = gzip.compress(b"ok", mtime=0)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + PLAIN, (200, b"ok")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", (200, b"ok")),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(ZIPPED), ZIPPED), (200, b"ok")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
        (b"HTTP/1.1 307 Away\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", (307, b"")),
        (b"HTTP/1.1 429 Slow down\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nno", (429, b"no")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + 300_000 * b"x", (200, 300_000 * b"x")),
    ],
    ids=["hints", "chunked", "gzip", "empty", "redirect", "refusal", "large"],
)  # fmt: skip
@asynchronous
async def test_every_form_of_a_reply_leaves_the_connection_fit_for_the_next(
    reply: bytes, expected: tuple[int, bytes]
) -> None:
    async with talking(reply, PLAIN) as (script, poster):
        status, _, read = await poster.post(b"1")
        assert (status, read) == expected
        assert (await poster.post(b"2"))[2] == b"ok"
    assert script.connections == 1


@pytest.mark.parametrize(
    "reply", [CLOSING, b"HTTP/1.0 200 OK\r\nX: close\r\n\r\nok"], ids=["said", "by its end"]
)
@asynchronous
async def test_a_connection_that_the_server_closes_is_not_used_again(reply: bytes) -> None:
    async with talking(reply, PLAIN) as (script, poster):
        assert (await poster.post(b"1"))[2] == b"ok"
        assert (await poster.post(b"2"))[2] == b"ok"
    assert script.connections == 2


@pytest.mark.parametrize("pause", [b"", 5 * PAUSE], ids=["at once", "later"])
@asynchronous
async def test_what_nobody_asked_for_answers_no_other_question(pause: bytes) -> None:
    """A second reply behind the first would otherwise be taken for the next question's."""
    stray = PLAIN.replace(b"ok", b"no")
    async with talking(PLAIN + pause + stray, PLAIN) as (script, poster):
        assert (await poster.post(b"1"))[2] == b"ok"
        if pause:
            while not script.written:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            with pytest.raises(aiohttp.ClientError):
                await poster.post(b"2")
        assert (await poster.post(b"2"))[2] == b"ok"
    assert script.connections == 2


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["nothing", "half a head", "half a body", "half a chunk", "no HTTP", "no gzip"],
)
@asynchronous
async def test_a_reply_that_is_none_is_an_error_of_this_question_only(reply: bytes) -> None:
    async with talking(reply, PLAIN, hang_up=True) as (_script, poster):
        with pytest.raises((aiohttp.ClientError, aiohttp.http.HttpProcessingError)):
            await poster.post(b"1")
        assert (await poster.post(b"2"))[2] == b"ok"


@pytest.mark.parametrize(
    "reply",
    [
        SILENCE,
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + PAUSE + b"no chunk\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n{",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "no chunk", "a body without end", "hints"],
)
@asynchronous
async def test_silence_ends_by_the_timeout_and_a_cancelled_question_at_once(reply: bytes) -> None:
    async with talking(reply, reply, PLAIN, timeout=0.3) as (script, poster):
        with pytest.raises(TimeoutError) as caught:
            await poster.post(b"1")
        assert not isinstance(caught.value, aiohttp.ConnectionTimeoutError)
        poster._timeout = 5.0
        asking = asyncio.create_task(poster.post(b"2"))
        while len(script.asked) < 2:
            await asyncio.sleep(0.005)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await poster.post(b"3"))[2] == b"ok"
    assert [number for number, _, _ in script.asked] == [1, 2, 3]


@asynchronous
async def test_a_timeout_that_comes_with_a_cancellation_is_a_cancellation() -> None:
    async with talking(SILENCE, timeout=0.1) as (_script, poster):
        asking = asyncio.create_task(poster.post(b"1"))
        await asyncio.sleep(0.05)
        time.sleep(0.1)  # the loop is busy meanwhile, so the timer rings after the cancellation
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize(
    ("timeout", "expected"), [(5.0, aiohttp.ConnectionTimeoutError), (0.02, TimeoutError)]
)
def test_a_server_that_takes_no_connection(
    monkeypatch: pytest.MonkeyPatch, timeout: float, expected: type[Exception]
) -> None:
    monkeypatch.setattr("llmfair.backends.posting.CONNECT_SECONDS", 0.1)

    async def never(*_: object, **__: object) -> Any:
        await asyncio.sleep(10)

    async def work() -> None:
        monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", never)
        async with posting("http://127.0.0.1:9/", timeout=timeout) as poster:
            with pytest.raises(TimeoutError) as caught:
                await poster.post(b"1")
            assert type(caught.value) is expected

    run(work)


@asynchronous
async def test_a_proxy_is_told_the_whole_address_and_who_asks_every_time() -> None:
    async with (
        serving(PLAIN, CLOSING, PLAIN) as script,
        posting("http://elsewhere.invalid/v1/c", f"http://user:canary@127.0.0.1:{script.port}") as poster,
    ):
        for _ in range(3):
            assert (await poster.post(b"{}"))[2] == b"ok"
    who = base64.b64encode(b"user:canary").decode()
    for _, head, _ in script.asked:
        assert head.startswith("POST http://elsewhere.invalid/v1/c HTTP/1.1\r\n")
        assert f"\r\nProxy-Authorization: Basic {who}\r\n" in head
        assert "\r\nHost: elsewhere.invalid\r\n" in head
    assert script.connections == 2


POSTS = """
import asyncio, sys
from llmfair.backends.posting import Poster, ReplyTooLong

async def work(url, proxy):
    poster = Poster(url, {"authorization": "Bearer canary"}, proxy or None, 5, 1_000_000)
    print([(await poster.post(b"{}"))[2] for _ in range(2)])
    await poster.close()

asyncio.run(work(*sys.argv[1:]))
"""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize(
    "tunnel", ["", "http://", "http://user:canary@"], ids=["direct", "proxy", "password"]
)
def test_a_secure_connection(tmp_path: Path, tunnel: str) -> None:
    """In a process of its own: aiohttp reads the certificates that are trusted when it is imported."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    told: list[str] = []

    async def work() -> None:
        script = Script([PLAIN, PLAIN])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = await asyncio.start_server(script.serve, "localhost", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            told.append((await reader.readuntil(b"\r\n\r\n")).decode())
            there, back = await asyncio.open_connection("localhost", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(_copy(reader, back), _copy(there, writer))

        through = await asyncio.start_server(proxy, "127.0.0.1", 0)
        address = f"{tunnel}127.0.0.1:{through.sockets[0].getsockname()[1]}" if tunnel else ""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", POSTS, f"https://localhost:{port}/v1", address),
            env={**os.environ, "SSL_CERT_FILE": str(certificate)},
            stdout=asyncio.subprocess.PIPE,
        )
        assert (await process.communicate())[0] == b"[b'ok', b'ok']\n"
        assert script.connections == 1
        assert all(head.startswith("POST /v1 HTTP/1.1\r\n") for _, head, _ in script.asked)
        assert not any("Proxy-Authorization" in head for _, head, _ in script.asked)
        server.close()
        through.close()

    run(work)
    assert len(told) == bool(tunnel)
    for head in told:
        assert head.startswith("CONNECT localhost:")
        assert ("Proxy-Authorization: Basic " in head) == ("@" in tunnel)
        assert "Bearer" not in head


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(65536):
        writer.write(part)
    writer.close()


def test_many_at_once_get_their_own_answers() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, body = await _question(reader)
                await asyncio.sleep(0.001 * (int(body) % 7))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        except asyncio.IncompleteReadError:
            writer.close()

    async def work() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with posting(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/") as poster:
            replies = await asyncio.gather(*(poster.post(b"%d" % number) for number in range(100)))
        assert [int(reply) for _, _, reply in replies] == list(range(100))
        server.close()

    run(work)
