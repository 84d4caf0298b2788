"""Files that are written whole or not at all: what a run folder, a cache or a report is made of."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk without room says, a quota, and a limit on the size of files."""


def write_whole(path: Path, lines: Iterable[str], shared: bool = False) -> None:
    """Writes a text as `whole` does. Raises OSError."""
    with whole(path, shared) as file:
        file.writelines(line.encode("utf-8", "backslashreplace") for line in lines)


@contextmanager
def whole(path: Path, shared: bool = False) -> Iterator[BinaryIO]:
    """A file that is written beside, to the disk itself, and renamed. Raises OSError, naming it where there is no room.

    So a half-written one is never read, after a power cut neither, nor fills a full disk. `shared`: another process
    may write the same file at the same time.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp" if shared else f"{path.name}.tmp")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError) and error.errno in FULL:
            error.filename = str(path)  # writing itself names none
        raise
