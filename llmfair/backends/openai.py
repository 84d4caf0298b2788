"""OpenAI and every server that speaks its chat completions: one POST a question.

Key, URL and headers come from the variables that the openai package reads. The package itself serves batches only: its
import takes longer than all else before the first question, and a request through it ten times the CPU time
(`backends.md` 5). Failures are told apart by status and by the fields of the error, never by words in a message.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import llmfair
from llmfair.backends.addresses import KEY_VARIABLE, OPENAI_HOST, proxy_for, server_of
from llmfair.backends.base import BackendOptions, RateLimited, Transient, fold_system
from llmfair.backends.chat_completions import UNPARSEABLE, encode_body, error_of, read_completion
from llmfair.backends.headers import Allowance, allowance, retry_after
from llmfair.backends.posting import CONNECT_SECONDS, Poster, ReplyTooLong
from llmfair.errors import BackendError, ContextTooLong, LlmfairError, MissingKey, Rejected, UsageError
from llmfair.jsonbytes import decode
from llmfair.records import (
    Completion,
    Finish,
    Request,
)
from llmfair.registry import register

if TYPE_CHECKING:
    from openai import OpenAI as Client

OPENAI_URL = f"https://{OPENAI_HOST}/v1"
NO_KEY = "none"  # what servers that need no key are sent
LONGEST_QUOTE = 300
FOLD_HINT = "if its chat template has no system role, add --system fold"

_NOT_SENT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and halves of surrogate pairs
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_NAMED = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
_OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_BROKEN_OFF = {"error", "abort"}
_RETRIED = {408, 409, 425, *range(500, 600)}
_ELSEWHERE = {404, 405, 410, *range(300, 400)}
# The field that says "too long", as OpenAI, llama.cpp and vLLM fill it.
_TOO_LONG = {"code": "context_length_exceeded", "type": "exceed_context_size_error", "param": "input_tokens"}
_UNSUPPORTED = {"unsupported_parameter", "unsupported_value"}
_FLAGS = {
    "temperature": ("--temperature", "give one it takes, for example --temperature 1"),
    "seed": ("--model-seed", "send none with --extra seed=null; answers are then drawn without a seed"),
    "logprobs": ("--answers margin", "compare the answers' text with --answers text"),
}


@register("backend", "openai")
def openai(name: str, options: BackendOptions) -> OpenAI:
    """A model on OpenAI or a compatible server. Raises UsageError for a base URL that cannot be used."""
    if not name:
        raise UsageError("openai: is not followed by a model.", "for example openai:gpt-5-mini")
    return OpenAI(name, options)


class OpenAI:
    """A model behind chat completions, without streaming; `complete` is one attempt.

    `allowance`: what the server's last reply said that it will still take, if it said so.
    """

    max_workers = 64
    reads_about = False

    def __init__(self, name: str, options: BackendOptions) -> None:
        source = "--base-url" if options.base_url else "OPENAI_BASE_URL"
        self.name = name
        self.options = options
        self.base_url = options.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        self.server = server_of(self.base_url, source)
        self.capabilities = frozenset({"adaptive", "seed", "system_role", "margins", "batch"})
        if self.server != OPENAI_HOST:
            self.capabilities |= {"constrain"}  # vLLM's own field; other servers refuse or ignore it
        self.limit_name = "max_completion_tokens" if self.server == OPENAI_HOST else "max_tokens"
        self.server_name = options.server_name or (self.server if self.server != OPENAI_HOST else "")
        parts = ["openai", name, options.server_name or self.server]
        if options.system == "fold":
            parts.append("fold")
        self.identity = " ".join(parts)
        self.allowance: Allowance | None = None
        self._poster: Poster | None = None
        self._secrets: tuple[str, ...] = ()
        self._broken_off: set[str] = set()

    async def open(self) -> None:
        """Takes key, URL and headers from the environment. Raises MissingKey and UsageError."""
        url = f"{self.base_url.rstrip('/')}/chat/completions"
        headers = self._headers()
        timeout, most = self.options.timeout, self.options.max_reply
        self._poster = Poster(url, headers, proxy_for(self.base_url), timeout, most)

    async def close(self) -> None:
        if self._poster is not None:
            await self._poster.close()
            self._poster = None

    def ready(self) -> None:
        """Whether it could be asked now. Raises MissingKey and UsageError."""
        self._headers()

    def client(self) -> Client:
        """The openai package's client of this server, for files and batches. Raises MissingKey."""
        from openai import DefaultHttpxClient
        from openai import OpenAI as Client

        self._headers()
        return Client(
            api_key=self._key(),
            base_url=self.base_url,
            timeout=self.options.timeout,
            max_retries=0,
            # Of another origin it would drop the key, and hand over the questions and all other headers.
            http_client=DefaultHttpxClient(follow_redirects=False),
        )

    def _key(self) -> str:
        key = os.environ.get(KEY_VARIABLE, "").strip()
        if not key and self.server == OPENAI_HOST:
            raise MissingKey(f"{OPENAI_HOST} needs a key.", f"set {KEY_VARIABLE}")
        if not key.isprintable():
            raise MissingKey(f"{KEY_VARIABLE} holds a control character.", f"set {KEY_VARIABLE} again")
        return key or NO_KEY

    def _headers(self) -> dict[str, str]:
        """The headers of every request, by their names in lower case; no message repeats what is secret in them."""
        key = self._key()
        headers = {"authorization": f"Bearer {key}", "user-agent": f"llmfair/{llmfair.__version__}"}
        headers |= dict.fromkeys(("accept", "content-type"), "application/json")
        headers |= {name: value for name, variable in _NAMED.items() if (value := os.environ.get(variable))}
        for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n"):
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        for name, value in headers.items():
            if not _HEADER.fullmatch(name) or _NOT_SENT.search(value):
                raise UsageError(
                    f"the header {name!r} holds a character that cannot be sent.",
                    "set OPENAI_ORG_ID, OPENAI_PROJECT_ID or OPENAI_CUSTOM_HEADERS again",
                )
        self._secrets = tuple({key, *headers["authorization"].split()[1:]} - {"", NO_KEY})
        return headers

    async def complete(self, request: Request) -> Completion:
        """One attempt. Raises RateLimited, Transient, a BackendError, or UsageError for a refused setting.

        A server that knows the limit on tokens under its other name only is asked again at once.
        """
        for _ in _OTHER_LIMIT:
            body = self.body(request)
            started = time.perf_counter()
            status, headers, reply = await self._post(body)
            seconds = time.perf_counter() - started
            self.allowance = allowance(headers)
            if not self.takes_other_limit(status, reply):
                break
        return self.read(status, headers, reply, request, seconds)

    def body(self, request: Request) -> bytes:
        """What is sent for a request: one line of JSON."""
        messages = request.chat.messages
        if self.options.system == "fold":
            messages = fold_system(messages)
        return encode_body(self.name, messages, request.sampling, self.limit_name, request.chat.expects)

    def takes_other_limit(self, status: int, reply: bytes) -> bool:
        """Whether a server refuses the name that the limit on tokens was sent under; the next body has the other."""
        if status != 400:
            return False
        error = error_of(reply)
        name = error.get("param")
        if error.get("code") != "unsupported_parameter" or name not in _OTHER_LIMIT:
            return False
        # By what was sent, not by what is remembered: many requests may learn of it at once.
        self.limit_name = _OTHER_LIMIT[name]
        return True

    def read(
        self, status: int, headers: Mapping[str, str], reply: bytes, request: Request, seconds: float = 0.0
    ) -> Completion:
        """The completion in a reply; raises what `complete` does where it is none."""
        if 200 <= status < 300:
            return self._read(reply, request, seconds)
        error = error_of(reply)
        if status == 400 and error.get("code") == "content_filter":
            return Completion("", Finish.FILTERED, seconds=seconds)
        raise self.failure(status, headers, error, request)

    async def _post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the reply. Raises Transient when there is none, Rejected for one too long."""
        import aiohttp

        if self._poster is None:
            raise RuntimeError("the backend is not open")
        try:
            return await self._poster.post(body)
        except ReplyTooLong:
            raise self.too_long() from None
        except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, TimeoutError) as error:
            cause = self._cause(error)
        raise Transient(cause)  # out here, since aiohttp's exceptions can hold the request's headers

    def too_long(self) -> Rejected:
        """Of a reply that is not read to its end."""
        return Rejected(
            f"{self.server} sends more than {self.options.max_reply / 1e6:g} MB in one reply.",
            "--max-reply reads longer ones",
        )

    def _cause(self, error: Exception) -> str:
        """Why there was no reply, as a clause."""
        import aiohttp

        where = "the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else self.server
        match error:
            case aiohttp.ConnectionTimeoutError():
                return f"no connection to {where} within {CONNECT_SECONDS:g} s"
            case TimeoutError():
                return f"no answer from {where} within {self.options.timeout:g} s"
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
            case _:
                return f"connection to {where} lost"

    def _read(self, reply: bytes, request: Request, seconds: float) -> Completion:
        """The answer in a reply. Raises Transient when there is none, Rejected when it breaks off twice."""
        try:
            document = decode(reply)
            if str(document["choices"][0].get("finish_reason")) not in _BROKEN_OFF:
                completion = read_completion(document, request.chat.expects, seconds)
                if request.sampling.margins and completion.logprobs is None and completion.text:
                    raise UsageError(
                        f"{self.server} sends no log-probabilities, which --answers margin reads.",
                        "compare the answers' text with --answers text",
                    )
                return completion
        except UNPARSEABLE:
            raise Transient(f"{self.server} answers without a completion") from None
        if request.key in self._broken_off:
            raise Rejected(f"{self.server} broke the answer off twice.", "see the server's log")
        self._broken_off.add(request.key)
        raise Transient(f"{self.server} broke the answer off")

    def failure(
        self,
        status: int,
        headers: Mapping[str, str],
        error: Mapping[str, Any],
        request: Request | None = None,
    ) -> LlmfairError | RateLimited | Transient:
        """The exception of a refusal, by status and the error's fields; without `request`, of something else."""
        code, param = error.get("code"), error.get("param")
        says = f"{self.server} answers {status}{self.quote(error)}"
        match status:
            case 429 if code == "insufficient_quota":
                return BackendError(f"{says}.", "the account's quota is spent; the same command continues")
            case 429:
                return RateLimited(retry_after(headers, time.time()))
            case _ if status in _RETRIED:
                return Transient(says)
            case 401:  # not quoted: it may repeat parts of the key
                word = "refuses the key" if self._secrets else "asks for a key"
                return MissingKey(f"{self.server} {word}.", f"set {KEY_VARIABLE} to a key of this server")
            case 403:
                return MissingKey(f"{says}.", f"check what the key in {KEY_VARIABLE} may use")
            case 402:
                return BackendError(f"{says}.", "the account has no credit; the same command continues")
            case _ if status in _ELSEWHERE:
                hint = f"check the model's name ({self.name}) and --base-url, which often ends in /v1"
                return BackendError(f"{says}.", hint)
            case _ if request is None:
                return Rejected(f"{says}.")
            case 400 if code in _UNSUPPORTED and param in _FLAGS:
                flag, hint = _FLAGS[param]
                return UsageError(f"{self.name} does not take this {flag}: {says}.", hint)
            case 400 | 413 if any(error.get(field) == value for field, value in _TOO_LONG.items()):
                return ContextTooLong(
                    f"the prompt of {request.probe_id} does not fit the context of {self.name}: {says}.",
                    "choose a smaller window, fewer words, or a model with more context",
                )
            case _:
                foldable = self.options.system != "fold" and request.chat.messages[0].role == "system"
                return Rejected(f"{says}.", FOLD_HINT if foldable else "")

    def quote(self, error: Mapping[str, Any]) -> str:
        """The server's words on one line, without any key that it repeats."""
        words = " ".join(str(error.get("message") or "").split())
        for secret in self._secrets:
            words = words.replace(secret, "***")
        return f": {words[:LONGEST_QUOTE].rstrip('.')}" if words else ""
