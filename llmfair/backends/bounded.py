"""The openai package's HTTP client within bounds: of a reply's time, and of its bytes, packed or not.

The package waits as long as there is a byte now and then, and keeps whatever comes.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from llmfair.backends.deadline import in_time
from llmfair.backends.posting import ReplyTooLong

if TYPE_CHECKING:
    from httpx2 import Client, Request, Response

BLOCK, FIRST = 1 << 16, 1 << 16


@dataclass
class Bounds:
    """`seconds` that an exchange may take, and more for what is sent and received; `most`: bytes of the
    longest reply, which goes `into` a file where there is one. `last`: what the body of the last reply begins with.
    """

    seconds: float
    most: int
    last: bytes = b""
    into: IO[bytes] | None = None

    @contextmanager
    def longest(self, most: int, into: IO[bytes]) -> Iterator[None]:
        """Within, a reply may have so many bytes, and one of success goes into this file."""
        before, self.most, self.into = self.most, most, into
        try:
            yield
        finally:
            self.most, self.into = before, None


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
    reading = _Reading(bounds.most, bounds.into)
    sent = int(request.headers.get("content-length", 0))
    try:
        response = in_time(
            lambda: reading.read(ask(), request), bounds.seconds, lambda: sent + reading.received
        )
    except TimeoutError:
        reading.abandoned = True
        raise
    bounds.last = reading.first
    return response


@dataclass
class _Reading:
    """A reply that is being read: so many bytes so far."""

    most: int
    into: IO[bytes] | None
    received: int = 0
    abandoned: bool = False
    first: bytes = b""

    def read(self, response: Response, request: Request) -> Response:
        content: IO[bytes] = io.BytesIO()
        if response.is_success and self.into is not None:
            content = self.into
        headers, length = response.headers.copy(), 0
        packed = headers.pop("content-encoding", "").lower() in ("gzip", "x-gzip", "deflate")
        unpacker = zlib.decompressobj(wbits=47) if packed else None
        try:
            for part in response.iter_raw():
                self.received += len(part)
                for piece in _unpacked(part, unpacker):
                    length += len(piece)
                    if max(length, self.received) > self.most:
                        raise ReplyTooLong
                    if self.abandoned:
                        raise TimeoutError
                    self.first += piece[: FIRST - len(self.first)]
                    content.write(piece)
            content.flush()
        finally:
            response.close()
        for name in ("transfer-encoding", "content-length"):
            headers.pop(name, None)
        body = content.getvalue() if isinstance(content, io.BytesIO) else b""
        return type(response)(response.status_code, headers=headers, content=body, request=request)


def _unpacked(part: bytes, unpacker: Any) -> Iterator[bytes]:
    """A part of a body as it was before it was packed, a block at a time. Raises zlib.error."""
    if unpacker is None:
        yield part
        return
    while not unpacker.eof:
        piece = unpacker.decompress(part, BLOCK)
        yield piece
        part = unpacker.unconsumed_tail
        if not part and len(piece) < BLOCK:
            return
