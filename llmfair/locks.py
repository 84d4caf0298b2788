"""Files locked against other processes; the kernel lets go of a lock when the process that holds it dies."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

from llmfair.errors import warn

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
