"""Where the source files of TREC Fair come from: a copy that the user names, ir_datasets' own, or its addresses."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from llmfair.datasets.base import cache_folder
from llmfair.datasets.download import Origin
from llmfair.errors import UsageError
from llmfair.io import secrets

_LOGIN = re.compile(r"\A[^/:@]*:.+@")
"""A login, as the beginning of an address whose http:// is forgotten."""


def given_copy(text: str) -> Origin:
    """A copy the user names. Raises UsageError when there is no such file."""
    if "://" in text:
        if not text.startswith(("http://", "https://")):
            raise UsageError(
                f"{secrets.written(text)}: only http and https addresses can be fetched.", "or give a file"
            )
        name = text.partition("?")[0].rstrip("/").rpartition("/")[2] or "download"
        # equal names from two servers stay apart
        folder = hashlib.sha256(secrets.written(text).encode()).hexdigest()[:12]
        return Origin(name, downloads() / folder / name, url=text, temporary=True)
    path = Path(place_of(text))
    if not path.is_file():
        shown = _LOGIN.sub(f"{secrets.HIDDEN}@", text)
        raise UsageError(f"{shown}: there is no such file.", "give a path or an http address")
    return Origin(path.name, path)


def published(key: str, keep: bool) -> Origin:
    """A file of ir_datasets' list: its own copy if it holds one, else downloaded; topics to where it looks for them."""
    import ir_datasets

    entry = ir_datasets.util.DownloadConfig.context("trec-fair").contents()[key]
    home = Path(ir_datasets.util.home_path())
    name = Path(entry["cache_path"]).name
    own = home / "trec-fair" / entry["cache_path"]
    for held in (own, home / "downloads" / entry["expected_md5"]):
        if held.is_file():
            return Origin(name, held, entry["url"])
    path = own if keep else downloads() / "trec-fair" / entry["cache_path"]
    return Origin(name, path, entry["url"], entry.get("size_hint"), entry["expected_md5"], temporary=not keep)


def downloads() -> Path:
    return cache_folder() / "downloads"


def place_of(given: str) -> str:
    """The address, or the file behind all links; behind a circle of them none is."""
    return given if "://" in given else os.path.realpath(Path(given).expanduser())
