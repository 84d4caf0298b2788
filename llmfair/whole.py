"""Files that are written whole or not at all, and never through a link: those of run folders, caches and reports.

A folder may come from somebody else, and hold links in place of what is written there: a file is written under a name
that nobody can foresee and renamed, one that grows in its place is opened itself, a folder of ours is no link.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk without room says, a quota, and a limit on the size of files."""
LEFTOVER = re.compile(r"\.[0-9a-f]{16}\.tmp")
"""The name of a file until it is whole; a process that is killed meanwhile leaves it."""
A_LINK = "a link, which may lead elsewhere"


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Writes a text as `whole` does. Raises OSError."""
    with whole(path) as file:
        file.writelines(line.encode("utf-8", "backslashreplace") for line in lines)


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file that is written beside, to the disk itself, and renamed. Raises OSError, naming it.

    So a half-written one is never read, after a power cut neither, nor fills a full disk, and a link in its place is
    replaced. Several processes may write the same file at the same time.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    beside = path.with_name(f".{token_hex(8)}.tmp")
    try:
        with open(beside, "xb", opener=itself) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError) and (error.errno in FULL or error.filename == str(beside)):
            error.filename = str(path)  # writing itself names none
        raise


def clear(folder: Path) -> None:
    """Removes what killed processes left of files in a folder, at any depth; nobody else writes there meanwhile."""
    for path in folder.rglob(".*.tmp"):
        if LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def itself(path: str | Path, flags: int) -> int:
    """Opens a file for `open(…, opener=itself)`, made where there is none. Raises OSError, of a link too."""
    try:
        return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = A_LINK
        raise


def make_inside(folder: Path) -> None:
    """Makes a folder that is part of another, where there is none. Raises OSError, of a link too."""
    if folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, A_LINK, str(folder))
    folder.mkdir(exist_ok=True)
