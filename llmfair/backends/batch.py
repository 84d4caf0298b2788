"""OpenAI's Batch API: files of requests that a server answers within a day, at half the price (`backends.md` 5).

The openai package speaks to files and batches; what a line asks and what its answer means is told by the backend
of single requests, so that both roads give equal answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from llmfair.backends.base import RateLimited, Transient
from llmfair.backends.chat_completions import UNPARSEABLE, error_of
from llmfair.backends.openai import OpenAI
from llmfair.errors import BackendError, LlmfairError, Rejected, Unavailable
from llmfair.jsonbytes import decode, encode
from llmfair.records import Completion, Request

if TYPE_CHECKING:
    from openai import APIStatusError
    from openai import OpenAI as Client
    from openai.types import Batch, FileObject

T = TypeVar("T")

MOST_LINES = 50_000
MOST_BYTES = 200 * 10**6
ENDED = {"completed", "failed", "expired", "cancelled"}
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
RETRIES_BEFORE_SUCCESS = 3
SETTLE_SECONDS = 5.0
"""How long a batch may take to show in the list of all, after its creation was asked for."""


class Batches:
    """Files and batches of one server.

    What fails in passing is tried again `retries` times, less often while the server has never answered; where it asks
    to wait, `max_wait` seconds at most. Raises BackendError: MissingKey, Unavailable, Rejected.
    """

    def __init__(self, backend: OpenAI, retries: int, max_wait: float) -> None:
        self.backend, self.retries, self.max_wait = backend, retries, max_wait
        self.identity, self.name = backend.identity, backend.server
        self._made: Client | None = None
        self._answered = False

    @property
    def _client(self) -> Client:
        """Made on first use, since a run that has all its answers needs no key. Raises MissingKey."""
        if self._made is None:
            self._made = self.backend.client()
        return self._made

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    def line(self, request: Request) -> bytes:
        """A request as a line of a file; its answer comes back under the request's key."""
        head = f'{{"custom_id":"{request.key}","method":"POST","url":"/v1/chat/completions","body":'
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

        def send(attempt: int) -> str:
            with path.open("rb") as file:
                return _id_of(self._client.files.create(file=(path.name, file), purpose="batch"))

        return self._patiently(send)

    def create(self, input_file_id: str, perhaps_made: bool = False) -> Batch:
        """The one batch over an uploaded file.

        Its creation has no second attempt without a look: where an earlier one may have reached the server, here
        or before a crash (`perhaps_made`), the batch is first looked for among all.
        """

        def make(attempt: int) -> Batch:
            made = self._find(input_file_id) if perhaps_made or attempt else None
            made = made or self._client.batches.create(
                completion_window="24h", endpoint="/v1/chat/completions", input_file_id=input_file_id
            )
            return _checked(made)

        return self._patiently(make)

    def state(self, batch_id: str) -> Batch:
        """The batch as it is now."""

        def look(attempt: int) -> Batch:
            return _checked(self._client.batches.retrieve(batch_id))

        return self._patiently(look, batch_id)

    def ended(self, batch: Batch) -> bool:
        return batch.status in ENDED

    def words(self, batch: Batch) -> str:
        """A batch's status and counts."""
        counts = batch.request_counts
        if counts is None or not counts.total:
            return str(batch.status)
        failed = f", {counts.failed:,} failed" if counts.failed else ""
        return f"{batch.status}, {counts.completed:,} of {counts.total:,} answered{failed}"

    def answers(self, batch: Batch) -> dict[str, bytes]:
        """The lines that came back, by key, from output and error file in whatever order; `read` reads one."""
        found: dict[str, bytes] = {}
        for file_id in (batch.error_file_id, batch.output_file_id):
            if file_id:
                found |= self._lines(file_id, batch.id)
        return found

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
                raise Transient(f"{self.backend.server} did not answer it ({code or 'no reason given'})")
            status, reply = response.get("status_code") or 200, encode(response.get("body"))
            if self.backend.takes_other_limit(status, reply):
                raise Transient(f"{self.backend.server} knows the limit on tokens under its other name")
            return self.backend.read(status, {}, reply, request)
        except UNPARSEABLE:
            raise Transient(f"{self.backend.server} answers it with something else") from None

    def refusal(self, batch: Batch) -> Rejected:
        """Why a batch failed as a whole: the error of its first line."""
        errors = (batch.errors.data if batch.errors else None) or []
        first = min(errors, key=lambda error: error.line or 0, default=None)
        hint = "once the cause is mended, the same command submits it again"
        if first is None:
            return Rejected(f"{self.backend.server} refuses {batch.id} and says nothing of why.", hint)
        if first.code == "token_limit_exceeded":
            hint = (
                "let other batches end, or submit less at a time with --max-calls; the same command continues"
            )
        where = f" at line {first.line}" if first.line else ""
        says = self.backend.quote({"message": first.message})
        return Rejected(f"{self.backend.server} refuses {batch.id}{where}{says}.", hint)

    def _lines(self, file_id: str, batch_id: str) -> dict[str, bytes]:
        """The lines of a file by key; what is no file of lines at all must not pass for one without answers."""

        def read(attempt: int) -> dict[str, bytes]:
            content = self.backend.without_secrets(self._client.files.content(file_id).content)
            found = {key: line for line in content.split(b"\n") if (key := self.key_of(line))}
            if content.strip() and b'"custom_id"' not in content:
                raise ValueError(file_id)
            return found

        return self._patiently(read, batch_id)

    def _find(self, input_file_id: str) -> Batch | None:
        """The batch over a file, if there is one; no second batch is ever made of a file."""
        for pause in (0.0, SETTLE_SECONDS):
            time.sleep(pause)
            for batch in self._client.batches.list(limit=100):
                if batch.input_file_id == input_file_id:
                    return batch
        return None

    def _patiently(self, call: Callable[[int], T], batch_id: str = "") -> T:
        """What `call(attempt)` returns, tried again while its failure may pass; `batch_id` is what it is about."""
        import openai

        attempt = 0
        while True:
            failure: Exception
            try:
                found = call(attempt)
                self._answered = True
                return found
            except openai.APIStatusError as error:
                failure = self._failure(error, batch_id)
            except openai.APITimeoutError:
                failure = Transient(f"no answer from {self.backend.server}")
            except openai.APIConnectionError:
                failure = Transient(f"no connection to {self.backend.server}")
            except (
                ValueError,
                AttributeError,
            ):  # the package reads any body; of broken JSON it raises its parser's
                failure = Transient(f"{self.backend.server} answers with something else")
            # Out here, since the package's exceptions can hold the request's headers.
            if isinstance(failure, LlmfairError):
                raise failure
            allowed = self.retries if self._answered else min(RETRIES_BEFORE_SUCCESS, self.retries)
            if attempt >= allowed:
                cause = failure.cause if isinstance(failure, Transient) else "the rate is limited"
                raise Unavailable(
                    f"no answer after {attempt + 1} attempts: {cause}.",
                    "check the server; the same command continues",
                )
            asked = (failure.retry_after or 0.0) if isinstance(failure, RateLimited) else 0.0
            if asked > self.max_wait:
                raise Unavailable(
                    f"{self.backend.server} asks to wait {asked:,.0f} s, longer than --max-wait.",
                    "try later, or wait with a longer --max-wait; the same command continues",
                )
            time.sleep(max(asked, min(FIRST_WAIT * 2.0**attempt, LONGEST_WAIT)))
            attempt += 1

    def _failure(self, error: APIStatusError, batch_id: str) -> LlmfairError | RateLimited | Transient:
        server, status = self.backend.server, error.status_code
        if status in (404, 405) and batch_id:
            return BackendError(
                f"{server} no longer has {batch_id} or its answers.",
                "remove it from batches.json, and the same command submits its questions again",
            )
        if status in (404, 405):
            return BackendError(
                f"{server} has no Batch API (it answers {status}).",
                "leave --batch out, or check --base-url, which often ends in /v1",
            )
        return self.backend.failure(status, error.response.headers, error_of(error.response.content))


def _checked(batch: Batch) -> Batch:
    """A batch that has an id and a status. Raises ValueError, AttributeError for a reply that is something else."""
    _id_of(batch)
    if not isinstance(batch.status, str):
        raise ValueError(batch)
    return batch


def _id_of(thing: FileObject | Batch) -> str:
    """The id of what a server made. Raises ValueError, AttributeError for a reply that is something else."""
    if not isinstance(thing.id, str):
        raise ValueError(thing)
    return thing.id
