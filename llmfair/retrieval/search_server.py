"""One search server over HTTP: asked from the thread that waits for the answer, redirects not followed.

Its key stands in the environment alone (`LLMFAIR_SEARCH_API_KEY`, or `LLMFAIR_SEARCH_USER` with
`LLMFAIR_SEARCH_PASSWORD`) and in no message. What may pass is tried again, as models' servers are asked again.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
import weakref
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from io import BufferedReader
from typing import Any
from urllib.parse import urlsplit

import llmfair
from llmfair.asking.retries import Retries
from llmfair.backends.addresses import server_of
from llmfair.backends.base import RateLimited, Transient
from llmfair.backends.deadline import in_time
from llmfair.backends.headers import retry_after
from llmfair.errors import MissingKey, Rejected, UsageError
from llmfair.io import secrets
from llmfair.io.files import decode, encode
from llmfair.retrieval.engine import Patience

API_KEY, USER, PASSWORD = "LLMFAIR_SEARCH_API_KEY", "LLMFAIR_SEARCH_USER", "LLMFAIR_SEARCH_PASSWORD"
LONGEST_REPLY, LONGEST_QUOTE, LONGEST_WORD = 64 << 20, 300, 60
BLOCK = 1 << 16
PASSING = {408, 425, *range(500, 600)}
JSON, LINES = "application/json", "application/x-ndjson"


class SearchServer:
    """The server at an address; `name` is what it is called in messages. Threads may share it.

    What it says is told without the keys that it may repeat. Raises UsageError for what is no address, MissingKey for
    half a login.
    """

    def __init__(self, url: str | None, engine: str, patience: Patience) -> None:
        if not url:
            raise UsageError(
                f"--engine {engine}:INDEX needs the address of its server.",
                "--engine-url https://search.example:9200",
            )
        self.name = server_of(url, "--engine-url", API_KEY)
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        login, hidden = _login()
        self._headers = {"user-agent": f"llmfair/{llmfair.__version__}", "accept": JSON, **login}
        self._has_key, self._hide_quoted = bool(login), secrets.quoted(hidden)
        self._hide = secrets.without([*secrets.known(), *hidden])
        self._patience = patience
        self._retries = Retries(patience.retries, patience.max_wait, patience.outage)
        self._heard = time.monotonic()
        self._idle = deque[HTTPConnection]()
        weakref.finalize(self, _close_all, self._idle)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        read: Callable[[Any], Any] = lambda answer: answer,
    ) -> Any:
        """What `read` makes of what the server answers, from JSON; None for what it does not have (404). Bytes are
        lines of JSON.

        `read` raises RateLimited or Transient for an answer that has to be asked for again. Raises UsageError for
        what is no search server, MissingKey, Rejected for a request that it does not take, and Unavailable when it
        answered nobody.
        """
        content = body if isinstance(body, bytes | None) else encode(body)
        kind = {} if body is None else {"content-type": LINES if isinstance(body, bytes) else JSON}
        attempts = failures = 0
        since = time.monotonic()
        while True:
            sent = time.monotonic()
            try:
                status, headers, reply = self._exchange(method, path, content, {**self._headers, **kind})
                answer = self._read(status, headers, reply)
                found = None if answer is None else read(answer)
            except (RateLimited, Transient) as failure:
                attempts += 1
                failures += isinstance(failure, Transient)
                wait = self._retries.wait_after(failure, attempts, failures, since, self._heard)
                self._patience.waits(failure.cause, wait)
                time.sleep(wait)
                since = time.monotonic()
                continue
            self._retries.succeeded(sent)
            self._heard = time.monotonic()
            return found

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One attempt. Raises Transient when there is no reply, Rejected for one that is too long."""
        reused: HTTPConnection | None = None
        with suppress(IndexError):
            reused = self._idle.pop()
        if reused is not None and not _silent(reused):
            reused.close()
            reused = None
        for connection in (reused, self._connection()):
            if connection is None:
                continue
            exchange = _Exchange(connection, method, self._path + path, body, dict(headers))
            try:
                response = in_time(exchange.carry_out, self._patience.timeout, exchange.moved)
            except _TooLong:
                exchange.abandon()
                raise Rejected(
                    f"{self.name} sends more than {LONGEST_REPLY >> 20} MB in one reply."
                ) from None
            except (OSError, HTTPException, ValueError) as error:
                exchange.abandon()
                # the server may have closed it while it was idle
                if connection is reused and not isinstance(error, TimeoutError):
                    continue
                raise Transient(self._cause(error)) from None
            if exchange.reusable:
                self._idle.append(connection)
            else:
                connection.close()
            told = {name.lower(): self._hide(value) for name, value in response.getheaders()}
            return response.status, told, bytes(exchange.reply)
        raise AssertionError("a new connection answers or fails")

    def _connection(self) -> HTTPConnection:
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=self._patience.timeout)
        connection.response_class = _Response
        return connection

    def _cause(self, error: Exception) -> str:
        """Why there was no reply, as a clause."""
        match error:
            case TimeoutError():
                return f"no answer from {self.name} within {self._patience.timeout:g} s"
            case ssl.SSLError():
                return f"no secure connection to {self.name} (certificate or protocol)"
            case socket.gaierror():
                return f"the name of {self.name} cannot be resolved"
            case ConnectionRefusedError():
                return f"connection refused by {self.name}"
            case ValueError():
                return f"what {self.name} sends is no HTTP reply"
            case _:
                return f"connection to {self.name} lost"

    def _read(self, status: int, headers: Mapping[str, str], reply: bytes) -> Any:
        if status == 429:
            limited = RateLimited(retry_after(headers, time.time()))
            limited.cause = f"{self.name} limits the rate (429)"
            raise limited
        try:
            answer = self._hidden(decode(reply))
        except (ValueError, RecursionError):
            answer = None
        says = f"{self.name} answers {status}{self._quote(answer)}"
        if status in PASSING:
            raise Transient(says, retry_after(headers, time.time()))
        if 300 <= status < 400:
            raise UsageError(
                f"{self.name} redirects to {_host_of(headers)}, which is not followed: the key would go there, too.",
                "--engine-url with the address itself",
            )
        if status == 401:  # not quoted: it may repeat parts of the key
            word = "refuses the key" if self._has_key else "asks for a key"
            raise MissingKey(f"{self.name} {word}.", f"set {API_KEY}, or {USER} and {PASSWORD}")
        if status == 403:
            raise MissingKey(f"{says}.", f"check what the key in {API_KEY} or the login of {USER} may do")
        if not isinstance(answer, dict):
            kind = headers.get("content-type", "no type").partition(";")[0][:LONGEST_WORD]
            raise UsageError(
                f"{self.name} answers {status} with what is no JSON ({kind}), as no search server does.",
                "check --engine-url",
            )
        if status == 404:
            return None
        if status >= 400:
            raise Rejected(f"{says}.")
        return answer

    def _hidden(self, answer: Any) -> Any:
        """An answer without what it repeats of keys."""
        if isinstance(answer, dict):
            return {self._hide(name): self._hidden(one) for name, one in answer.items()}
        if isinstance(answer, list):
            return [self._hidden(one) for one in answer]
        return self._hide(answer) if isinstance(answer, str) else answer

    def failure(self, error: Any) -> str:
        """The server's words about what went wrong, as a clause after a colon; nothing where it has none."""
        return self._quote({"error": error})

    def _quote(self, answer: Any) -> str:
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict):
            causes = error.get("root_cause") or ()
            first = causes[0] if isinstance(causes, list) and causes else error
            error = (first if isinstance(first, dict) else error).get("reason")
        words = self._hide_quoted(" ".join(str(error or "").split()))
        return f": {words[:LONGEST_QUOTE].rstrip('.')}" if words else ""


class _TooLong(Exception):
    """A reply goes on beyond what is read of one."""


class _Stream(BufferedReader):
    """What comes over a connection; once closed, `more` says whether that was more than the reply."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.makefile("rb", 0))
        self.sock, self.more = sock, False

    def close(self) -> None:
        if not self.closed:
            with suppress(OSError, ValueError):
                self.sock.settimeout(0)
                self.more = bool(self.peek(1))
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *options: Any, **named: Any) -> None:
        super().__init__(sock, *options, **named)
        self.fp.close()
        self.fp = self.stream = _Stream(sock)


class _Exchange:
    """One request and its `reply`, which is read to its end by another thread than the one that may `abandon` it."""

    def __init__(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> None:
        self.connection, self.request = connection, (method, path, body, headers)
        self.reply, self.reusable = bytearray(), False
        self._sent = len(body or b"")

    def moved(self) -> int:
        return self._sent + len(self.reply)

    def carry_out(self) -> _Response:
        """The reply's status and headers, when all is read.

        Raises OSError, HTTPException and ValueError for what is none, _TooLong.
        """
        connection = self.connection
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request(*self.request)
        response = connection.getresponse()
        assert isinstance(response, _Response)
        with closing(response):
            self._read(response)
        self.reusable = not (response.will_close or response.stream.more)
        return response

    def _read(self, response: HTTPResponse) -> None:
        said = response.headers.get("content-length", "0").strip()
        if not said.isdecimal():
            raise ValueError(said)
        if int(said[:20]) > LONGEST_REPLY:
            raise _TooLong
        while part := response.read1(BLOCK):
            self.reply += part
            if len(self.reply) > LONGEST_REPLY:
                raise _TooLong
            if isinstance(response.chunk_left, int) and response.chunk_left < 0:
                raise ValueError(response.chunk_left)
        if response.length:
            raise IncompleteRead(b"")

    def abandon(self) -> None:
        """Ends the connection, whoever still reads from it."""
        if (sock := self.connection.sock) is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def _silent(connection: HTTPConnection) -> bool:
    """Whether nothing came that was not asked for, not even the end: it would be read as the next reply."""
    assert connection.sock is not None
    connection.sock.settimeout(0)
    try:
        connection.sock.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        pass
    return False


def _login() -> tuple[dict[str, str], list[str]]:
    """The header of the key, if there is one, and what of it no message repeats."""
    key, user, password = (os.environ.get(name, "").strip() for name in (API_KEY, USER, PASSWORD))
    if not f"{key}{user}{password}".isprintable():
        raise MissingKey(
            "the key of the search server holds a control character.", f"set {API_KEY} or {PASSWORD} again"
        )
    if key:
        return {"authorization": f"ApiKey {key}"}, [key]
    if bool(user) != bool(password):
        raise MissingKey(
            f"{USER if user else PASSWORD} is set, and {PASSWORD if user else USER} is not.",
            "set both, or neither",
        )
    if not user:
        return {}, []
    both = b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {both}"}, [password, both]


def _host_of(headers: Mapping[str, str]) -> str:
    """Where a redirect leads, without what an address may hold beside."""
    with suppress(ValueError):
        parts = urlsplit(headers.get("location", ""))
        if parts.hostname:
            return f"{parts.scheme}://{parts.hostname}"
    return "another address"


def _close_all(connections: deque[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()
