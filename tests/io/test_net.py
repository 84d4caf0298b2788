"""The one HTTP client, and a server that answers byte for byte what a test wants; what headers say of limits."""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.io.net import Client, ReplyTooLong, Transient, retry_after
from tests.virtual import asynchronous

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
    with pytest.MonkeyPatch.context() as environment:
        if proxy is not None:
            environment.setenv("http_proxy", proxy)
        client = Client("the server", url, HEADERS, timeout, most)
    try:
        yield partial(client.ask, "POST", url)
    finally:
        await client.close()


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))


@asynccontextmanager
async def talking(*replies: bytes, timeout: float = 5.0, most: int = 1_000_000, **given: Any) -> Any:
    """A server with these replies, and what posts to it."""
    async with (
        serving(*replies, **given) as script,
        posting(f"http://127.0.0.1:{script.port}/", timeout=timeout, most=most) as post,
    ):
        yield script, post


@asynchronous
async def test_what_is_sent_and_what_comes_back() -> None:
    async with serving(PLAIN, PLAIN) as script, posting(f"http://127.0.0.1:{script.port}/v1/c?x=1") as post:
        for body in (b"{}", "{„Ω“}".encode()):
            reply = await post(body)
            assert (reply.status, reply.headers["x-left"], reply.body) == (200, "5", b"ok")
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
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(bomb := gzip.compress(bytes(50_000_000))), bomb),
    ],
    ids=["chunks", "unpacked"],
)
@asynchronous
async def test_a_reply_is_read_no_further_than_it_may_be_long(endless: bytes) -> None:
    async with talking(endless, PLAIN, most=1_000_000) as (_, post):
        with pytest.raises(ReplyTooLong):
            await post(b"{}")
        assert (await post(b"{}")).body == b"ok", "on another connection"


ZIPPED = gzip.compress(b"ok", mtime=0)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + PLAIN, (200, b"ok")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", (200, b"ok")),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(ZIPPED), ZIPPED), (200, b"ok")),
        (b"HTTP/1.1 307 Away\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", (307, b"")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + 300_000 * b"x", (200, 300_000 * b"x")),
    ],
    ids=["hints", "chunked", "gzip", "redirect", "large"],
)  # fmt: skip
@asynchronous
async def test_every_form_of_a_reply_leaves_the_connection_fit_for_the_next(
    reply: bytes, expected: tuple[int, bytes]
) -> None:
    async with talking(reply, PLAIN) as (script, post):
        found = await post(b"1")
        assert (found.status, found.body) == expected
        assert (await post(b"2")).body == b"ok"
    assert script.connections == 1


@pytest.mark.parametrize("pause", [b"", 5 * PAUSE], ids=["at once", "later"])
@asynchronous
async def test_what_nobody_asked_for_answers_no_other_question(pause: bytes) -> None:
    """A second reply behind the first would otherwise be taken for the next question's."""
    stray = PLAIN.replace(b"ok", b"no")
    async with talking(PLAIN + pause + stray, PLAIN) as (script, post):
        assert (await post(b"1")).body == b"ok"
        if pause:
            while not script.written:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
        assert (await post(b"2")).body == b"ok"
    assert script.connections == 2


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (b"", "the server"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "the server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", "the reply of the server breaks off"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
            "the reply of the server breaks off",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "no HTTP reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", "cannot be unpacked"),
    ],
    ids=["nothing", "half a head", "half a body", "half a chunk", "no HTTP", "no gzip"],
)
@asynchronous
async def test_a_reply_that_is_none_is_an_error_of_this_question_only(reply: bytes, cause: str) -> None:
    async with talking(reply, PLAIN, hang_up=True) as (_script, post):
        with pytest.raises(Transient, match=cause):
            await post(b"1")
        assert (await post(b"2")).body == b"ok"


@pytest.mark.parametrize(
    "reply",
    [SILENCE, b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"],
    ids=["nothing", "half a head", "half a body"],
)
@asynchronous
async def test_silence_ends_by_the_timeout_and_a_cancelled_question_at_once(reply: bytes) -> None:
    async with talking(reply, reply, PLAIN, timeout=0.3) as (script, post):
        with pytest.raises(Transient, match=r"no answer from the server within 0\.3 s"):
            await post(b"1")
        asking = asyncio.create_task(post(b"2", seconds=5))
        while len(script.asked) < 2:
            await asyncio.sleep(0.005)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await post(b"3")).body == b"ok"
    assert [number for number, _, _ in script.asked] == [1, 2, 3]


@asynchronous
async def test_a_proxy_is_told_the_whole_address_and_who_asks_every_time() -> None:
    async with (
        serving(PLAIN, CLOSING, PLAIN) as script,
        posting("http://elsewhere.invalid/v1/c", f"http://user:canary@127.0.0.1:{script.port}") as post,
    ):
        for _ in range(3):
            assert (await post(b"{}")).body == b"ok"
    who = base64.b64encode(b"user:canary").decode()
    for _, head, _ in script.asked:
        assert head.startswith("POST http://elsewhere.invalid/v1/c HTTP/1.1\r\n")
        assert f"\r\nProxy-Authorization: Basic {who}\r\n" in head
        assert "\r\nHost: elsewhere.invalid\r\n" in head
    assert script.connections == 2


POSTS = """
import asyncio, sys
from llmfair.io.net import Client

async def work(url):
    client = Client("", url, {"authorization": "Bearer canary"}, 5, 1_000_000)
    print([(await client.ask("POST", url, b"{}")).body for _ in range(2)])
    await client.close()

asyncio.run(work(sys.argv[1]))
"""


@pytest.mark.whole
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize("tunnel", ["", "http://user:canary@"], ids=["direct", "password"])
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
            *(sys.executable, "-c", POSTS, f"https://localhost:{port}/v1"),
            env={**os.environ, "SSL_CERT_FILE": str(certificate), "https_proxy": address},
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


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT", "date": "Tue, 14 Nov 2023 22:14:00 GMT"}, 20.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT", "date": "today"}, 30.0),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    assert retry_after(headers) == seconds


@settings(max_examples=30)
@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ (Nov|Jan) \d+ \d+:\d+:\d+ GMT", fullmatch=True))
def test_any_retry_after_is_read_or_ignored(value: str) -> None:
    seconds = retry_after({"retry-after": value})
    assert seconds is None or seconds >= 0
