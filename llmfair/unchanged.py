"""Files told from what they were when they were made: by size and time, and by content where only the time differs.

So a file that was altered is found when it is opened, however large it is, and a copy of another time is as good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from llmfair import inputs
from llmfair.jsonbytes import decode, encode
from llmfair.whole import write_whole

TABLE = "files.json"
"""What is told of the files of a folder, by name."""


def told(file: Path) -> list[Any]:
    """Size, bytes; time of the last change, ns; SHA-256. Raises OSError."""
    with inputs.opened(file) as content:
        return [*_stat(file), hashlib.file_digest(content, "sha256").hexdigest()]


def touched(folder: Path, expected: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What is told now of those files whose time is another.

    Raises OSError for one that is gone, ValueError for one of other content and for what nobody told.
    """
    now: dict[str, list[Any]] = {}
    for name, known in expected.items():
        if not isinstance(known, list) or len(known) != 3:
            raise ValueError(f"what is known of {name} is damaged")
        size, *_ = now_is = _stat(folder / name)
        if now_is == known[:2]:
            continue
        if size != known[0] or (found := told(folder / name))[2] != known[2]:
            raise ValueError(f"{name} is another file than the one that was made")
        now[name] = found
    return now


def _stat(file: Path) -> list[int]:
    found = file.stat()
    return [found.st_size, found.st_mtime_ns]


def note(folder: Path, names: Collection[str]) -> None:
    """Keeps what is told of these files of a folder, beside what is known of others. Raises OSError."""
    try:
        known = _known(folder)
    except (OSError, ValueError):  # a damaged one, which is made anew
        known = {}
    known = {name: of for name, of in known.items() if name not in names}
    _keep(folder, known | {name: told(folder / name) for name in names if (folder / name).exists()})


def check(folder: Path, names: Iterable[str] | None = None) -> None:
    """Whether these files of a folder, or all that it is known of, are what they were.

    Raises OSError for one that is gone, ValueError for another one.
    """
    known = _known(folder)
    expected = known if names is None else {name: known[name] for name in names if name in known}
    if now := touched(folder, expected):  # a copy, which is not read whole again the next time
        with suppress(OSError):
            _keep(folder, known | now)


def _known(folder: Path) -> dict[str, Any]:
    try:
        known = decode(inputs.content(folder / TABLE, inputs.MOST_RECORDED))
    except (ValueError, RecursionError):
        known = None
    if not isinstance(known, dict):
        raise ValueError(f"{TABLE} is damaged")
    return known


def _keep(folder: Path, known: Mapping[str, Any]) -> None:
    write_whole(folder / TABLE, [encode(known).decode() + "\n"])
