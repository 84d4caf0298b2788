"""Room on the disk for answers that are under way, so that one that fills up loses none of them.

A file without a name holds it: it takes as many bytes as the answers may, and what ends the process frees them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from llmfair.nouns import Request

BESIDES = 4096
BYTES_A_TOKEN = 16
"""Of text, of what was thought, and of log-probabilities beside it."""


def most_bytes(request: Request) -> int:
    """What a line of the journal with the answer to this takes at most, where the model keeps to its room."""
    return 2 * len(request.chat.said) + BYTES_A_TOKEN * request.sampling.max_tokens + BESIDES


class Room:
    """Room in the file system of a folder: as much as was ever wanted at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None
        self.wanted = self._held = 0

    def hold(self, size: int) -> None:
        """Holds so many bytes more, until they are no longer `wanted`. Raises OSError where the disk has them not."""
        if self._file is None:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                self._file = os.dup(file.fileno())
        while (missing := self.wanted + size - self._held) > 0:
            self._held += os.pwrite(self._file, bytes(missing), self._held)
        self.wanted += size

    def free(self) -> bool:
        """Leaves all of it to whoever writes next; whether there was any."""
        if self._file is None:
            return False
        os.close(self._file)
        self._file, self._held = None, 0
        return True
