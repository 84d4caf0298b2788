"""A folder that one process fetches into, and what is said when there is no room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmfair.datasets.base import cache_folder
from llmfair.errors import LlmfairError, UsageError
from llmfair.io import files
from llmfair.io.files import FULL, clear


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
