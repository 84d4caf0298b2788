"""The openai package's HTTP client within bounds: of a reply's time, and of its bytes, packed or not.

The package waits as long as there is a byte now and then, and keeps whatever comes.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llmfair.backends.posting import ReplyTooLong

if TYPE_CHECKING:
    from httpx2 import Client, Request, Response

SLOWEST = 10_000
"""Bytes a second: a file that moves slower than this does not arrive."""


@dataclass
class Bounds:
    """`seconds` that an exchange may take, and more for what is sent and received at `SLOWEST`; `most`: bytes of the
    longest reply. `last`: the body of the last reply.
    """

    seconds: float
    most: int
    last: bytes = b""

    @contextmanager
    def longest(self, most: int) -> Iterator[None]:
        """Within, a reply may have so many bytes."""
        before, self.most = self.most, most
        try:
            yield
        finally:
            self.most = before


def bounded(bounds: Bounds) -> Client:
    """A client that follows no redirect, keeps no cookie, and ends every exchange itself.

    Raises TimeoutError, ReplyTooLong and zlib.error beside what the package's client raises.
    """
    from openai import DefaultHttpxClient

    class Bounded(DefaultHttpxClient):
        def send(self, request: Request, **options: Any) -> Response:
            self.cookies.clear()
            ask = super().send
            return _exchanged(lambda: ask(request, **options | {"stream": True}), request, bounds)

    # Of another origin it would drop the key, and hand over the questions and all other headers.
    return Bounded(timeout=bounds.seconds, follow_redirects=False, headers={"accept-encoding": "gzip"})


def _exchanged(ask: Callable[[], Response], request: Request, bounds: Bounds) -> Response:
    """The reply, read to its end in a thread that can be left behind."""
    reading = _Reading(bounds.most)

    def run() -> None:
        try:
            reading.found.set_result(reading.read(ask(), request))
        except BaseException as error:
            reading.found.set_exception(error)

    threading.Thread(target=run, name="llmfair-batch", daemon=True).start()
    began, sent = time.monotonic(), int(request.headers.get("content-length", 0))
    while True:
        left = began + bounds.seconds + (sent + reading.received) / SLOWEST - time.monotonic()
        try:
            response = reading.found.result(max(0.0, left))
        except TimeoutError:
            if reading.found.done() or left <= 0:
                reading.abandoned = True
                raise
        else:
            bounds.last = response.content
            return response


@dataclass
class _Reading:
    """A reply that is being read: so many bytes so far, and `found` in the end."""

    most: int
    received: int = 0
    abandoned: bool = False
    found: Future[Response] = field(default_factory=Future)

    def read(self, response: Response, request: Request) -> Response:
        packed = bytearray()
        try:
            for part in response.iter_raw():
                packed += part
                self.received = len(packed)
                if self.received > self.most:
                    raise ReplyTooLong
                if self.abandoned:
                    raise TimeoutError
        finally:
            response.close()
        headers = response.headers.copy()
        content = self._unpacked(bytes(packed), headers.pop("content-encoding", ""))
        for name in ("transfer-encoding", "content-length"):
            headers.pop(name, None)
        return type(response)(response.status_code, headers=headers, content=content, request=request)

    def _unpacked(self, packed: bytes, encoding: str) -> bytes:
        """The body as it was before it was packed. Raises zlib.error."""
        if encoding.lower() not in ("gzip", "x-gzip", "deflate"):
            return packed
        content = zlib.decompressobj(wbits=47).decompress(packed, self.most + 1)
        if len(content) > self.most:
            raise ReplyTooLong
        return content
