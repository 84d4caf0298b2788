"""The relevant pages of a fetched collection: a file of JSON lines, and arrays beside it that are made of it once."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
import zlib
from array import array
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llmfair.datasets.page_store import GroupsOf, PageStore, damaged, mapped, written
from llmfair.errors import line_of, warn
from llmfair.io.files import decode, encode
from llmfair.nouns import NUMBERS


def judgements(path: Path) -> NDArray[np.int64]:
    """The relevant pages of one topic after another. Raises UsageError for a file that is gone or damaged."""
    try:
        return mapped(path).astype(np.int64, copy=False)
    except (OSError, ValueError) as error:
        raise damaged(path, error) from None


def relevant_pages(path: Path, sha256: str) -> PageStore:
    """The pages of a file of this SHA-256, from the arrays beside it; made anew where these are gone or damaged.

    Where nothing can be written they are made for this process alone. Raises UsageError for a file that is damaged.
    """
    folder = _folder(path, sha256)
    if folder.exists():
        try:
            return _checked(folder)
        except (OSError, ValueError) as error:
            warn(f"{folder} is damaged and made anew: {line_of(error)}.")
    _refuse_other(path, sha256)
    with suppress(OSError):
        return _checked(keep_arrays(path, sha256))
    return read_pages(path)


def read_pages(path: Path) -> PageStore:
    """The pages of a file, of which nothing is kept. Raises UsageError for one that is damaged."""
    with tempfile.TemporaryDirectory(prefix="llmfair-") as folder:
        _write(path, Path(folder))
        return _checked(Path(folder))  # mapped files outlive their names


def keep_arrays(path: Path, sha256: str) -> Path:
    """Makes the arrays of a file beside it, in place of earlier ones, and says where. Raises OSError, UsageError."""
    folder = _folder(path, sha256)
    beside = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        _write(path, beside)
        for earlier in folder.parent.glob("pages-*"):
            if earlier != beside:
                shutil.rmtree(earlier, ignore_errors=True)
        return beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _refuse_other(path: Path, sha256: str) -> None:
    try:
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise ValueError("its SHA-256 is not that of its fetch")
    except (OSError, ValueError) as error:
        raise damaged(path, error) from None


def _folder(path: Path, sha256: str) -> Path:
    return path.with_name(f"pages-{sha256[:16]}")


def _checked(folder: Path) -> PageStore:
    store = PageStore(folder)
    store.check()
    return store


def _write(path: Path, folder: Path) -> None:
    """Combinations of groups are numbered in the order of the file."""
    code_of: dict[bytes, int] = {}
    codes = array("i")
    try:
        with gzip.open(path, "rb") as lines, written(folder) as pages:
            for line in lines:
                row = decode(line)
                numbers = {name: row[name] for name in NUMBERS if name in row}
                pages.add(int(row["doc_id"]), row["title"], row.get("text", ""), numbers)
                codes.append(code_of.setdefault(encode(row["groups"]), len(code_of)))
            ids = np.array(pages.ids)
            order = np.argsort(ids)
            combinations = [decode(groups) for groups in code_of]
            pages.save(folder, GroupsOf(ids[order], np.array(codes)[order], combinations))
    except (EOFError, gzip.BadGzipFile, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error) from None
