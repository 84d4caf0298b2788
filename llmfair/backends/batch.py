"""OpenAI's Batch API: files of requests that a server answers within a day, at half the price (`backends.md` 5).

What a line asks and what its answer means is told by the backend of single requests, so that both roads give equal
answers.
"""

from __future__ import annotations

import errno
import re
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

from llmfair.backends.chat_completions import UNPARSEABLE
from llmfair.backends.faults import nature_of, refusal_of
from llmfair.backends.openai import OpenAI
from llmfair.errors import BackendError, LlmfairError, Rejected
from llmfair.io.files import decode, encode
from llmfair.io.net import SLOWEST, Client, RateLimited, Reply, ReplyTooLong, Retries, Transient, wait
from llmfair.nouns import Completion, Request

T = TypeVar("T")

_ID = re.compile(r"[\w.:=+~@-]{1,2000}", re.ASCII)  # which stands in addresses, and on a terminal
_KEY = re.compile(rb'"custom_id"\s*:\s*"([\w-]+)"', re.ASCII)
_FULL = {errno.ENOSPC, errno.EDQUOT}
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
    """What a server tells of a batch; the files are of errors and of answers, as far as there are any."""

    id: str
    status: str
    file_ids: tuple[str, ...]
    counts: Mapping[str, object]
    errors: Sequence[Mapping[str, Any]]

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def words(self) -> str:
        """Status and counts."""
        total, completed, failed = (
            count if type(count) is int else 0
            for count in map(self.counts.get, ("total", "completed", "failed"))
        )
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
        self._retries, self._held = Retries(retries, max_wait, 0.0), ExitStack()

    @cached_property
    def _client(self) -> Client:
        """Made on first use, since a run that has all its answers needs no key. Raises MissingKey."""
        return self.backend.client()

    def close(self) -> None:
        self._held.close()
        if "_client" in vars(self):
            wait(self._client.close())

    def line(self, request: Request) -> bytes:
        """A request as a line of a file; its answer comes back under the request's key."""
        head = f'{{"custom_id":"{request.key}","method":"POST","url":"{ENDPOINT}","body":'
        return head.encode() + self.backend.body(request) + b"}\n"

    @staticmethod
    def key_of(line: bytes) -> str | None:
        """The key a line was sent under, also of a line that is no JSON further on; None for one that does not say."""
        try:
            key = decode(line)["custom_id"]
        except UNPARSEABLE:
            match = _KEY.search(line)
            key = match[1].decode() if match else None
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
        return self._patiently(
            lambda attempt: self._told(self._client.upload(url, path, {"purpose": "batch"}), _id)
        )

    def create(self, input_file_id: str, perhaps_made: bool = False) -> Batch:
        """The one batch over an uploaded file.

        Its creation has no second attempt without a look: where an earlier one may have reached the server, here
        or before a crash (`perhaps_made`), the batch is first looked for among all.
        """
        body = {"input_file_id": input_file_id, "endpoint": ENDPOINT, "completion_window": "24h"}

        def make(attempt: int) -> Batch:
            batch = self._find(input_file_id) if perhaps_made or attempt else None
            return batch or self._ask("POST", "batches", self._read_batch, encode(body))

        return self._patiently(make)

    def state(self, batch_id: str) -> Batch:
        """The batch as it is now."""

        def read(document: Mapping[str, Any]) -> Batch:
            if (batch := self._read_batch(document)).id != batch_id:
                raise Transient(f"{self.name} tells of another batch than {batch_id}")
            return batch

        return self._patiently(
            lambda attempt: self._ask("GET", f"batches/{batch_id}", read, batch_id=batch_id)
        )

    def answers(self, batch: Batch, lines: int) -> Lines:
        """The lines that came back of so many, by key, from both files in whatever order; `read` reads one.

        They lie on disk until the next ones are asked for.
        """
        self._held.close()
        answers = Lines()
        for file_id in batch.file_ids:
            answers.places |= self._lines(file_id, batch.id, lines).places
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
        """Why a batch failed as a whole: the error of its first line."""
        hint = "once the cause is mended, the same command submits it again"
        if not batch.errors:
            return Rejected(f"{self.name} refuses {batch.id} and says nothing of why.", hint)
        first = min(batch.errors, key=lambda error: error["line"] if type(error.get("line")) is int else 0)
        if first.get("code") == "token_limit_exceeded":
            hint = (
                "let other batches end, or submit less at a time with --max-calls; the same command continues"
            )
        where = f" at line {first['line']}" if type(first.get("line")) is int else ""
        quote = self.backend.quote(refusal_of(400, encode(first)).words)
        return Rejected(f"{self.name} refuses {batch.id}{where}{quote}.", hint)

    def _lines(self, file_id: str, batch_id: str, lines: int) -> Lines:
        """The lines of a file by key; what is no file of lines at all must not pass for one without answers.

        A key that comes with two different lines has none: nobody knows whose they are.
        """

        def read(attempt: int) -> Lines:
            file = tempfile.TemporaryFile()  # noqa: SIM115
            self._held.callback(_close, file)
            most, size, began = lines * self.backend.options.max_reply, 0, time.monotonic()
            with self._client.open(self.backend.address(f"files/{file_id}/content")) as reply:
                if not 200 <= reply.status < 300:
                    raise self._failure(Reply(reply.status, reply.headers, next(reply.blocks, b"")), batch_id)
                for block in reply.blocks:
                    size += file.write(block)
                    if size > most:
                        raise self.backend.too_long(most)
                    if time.monotonic() - began > self.backend.options.timeout + size / SLOWEST:
                        raise Transient(f"{self.name} sends its answers too slowly")
            file.flush()
            file_lines, twice, blank = Lines(), set[str](), True
            for at, line in _cut_lines(file, self.backend.options.max_reply):
                blank = blank and not line.strip()
                if not (key := self.key_of(line)):
                    continue
                if key not in file_lines:
                    file_lines.places[key] = file, at, len(line)
                elif file_lines[key] != line:
                    twice.add(key)
            if not blank and not file_lines:
                file.seek(0)
                raise Transient(f"{self.name} answers with something else ({nature_of(file.read(1 << 16))})")
            for key in twice:
                del file_lines.places[key]
            return file_lines

        return self._patiently(read)

    def _find(self, input_file_id: str) -> Batch | None:
        """The batch over a file, if there is one; no second batch is ever made of a file."""

        def page(document: Mapping[str, Any]) -> tuple[Batch | None, str]:
            """The batch if it is here, and what asks for the next page; "" after the last."""
            rows = [{**row} for row in document["data"]]
            for row in rows:
                if row.get("input_file_id") == input_file_id:
                    return self._read_batch(row), ""
            return None, f"&after={_id(rows[-1])}" if rows and document.get("has_more") else ""

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

    def _read_batch(self, document: Mapping[str, Any]) -> Batch:
        """What the server tells of a batch. Raises Transient, what is UNPARSEABLE for what is none."""
        status, files = (
            document.get("status"),
            (document.get("error_file_id"), document.get("output_file_id")),
        )
        if status not in ENDED | RUNNING:
            word = self.backend.hidden(str(status))[:40]
            named = f"the status {word!r}, which batches do not have" if status else "no status"
            raise Transient(f"{self.name} gives {_id(document)} {named}")
        counts, errors = document.get("request_counts"), document.get("errors")
        rows = errors.get("data") if isinstance(errors, dict) else None
        return Batch(
            _id(document),
            str(status),
            tuple(file_id for file_id in files if isinstance(file_id, str) and _ID.fullmatch(file_id)),
            counts if isinstance(counts, dict) else {},
            [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else [],
        )

    def _ask(
        self, method: str, path: str, read: Callable[[Any], T], body: bytes | None = None, batch_id: str = ""
    ) -> T:
        return self._told(self._client.ask(method, self.backend.address(path), body), read, batch_id)

    def _told(self, asking: Coroutine[Any, Any, Reply], read: Callable[[Any], T], batch_id: str = "") -> T:
        """What `read` makes of the JSON of a reply; `batch_id`: what it is about. Raises what `_patiently` tries again,
        BackendError.
        """
        try:
            reply = wait(asking)
        except ReplyTooLong:
            raise self.backend.too_long() from None
        if not 200 <= reply.status < 300:
            raise self._failure(reply, batch_id)
        try:
            return read(decode(reply.body))
        except UNPARSEABLE:
            raise Transient(f"{self.name} answers with something else ({nature_of(reply.body)})") from None

    def _patiently(self, call: Callable[[int], T]) -> T:
        """What `call(attempt)` returns, tried again while its failure may pass."""
        try:
            return self._retries.persist(call, self._waits)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise LlmfairError(
                f"the disk of {tempfile.gettempdir()}, where answers lie while they are read, is full.",
                "free some of it, or set TMPDIR; the same command continues",
            ) from None

    def _failure(self, reply: Reply, batch_id: str) -> LlmfairError | RateLimited | Transient:
        if reply.status not in (404, 405):
            return self.backend.failure(refusal_of(reply.status, reply.body), reply.headers)
        if batch_id:
            return BackendError(
                f"{self.name} no longer has {batch_id} or its answers.",
                "remove it from batches.json, and the same command submits its questions again",
            )
        return BackendError(
            f"{self.name} has no Batch API (it answers {reply.status}).",
            "leave --batch out, or check --base-url, which often ends in /v1",
        )


class Lines(Mapping[str, bytes]):
    """Lines of files on disk by their keys; `places`: the file of each, where it begins and how long it is."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[IO[bytes], int, int]] = {}

    def __getitem__(self, key: str) -> bytes:
        file, at, length = self.places[key]
        file.seek(at)
        return file.read(length)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # on a full disk, what it holds can be written no more
        file.close()


def _cut_lines(file: IO[bytes], longest: int) -> Iterator[tuple[int, bytes]]:
    """Where each line begins and what it says; of one that is too long to be read, only so much that this shows."""
    at = 0
    while True:
        file.seek(at)
        line = part = file.readline(longest + 2)
        if not line:
            return
        yield at, line.removesuffix(b"\n")
        file.seek(at + len(line))
        at += len(line)
        while len(part) == longest + 2 and not part.endswith(b"\n"):
            part = file.readline(longest + 2)
            at += len(part)


def _id(document: Mapping[str, object]) -> str:
    """The id of what a server made. Raises ValueError for what cannot be one."""
    name = document.get("id")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ValueError(name)
    return name
