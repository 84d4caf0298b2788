"""JSON files of run folders: written the same everywhere, and read into types."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from llmfair import inputs
from llmfair.errors import UsageError

T = TypeVar("T")
SCHEMA = 1
"""The version of all documents."""
AGAIN = "the command that began the run writes it again"


def json_text(content: Mapping[str, Any]) -> str:
    """A JSON document; NaN and infinity are refused (ValueError), since no reader agrees on them."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def typed(document: Any, of: type[T], where: str | Path = "results", hint: str = AGAIN) -> T:
    """JSON as a value of this class. Raises UsageError naming the file and the field that is wrong or missing."""
    from msgspec import ValidationError, convert

    try:
        return convert(document, of)
    except UnicodeEncodeError as error:  # of half a character where a name or a number should be
        raise UsageError(f"{where}: holds {error.object[:40]!r}, which is no text.", hint) from None
    except (ValidationError, ValueError) as error:
        raise UsageError(f"{where}: {error}.", hint) from None


def loaded(text: str) -> Any:
    """What a JSON text says. Raises ValueError, of a number that is not finite too."""
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise ValueError(f"{text[:20]} is no finite number")
    return found


def read_json(path: Path, hint: str = AGAIN) -> Any:
    """What a JSON file says. Raises UsageError."""
    try:
        return loaded(inputs.text(path, inputs.MOST_RECORDED))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", hint) from None


def read(path: Path, of: type[T], hint: str = AGAIN) -> T:
    """A JSON file as a value of this class. Raises UsageError naming the file and the field."""
    return typed(read_json(path, hint), of, path, hint)


def read_lines(path: Path, of: type[T]) -> Iterator[T]:
    """The lines of a file of JSON lines, each as this class. Raises UsageError naming file, line and field."""
    try:
        for number, line in enumerate(inputs.lines(path), start=1):
            if line := line.rstrip(b"\r\n"):
                yield typed(loaded(line.decode("utf-8")), of, f"{path}:{number}")
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", AGAIN) from None
