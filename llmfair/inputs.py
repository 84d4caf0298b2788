"""Files that are read: regular ones alone, and no more of them than their kind holds.

A pipe or a device may never end, a short packed file may unpack to any length, and a short text can be nested deeper
than a parser follows. Each is an error like that of a file that is not there.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import re
import stat
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BufferedReader, BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

MOST_WHOLE = 4 << 30
"""Bytes of a file that is read as a whole, such as one JSON document."""
MOST_RECORDED = 64 << 20
"""Bytes of a document that programs write beside data and answers; millions of empty lists take twelve times their
size."""
MOST_BY_HAND = 1 << 20
"""Bytes of a file that people write: settings, prompts, attributes, shares."""
MOST_PARTS = 64
"""Parts of a TOML name: a parser takes time that grows with their square."""
DOTTED = re.compile(
    rf"""(?:(?:(?<![\w-])[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MOST_PARTS}}}""", re.ASCII
)
LONGEST_LINE = 16 << 20
LONG, END = 16 << 20, 1 << 16
"""Bytes of a document of which the end is looked at first, and of that end."""
DEEPEST = 100
"""Levels of JSON that a user gives as a flag."""
GZIP = b"\x1f\x8b"
FREELY, TIMES = 4 << 20, 100
"""A packed file unpacks to this many bytes, and beyond them to so many times its own; texts come to 5 to 20 times."""


def is_deep(text: str) -> bool:
    """Whether JSON is nested deeper than what is made of it follows; brackets within its texts count, too."""
    return max(accumulate((letter in "[{") - (letter in "]}") for letter in text), default=0) > DEEPEST


def stored(path: Path) -> Path:
    """The file, or NAME.gz beside its place where only that is there."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.exists() else path


def opened(path: Path | str) -> BufferedReader:
    """A regular file, to be read. Raises OSError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    except ValueError as error:  # a NUL character, half of a surrogate pair
        raise OSError(errno.EINVAL, f"no name of a file: {error}", str(path)) from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "no regular file, but a pipe or a device", str(path))


def content(path: Path | str, most: int = MOST_WHOLE) -> bytes:
    """All of a file. Raises OSError, of one with more than `most` bytes too."""
    with opened(path) as file:
        return content_of(file, path, most)


def content_of(file: BinaryIO, path: Path | str, most: int) -> bytes:
    """What is left of an opened file. Raises OSError, of more than `most` bytes too."""
    if os.fstat(file.fileno()).st_size <= most and len(found := file.read()) <= most:
        return found
    shown = f"{most >> 20:,} MB" if most < 1 << 30 else f"{most >> 30:,} GB"
    raise OSError(errno.EFBIG, f"larger than {shown}", str(path))


def document(path: Path | str) -> bytes:
    """All of a file that holds one JSON document. Raises OSError, of one that breaks off before it is held, too."""
    with opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - END))
        if size > LONG and file.read().rstrip()[-1:] not in (b"]", b"}", b""):
            raise OSError(
                errno.EINVAL, "the JSON has no end: it was cut, or goes on as something else", str(path)
            )
    return content(path)


def sha256(path: Path | str) -> str:
    """That of a file of any size. Raises OSError."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text(path: Path | str, most: int = MOST_WHOLE) -> str:
    """All of a file in UTF-8, whatever ends its lines, unpacked where its content is gzip's.

    Raises OSError, and ValueError for what is no UTF-8.
    """
    found = content(path, most)
    return decoded(unpacked(found, path, most) if found.startswith(GZIP) else found)


def unpacked(packed: bytes, path: Path | str, most: int) -> bytes:
    """What gzip packed. Raises OSError, of more than `most` bytes too."""
    found = bytearray()
    try:
        for piece in iter(partial(gzip.GzipFile(fileobj=BytesIO(packed)).read, END), b""):
            found += piece
            if len(found) > most:
                raise OSError(errno.EFBIG, f"unpacks to more than {most >> 20:,} MB", str(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise OSError(errno.EINVAL, f"damaged: {error}", str(path)) from None
    return bytes(found)


def decoded(content: bytes) -> str:
    """Bytes as a text in UTF-8, whatever ends its lines. Raises ValueError for what is none."""
    return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def toml(path: Path | str) -> dict[str, Any]:
    """What a TOML file says. Raises OSError, and ValueError for what is no TOML."""
    return toml_of(text(path, MOST_BY_HAND))


def toml_of(written: str) -> dict[str, Any]:
    """What a TOML text says. Raises ValueError."""
    if found := DOTTED.search(written):
        line = written.count("\n", 0, found.start()) + 1
        raise ValueError(f"a name of more than {MOST_PARTS} parts (at line {line})")
    try:
        return tomllib.loads(written)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file with their ends; one that is longer than `LONGEST_LINE` in several."""
    return iter(partial(file.readline, LONGEST_LINE), b"")


def texts(lines: Iterable[bytes], read: Callable[[], int], place: Path | str) -> Iterator[bytes]:
    """Lines that were unpacked of so many bytes as were `read`. Raises OSError for far more than texts come to."""
    unpacked, checked = 0, FREELY
    for line in lines:
        unpacked += len(line)
        if unpacked > checked:
            checked = FREELY + TIMES * read()
            if unpacked > checked:
                raise OSError(errno.EFBIG, f"unpacks to more than {TIMES} times its size", str(place))
        yield line


def lines(path: Path | str) -> Iterator[bytes]:
    """The lines of a file with their ends, unpacked where its content is gzip's.

    One that is longer than `LONGEST_LINE` is the last, and cut there. Raises OSError, of a file that unpacks to far
    more than texts do too, and what gzip raises for a damaged one (EOFError, zlib.error, gzip.BadGzipFile).
    """
    with opened(path) as stored:
        packed = stored.peek(2)[:2] == GZIP
        file = gzip.GzipFile(fileobj=stored) if packed else stored
        found = iter(partial(file.readline, LONGEST_LINE), b"")
        for line in texts(found, stored.tell, path) if packed else found:
            yield line
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                return
