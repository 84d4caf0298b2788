"""OpenAI's Batch API: files of requests that a server answers within a day, at half the price (`backends.md` 5).

What a line asks and what its answer means is told by the backend of single requests, so that both roads give equal
answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, convert

from llmfair.backends.chat_completions import UNPARSEABLE
from llmfair.backends.faults import nature_of, refusal_of
from llmfair.backends.openai import OpenAI
from llmfair.errors import BackendError, Rejected
from llmfair.io.files import decode, encode
from llmfair.io.net import Client, Reply, ReplyTooLong, Retries, Transient, wait
from llmfair.nouns import Completion, Request

T = TypeVar("T")
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:=+~@-]{1,2000}\Z")]
"""Which stands in addresses, and on a terminal."""
ENDPOINT = "/v1/chat/completions"
MOST_LINES = 50_000
MOST_BYTES = 200 * 10**6
ENDED = {"completed", "failed", "expired", "cancelled"}
RUNNING = {"validating", "in_progress", "finalizing", "cancelling"}
MOST_PAGES = 500
"""Of batches that are looked through for one; a list without an end is of no server that is well."""
SETTLE_SECONDS = 5.0
"""How long a batch may take to show in the list of all, after its creation was asked for."""


@dataclass(frozen=True)
class Batch:
    """What a server tells of a batch; the files are there as far as there are errors and answers."""

    id: Id
    status: str
    output_file_id: Id | None = None
    error_file_id: Id | None = None
    request_counts: Mapping[str, int | None] | None = None
    errors: Mapping[str, Any] | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def words(self) -> str:
        """Status and counts."""
        counts = self.request_counts or {}
        total, completed, failed = (counts.get(name) or 0 for name in ("total", "completed", "failed"))
        if not total:
            return self.status
        return f"{self.status}, {completed:,} of {total:,} answered{f', {failed:,} failed' if failed else ''}"


class Batches:
    """Files and batches of one server.

    What fails in passing is tried again `retries` times, less often while the server has never answered; where it asks
    to wait, `max_wait` seconds at most. `waits(cause, seconds)` hears of each pause. Raises BackendError: MissingKey,
    Unavailable, Rejected.
    """

    def __init__(
        self,
        backend: OpenAI,
        retries: int,
        max_wait: float,
        waits: Callable[[str, float], None] = lambda cause, seconds: None,
    ) -> None:
        self.backend, self._waits = backend, waits
        self.identity, self.name = backend.identity, backend.server
        self._retries = Retries(retries, max_wait, 0.0)

    @cached_property
    def _client(self) -> Client:
        """Made on first use, since a run that has all its answers needs no key. Raises MissingKey."""
        return self.backend.client()

    def close(self) -> None:
        if "_client" in vars(self):
            wait(self._client.close())

    def line(self, request: Request) -> bytes:
        """A request as a line of a file; its answer comes back under the request's key."""
        head = f'{{"custom_id":"{request.key}","method":"POST","url":"{ENDPOINT}","body":'
        return head.encode() + self.backend.body(request) + b"}\n"

    @staticmethod
    def key_of(line: bytes) -> str | None:
        """The key a line was sent under; None for one that does not say."""
        try:
            key = decode(line)["custom_id"]
        except UNPARSEABLE:
            return None
        return key if isinstance(key, str) else None

    @staticmethod
    def files(lines: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
        """Keys and lines in as few files as the server's limits allow, in the order they come."""
        file: list[tuple[str, bytes]] = []
        size = 0
        for key, line in lines:
            if file and (len(file) >= MOST_LINES or size + len(line) > MOST_BYTES):
                yield file
                file, size = [], 0
            file.append((key, line))
            size += len(line)
        if file:
            yield file

    def upload(self, path: Path) -> str:
        """The id of the server's copy of a file of lines."""
        url = self.backend.address("files")

        def read(body: bytes) -> str:
            return convert(decode(body)["id"], Id)

        return self._retries.persist(
            lambda attempt: self._read(self._client.upload(url, path, {"purpose": "batch"}), read),
            self._waits,
        )

    def create(self, input_file_id: str, perhaps_made: bool = False) -> Batch:
        """The one batch over an uploaded file.

        Its creation has no second attempt without a look: where an earlier one may have reached the server, here
        or before a crash (`perhaps_made`), the batch is first looked for among all.
        """
        body = {"input_file_id": input_file_id, "endpoint": ENDPOINT, "completion_window": "24h"}

        def make(attempt: int) -> Batch:
            batch = self._find(input_file_id) if perhaps_made or attempt else None
            return batch or self._ask("POST", "batches", self._batch, encode(body))

        return self._retries.persist(make, self._waits)

    def state(self, batch_id: str) -> Batch:
        """The batch as it is now."""
        return self._fetch(f"batches/{batch_id}", self._batch, batch_id)

    def answers(self, batch: Batch, lines: int) -> dict[str, bytes]:
        """The lines that came back of so many, by key, from both files in whatever order; `read` reads one."""

        def keyed(body: bytes) -> dict[str, bytes]:
            """What is no file of lines at all must not pass for one without answers."""
            by_key = {key: line for line in body.split(b"\n") if (key := self.key_of(line))}
            if body.strip() and not by_key:
                raise ValueError("no line has a key")
            return by_key

        answers: dict[str, bytes] = {}
        for file_id in filter(None, (batch.error_file_id, batch.output_file_id)):
            most = lines * self.backend.options.max_reply
            answers |= self._fetch(f"files/{file_id}/content", keyed, batch.id, most)
        return answers

    def read(self, line: bytes, request: Request) -> Completion:
        """The answer in a line; raises what `complete` does where there is none.

        Transient if it was never asked, or the line cannot be read: the others of its batch are paid for, too.
        """
        if len(line) > self.backend.options.max_reply:
            raise self.backend.too_long()
        try:
            row = decode(line)
            response, error = row.get("response"), row.get("error")
            if not isinstance(response, dict):
                code = error.get("code") if isinstance(error, dict) else None
                why = self.backend.hidden(f"{code or 'no reason given'}")
                raise Transient(f"{self.name} did not answer it ({why})")
            status, reply = response.get("status_code") or 200, encode(response.get("body"))
            if self.backend.adapts(status, reply):
                raise Transient(f"{self.name} knows the limit on tokens under its other name")
            return self.backend.read(Reply(status, {}, reply), request)
        except UNPARSEABLE:
            raise Transient(f"{self.name} answers it with something else ({nature_of(line)})") from None

    def refusal(self, batch: Batch) -> Rejected:
        """Why a batch failed as a whole: its first error."""
        errors = (batch.errors or {}).get("data")
        first = errors[0] if isinstance(errors, list) and errors else {}
        where = f" at line {first['line']}" if first.get("line") else ""
        quote = self.backend.quote(refusal_of(400, encode(first)).words)
        return Rejected(
            f"{self.name} refuses {batch.id}{where}{quote}.",
            "the same command submits it again; less at a time with --max-calls",
        )

    def _find(self, input_file_id: str) -> Batch | None:
        """The batch over a file, if there is one; no second batch is ever made of a file."""

        def page(body: bytes) -> tuple[Batch | None, str]:
            """The batch if it is here, and what asks for the next page; "" after the last."""
            document = decode(body)
            rows = document["data"]
            batch = next((row for row in rows if row.get("input_file_id") == input_file_id), None)
            if batch is not None:
                return self._batch(encode(batch)), ""
            return None, f"&after={convert(rows[-1]['id'], Id)}" if rows and document.get("has_more") else ""

        for pause in (0.0, SETTLE_SECONDS):
            time.sleep(pause)
            after = ""
            for _ in range(MOST_PAGES):  # the newest batches come first
                batch, after = self._ask("GET", f"batches?limit=100{after}", page)
                if batch is not None:
                    return batch
                if not after:
                    break
        return None

    def _batch(self, body: bytes) -> Batch:
        """What the server tells of a batch. Raises what is UNPARSEABLE for what is none."""
        # servers leave what there is none of empty, too: "", [] or null
        batch = convert({name: value for name, value in decode(body).items() if value}, Batch)
        if batch.status not in ENDED | RUNNING:
            raise ValueError(batch.status)
        return batch

    def _fetch(self, path: str, read: Callable[[bytes], T], batch_id: str, most: int = 0) -> T:
        """What `_ask` returns, tried again while its failure may pass."""
        return self._retries.persist(
            lambda attempt: self._ask("GET", path, read, None, batch_id, most), self._waits
        )

    def _ask(
        self, method: str, path: str, read: Callable[[bytes], T], body: bytes | None = None, batch_id: str = "",
        most: int = 0,
    ) -> T:  # fmt: skip
        asking = self._client.ask(method, self.backend.address(path), body, most=most)
        return self._read(asking, read, batch_id, most)

    def _read(
        self,
        asking: Coroutine[Any, Any, Reply],
        read: Callable[[bytes], T],
        batch_id: str = "",
        most: int = 0,
    ) -> T:
        """What `read` makes of the body of a reply of `most` bytes; `batch_id`: what it is about.

        Raises Transient, RateLimited, BackendError.
        """
        try:
            reply = wait(asking)
        except ReplyTooLong:
            raise self.backend.too_long(most) from None
        if reply.status in (404, 405) and batch_id:
            raise BackendError(
                f"{self.name} no longer has {batch_id} or its answers.",
                "remove it from batches.json, and the same command submits its questions again",
            )
        if reply.status in (404, 405):
            raise BackendError(
                f"{self.name} has no Batch API (it answers {reply.status}).",
                "leave --batch out, or check --base-url, which often ends in /v1",
            )
        if not 200 <= reply.status < 300:
            raise self.backend.failure(refusal_of(reply.status, reply.body), reply.headers)
        try:
            return read(reply.body)
        except UNPARSEABLE:
            raise Transient(f"{self.name} answers with something else ({nature_of(reply.body)})") from None
