"""What can happen to a file: bytes lost and changed, a folder in its place, JSON and tables of another shape."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

EVIL = "\x1b[31m\x1b]0;owned\x07 \x9b2J \u202egnp.exe \r\b\x00 </script><img src=x onerror=alert(1)> =1+1"
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7.5, 1e308, -1e-320, 10**30, 10**400, -(2**63), float("nan"), float("inf"), float("-inf"),
    "", "a", "1", "all", EVIL, "../../etc/passwd", "\ud800", "x" * 100_000, [], {}, [[]], [None], {"": None}, [1, "a"],
    list(range(20_000)), "2026-99-99", "nan",
)  # fmt: skip
"""Values that are where another was."""


def deep(levels: int) -> Any:
    """A list in a list in a list …"""
    found: Any = []
    for _ in range(levels):
        found = [found]
    return found


# Whole files


def cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def flipped(rng: random.Random, content: bytes) -> bytes:
    harmed = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 30))):
        if harmed:
            harmed[rng.randrange(len(harmed))] ^= 1 << rng.randrange(8)
    return bytes(harmed)


def junk(rng: random.Random, content: bytes) -> bytes:
    """Bytes that no text has, somewhere in it."""
    place = rng.randrange(len(content) + 1)
    what = rng.choice(
        (b"\xff\xfe", b"\x00", b"\xed\xa0\x80", b"\x1b[2J", b"\r", b"\xef\xbb\xbf", b"[" * 200_000)
    )
    return content[:place] + what + content[place:]


def repeated(rng: random.Random, content: bytes) -> bytes:
    return content + content


def without_a_line(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def a_line_twice(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    return content + rng.choice(lines) if lines else content


def in_another_order(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    cut, flipped, junk, repeated, without_a_line, a_line_twice, in_another_order,
)  # fmt: skip


def absent(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def circle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


MOST_READ = 256 << 20


def vast(path: Path) -> None:
    """Of more than there is memory for; nothing of it is on the disk."""
    os.truncate(path, 1100 << 20)


PLACES: tuple[Callable[[Path], None], ...] = (absent, empty, folder, pipe, endless, circle, vast)


# JSON


def other_json(rng: random.Random, document: Any) -> Any:
    """A document with one value, somewhere in it, lost or replaced."""
    places = list(_places(document))
    if not places or rng.random() < 0.05:
        return rng.choice((*STRANGE, deep(50), deep(5_000)))
    holder, key = rng.choice(places)
    match rng.randrange(8):
        case 0 | 1:
            del holder[key]
        case 2 | 3 | 4:
            holder[key] = rng.choice(STRANGE)
        case 5:
            holder[key] = deep(rng.choice((3, 90, 900, 5_000)))
        case 6:
            other, name = rng.choice(places)
            if isinstance(other[name], str | int | float | None):  # else it might hold itself
                holder[key] = other[name]
        case _:
            if isinstance(holder, dict):
                holder[rng.choice((EVIL, "", "all", f"{key}2"))] = holder.pop(key)
            else:
                holder.insert(key, rng.choice(STRANGE))
    return document


def evil_json(rng: random.Random, document: Any) -> Any:
    """A document with a text, somewhere in it, that steers a terminal."""
    texts = [(holder, key) for holder, key in _places(document) if isinstance(holder[key], str)]
    if texts:
        holder, key = rng.choice(texts)
        holder[key] = rng.choice((EVIL, EVIL + holder[key], holder[key] + EVIL))
    return document


def other_schema(rng: random.Random, document: Any) -> Any:
    if isinstance(document, dict):
        document["schema"] = rng.choice((0, 2, 99, "1", None, 1.5))
    return document


JSON: tuple[Callable[[random.Random, Any], Any], ...] = (*[other_json] * 3, evil_json, other_schema)


def _places(document: Any) -> Any:
    """Every value in it, as what holds it and where."""
    below = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in list(below):
        yield document, key
        yield from _places(value)


def text_of(document: Any) -> str:
    """JSON, however deep: `json.dumps` recurses."""
    try:
        return json.dumps(document, ensure_ascii=True)
    except RecursionError:
        return "[" * 5_000 + "]" * 5_000


# Tables


def other_table(rng: random.Random, rows: list[list[str]]) -> list[list[str]]:
    """A table with one cell, row or column of another shape."""
    if not rows:
        return [[EVIL]]
    row = rng.choice(rows[: rng.choice((1, len(rows)))])
    place = rng.randrange(len(row)) if row else 0
    match rng.randrange(7):
        case 0 | 1 | 2 if row:
            row[place] = rng.choice(
                ("", "x", "-1", "nan", "inf", "1e999", "9" * 40, "1_0", "٣", EVIL.replace("\x00", ""))
            )
        case 3 if row:
            del row[place]
        case 4:
            row.insert(place, "more")
        case 5:
            rows.remove(row)
        case _:
            for one in rows:
                del one[place : place + 1]
    return rows


def harm(rng: random.Random, path: Path) -> str:
    """Harms a file; returns how, in a word."""
    if not path.exists() or rng.random() < 0.2:
        how = rng.choice(PLACES)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
        how(path)
        return how.__name__
    if path.stat().st_size > MOST_READ:  # harmed already
        return "vast"
    content = path.read_bytes()
    if rng.random() < 0.75:
        try:
            if found := _structured(rng, path.suffix, content):
                path.write_bytes(found[1])
                return found[0]
        except (ValueError, RecursionError, csv.Error):  # what an earlier harm left is neither
            pass
    change = rng.choice(BYTES)
    path.write_bytes(change(rng, content))
    return change.__name__


def _structured(rng: random.Random, suffix: str, content: bytes) -> tuple[str, bytes] | None:
    """Harmed as what it is; None where it is neither JSON nor a table."""
    change = rng.choice(JSON)
    if suffix == ".json":
        return change.__name__, text_of(change(rng, json.loads(content))).encode()
    if suffix == ".jsonl":
        lines = content.splitlines()
        if not lines:
            return None
        at = rng.choice((0, rng.randrange(len(lines))))
        lines[at] = text_of(change(rng, json.loads(lines[at]))).encode()
        return change.__name__, b"\n".join(lines) + b"\n"
    if suffix == ".parquet":
        return change.__name__, _parquet(rng, change, content)
    if suffix in (".csv", ".tsv", ".txt", ".run"):
        delimiter = {".csv": ",", ".tsv": "\t"}.get(suffix, " ")
        rows = list(csv.reader(io.StringIO(content.decode(), newline=""), delimiter=delimiter))
        written = io.StringIO()
        csv.writer(written, delimiter=delimiter, lineterminator="\n").writerows(other_table(rng, rows))
        return "other_table", written.getvalue().encode()
    return None


def _parquet(rng: random.Random, change: Callable[[random.Random, Any], Any], content: bytes) -> bytes:
    """A table with a row, or a whole column, of other values. Raises ValueError for what none can hold."""
    import pyarrow
    from pyarrow import parquet

    rows = parquet.read_table(pyarrow.BufferReader(content)).to_pylist()
    if not rows:
        return content
    if rng.random() < 0.5:
        name, value = rng.choice(sorted(rows[0])), rng.choice(STRANGE)
        rows = [{**row, name: value} for row in rows]
    else:
        place = rng.randrange(len(rows))
        rows[place] = change(rng, rows[place])
    written = pyarrow.BufferOutputStream()
    try:
        parquet.write_table(pyarrow.Table.from_pylist(rows), written)
    except (TypeError, AttributeError, OverflowError, pyarrow.ArrowException) as error:
        raise ValueError(str(error)) from None
    return bytes(written.getvalue().to_pybytes())


def copy(base: Path, folder: Path, names: Sequence[str]) -> None:
    """What was prepared, to be harmed."""
    for name in names:
        shutil.copytree(base / name, folder / name)
