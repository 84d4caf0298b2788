"""Models on servers: one POST a question, and what came back told apart by status and by the error's fields.

What is posted, and what a reply says, is told by the backend of one form of server.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import llmfair
from llmfair.backends.base import BackendOptions, RateLimited, Transient
from llmfair.backends.faults import ELSEWHERE, LIMITS, UNPARSEABLE, Fault, nature_of, refusal_of
from llmfair.errors import BackendError, ContextTooLong, LlmfairError, MissingKey, Rejected, UsageError
from llmfair.io import secrets
from llmfair.io.files import decode
from llmfair.io.net import CONNECT_SECONDS, OPENAI_HOST, Client, Reply, ReplyTooLong, retry_after, server_of
from llmfair.nouns import Completion, Finish, Request

NO_KEY = "none"  # what servers that need no key are sent
LONGEST_QUOTE = 300
MOST_NAMED = 5
LOGPROBS = {"logprobs", "top_logprobs"}

_NOT_SENT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and halves of surrogate pairs
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_TEXTS = ("text", "reasoning", "model", "fingerprint")
_OURS = {"accept", "content-type", "user-agent"}
_REDIRECTS = {300, 301, 302, 303, 307, 308}


class Server(ABC):
    """A model behind one address; `complete` is one attempt.

    `path`: what is posted to, below the base URL; `answers`: what comes back, in words. `lists_models`: whether every
    such server has a list of its models, at /models. `key_variables`: where the key is looked for, the first that is
    set. `header_variables`: variables of further headers, by their names in lower case; `custom_headers`: one that
    holds a header a line.
    """

    max_workers = 64
    reads_about = False
    capabilities: frozenset[str]
    identity: str
    path: ClassVar[str]
    answers: ClassVar[str]
    lists_models: ClassVar[bool] = True
    key_variables: tuple[str, ...]
    header_variables: ClassVar[Mapping[str, str]] = {}
    custom_headers: ClassVar[str] = ""

    def __init__(self, name: str, options: BackendOptions, base_url: str, source: str) -> None:
        self.name, self.options, self.base_url = name, options, base_url.strip()
        self.server = server_of(self.base_url, source, self.key_variables[0])
        self.server_name = options.server_name or self.server
        self._client: Client | None = None
        self._key_sent = False
        self._hide = self._hide_quoted = secrets.without(())

    async def open(self) -> None:
        """Raises MissingKey and UsageError for what the environment lacks, or holds that cannot be sent."""
        self._client = self.client()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def client(self) -> Client:
        options = self.options
        return Client(self.server, self.base_url, self._headers(), options.timeout, options.max_reply)

    def ready(self) -> None:
        self._headers()

    async def complete(self, request: Request) -> Completion:
        """One attempt. Raises RateLimited, Transient, a BackendError, or UsageError for a refused setting.

        A server that does not know a field which can be sent otherwise is asked again at once.
        """
        for _ in range(2):
            body, started = self.body(request), time.perf_counter()
            reply = await self._ask("POST", self.path, body)
            seconds = time.perf_counter() - started
            if not self.adapts(reply.status, reply.body):
                break
        return self.read(reply, request, seconds)

    def adapts(self, status: int, reply: bytes) -> bool:
        """Whether a server does not know a field that the next body has under another name, or no more."""
        return False

    @abstractmethod
    def body(self, request: Request) -> bytes:
        """What is sent for a request: one line of JSON."""

    def read(self, reply: Reply, request: Request, seconds: float = 0.0) -> Completion:
        """The completion in a reply, without what it repeats of keys and headers; raises what `complete` does."""
        completion = None
        if 200 <= reply.status < 300:
            with suppress(*UNPARSEABLE):
                completion = self.completion(reply.body, request, seconds)
        if completion is None:
            if refusal_of(reply.status, reply.body).fault is not Fault.BLOCKED:
                raise self.failure(reply, request)
            completion = Completion("", Finish.FILTERED, seconds=seconds)
        texts = {name: text for name in _TEXTS if (text := getattr(completion, name))}
        together = "\n".join(texts.values())
        if self._hide(together) == together:
            return completion
        safe: dict[str, Any] = {name: self._hide(text) for name, text in texts.items()}
        return replace(completion, **safe)

    @abstractmethod
    def completion(self, reply: bytes, request: Request, seconds: float) -> Completion:
        """The completion in a reply of success as it came; raises what is UNPARSEABLE where it holds none."""

    def _headers(self) -> dict[str, str]:
        """The headers of every request, by their names in lower case; no message repeats what is secret in them."""
        variable = next((name for name in self.key_variables if os.environ.get(name)), self.key_variables[0])
        key = os.environ.get(variable, "").strip() or NO_KEY
        if key == NO_KEY and self.server == OPENAI_HOST:
            raise MissingKey(f"{self.server} needs a key.", f"set {self.key_variables[0]}")
        headers = {"authorization": f"Bearer {key}", "user-agent": f"llmfair/{llmfair.__version__}"}
        headers |= dict.fromkeys(("accept", "content-type"), "application/json")
        headers |= {
            name: value for name, of in self.header_variables.items() if (value := os.environ.get(of))
        }
        for line in os.environ.get(self.custom_headers, "").split("\n"):
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        for name, value in headers.items():
            if not _HEADER.fullmatch(name) or _NOT_SENT.search(value):
                raise UsageError(
                    f"the header {name!r} holds a character that cannot be sent.",
                    f"set {variable}, OPENAI_ORG_ID, OPENAI_PROJECT_ID or OPENAI_CUSTOM_HEADERS again",
                )
        self._key_sent = key != NO_KEY or headers["authorization"] != f"Bearer {NO_KEY}"
        secretive = [(name, value) for name, value in headers.items() if name not in _OURS]
        self._hide = secrets.without([*secrets.known(), *secrets.of_headers(secretive)])
        quoted = {key, *secrets.noted, *secrets.of_headers(secretive, every=True)} - {NO_KEY}
        self._hide_quoted = secrets.quoted(quoted)
        return headers

    async def look(self) -> None:
        """Returns from a server that is up and lists the model. Raises what `complete` does for another."""
        reply = await self._ask("GET", "models", seconds=CONNECT_SECONDS)
        answers, models = 200 <= reply.status < 300, list[str]()
        if answers:
            with suppress(*UNPARSEABLE):
                models = [str(row["id"]) for row in decode(reply.body)["data"]] or [""]
        if not models and not self.lists_models and (answers or reply.status in ELSEWHERE):
            return
        if not answers:
            raise self.failure(reply)
        if self.name not in models:
            has = self.hidden(", ".join(models[:MOST_NAMED])) or "none"
            raise BackendError(
                f"{self.server} does not list the model {self.name}: it lists {has}.",
                "every server of --base-url has to have it under this name",
            )

    async def _ask(self, method: str, path: str, body: bytes | None = None, seconds: float = 0.0) -> Reply:
        """Raises Transient without a reply, Rejected for one too long."""
        assert self._client is not None, "the backend is open"
        try:
            return await self._client.ask(method, self.address(path), body, seconds=seconds)
        except ReplyTooLong:
            raise self.too_long() from None

    def address(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    def hidden(self, words: str) -> str:
        """Words of the server that are no answer, without any key or header that they repeat."""
        return self._hide_quoted(self._hide(words))

    def too_long(self, most: int = 0) -> Rejected:
        """Of a reply that is not read to its end, beyond so many bytes."""
        return Rejected(
            f"{self.server} sends more than {(most or self.options.max_reply) / 1e6:g} MB in one reply.",
            "--max-reply reads longer ones",
        )

    def failure(self, reply: Reply, request: Request | None = None) -> LlmfairError | RateLimited | Transient:
        """The exception of a reply that refuses a request, or something else where there is none."""
        refusal = refusal_of(reply.status, reply.body)
        status, quote, key = reply.status, self.quote(refusal.words), self.key_variables[0]
        redirect = " (a redirect, which is not followed)" if status in _REDIRECTS else ""
        says = f"{self.server} answers {status}{redirect}{quote}"
        again = retry_after(reply.headers)
        match refusal.fault:
            case Fault.SPENT:
                return BackendError(
                    f"{says}.", "a quota or the account's credit is spent; later, the same command continues"
                )
            case Fault.LIMITED:
                return RateLimited(refusal.wait if again is None else again, quote)
            case Fault.PASSING:
                if status < 300:
                    says = f"{self.server} answers without {self.answers}{quote or f' ({nature_of(reply.body)})'}"
                return Transient(says, again)
            case Fault.KEY:  # not quoted: it may repeat parts of the key
                word = "refuses the key" if self._key_sent else "asks for a key"
                return MissingKey(f"{self.server} {word}.", f"set {key} to a key of this server")
            case Fault.DENIED:
                return MissingKey(f"{says}.", f"check what the key in {key} may use")
            case Fault.ELSEWHERE:
                hint = f"check the model's name ({self.name}) and --base-url, which often ends in /v1"
                return BackendError(f"{says}.", hint)
            case _ if request is None:
                return Rejected(f"{says}.")
            case Fault.TOO_LONG:
                return ContextTooLong(
                    f"the prompt of {request.probe_id} does not fit the context of {self.name}: {says}.",
                    "choose a smaller window, fewer words, or a model with more context",
                )
            case Fault.TOO_MANY:
                return Rejected(
                    f"{says}.", "let the server take more documents at once, or rank fewer with --candidates"
                )
            case Fault.SYSTEM if request.chat.messages[0].role == "system":
                return Rejected(f"{says}.", "--system fold puts the system text into the first user message")
            case _ if refusal.fault is Fault.FIELD or refusal.field in request.sampling.extra:
                field = refusal.field
                flag, hint = FLAGS.get(field, (f"--extra {field}", f"--extra {field}=null leaves it out"))
                if not refusal.unknown and field in LOGPROBS:
                    flag, hint = "number of alternatives", "ask for fewer: --extra top_logprobs=5"
                elif not refusal.unknown and field in LIMITS:
                    hint = "give a smaller --max-tokens or --thinking"
                return UsageError(
                    f"{self.name} does not take {'' if refusal.unknown else 'this '}{flag}: {says}.", hint
                )
            case _:
                return Rejected(f"{says}.")

    def quote(self, words: str) -> str:
        """The server's words, without any key or header that they repeat."""
        words = self.hidden(words)
        return f": {words[:LONGEST_QUOTE].rstrip('.')}" if words else ""


# What bodies and replies of every form have


def without_nulls(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a body that are sent: `--extra NAME=null` leaves one out."""
    return {name: value for name, value in body.items() if value is not None}


def table(value: object) -> Mapping[str, Any]:
    """An object of JSON; {} for anything else."""
    return value if isinstance(value, dict) else {}


def count(value: object) -> int | None:
    """A whole number that may count something; None for anything else."""
    return value if type(value) is int and 0 <= value <= 1 << 53 else None


FLAGS = {
    "temperature": ("--temperature", "--extra temperature=null leaves it out, or give one it takes: --temperature 1"),
    "seed": ("--model-seed", "--extra seed=null leaves it out; answers are then drawn without a seed"),
    "structured_outputs": ("--constrain", "leave --constrain out"),
    **dict.fromkeys(LIMITS, ("--max-tokens", "--extra max_tokens=null leaves it out")),
    **dict.fromkeys(LOGPROBS, ("--answers margin", "compare the answers' text with --answers text")),
}  # fmt: skip
"""The flag that a field of the body comes from, and what to do where a server does not know it."""


# Several servers of one model. Which of them a question goes to is dispatch's (`asking/lanes.py`). Answers are filed
# under the identity of the first, whichever gave them.


class Fleet:
    """`members`: the servers by host and port, and path where needed. Raises UsageError for one named twice."""

    reads_about = False

    def __init__(self, members: Sequence[Server]) -> None:
        from yarl import URL

        first = members[0]
        self.identity, self.server, self.server_name = first.identity, first.server, first.server_name
        self.max_workers = first.max_workers
        # A batch goes to one server, which alone can tell of it.
        self.capabilities = frozenset.intersection(*(member.capabilities for member in members)) - {"batch"}
        shared = Counter(member.server for member in members)
        self.members = {
            member.server
            if shared[member.server] == 1
            else "/".join((member.server, *filter(None, URL(member.base_url).parts[1:]))): member
            for member in members
        }
        if len(self.members) < len(members):
            raise UsageError("--base-url names a server twice.", "each once, however much it can take")

    def ready(self) -> None:
        for member in self.members.values():
            member.ready()

    async def open(self) -> None:
        for member in self.members.values():
            await member.open()

    async def close(self) -> None:
        for member in self.members.values():
            await member.close()

    async def complete(self, request: Request) -> Completion:
        """One attempt, by the first server: whoever has no lanes has no use for the others."""
        return await next(iter(self.members.values())).complete(request)
