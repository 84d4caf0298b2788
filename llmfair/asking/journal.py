"""Answers on disk: every answer a run was given, kept before the program that asked for it goes on.

A run resumes by replay: programs run from the start and the journal answers what was already asked. One JSON
object a line, appended by a single write, so that a killed process loses nothing it was told was written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from msgspec import Meta, convert

from llmfair.backends.base import Backend
from llmfair.errors import LlmfairError, RunConflict
from llmfair.io import files, secrets
from llmfair.io.files import decode, encode, itself
from llmfair.nouns import (
    Chat,
    Completion,
    Failure,
    Finish,
    Labels,
    Permutation,
    Request,
    Role,
    Sampling,
    picked,
)

FORMAT = 1
FSYNC_SECONDS = 1.0
SHARED = "cache"
"""The source of an answer that another run was given."""
_APART = ("adapter", "constrain", "margins")
_DRAWN = tuple(item.name for item in fields(Sampling) if item.name not in _APART)


def request_keys(identity: str, like: Chat, sampling: Sampling, about: bool) -> Callable[[Chat], str]:
    """What answers to chats of one's shape and draw are filed under: 32 hex of SHA-256 over all that can change one.

    `about`: what a chat is about counts, too, for simulated models, which read nothing else.
    """
    drawn = picked(sampling, _DRAWN)
    drawn["extra"] = secrets.hidden(sampling.extra)  # another key asks nothing anew
    shape: Any = type(like.expects).__name__
    if sampling.constrain or sampling.margins:
        match like.expects:
            case Permutation(n, best):
                shape = [shape, n, *([] if best is None else [best])]
            case Labels(labels):
                shape = [shape, *labels]
            case _:
                shape = ["Text"]
    before = _canonical([FORMAT, identity, sampling.adapter])[:-1]
    after = _canonical([drawn, shape, sampling.constrain, sampling.margins, like.draw])[1:-1]

    def key(chat: Chat) -> str:
        about_bytes = _canonical(dict(chat.about)) if about else b"null"
        return hashlib.sha256(b"%b,%b,%b,%b]" % (before, chat.said, after, about_bytes)).hexdigest()[:32]

    return key


_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _canonical(value: Any) -> bytes:
    """Sorted, by the standard library: what a key is made of may never change."""
    return _SORTED.encode(value).encode("utf-8", "backslashreplace")


def requests(backend: Backend, sampling: Sampling) -> Callable[[str, Chat], Request]:
    """Makes requests to a backend; what chats of one shape and draw have in common is made once."""
    shapes = dict[Any, tuple[Sampling, Callable[[Chat], str]]]()

    def request(probe_id: str, chat: Chat) -> Request:
        shape = (chat.expects, chat.draw)
        if (pair := shapes.get(shape)) is None:
            drawn = chat_sampling(chat, sampling)
            pair = shapes[shape] = drawn, request_keys(backend.identity, chat, drawn, backend.reads_about)
        return Request(chat, pair[0], pair[1](chat), probe_id)

    return request


def chat_sampling(chat: Chat, sampling: Sampling) -> Sampling:
    """The sampling of one chat: repeats must not share a seed, and `max_tokens` 0 goes by the answer's shape.

    Room for an answer: 16 + 8 n tokens for a permutation of n, 16 for a label, 256 for text, and what the
    model may spend on thinking beside it.
    """
    match chat.expects:
        case Permutation(n, best):
            room = 16 + 8 * (best or n)
        case Labels():
            room = 16
        case _:
            room = 256
    return replace(
        sampling,
        seed=sampling.seed + chat.draw,
        max_tokens=(sampling.max_tokens or room) + sampling.thinking_tokens,
        thinking_tokens=0,
    )


Tokens = Annotated[int, Meta(ge=0, le=1 << 53)]
COMPLETION_FIELDS = tuple(item.name for item in fields(Completion))


@dataclass(frozen=True)
class AnswerLine:
    """An answer, as far as anything reads it again."""

    key: str
    probe: str
    text: str
    finish: Finish
    about: Mapping[str, Any]
    chat: Sequence[tuple[Role, str]]
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    reasoning: str | None = None
    logprobs: Mapping[str, float | None] | None = None
    model: str | None = None
    fingerprint: str | None = None
    seconds: Annotated[float, Meta(ge=-1e12, le=1e12)] | None = None
    server: str | None = None


@dataclass(frozen=True)
class FailureLine:
    """A probe that has no answer."""

    failure: str
    message: str
    probe: str
    at: str


def not_begun_by(line: bytes, identity: str) -> str:
    """What is wrong with the first line of a journal that should hold answers of this model; or ""."""
    try:
        other = decode(line)["identity"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "this is not the first line of a journal"
    return "" if other == identity else f"holds answers of '{other}', not of '{identity}'"


def _lines(file: BinaryIO) -> Iterator[tuple[int, int, bytes, dict[str, Any] | None]]:
    """The number, the place and the text of each line, and its row where it is an answer or a failure."""
    offset = 0
    for number, line in enumerate(files.pieces(file), start=1):
        row = None
        if number > 1:  # the first says whose the journal is
            with suppress(ValueError, RecursionError):
                document = decode(line)
                is_answer = isinstance(document, dict) and "key" in document
                convert(document, AnswerLine if is_answer else FailureLine)
                row = document
        yield number, offset, line, row
        offset += len(line)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The answers and failures of a journal in the order they were written; lines that are neither are left out."""
    with files.opened(path) as file:
        yield from (row for *_, row in _lines(file) if row is not None)


def completion_of(row: Mapping[str, Any]) -> Completion:
    """The completion that a row of a journal, or of the shared cache, holds. Raises ValueError for one without."""
    values = {name: row[name] for name in COMPLETION_FIELDS if row.get(name) is not None}
    if logprobs := values.get("logprobs"):  # −∞ is null in JSON, and no more than a label that is absent
        values["logprobs"] = {
            label: value for label, value in logprobs.items() if value is not None and isfinite(value)
        }
    return convert(values, Completion)


class JournalAnswers:
    """The first answer to each request of a journal that is not written to meanwhile.

    In memory is where each stands, by 64 bits of its key.
    """

    _file: int

    def __init__(self, path: Path) -> None:
        self._offsets = dict[int, int]()
        with files.opened(path) as file:
            self._file = os.dup(file.fileno())
            for _, offset, _, row in _lines(file):
                if row is not None and "key" in row:
                    self._offsets.setdefault(_digest(row["key"]), offset)

    def close(self) -> None:
        os.close(self._file)

    def __len__(self) -> int:
        return len(self._offsets)

    def get(self, key: str) -> Completion | None:
        """The answer filed under `key`, or None."""
        offset = self._offsets.get(_digest(key))
        if offset is None:
            return None
        with open(self._file, "rb", closefd=False) as lines:
            lines.seek(offset)
            row = decode(lines.readline())
        return completion_of(row) if row["key"] == key else None


def _digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())


class Unwritable(LlmfairError):
    """A journal that can take no further answer: the run ends."""


class Journal(JournalAnswers):
    """The journal of one run: appends answers, and finds those of earlier invocations by key.

    Lines that do not parse (torn by a crash) are skipped, their numbers kept in `skipped`; the answers they held are
    asked again. Raises RunConflict when the file belongs to another run or is not a journal at all. `shared` counts the
    answers that came from other runs, `servers` those of each of several servers.
    """

    def __init__(self, path: Path, run: str, identity: str) -> None:
        self.path = path
        self.skipped = list[int]()
        self.shared = 0
        self.servers = Counter[str]()
        self._offsets = {}
        self._synced = time.monotonic()
        self._syncing: Future[None] | None = None
        self._disk = ThreadPoolExecutor(1, "llmfair-fsync")  # may take its time: chains do not wait for it
        try:
            self._file = itself(path, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK)
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise OSError(errno.EINVAL, "no regular file")
        except OSError as error:
            hint = "choose another --output folder, or remove it"
            raise RunConflict(f"{path}: cannot be opened: {error.strerror}.", hint) from None
        self._size = os.fstat(self._file).st_size
        if not self._size:
            self._write(encode({"journal": FORMAT, "run": run, "identity": identity}))
            return
        line = b""
        with path.open("rb") as file:
            for number, offset, line, row in _lines(file):
                if number == 1 and (wrong := not_begun_by(line, identity)):
                    raise RunConflict(
                        f"{path}:1: {wrong}.",
                        "choose another --output folder, or --fresh to set this journal aside",
                    )
                if row is None and number > 1:
                    self.skipped.append(number)
                elif row is not None and "key" in row:
                    self._note(row, offset)
        if not line.endswith(b"\n"):  # a torn write
            self._write(b"")

    def _note(self, row: Mapping[str, Any], offset: int) -> None:
        """Notes where the first answer to a request stands, and where it came from."""
        if self._offsets.setdefault(_digest(row["key"]), offset) != offset:
            return
        self.shared += row.get("source") == SHARED
        if server := row.get("server"):
            self.servers[server] += 1

    def put(
        self,
        request: Request,
        completion: Completion,
        attempts: int,
        source: str = "backend",
        server: str = "",
    ) -> None:
        """Files an answer; when this returns a kill loses it no more. Raises Unwritable where the disk is full."""
        chat = request.chat
        row = {
            "key": request.key,
            "probe": request.probe_id,
            "draw": chat.draw,
            "about": chat.about,
            **picked(completion, COMPLETION_FIELDS),
            "source": source,
            "attempts": attempts,
            "at": datetime.now(UTC),
            **({"server": server} if server else {}),
        }
        self._note(row, self._write(b'%b,"chat":%b}' % (encode(row)[:-1], chat.said)))
        self._sync(when_due=True)

    def put_failure(self, failure: Failure) -> None:
        """Notes that a probe has no answer; ignored on replay, so it is asked again."""
        row = {"failure": failure.failure, "message": failure.message, "probe": failure.probe_id}
        self._write(encode({**row, "at": datetime.now(UTC)}))
        self._sync(when_due=True)

    def close(self) -> None:
        try:
            self._sync()
            self._wait()
        finally:
            self._disk.shutdown()
            os.close(self._file)
            self._file = -1  # the number may soon belong to another file

    def _write(self, line: bytes) -> int:
        offset = self._size
        view = memoryview(line + b"\n")
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            os.ftruncate(self._file, offset)  # a torn line would swallow the next one
            raise self._unwritable(error) from None
        self._size += len(line) + 1
        return offset

    def _sync(self, when_due: bool = False) -> None:
        """Begins to bring what is written to the disk. Raises Unwritable where that failed, or the file is gone."""
        busy = self._syncing is not None and not self._syncing.done()
        if when_due and (busy or time.monotonic() - self._synced <= FSYNC_SECONDS):
            return
        self._wait()
        self.refuse_removed()
        self._syncing = self._disk.submit(os.fsync, self._file)
        self._synced = time.monotonic()

    def _wait(self) -> None:
        """Waits for what was begun last. Raises its failure once, as a disk does."""
        syncing, self._syncing = self._syncing, None
        try:
            if syncing is not None:
                syncing.result()
        except OSError as error:
            raise self._unwritable(error) from None

    def refuse_removed(self) -> None:
        """Raises Unwritable where the file is no longer in its place: nothing that is written is a run's any more."""
        if not self.path.exists():
            raise Unwritable(
                f"{self.path} was removed during the run.", "put it back, or ask again with --fresh"
            )

    def _unwritable(self, error: OSError) -> Unwritable:
        self.refuse_removed()
        return Unwritable(
            f"cannot write {self.path}: {error.strerror}.", "what is written is kept; make room and repeat"
        )
