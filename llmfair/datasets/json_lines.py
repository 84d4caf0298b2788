"""Files of JSON lines, read as the lines of a class; what is wrong with one is a problem with line and field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from llmfair.io.trec import Problems, text_lines

T = TypeVar("T")


def objects(path: Path, of: type[T], problems: Problems) -> Iterator[tuple[int, T]]:
    """The lines of a file of JSON lines, each as this class, numbered; what is wrong with one is a problem."""
    from msgspec import DecodeError, ValidationError
    from msgspec.json import Decoder

    decoder = Decoder(of)
    for number, line in text_lines(path, problems):
        try:
            yield number, decoder.decode(line)
        except ValidationError as error:
            problems.add(path, number, *said(error))
        except (DecodeError, RecursionError) as error:
            problems.add(path, number, "", f"not a JSON object: {error}")


def said(error: Exception) -> tuple[str, str]:
    """The field that msgspec names in an error, and what is wrong with it."""
    what, _, where = str(error).partition(" - at `$")
    field = where.strip(".`")
    missing = what.removeprefix("Object missing required field ")
    if missing != what:
        return ".".join(filter(None, (field, missing.strip("`")))), "is missing"
    return field, f"{what[:1].lower()}{what[1:]}"
