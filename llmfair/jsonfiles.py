"""JSON files of run folders: written the same everywhere, and read into types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

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
    except ValidationError as error:
        raise UsageError(f"{where}: {error}.", hint) from None


def read_json(path: Path, hint: str = AGAIN) -> Any:
    """What a JSON file says. Raises UsageError."""
    try:
        return json.loads(inputs.text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", hint) from None


def read(path: Path, of: type[T], hint: str = AGAIN) -> T:
    """A JSON file as a value of this class. Raises UsageError naming the file and the field."""
    return typed(read_json(path, hint), of, path, hint)


def read_lines(path: Path, of: type[T]) -> Iterator[T]:
    """The lines of a file of JSON lines, each as this class. Raises UsageError naming file, line and field."""
    try:
        for number, line in enumerate(inputs.text(path).split("\n"), start=1):
            if line:
                yield typed(json.loads(line), of, f"{path}:{number}")
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", AGAIN) from None
