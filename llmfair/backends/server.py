"""A model on a server: one POST a question, and what came back told apart by status and by the error's fields.

What is posted, and what a reply says, is told by the backend of one form of server. Keys and headers come from the
environment; no message repeats what is secret in them.
"""

from __future__ import annotations

import os
import re
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import llmfair
from llmfair import secrets
from llmfair.backends.addresses import proxy_for, server_of
from llmfair.backends.base import BackendOptions, RateLimited, Transient
from llmfair.backends.chat_completions import error_of, models_of
from llmfair.backends.headers import Allowance, allowance, retry_after
from llmfair.backends.posting import CONNECT_SECONDS, Poster, ReplyTooLong
from llmfair.errors import BackendError, LlmfairError, MissingKey, Rejected, UsageError
from llmfair.records import Completion, Request

NO_KEY = "none"  # what servers that need no key are sent
LONGEST_QUOTE = 300
MOST_NAMED = 5

_NOT_SENT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and halves of surrogate pairs
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_RETRIED = {408, 409, 425, *range(500, 600)}
_TEXTS = ("text", "reasoning", "model", "fingerprint")
_OURS = {"accept", "content-type", "user-agent"}
_REDIRECTS = {300, 301, 302, 303, 307, 308}
_ELSEWHERE = {404, 405, 410, *range(300, 400)}


class Server(ABC):
    """A model behind one address; `complete` is one attempt.

    `path`: what is posted to, below the base URL. `lists_models`: whether every such server has a list of its models,
    at /models. `key_variables`: where the key is looked for, the first that is set.
    `allowance`: what the server's last reply said that it will still take, if it said so.
    """

    max_workers = 64
    reads_about = False
    capabilities: frozenset[str]
    identity: str
    path: ClassVar[str]
    lists_models: ClassVar[bool] = True
    key_variables: tuple[str, ...]

    def __init__(self, name: str, options: BackendOptions, base_url: str, source: str) -> None:
        self.name, self.options, self.base_url = name, options, base_url
        self.server = server_of(base_url, source, self.key_variables[0])
        self.server_name = options.server_name or self.server
        self.allowance: Allowance | None = None
        self._poster: Poster | None = None
        self._key_sent = False
        self._hide = self._hide_quoted = secrets.without(())

    async def open(self) -> None:
        """Takes key and headers from the environment. Raises MissingKey and UsageError."""
        url = f"{self.base_url.rstrip('/')}/{self.path}"
        timeout, most = self.options.timeout, self.options.max_reply
        self._poster = Poster(url, self._headers(), proxy_for(self.base_url), timeout, most)

    async def close(self) -> None:
        if self._poster is not None:
            await self._poster.close()
            self._poster = None

    def ready(self) -> None:
        """Whether it could be asked now. Raises MissingKey and UsageError."""
        self._headers()

    async def complete(self, request: Request) -> Completion:
        """One attempt. Raises RateLimited, Transient, a BackendError, or UsageError for a refused setting."""
        body = self.body(request)
        started = time.perf_counter()
        status, headers, reply = await self._post(body)
        seconds = time.perf_counter() - started
        self.allowance = allowance(headers)
        return self.read(status, headers, reply, request, seconds)

    @abstractmethod
    def body(self, request: Request) -> bytes:
        """What is sent for a request: one line of JSON."""

    def read(
        self, status: int, headers: Mapping[str, str], reply: bytes, request: Request, seconds: float = 0.0
    ) -> Completion:
        """The completion in a reply, without what it repeats of keys and headers, which has no place in journals,
        caches and reports; raises what `complete` does where it is none.
        """
        found = self.completion(status, headers, reply, request, seconds)
        texts = {name: text for name in _TEXTS if (text := getattr(found, name))}
        together = "\n".join(texts.values())
        if self._hide(together) == together:
            return found
        shown: dict[str, Any] = {name: self._hide(text) for name, text in texts.items()}
        return replace(found, **shown)

    @abstractmethod
    def completion(
        self, status: int, headers: Mapping[str, str], reply: bytes, request: Request, seconds: float
    ) -> Completion:
        """The completion in a reply as it came; raises what `complete` does where it is none."""

    def _key(self) -> str:
        variable = next((one for one in self.key_variables if os.environ.get(one)), self.key_variables[0])
        key = os.environ.get(variable, "").strip()
        if not key and self.needs_key:
            raise MissingKey(f"{self.server} needs a key.", f"set {self.key_variables[0]}")
        if not key.isprintable():
            raise MissingKey(f"{variable} holds a control character.", f"set {variable} again")
        return key or NO_KEY

    @property
    def needs_key(self) -> bool:
        """Whether it is known to answer nobody without a key."""
        return False

    def _named_headers(self) -> Mapping[str, str]:
        """Further headers, from variables of the environment, by their names in lower case."""
        return {}

    def _headers(self) -> dict[str, str]:
        """The headers of every request, by their names in lower case; no message repeats what is secret in them."""
        key = self._key()
        headers = {"authorization": f"Bearer {key}", "user-agent": f"llmfair/{llmfair.__version__}"}
        headers |= dict.fromkeys(("accept", "content-type"), "application/json")
        headers |= self._named_headers()
        for name, value in headers.items():
            if not _HEADER.fullmatch(name) or _NOT_SENT.search(value):
                raise UsageError(
                    f"the header {name!r} holds a character that cannot be sent.",
                    "set OPENAI_ORG_ID, OPENAI_PROJECT_ID or OPENAI_CUSTOM_HEADERS again",
                )
        self._key_sent = key != NO_KEY or headers["authorization"] != f"Bearer {NO_KEY}"
        told = [(name, value) for name, value in headers.items() if name not in _OURS]
        self._hide = secrets.without([*secrets.known(), *secrets.of_headers(told)])
        quoted = {key, *secrets.noted(), *secrets.of_headers(told, every=True)} - {NO_KEY}
        self._hide_quoted = secrets.quoted(quoted)
        return headers

    async def look(self) -> None:
        """Returns from a server that is up and lists the model. Raises what `complete` does for another."""
        status, headers, reply = await self._reply_to(
            lambda poster: poster.get(f"{self.base_url.rstrip('/')}/models"), CONNECT_SECONDS
        )
        answers = 200 <= status < 300
        models = models_of(reply) if answers else None
        if models is None:
            if not self.lists_models and (answers or status in _ELSEWHERE):
                return
            if not answers:
                raise self.failure(status, headers, error_of(reply))
        if self.name not in (models or ()):
            has = self.hidden(", ".join((models or [])[:MOST_NAMED])) or "none"
            raise BackendError(
                f"{self.server} does not list the model {self.name}: it lists {has}.",
                "every server of --base-url has to have it under this name",
            )

    async def _post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the reply. Raises Transient when there is none, Rejected for one too long."""
        return await self._reply_to(lambda poster: poster.post(body), self.options.timeout)

    async def _reply_to(
        self, send: Callable[[Poster], Awaitable[tuple[int, Mapping[str, str], bytes]]], seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        import aiohttp

        if self._poster is None:
            raise RuntimeError("the backend is not open")
        try:
            status, headers, reply = await send(self._poster)
        except ReplyTooLong:
            raise self.too_long() from None
        except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, TimeoutError) as error:
            cause = self._cause(error, seconds)
        else:
            return status, headers, reply
        raise Transient(cause)  # out here, since aiohttp's exceptions can hold the request's headers

    def hidden(self, words: str) -> str:
        """Words of the server that are no answer, without any key or header that they repeat."""
        return self._hide_quoted(self._hide(words))

    def too_long(self, most: int = 0) -> Rejected:
        """Of a reply that is not read to its end, beyond so many bytes."""
        return Rejected(
            f"{self.server} sends more than {(most or self.options.max_reply) / 1e6:g} MB in one reply.",
            "--max-reply reads longer ones",
        )

    def _cause(self, error: Exception, seconds: float) -> str:
        """Why there was no reply, as a clause."""
        import aiohttp

        where = "the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else self.server
        match error:
            case aiohttp.ConnectionTimeoutError():
                return f"no connection to {where} within {CONNECT_SECONDS:g} s"
            case TimeoutError():
                return f"no answer from {where} within {seconds:g} s"
            case aiohttp.ClientConnectorError(os_error=socket.gaierror()):
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
            case aiohttp.http.HttpProcessingError():
                reason = " ".join(error.message.partition(":")[0].split()).lower()
                return f"what {where} sends is no HTTP reply ({reason})"
            case aiohttp.ClientPayloadError(__cause__=aiohttp.http_exceptions.ContentEncodingError()):
                return f"the reply of {where} cannot be unpacked: it is not in the encoding that it names"
            case aiohttp.ClientPayloadError():
                return f"the reply of {where} breaks off"
            case _:
                return f"connection to {where} lost"

    def failure(
        self,
        status: int,
        headers: Mapping[str, str],
        error: Mapping[str, Any],
        request: Request | None = None,
    ) -> LlmfairError | RateLimited | Transient:
        """The exception of a refusal, by status and the error's fields; without `request`, of something else."""
        redirect = " (a redirect, which is not followed)" if status in _REDIRECTS else ""
        says = f"{self.server} answers {status}{redirect}{self.quote(error)}"
        key = self.key_variables[0]
        match status:
            case 429 if error.get("code") == "insufficient_quota":
                return BackendError(f"{says}.", "the account's quota is spent; the same command continues")
            case 429:
                return RateLimited(retry_after(headers, time.time()))
            case _ if status in _RETRIED:
                return Transient(says, retry_after(headers, time.time()))
            case 401:  # not quoted: it may repeat parts of the key
                word = "refuses the key" if self._key_sent else "asks for a key"
                return MissingKey(f"{self.server} {word}.", f"set {key} to a key of this server")
            case 403:
                return MissingKey(f"{says}.", f"check what the key in {key} may use")
            case 402:
                return BackendError(f"{says}.", "the account has no credit; the same command continues")
            case _ if status in _ELSEWHERE:
                hint = f"check the model's name ({self.name}) and --base-url, which often ends in /v1"
                return BackendError(f"{says}.", hint)
            case _ if request is None:
                return Rejected(f"{says}.")
            case _:
                return self.refusal(status, error, says, request)

    def refusal(self, status: int, error: Mapping[str, Any], says: str, request: Request) -> LlmfairError:
        """The exception of a request that the server will not take, whatever else it takes."""
        return Rejected(f"{says}.")

    def quote(self, error: Mapping[str, Any]) -> str:
        """The server's words on one line, without any key or header that it repeats."""
        words = self.hidden(" ".join(str(error.get("message") or "").split()))
        return f": {words[:LONGEST_QUOTE].rstrip('.')}" if words else ""
