"""Who may read what is written: its owner alone, unless it is to be shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

_OTHERS = 0o077
_own: int | None = None
"""The user's own umask, while another holds."""
_shared = False
_usual, _counting = 0, Lock()
"""How many are inside `usual`."""


@contextmanager
def private() -> Iterator[None]:
    """Files and folders made meanwhile, by whatever library, are their owner's alone; those there are stay as they are.

    For a process of our own: a umask holds for all of its threads.
    """
    global _own, _shared
    before = os.umask(_OTHERS)
    os.umask(before | _OTHERS)
    _own, _shared = before, False
    try:
        yield
    finally:
        os.umask(before)
        _own, _shared = None, False


def share() -> None:
    """From now on the user's own umask decides."""
    global _shared
    _shared = True
    if _own is not None:
        os.umask(_own)


@contextmanager
def usual() -> Iterator[None]:
    """The user's own umask, for what others keep besides: weights that several people load. Also a decorator.

    While any thread is inside, since a umask holds for all of them.
    """
    global _usual
    if _own is None:
        yield
        return
    with _counting:
        _usual += 1
        os.umask(_own)
    try:
        yield
    finally:
        with _counting:
            _usual -= 1
            if not _usual and _own is not None and not _shared:
                os.umask(_own | _OTHERS)


def make_folder(path: Path) -> None:
    """A folder that holds answers: nobody else may enter it, in a process with a umask of its own either."""
    path.mkdir(0o777 if _shared else 0o700, parents=True, exist_ok=True)
