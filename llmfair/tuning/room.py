"""A full disk in one sentence, whichever library was writing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path

from llmfair.errors import LlmfairError
from llmfair.io.files import FULL

LEAST_ROOM = 2**20


@contextmanager
def room_wanted(folder: Path) -> Iterator[None]:
    """For what is written below a folder that is there; each library has an error of its own for a full disk.

    Raises LlmfairError where one ends it.
    """
    try:
        yield
    except LlmfairError:
        raise
    except Exception as error:
        full = (isinstance(error, OSError) and error.errno in FULL) or os.strerror(ENOSPC) in str(error)
        if full or shutil.disk_usage(folder).free < LEAST_ROOM:
            place = getattr(error, "filename", None) or folder
            raise LlmfairError(
                f"cannot write {place}: no space left on device.", "make room; the same command continues"
            ) from error
        raise
