"""A folder that one process fetches into, and what is said when there is no room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmfair.datasets.base import cache_folder
from llmfair.errors import LlmfairError, UsageError
from llmfair.io import files
from llmfair.io.files import FULL, clear, itself


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
    lock = itself(folder.parent / ".fetch.lock", os.O_RDWR)
    try:
        if not files.lock(lock, folder.parent):
            raise LlmfairError(
                f"another process is fetching into {folder.parent}.",
                "wait for it; the same command then continues",
            )
        clear(folder)
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        free = shutil.disk_usage(folder).free
        raise disk_full(f"no space left, {free / 1e9:.1f} GB free") from None
    finally:
        os.close(lock)


def disk_full(what: str) -> LlmfairError:
    return LlmfairError(
        f"the disk is full: {what} under {cache_folder()}.",
        "free some or move the folder with LLMFAIR_CACHE_DIR, then repeat the command: it continues; "
        "--stream keeps no copy of a corpus",
    )
