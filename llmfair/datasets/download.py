"""Source files: downloaded from where they stopped, compared with their md5, hashed and counted as they are read."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urljoin, urlsplit

import llmfair
from llmfair.datasets.base import cache_folder
from llmfair.errors import LlmfairError, UsageError, line_of
from llmfair.io import files, secrets
from llmfair.io.files import DAMAGE, FULL, LONGEST_LINE, clear, itself, opened, unpacked
from llmfair.io.net import Client, Stream, Transient, is_http_address, wait

BLOCK = 1 << 16
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before the next attempt; so much that is new starts them anew:
LEAST = 10_000
TIMEOUT = 60.0
REDIRECTS, MOST_REDIRECTS = {301, 302, 303, 307, 308}, 10
ELSEWHERE = "another copy can be named: --topics, --metadata, --corpus, or --data DIR of an audit of lamp/N"
LONGEST = 2 * LONGEST_LINE  # all relevant pages of a topic stand in one line


class DownloadProgress(Protocol):
    """Hears what is going on; the command shows it as bars."""

    def step(self, name: str, total: int | None, done: int = 0) -> None:
        """A new step of `total` bytes, of which `done` lie there already."""

    def advance(self, count: int) -> None:
        """`count` more bytes of the step."""


@dataclass
class Origin:
    """A source file: where it lies or will lie, and the URL to get it from when it is not there."""

    name: str
    path: Path
    url: str | None = None
    size: int | None = None
    md5: str | None = None
    seen: dict[str, Any] = field(default_factory=dict)
    """What was read in the end: `bytes` and `md5`."""

    @property
    def part(self) -> Path:
        return self.path.with_name(self.path.name + ".part")

    @property
    def here(self) -> bool:
        return self.url is None or self.path.is_file()

    @property
    def place(self) -> str:
        """Where it is read, for messages."""
        return str(self.path) if self.here else secrets.written(self.url)

    @property
    def bytes(self) -> int | None:
        """How long the file is; None when that is not known."""
        return self.path.stat().st_size if self.here else self.size

    @property
    def missing(self) -> int | None:
        """Bytes still to be downloaded; None when the size is not known."""
        if self.here:
            return 0
        if self.size is None:
            return None
        return max(self.size - (self.part.stat().st_size if self.part.is_file() else 0), 0)


def download(origin: Origin, progress: DownloadProgress) -> None:
    """Gets a file that is not here, from its last byte on.

    Raises LlmfairError when the connection fails for good, or when the md5 differs (the file is kept as NAME.bad).
    """
    if origin.url is None or origin.here:
        return
    origin.path.parent.mkdir(parents=True, exist_ok=True)
    with open(origin.part, "ab", opener=itself) as file:
        have = file.tell()
        progress.step(f"{origin.name}: download", origin.size, have)
        for block in blocks(origin.url, have):
            file.write(block)
            file.flush()  # a killed process then loses no more than a block
            progress.advance(len(block))
        os.fsync(file.fileno())
    if origin.md5 and (digest := md5_of(origin.part)) != origin.md5:
        bad = origin.path.with_name(origin.path.name + ".bad")
        origin.part.replace(bad)
        raise LlmfairError(_differs(origin, digest), f"kept as {bad}; the same command downloads it anew")
    origin.part.replace(origin.path)


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def blocks(url: str, start: int) -> Iterator[bytes]:
    """The bytes of a URL from `start` on; a broken connection continues where it broke.

    A server that ignores Range sends everything again, and what is known of it is skipped. Raises LlmfairError
    when the server refuses or says what no server does, or after five attempts with less than `LEAST` new bytes.
    """
    position, failures, place = start, 0, secrets.written(url)
    while True:
        before = position
        try:
            with _reply(url, position, place) as reply:
                if reply.status == 416:
                    return  # nothing lies beyond what is known: the file was complete already
                if reply.status >= 500 or reply.status in (408, 429):
                    raise Transient(f"{reply.status}")
                if not 200 <= reply.status < 300:
                    raise LlmfairError(f"{place}: the server answers {reply.status}.", ELSEWHERE)
                skip = 0 if reply.status == 206 else position
                if not skip and position:
                    part = reply.headers.get("Content-Range", "")
                    if not part.startswith(f"bytes {position}-"):
                        raise LlmfairError(
                            f"{place}: the server sends another part than was asked for.", ELSEWHERE
                        )
                size = reply.headers.get("Content-Length")
                end = None if size is None else position - skip + int(size)
                for received in reply.blocks:
                    block = received[skip:]
                    skip -= min(skip, len(received))
                    if block:
                        position += len(block)
                        yield block
            if skip == 0 and (end is None or position >= end):
                return
            why = f"the connection ended after {position:,} bytes"
        except Transient as failure:
            why = failure.cause
        failures = 0 if position - before >= LEAST else failures
        if failures == len(PAUSES):
            raise LlmfairError(
                f"{place}: {secrets.said(why)}.", "the same command continues where it stopped"
            )
        time.sleep(PAUSES[failures])
        failures += 1


@contextmanager
def _reply(url: str, start: int, place: str) -> Iterator[Stream]:
    """The reply from byte `start` on, wherever it is redirected to; a login goes to the host of the address alone."""
    headers = {"user-agent": f"llmfair/{llmfair.__version__}", "accept-encoding": "identity"}
    if start:
        headers["range"] = f"bytes={start}-"
    address = ""
    for hop in range(MOST_REDIRECTS):
        try:
            parts = urlsplit(urljoin(address, url))
        except ValueError:
            parts = urlsplit("")
        who, _, host = parts.netloc.rpartition("@")
        address, who = parts._replace(netloc=host).geturl(), unquote(who)
        if not is_http_address(address):
            raise LlmfairError(f"{place}: leads to what is no address.", ELSEWHERE)
        login = {"authorization": f"Basic {b64encode(who.encode()).decode()}"} if who and not hop else {}
        client = Client("the server", address, {**headers, **login}, TIMEOUT, 0)
        try:
            with client.open(address, unpack=False) as reply:
                if reply.status not in REDIRECTS or "location" not in reply.headers:
                    yield reply
                    return
                url = reply.headers["location"]
        finally:
            wait(client.close())
    raise LlmfairError(f"{place}: the server redirects without end.", ELSEWHERE)


class Blocks(RawIOBase):
    """Blocks as a file, which says how many bytes were read of it, and their md5."""

    def __init__(self, blocks: Iterator[bytes], progress: DownloadProgress) -> None:
        self.blocks, self.progress, self.rest = blocks, progress, memoryview(b"")
        self.md5, self.size = hashlib.md5(usedforsecurity=False), 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size - len(self.rest)

    def readinto(self, buffer: Any) -> int:
        while len(self.rest) < 6 and (block := next(self.blocks, b"")):  # by so many a packed file is known
            self.rest = memoryview(bytes(self.rest) + block)
            self.md5.update(block)
            self.size += len(block)
            self.progress.advance(len(block))
        taken, self.rest = self.rest[: len(buffer)], self.rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def read_lines(origin: Origin, progress: DownloadProgress) -> Iterator[bytes]:
    """The lines of a source file without their ends, packed or plain, from disk or straight from its URL.

    Then its size and md5 stand in `seen`. Raises, before it ends, UsageError for a damaged file or an endless line, and
    LlmfairError when the md5 is not the expected one.
    """
    progress.step(f"{origin.name}: read", origin.bytes)
    with opened(origin.path) if origin.here else nullcontext() as file:
        received = blocks(origin.url or "", 0) if file is None else iter(partial(file.read, BLOCK), b"")
        source = Blocks(received, progress)
        raw = BufferedReader(source, BLOCK)
        try:
            for number, line in enumerate(
                iter(partial(unpacked(raw, origin.place).readline, LONGEST), b""), start=1
            ):
                if len(line) >= LONGEST:
                    what = f"longer than {LONGEST >> 20} MB."
                    raise UsageError(f"{origin.place}:{number}: {what}", "one JSON object a line")
                yield line.rstrip(b"\n")
            while raw.read(BLOCK):  # zeros that pad a packed file belong to it
                pass
        except DAMAGE as error:
            why = getattr(error, "strerror", None) or f"not a complete packed file: {line_of(error)}"
            raise UsageError(f"{origin.place}: {why}.", "get another copy of it") from None
    digest = source.md5.hexdigest()
    if origin.md5 and digest != origin.md5:
        remove = f"remove {origin.path} and " if origin.here else ""
        raise LlmfairError(_differs(origin, digest), f"{remove}repeat the command")
    origin.seen = {"bytes": source.size, "md5": digest}


def _differs(origin: Origin, digest: str) -> str:
    return f"{origin.name}: its md5 is {digest}, expected {origin.md5}."


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """A folder to fetch into, held against a second fetch, which would write into the same files.

    Raises UsageError if it cannot be made, LlmfairError if another process holds it or the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write {folder}: {error.strerror}.", "name another folder in LLMFAIR_CACHE_DIR"
        ) from None
    waits = "wait for it; the same command then continues"
    try:
        with files.held(folder.parent / ".fetch.lock", folder.parent, waits):
            clear(folder)
            yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        free = shutil.disk_usage(folder).free
        raise disk_full(f"no space left, {free / 1e9:.1f} GB free") from None


def disk_full(what: str) -> LlmfairError:
    return LlmfairError(
        f"the disk is full: {what} under {cache_folder()}.",
        "free some or move the folder with LLMFAIR_CACHE_DIR, then repeat the command: it continues; "
        "--stream keeps no copy of a corpus",
    )
