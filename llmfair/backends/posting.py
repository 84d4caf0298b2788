"""Bytes posted to one address over aiohttp's connections, and now and then got from its neighbours.

`session.post` makes a request and a response object, their headers and a writer of every question, which takes as much
CPU as all that llmfair does for it (`benchmarks.dispatch`). Questions differ in their body only. So one request object
stands for all of them, and of aiohttp there remain the pool of connections, TLS, proxies, and the reading of replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import ClientRequest
    from aiohttp.connector import Connection

CONNECT_SECONDS = 10.0


class ReplyTooLong(Exception):
    """A reply goes on beyond what is read of one."""


_INTERIM = {*range(100, 200)} - {101}


class Poster:
    """Posts to `url`, every time with the same headers; `timeout` in seconds, from connecting to the reply's end.

    `most`: bytes of the longest reply that is read.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], proxy: str | None, timeout: float, most: int
    ) -> None:
        import aiohttp
        from yarl import URL

        self._timeout, self._most, self._loop = timeout, most, asyncio.get_running_loop()
        self._headers, self._proxy = headers, proxy
        self._connecting = aiohttp.ClientTimeout(connect=CONNECT_SECONDS)
        # No cap of its own, since dispatch limits what is in flight.
        self._connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=75)
        # Never sent itself: the connector learns from it where to, and adds what a proxy wants to be told.
        self._request = aiohttp.ClientRequest(
            "POST",
            URL(url),
            headers=headers,
            proxy=None if proxy is None else URL(proxy),
            loop=self._loop,
        )
        self._head = b""

    async def post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the reply; redirects are not followed.

        Raises aiohttp.ClientError, HttpProcessingError of aiohttp.http or TimeoutError when there is none, and
        ReplyTooLong.
        """
        # As `asyncio.timeout` does it, at half the CPU time.
        task, late = asyncio.current_task(), False
        assert task is not None

        def cancel() -> None:
            nonlocal late
            late = True
            task.cancel()

        alarm, cancelled = self._loop.call_later(self._timeout, cancel), task.cancelling()
        try:
            return await self._exchange(body)
        except asyncio.CancelledError:
            if late and task.uncancel() <= cancelled:
                raise TimeoutError from None
            raise
        finally:
            alarm.cancel()

    async def get(self, url: str) -> tuple[int, Mapping[str, str], bytes]:
        """The same of a page of this server, which has as long as a connection has."""
        import aiohttp

        patience = aiohttp.ClientTimeout(CONNECT_SECONDS)
        async with (
            aiohttp.ClientSession(connector=self._connector, connector_owner=False) as session,
            session.get(
                url, headers=self._headers, proxy=self._proxy, timeout=patience, allow_redirects=False
            ) as reply,
        ):
            content = b""
            while more := await reply.content.readany():
                content += more
                if len(content) > self._most:
                    raise ReplyTooLong
            return reply.status, reply.headers, content

    async def close(self) -> None:
        await self._connector.close()

    async def _exchange(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        connection = await self._connect()
        try:
            protocol, transport = connection.protocol, connection.transport
            assert protocol is not None and transport is not None
            protocol.set_response_params(read_until_eof=True)
            self._head = self._head or _head(self._request)  # which now holds what a proxy is told
            transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body))
            head, content = await protocol.read()
            while head.code in _INTERIM:
                head, content = await protocol.read()
            reply = await content.readany()
            while more := await content.readany():
                reply += more
                if len(reply) > self._most:
                    raise ReplyTooLong
        except BaseException:
            connection.close()
            raise
        connection.release()  # closes it where the server will
        return head.code, head.headers, reply

    async def _connect(self) -> Connection:
        import aiohttp

        try:
            connection = await self._connector.connect(self._request, [], self._connecting)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error
        if connection.protocol is None or connection.protocol.should_close:
            connection.close()
            raise aiohttp.ClientConnectionError  # what is left on it would be taken for the reply
        return connection


def _head(request: ClientRequest) -> bytes:
    """The first line and the headers, but for the length of the body."""
    url = request.url
    target = str(url) if request.proxy and not request.is_ssl() else url.raw_path_qs
    headers = [
        f"{name}: {value}" for name, value in request.headers.items() if name.lower() != "content-length"
    ]
    return "\r\n".join([f"POST {target} HTTP/1.1", *headers, ""]).encode()
