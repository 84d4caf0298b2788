"""One search server over HTTP: asked from the thread that waits for the answer, redirects not followed.

Its key stands in the environment alone (`LLMFAIR_SEARCH_API_KEY`, or `LLMFAIR_SEARCH_USER` with
`LLMFAIR_SEARCH_PASSWORD`) and in no message. What may pass is tried again, as models' servers are asked again.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
import weakref
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import llmfair
from llmfair import secrets
from llmfair.asking.limits import Limits
from llmfair.asking.retries import Retries
from llmfair.backends.addresses import server_of
from llmfair.backends.base import RateLimited, Transient
from llmfair.backends.headers import retry_after
from llmfair.errors import MissingKey, Rejected, UsageError
from llmfair.jsonbytes import encode

API_KEY, USER, PASSWORD = "LLMFAIR_SEARCH_API_KEY", "LLMFAIR_SEARCH_USER", "LLMFAIR_SEARCH_PASSWORD"
TIMEOUT = 60.0
LONGEST_REPLY, LONGEST_QUOTE = 64 << 20, 300
PASSING = {408, 425, *range(500, 600)}
JSON, LINES = "application/json", "application/x-ndjson"


class SearchServer:
    """The server at an address; `name` is what it is called in messages. Threads may share it.

    Raises UsageError for what is no address, MissingKey for half a login.
    """

    def __init__(self, url: str | None, engine: str) -> None:
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
        self._has_key, self._hide = bool(login), secrets.quoted(hidden)
        limits = Limits()
        self._retries = Retries(limits.retries, limits.max_wait, limits.outage)
        self._heard = time.monotonic()
        self._idle = deque[HTTPConnection]()
        weakref.finalize(self, _close_all, self._idle)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        check: Callable[[Any], None] | None = None,
    ) -> Any:
        """What the server answers, from JSON; None for what it does not have (404). Bytes are lines of JSON.

        `check` raises RateLimited or Transient for an answer that has to be asked for again. Raises UsageError for
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
                if check is not None and answer is not None:
                    check(answer)
            except (RateLimited, Transient) as failure:
                attempts += 1
                failures += isinstance(failure, Transient)
                time.sleep(self._retries.wait_after(failure, attempts, failures, since, self._heard))
                since = time.monotonic()
                continue
            self._retries.succeeded(sent)
            self._heard = time.monotonic()
            return answer

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One attempt. Raises Transient when there is no reply, Rejected for one that is too long."""
        reused: HTTPConnection | None = None
        with suppress(IndexError):
            reused = self._idle.pop()
        for connection in (reused, self._connection()):
            if connection is None:
                continue
            try:
                connection.request(method, self._path + path, body, dict(headers))
                response = connection.getresponse()
                reply = response.read(LONGEST_REPLY + 1)
            except (OSError, HTTPException) as error:
                connection.close()
                if connection is reused:  # the server may have closed it while it was idle
                    continue
                raise Transient(self._cause(error)) from None
            self._keep(connection, response, len(reply))
            if len(reply) > LONGEST_REPLY:
                raise Rejected(f"{self.name} sends more than {LONGEST_REPLY >> 20} MB in one reply.")
            return response.status, {name.lower(): value for name, value in response.getheaders()}, reply
        raise AssertionError("a new connection answers or fails")

    def _connection(self) -> HTTPConnection:
        kind = HTTPSConnection if self._secure else HTTPConnection
        return kind(self._host, self._port, timeout=TIMEOUT)

    def _keep(self, connection: HTTPConnection, response: HTTPResponse, length: int) -> None:
        if response.will_close or length > LONGEST_REPLY:
            connection.close()
        else:
            self._idle.append(connection)

    def _cause(self, error: Exception) -> str:
        """Why there was no reply, as a clause."""
        match error:
            case TimeoutError():
                return f"no answer from {self.name} within {TIMEOUT:g} s"
            case ssl.SSLError():
                return f"no secure connection to {self.name} (certificate or protocol)"
            case socket.gaierror():
                return f"the name of {self.name} cannot be resolved"
            case ConnectionRefusedError():
                return f"connection refused by {self.name}"
            case _:
                return f"connection to {self.name} lost"

    def _read(self, status: int, headers: Mapping[str, str], reply: bytes) -> Any:
        if status == 429:
            raise RateLimited(retry_after(headers, time.time()))
        try:
            answer = json.loads(reply)
        except ValueError:
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
            kind = headers.get("content-type", "no type").partition(";")[0]
            raise UsageError(
                f"{self.name} answers {status} with what is no JSON ({kind}), as no search server does.",
                "check --engine-url",
            )
        if status == 404:
            return None
        if status >= 400:
            raise Rejected(f"{says}.")
        return answer

    def failure(self, error: Any) -> str:
        """The server's words about what went wrong, as a clause after a colon; nothing where it has none."""
        return self._quote({"error": error})

    def _quote(self, answer: Any) -> str:
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict):
            causes = error.get("root_cause") or ()
            first = causes[0] if isinstance(causes, list) and causes else error
            error = (first if isinstance(first, dict) else error).get("reason")
        words = self._hide(" ".join(str(error or "").split()))
        return f": {words[:LONGEST_QUOTE].rstrip('.')}" if words else ""


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
