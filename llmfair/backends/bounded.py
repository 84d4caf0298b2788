"""The openai package's HTTP client within bounds: of a reply's time, and of its bytes, packed or not.

The package waits as long as there is a byte now and then, and keeps whatever comes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmfair.backends.deadline import in_time
from llmfair.backends.posting import ReplyTooLong

if TYPE_CHECKING:
    from httpx2 import Client, Request, Response


@dataclass
class Bounds:
    """`seconds` that an exchange may take, and more for what is sent and received; `most`: bytes of the
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
    """The reply, read to its end in time."""
    reading, sent = _Reading(bounds.most), int(request.headers.get("content-length", 0))
    try:
        response = in_time(
            lambda: reading.read(ask(), request), bounds.seconds, lambda: sent + reading.received
        )
    except TimeoutError:
        reading.abandoned = True
        raise
    bounds.last = response.content
    return response


@dataclass
class _Reading:
    """A reply that is being read: so many bytes so far."""

    most: int
    received: int = 0
    abandoned: bool = False

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
