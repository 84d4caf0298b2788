"""One search server over HTTP, asked by the thread that waits for the answer.

Its key stands in the environment alone (`LLMFAIR_SEARCH_API_KEY`, or `LLMFAIR_SEARCH_USER` with
`LLMFAIR_SEARCH_PASSWORD`) and in no message. What may pass is tried again, as models' servers are asked again.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import llmfair
from llmfair.errors import MissingKey, Rejected, UsageError
from llmfair.io import secrets
from llmfair.io.files import decode, encode
from llmfair.io.net import Client, RateLimited, ReplyTooLong, Retries, Transient, retry_after, server_of, wait
from llmfair.retrieval.engine import Patience

API_KEY, USER, PASSWORD = "LLMFAIR_SEARCH_API_KEY", "LLMFAIR_SEARCH_USER", "LLMFAIR_SEARCH_PASSWORD"
LONGEST_REPLY, LONGEST_QUOTE, LONGEST_WORD = 64 << 20, 300, 60
PASSING = {408, 425, *range(500, 600)}
JSON, LINES = "application/json", "application/x-ndjson"


class SearchServer:
    """The server at an address; `name` is what it is called in messages. Threads may share it.

    What it says is told without the keys that it may repeat. Raises UsageError for what is no address, MissingKey for
    half a login.
    """

    def __init__(self, url: str | None, engine: str, patience: Patience) -> None:
        if not (url := (url or "").strip()):
            raise UsageError(
                f"--engine {engine}:INDEX needs the address of its server.",
                "--engine-url https://search.example:9200",
            )
        self.name = server_of(url, "--engine-url", API_KEY)
        login, hidden = _login()
        headers = {"user-agent": f"llmfair/{llmfair.__version__}", "accept": JSON, **login}
        self._url = url.rstrip("/")
        self._client = Client(self.name, url, headers, patience.timeout, LONGEST_REPLY)
        self._has_key, self._hide_quoted = bool(login), secrets.quoted(hidden)
        self._hide = secrets.without([*secrets.known(), *hidden])
        self._patience = patience
        self._retries = Retries(patience.retries, patience.max_wait, patience.outage)

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

        def attempt(number: int) -> Any:
            try:
                reply = wait(self._client.ask(method, self._url + path, content, kind))
            except ReplyTooLong:
                raise Rejected(
                    f"{self.name} sends more than {LONGEST_REPLY >> 20} MB in one reply."
                ) from None
            headers = {name.lower(): self._hide(value) for name, value in reply.headers.items()}
            answer = self._read(reply.status, headers, reply.body)
            return None if answer is None else read(answer)

        return self._retries.persist(attempt, self._patience.waits)

    def _read(self, status: int, headers: Mapping[str, str], reply: bytes) -> Any:
        if status == 429:
            limited = RateLimited(retry_after(headers, time.time()))
            limited.cause = f"{self.name} limits the rate (429)"
            raise limited
        try:
            decoded = self._hidden(decode(reply))
        except (ValueError, RecursionError):
            decoded = None
        answer = decoded if isinstance(decoded, dict) else None
        says = f"{self.name} answers {status}{self.quote(answer and answer.get('error'))}"
        if status in PASSING:
            raise Transient(says, retry_after(headers, time.time()))
        if 300 <= status < 400:
            raise UsageError(
                f"{self.name} redirects, which is not followed: the key would go there, too.",
                "--engine-url with the address itself",
            )
        if status == 401:  # not quoted: it may repeat parts of the key
            word = "refuses the key" if self._has_key else "asks for a key"
            raise MissingKey(f"{self.name} {word}.", f"set {API_KEY}, or {USER} and {PASSWORD}")
        if status == 403:
            raise MissingKey(f"{says}.", f"check what the key in {API_KEY} or the login of {USER} may do")
        if answer is None:
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

    def quote(self, error: Any) -> str:
        """The server's words about what went wrong, as a clause after a colon; nothing where it has none."""
        if isinstance(error, dict):
            causes = error.get("root_cause")
            first = causes[0] if isinstance(causes, list) and causes else error
            error = (first if isinstance(first, dict) else error).get("reason")
        words = self._hide_quoted(" ".join(str(error or "").split()))
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
