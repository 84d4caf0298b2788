"""The wall to the network: one HTTP client for models, search servers, batches and downloads.

Every exchange ends in time and every reply within bounds; no redirect is followed, since a key would go there, too; no
cookie is kept. What may pass raises RateLimited or Transient.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from io import BytesIO
from ipaddress import ip_address, ip_network
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from llmfair.errors import Unavailable, UsageError, warn

T = TypeVar("T")

CONNECT_SECONDS = 10.0
SLOWEST = 10_000
"""Bytes a second: a file that moves slower than this does not arrive."""
_LARGE = 1 << 20


class RateLimited(Exception):
    """The server asks for fewer requests: after `retry_after` seconds if it said so; `quote`: ": " and its words."""

    def __init__(self, retry_after: float | None = None, quote: str = "") -> None:
        super().__init__("rate limited")
        self.retry_after, self.quote = retry_after, quote
        self.cause = f"the rate is limited (429){quote}"


class Transient(Exception):
    """A failure that the next attempt may not meet (connection lost, 5xx)."""

    def __init__(self, cause: str, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.cause, self.retry_after = cause, retry_after


class ReplyTooLong(Exception):
    """A reply goes on beyond what is read of one."""


# The client


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Exchanges with the server called `name` in messages, on the loop where the first is made.

    `url` names the proxy that is used; `headers` go with every request; `seconds` for a whole exchange, and more for
    what is sent and received at `SLOWEST`; `most`: bytes of the longest reply.
    """

    def __init__(self, name: str, url: str, headers: Mapping[str, str], seconds: float, most: int) -> None:
        self.name, self.headers, self.seconds, self.most = name, headers, seconds, most
        self._proxy = proxy_for(url)
        self._session: Any = None

    async def ask(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = 0.0,
        most: int = 0,
        sent: int = 0,
    ) -> Reply:
        """The reply, read to its end. Raises Transient without one, ReplyTooLong. `sent`: bytes of a form."""
        seconds, most = seconds or self.seconds, most or self.most
        if isinstance(body, bytes):
            sent = len(body)
            body = BytesIO(body) if sent >= _LARGE else body
        began = asyncio.get_running_loop().time()
        cause: str
        try:
            async with asyncio.timeout(seconds + sent / SLOWEST) as alarm:
                response = await self._begin(method, url, body, headers)
                try:
                    # one reply at a time: else those of a burst are all read before the first can ask again
                    await self._turn.acquire()
                    asyncio.get_running_loop().call_soon(self._turn.release)
                    if (response.content_length or 0) > most:
                        raise ReplyTooLong
                    reply = bytearray()
                    while more := await response.content.readany():
                        reply += more
                        if len(reply) > most:
                            raise ReplyTooLong
                        alarm.reschedule(began + seconds + (sent + len(reply)) / SLOWEST)
                except BaseException:
                    response.close()
                    raise
                return Reply(response.status, response.headers, bytes(reply))
        except _errors() as error:
            cause = cause_of(error, self.name, seconds)
        raise Transient(cause)  # out here, since aiohttp's exceptions can hold the request's headers

    async def upload(self, url: str, path: Path, fields: Mapping[str, str]) -> Reply:
        """The reply to a form with these fields and a file, which is read as it is sent."""
        import aiohttp

        with path.open("rb") as file:
            form = aiohttp.FormData(fields)
            form.add_field("file", file, filename=path.name, content_type="application/octet-stream")
            data = form()
            kind = {"content-type": data.headers["Content-Type"]}
            return await self.ask("POST", url, data, kind, sent=path.stat().st_size)

    async def _begin(
        self, method: str, url: str, data: Any, headers: Mapping[str, str] | None, unpack: bool = True
    ) -> Any:
        if self._session is None:
            self._session, self._turn = _session(), asyncio.Lock()
            weakref.finalize(self, _close, self._session, asyncio.get_running_loop())
        headers = {**self.headers, **headers} if headers else self.headers  # a session's go to its proxy, too
        return await self._session.request(
            method,
            url,
            data=data,
            headers=headers,
            proxy=self._proxy,
            allow_redirects=False,
            auto_decompress=unpack,
        )

    @contextmanager
    def open(self, url: str, unpack: bool = True) -> Iterator[Stream]:
        """A reply whose blocks are read one by one, by a thread without a loop. Raises Transient."""

        arrivals: asyncio.Queue[Any] = asyncio.Queue(2)

        async def read() -> None:
            """Takes what has arrived at once: of a connection that breaks the client gives out no more."""
            response = None
            try:
                async with asyncio.timeout(self.seconds) as alarm:
                    item = await self._begin("GET", url, None, None, unpack)
                    response = item
                    while item:
                        alarm.reschedule(None)
                        await arrivals.put(item)
                        alarm.reschedule(loop().time() + self.seconds)
                        item = await response.content.readany()
                await arrivals.put(b"")
            except _errors() as error:
                await arrivals.put(Transient(cause_of(error, self.name, self.seconds)))
            except Exception as failure:
                await arrivals.put(failure)
            finally:
                if response is not None:
                    response.close()

        def take() -> Any:
            if isinstance(item := wait(arrivals.get()), Exception):
                raise item
            return item

        reading = asyncio.run_coroutine_threadsafe(read(), loop())
        try:
            response = take()
            yield Stream(response.status, response.headers, iter(take, b""))
        finally:
            reading.cancel()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


@dataclass(frozen=True, slots=True)
class Stream:
    """A reply whose body comes in blocks."""

    status: int
    headers: Mapping[str, str]
    blocks: Iterator[bytes]


def _session() -> Any:
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        async def connect(self, *request: Any, **options: Any) -> Any:
            """A connection without bytes that nobody asked for: they would be taken for the reply."""
            while True:
                connection = await super().connect(*request, **options)
                if connection.protocol is not None and not connection.protocol.should_close:
                    return connection
                connection.close()

    return aiohttp.ClientSession(
        # No cap of its own, since dispatch limits what is in flight.
        connector=Connector(limit=0, ttl_dns_cache=300, keepalive_timeout=75),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
    )


def _close(session: Any, loop: asyncio.AbstractEventLoop) -> None:
    if not session.closed and loop.is_running():
        asyncio.run_coroutine_threadsafe(session.close(), loop)


def loop() -> asyncio.AbstractEventLoop:
    """The process's event loop, in a thread of its own."""
    with _loop_lock:
        if not _loops:
            new = asyncio.new_event_loop()
            threading.Thread(target=new.run_forever, name="llmfair-io", daemon=True).start()
            _loops.append(new)
        return _loops[0]


_loops: list[asyncio.AbstractEventLoop] = []
_loop_lock = threading.Lock()
os.register_at_fork(after_in_child=_loops.clear)  # a child has no thread but the one that forked


def wait(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns or raises, for a thread that has no loop; what interrupts the wait ends the work."""
    future = asyncio.run_coroutine_threadsafe(work, loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def in_thread(call: Callable[[], T]) -> Future[T]:
    """A call in a thread of its own, which the end of the process does not wait for; cancelled, it goes on."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="llmfair-call", daemon=True).start()
    return future


# Why there is no reply


def _errors() -> tuple[type[Exception], ...]:
    """What the client raises without a reply."""
    import aiohttp

    return aiohttp.ClientError, aiohttp.http.HttpProcessingError, TimeoutError, OSError, ValueError


def cause_of(error: Exception, server: str, seconds: float) -> str:
    """Why there was no reply, as a clause."""
    import aiohttp

    where = "the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else server
    match error:
        case aiohttp.ConnectionTimeoutError():
            return f"no connection to {where} within {CONNECT_SECONDS:g} s"
        case TimeoutError():
            return f"no answer from {where} within {seconds:g} s"
        case aiohttp.ClientConnectorDNSError():
            return f"the name of {where} cannot be resolved"
        case aiohttp.ClientSSLError():
            return f"no secure connection to {where} (certificate or protocol)"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return f"connection refused by {where}"
        case aiohttp.ClientConnectorError():
            reason = os.strerror(error.errno).lower() if error.errno else "unknown reason"
            return f"no connection to {where} ({reason})"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answers {error.status}"
        case aiohttp.ClientResponseError() | aiohttp.http.HttpProcessingError():
            reason = " ".join(error.message.partition(":")[0].split()).lower()
            return f"what {where} sends is no HTTP reply ({reason})"
        case aiohttp.ClientPayloadError(__cause__=aiohttp.http_exceptions.ContentEncodingError()):
            return f"the reply of {where} cannot be unpacked"
        case aiohttp.ClientPayloadError():
            return f"the reply of {where} breaks off"
        case _:
            return f"connection to {where} lost"


# When to come again


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait; None where it says nothing that can be read.

    Until a moment it is reckoned from that of its own `Date`, else from now: clocks differ.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) / unit
            if 0 <= seconds < math.inf:
                return seconds
    until, now = None, time.time()
    with suppress(KeyError, ValueError, OverflowError):
        until = parsedate_to_datetime(headers["retry-after"]).timestamp()
        now = parsedate_to_datetime(headers["date"]).timestamp()
    return None if until is None else max(0.0, until - now)


# Whether to come again

FIRST_WAIT = 0.1
FIRST_WAIT_REFUSED = 0.025  # a server that refuses is up
LONGEST_WAIT = 60.0
LONGEST_OUTAGE_WAIT = 5.0  # a server that is back is not kept waiting
RETRIES_BEFORE_SUCCESS = 3


class Retries:
    """`retries` attempts after passing failures, and `outage` seconds where nobody is answered any more, however many
    attempts those take; while the server limits the rate, `max_wait` seconds without any answer. Waits start near
    the latency seen so far.
    """

    def __init__(self, retries: int, max_wait: float, outage: float) -> None:
        self.retries, self.max_wait, self.outage = retries, max_wait, outage
        self._latencies: deque[float] = deque(maxlen=101)
        self._last_success = time.monotonic()

    def succeeded(self, sent: float) -> None:
        now = time.monotonic()
        self._latencies.append(now - sent)
        self._last_success = now

    def wait_after(
        self,
        failure: RateLimited | Transient,
        attempts: int,
        failures: int,
        since: float,
        heard: float,
        elsewhere: bool = False,
    ) -> float:
        """Seconds until the next attempt, `failures` of the `attempts` being no refusals.

        `since`: when the attempt before failed, or the first was sent; `heard`: when this server last answered;
        `elsewhere`: what is no refusal can be asked of another server at once. Raises Unavailable, also for a wait that
        `max_wait` has no room for.
        """
        now = time.monotonic()
        wanted, left = failure.retry_after or 0.0, heard + self.max_wait - now
        if isinstance(failure, Transient):
            # a server is down that answered nobody since; before its first answer it may never have been up
            known = len(self._latencies) > 0
            down = known and self._last_success <= since and now - self._last_success < self.outage
            if failures > (self.retries if known else min(RETRIES_BEFORE_SUCCESS, self.retries)) and not down:
                raise Unavailable(
                    f"no answer after {attempts} attempts: {failure.cause}.",
                    "check the server; the same command continues",
                )
            if elsewhere:
                return 0.0
            pause = min(self._growing(attempts, FIRST_WAIT), LONGEST_OUTAGE_WAIT)
        else:
            if left < 0:
                raise Unavailable(
                    f"rate limited (429) for {self.max_wait:.0f} s without one answer{failure.quote}.",
                    "try later; the same command continues",
                )
            pause = self._growing(attempts, FIRST_WAIT_REFUSED)
        if wanted > max(left, 0.0):
            raise Unavailable(
                f"{failure.cause}; the server asks to wait {wanted:,.0f} s, and --max-wait leaves "
                f"{max(left, 0.0):,.0f} s of them.",
                "try later, or wait with a longer --max-wait; the same command continues",
            )
        return max(wanted, pause)

    def persist(self, attempt: Callable[[int], T], waits: Callable[[str, float], None]) -> T:
        """What `attempt(number)` returns, tried again while its failure may pass; `waits(cause, seconds)` hears."""
        attempts = failures = 0
        since = time.monotonic()
        while True:
            sent = time.monotonic()
            try:
                result = attempt(attempts)
            except (RateLimited, Transient) as failure:
                attempts += 1
                failures += isinstance(failure, Transient)
                pause = self.wait_after(failure, attempts, failures, since, self._last_success)
                waits(failure.cause, pause)
                time.sleep(pause)
                since = time.monotonic()
            else:
                self.succeeded(sent)
                return result

    def _growing(self, attempts: int, unknown: float) -> float:
        first = median(self._latencies) / 4 if self._latencies else unknown
        return min(first * 2.0 ** min(attempts - 1, 20), LONGEST_WAIT) * random.uniform(0.75, 1.25)


# Addresses

OPENAI_HOST = "api.openai.com"
KEY_VARIABLE = "OPENAI_API_KEY"

_BASE_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[\w-]+(\.[\w-]+)*)(:(?P<port>\d{1,5}))?(/[^\s?#@]*)?",
    re.IGNORECASE,
)
_REQUEST = re.compile(r".*/((chat/)?completions|responses|messages|rerank|embeddings)/?")
_PORTS = {"http": 80, "https": 443}


def server_of(base_url: str, source: str, key_variable: str = KEY_VARIABLE) -> str:
    """`host:port` of a base URL, or api.openai.com. Raises UsageError without the URL, which may hold credentials."""
    match = _BASE_URL.fullmatch(base_url)
    if (
        match is None
        or _REQUEST.fullmatch(base_url)
        or (port := int(match["port"] or _PORTS[match["scheme"].lower()])) > 65535
        or not _names_a_host(match["host"])
    ):
        raise UsageError(
            f"{source} is not the address of a server.",
            "http:// or https:// and what stands before the path of a request, as in http://127.0.0.1:8000/v1 or "
            "https://NAME.openai.azure.com/openai/v1; no query, and no key or login, which belongs into "
            f"{key_variable}",
        )
    host = match["host"].lower()
    return host if host == OPENAI_HOST else f"{host}:{port}"


def _names_a_host(host: str) -> bool:
    """Whether a name has labels of a length that can be looked up, and an address is one."""
    try:
        if ":" in host or host.replace(".", "").isdecimal():
            ip_address(host.strip("[]"))
        else:
            host.encode("idna")
    except ValueError:
        return False
    return True


def proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names for a URL. Raises UsageError for one that is not HTTP; of `all` it warns.

    By aiohttp's `trust_env` our Authorization header would not be sent where a ~/.netrc has a line for the host.
    """
    parts = urlsplit(base_url)
    proxies, host = getproxies(), parts.hostname or ""
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    for name in filter(lambda name: "/" in name, re.split(r"[,\s]+", proxies.get("no", ""))):
        with suppress(ValueError):  # a range of addresses, as in 10.0.0.0/8
            if ip_address(host) in ip_network(name, strict=False):
                return None
    if not proxy or proxy_bypass(host):
        return None
    if not is_http_address(proxy):
        if parts.scheme not in proxies:
            warn("all_proxy names no HTTP proxy, and is not used.")
            return None
        raise UsageError(f"{parts.scheme}_proxy names no HTTP proxy.", "for example http://127.0.0.1:3128")
    return proxy


def is_http_address(url: str) -> bool:
    """Whether it names a host, and a port that there is."""
    try:
        address = urlsplit(url)
        host, port = address.hostname, address.port
    except ValueError:
        return False
    return bool(host) and port != 0 and address.scheme in _PORTS and _names_a_host(str(host))
