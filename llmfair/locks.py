"""Files locked against other processes; the kernel lets go of a lock when the process that holds it dies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llmfair.errors import RunConflict, warn
from llmfair.whole import itself

UNLOCKABLE = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
"""What file systems say that have no locks, as some of networks do."""
_warned: set[Path] = set()


def lock(file: int, path: Path, *, shared: bool = False, wait: bool = False) -> bool:
    """Whether an open file is held from now on: not while another process holds it, unless it is to be waited for.

    Where the file system has no locks it counts as held, after a warning. Raises OSError for what else goes wrong.
    """
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNLOCKABLE:
            raise
        if path not in _warned:
            _warned.add(path)
            warn(
                f"the file system of {path} has no locks ({error.strerror}): let no second command work there meanwhile"
            )
    return True


def is_held(path: Path) -> bool:
    """Whether a process holds this lock file now."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not lock(file, path.parent, shared=True)
    finally:
        os.close(file)


@contextmanager
def held(path: Path, what: Path, who: str) -> Iterator[None]:
    """Holds `what` by a lock file, in which others read `who` does. Raises RunConflict where another process does."""
    try:
        file = itself(path, os.O_RDWR)
        os.ftruncate(file, os.fstat(file).st_size)  # refused by what is no file
    except OSError as error:
        raise RunConflict(f"{path}: cannot be locked: {error.strerror}.", "remove it") from None
    try:
        if not lock(file, what):
            holder = os.pread(file, 200, 0).decode("utf-8", "replace").strip() or "another process"
            raise RunConflict(
                f"{what} is in use by {holder}.", "wait for it, or choose another --output folder"
            )
        os.ftruncate(file, 0)
        with suppress(OSError):  # a full disk: it is held all the same
            os.pwrite(file, f"{who}\n".encode(), 0)
        yield
    finally:
        os.close(file)
