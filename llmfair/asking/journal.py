"""Answers on disk: every answer a run was given, kept before the program that asked for it goes on.

A run resumes by replay: programs run from the start and the journal answers what was already asked. One JSON
object a line, appended by a single write, so that a killed process loses nothing it was told was written.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from errno import ENOSPC
from pathlib import Path
from typing import Any

from llmfair.asking.journal_lines import COMPLETION_FIELDS, not_begun_by, row_of
from llmfair.asking.kept_answers import Places
from llmfair.asking.room import Room, most_bytes
from llmfair.errors import LlmfairError, RunConflict
from llmfair.io import files, secrets
from llmfair.io.files import encode, itself
from llmfair.nouns import (
    Chat,
    Completion,
    Expects,
    Failure,
    Labels,
    Permutation,
    Request,
    Sampling,
)

FORMAT = 1
FSYNC_SECONDS = 1.0
SHARED = "cache"
"""The source of an answer that another run was given."""
_APART = ("adapter", "constrain", "margins")
_DRAWN = tuple(item.name for item in fields(Sampling) if item.name not in _APART)


def request_key(
    identity: str,
    chat: Chat,
    sampling: Sampling,
    about: bool = False,
) -> str:
    """What an answer is filed under: 32 hex of SHA-256 over all that can change it, and nothing else.

    `about`: what the chat is about counts too, for simulated models, which read nothing else.
    """
    return request_keys(identity, chat.expects, chat.draw, sampling, about)(chat)


def request_keys(
    identity: str, expects: Expects, draw: int, sampling: Sampling, about: bool = False
) -> Callable[[Chat], str]:
    """`request_key` for chats of one shape and draw: what they have in common is encoded once."""
    drawn = {name: getattr(sampling, name) for name in _DRAWN}
    drawn["extra"] = secrets.hidden(sampling.extra)  # another key asks nothing anew
    shape = _shape(expects) if sampling.constrain or sampling.margins else type(expects).__name__
    before = _canonical([FORMAT, identity, sampling.adapter])[:-1]
    after = _canonical([drawn, shape, sampling.constrain, sampling.margins, draw])[1:-1]

    def key(chat: Chat) -> str:
        told = _canonical(dict(chat.about)) if about else b"null"
        return hashlib.sha256(b"%b,%b,%b,%b]" % (before, chat.said, after, told)).hexdigest()[:32]

    return key


def _canonical(value: Any) -> bytes:
    """Sorted, by the standard library: what a key is made of may never change."""
    return _in_order(value).encode("utf-8", "backslashreplace")


_in_order = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def _shape(expects: Expects) -> list[Any]:
    match expects:
        case Permutation(n, best):
            return ["Permutation", n, *([] if best is None else [best])]
        case Labels(labels):
            return ["Labels", *labels]
        case _:
            return ["Text"]


class Unwritable(LlmfairError):
    """A journal that can take no further answer: the run ends."""


class Journal:
    """The journal of one run: appends answers, and finds those of earlier invocations by key.

    Only the place of each answer is kept in memory. Lines that do not parse (torn by a crash) are skipped, their
    numbers kept in `skipped`; the answers they held are asked again. Raises RunConflict when the file belongs to
    another run or is not a journal at all. `shared` counts the answers that came from other runs, `servers`
    those of each of several servers.
    """

    def __init__(self, path: Path, run: str, identity: str) -> None:
        self.path = path
        self.skipped: list[int] = []
        self.shared = 0
        self.servers: Counter[str] = Counter()
        self._places = Places()
        self._synced = time.monotonic()
        self._syncing: Future[None] | None = None
        self._disk = ThreadPoolExecutor(1, "llmfair-fsync")  # may take its time: chains do not wait for it
        self._room, self._full = Room(path.parent), False
        self._file = _opened(path)
        self._size = os.fstat(self._file).st_size
        if self._size:
            self._load(identity)
        else:
            self._write(encode({"journal": FORMAT, "run": run, "identity": identity}))

    def __len__(self) -> int:
        """The number of answers on disk."""
        return len(self._places)

    def get(self, key: str) -> Completion | None:
        """The answer filed under `key`, or None."""
        if key not in self._places:
            return None
        with open(self._file, "rb", closefd=False) as file:
            return self._places.answer(key, file)

    @contextmanager
    def awaiting(self, request: Request) -> Iterator[None]:
        """Holds room on the disk for an answer, which is paid for. Raises Unwritable where there is none."""
        self._refuse_full()
        size = most_bytes(request)
        try:
            self._room.hold(size)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            yield
        finally:
            self._room.wanted -= size

    def put(
        self,
        request: Request,
        completion: Completion,
        attempts: int,
        source: str = "backend",
        server: str = "",
    ) -> None:
        """Files an answer; when this returns a kill of the process no longer loses it. `server`: which of several.

        Raises Unwritable where the disk is full, after it took the room that was held for what was `awaiting`.
        """
        chat = request.chat
        row = {
            "key": request.key,
            "probe": request.probe_id,
            "draw": chat.draw,
            "about": chat.about,
            "text": completion.text,
            "finish": completion.finish,
            **{name: getattr(completion, name) for name in COMPLETION_FIELDS},
            "source": source,
            "attempts": attempts,
            "at": datetime.now(UTC),
            **({"server": server} if server else {}),
        }
        self._places.add(request.key, self._write(b'%b,"chat":%b}' % (encode(row)[:-1], chat.said)))
        self._count(row)
        self._refuse_full()
        self._sync_now_and_then()

    def put_failure(self, failure: Failure) -> None:
        """Notes that a probe has no answer; ignored on replay, so it is asked again."""
        row = {
            "failure": failure.failure,
            "message": failure.message,
            "probe": failure.probe_id,
            "at": datetime.now(UTC),
        }
        self._write(encode(row))
        self._sync_now_and_then()

    def close(self) -> None:
        try:
            self._sync()
            self._hear()
        finally:
            self._disk.shutdown()
            self._room.free()
            os.close(self._file)
            self._file = -1  # the number may soon belong to another file

    def _count(self, row: Mapping[str, Any]) -> None:
        """Notes where an answer came from."""
        self.shared += row.get("source") == SHARED
        if server := row.get("server"):
            self.servers[server] += 1

    def _write(self, line: bytes) -> int:
        offset = self._size
        try:
            self._append(line)
        except OSError as error:
            if not self._room.free():
                raise self._unwritable(error) from None
            self._full = True
            return self._write(line)
        self._size += len(line) + 1
        return offset

    def _append(self, line: bytes) -> None:
        view = memoryview(line + b"\n")
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self._size)  # a torn line would swallow the next one
            raise

    def _refuse_full(self) -> None:
        """Raises Unwritable where what was last written took the room that was held."""
        if self._full:
            raise self._unwritable(OSError(ENOSPC, os.strerror(ENOSPC)))

    def _sync_now_and_then(self) -> None:
        due = time.monotonic() - self._synced > FSYNC_SECONDS
        if due and (self._syncing is None or self._syncing.done()):
            self._sync()

    def _sync(self) -> None:
        """Begins to bring what is written to the disk itself; says first whether that failed the last time.

        Raises Unwritable where the file was removed: what is written would be lost with the process.
        """
        self._hear()
        self.refuse_removed()
        self._syncing = self._disk.submit(os.fsync, self._file)
        self._synced = time.monotonic()

    def _hear(self) -> None:
        """Waits for what was begun last. Raises its failure, and once only, as a disk does."""
        syncing, self._syncing = self._syncing, None
        if syncing is None:
            return
        try:
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
        hint = "what is written is kept; make room and repeat"
        return Unwritable(f"cannot write {self.path}: {error.strerror}.", hint)

    def _load(self, identity: str) -> None:
        with self.path.open("rb") as file:
            lines = files.pieces(file)
            header = next(lines)
            if wrong := not_begun_by(header, identity):
                raise RunConflict(
                    f"{self.path}:1: {wrong}.",
                    "choose another --output folder, or --fresh to set this journal aside",
                )
            offset = len(header)
            for number, line in enumerate(lines, start=2):
                row = row_of(line)
                if row is None:
                    self.skipped.append(number)
                elif "key" in row and row["key"] not in self._places:
                    self._count(row)
                    self._places.add(row["key"], offset)
                offset += len(line)
        if not _ends_with_newline(self.path):
            self._write(b"")


def _opened(path: Path) -> int:
    """The file of a journal. Raises RunConflict where it is none."""
    why = "no regular file"
    try:
        file = itself(path, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
    except OSError as error:
        why = str(error.strerror)
    raise RunConflict(f"{path}: cannot be opened: {why}.", "choose another --output folder, or remove it")


def _ends_with_newline(path: Path) -> bool:
    """Whether the file's last byte ends a line; a torn write does not."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
