"""A frame of pandas or polars as a dataset: kept as a table by its content, so that its runs can go on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llmfair.datasets.base import cache_folder
from llmfair.errors import UsageError
from llmfair.io.files import write_whole


def is_frame(value: object) -> bool:
    """Whether a value is a table in memory."""
    return hasattr(value, "columns") and (hasattr(value, "iter_rows") or hasattr(value, "to_dict"))


def kept(frame: Any) -> str:
    """The file that a frame is kept in, below the cache's folder. Raises UsageError where it cannot be written."""
    lines = [f"{json.dumps(row, ensure_ascii=False, default=_native)}\n" for row in _rows(frame)]
    digest = hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = cache_folder() / "frames" / digest / "frame.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            write_whole(path, lines)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}.", "name another folder with LLMFAIR_CACHE_DIR"
        ) from None
    return str(path)


def _rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Rows by column, empty cells as None. Raises UsageError for two columns of one name."""
    names = [str(name) for name in frame.columns]
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise UsageError(f"the frame has two columns '{twice}'.", "rename or drop one")
    rows: Iterable[Mapping[Any, Any]] = (
        frame.iter_rows(named=True)
        if hasattr(frame, "iter_rows")
        else frame.astype(object).where(frame.notna(), None).to_dict("records")
    )
    for row in rows:
        yield {str(name): value for name, value in row.items()}


def _native(value: Any) -> Any:
    """A number or array of numpy as JSON has it; a date and whatever else as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
