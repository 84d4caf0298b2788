"""File systems that fill up: small ones in memory, of a size that a test changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = 4096


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own at `folder`."""

    folder: Path

    def used(self) -> int:
        """Bytes, in whole pages."""
        found = os.statvfs(self.folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def resize(self, size: int) -> None:
        """Gives it so many bytes in all."""
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True)


@contextmanager
def mounted(folder: Path) -> Iterator[SmallDisk]:
    """A file system of a mebibyte; where none may be mounted the test is skipped."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if made.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
