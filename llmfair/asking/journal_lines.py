"""The lines of a journal: which are answers, which are failures, and which a crash tore or somebody damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from llmfair.io import files
from llmfair.io.files import decode
from llmfair.nouns import Completion, Finish, Role

Tokens = Annotated[int, Meta(ge=0, le=1 << 53)]
COMPLETION_FIELDS = tuple(item.name for item in fields(Completion) if item.name not in ("text", "finish"))


@dataclass(frozen=True)
class AnswerLine:
    """An answer, as far as anything reads it again."""

    key: str
    probe: str
    text: str
    finish: Finish
    about: Mapping[str, Any]
    chat: Sequence[tuple[Role, str]]
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    reasoning: str | None = None
    logprobs: Mapping[str, float | None] | None = None
    model: str | None = None
    fingerprint: str | None = None
    seconds: Annotated[float, Meta(ge=-1e12, le=1e12)] | None = None
    server: str | None = None


@dataclass(frozen=True)
class FailureLine:
    """A probe that has no answer."""

    failure: str
    message: str
    probe: str
    at: str


def not_begun_by(line: bytes, identity: str) -> str:
    """What is wrong with the first line of a journal that should hold answers of this model; or ""."""
    try:
        found = decode(line)["identity"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "this is not the first line of a journal"
    return "" if found == identity else f"holds answers of '{found}', not of '{identity}'"


def row_of(line: bytes) -> dict[str, Any] | None:
    """One line, or None for what is neither an answer nor a failure."""
    from msgspec import ValidationError, convert

    try:
        row = decode(line)
        convert(row, AnswerLine if isinstance(row, dict) and "key" in row else FailureLine)
    except (ValueError, RecursionError, ValidationError):
        return None
    found: dict[str, Any] = row
    return found


def read_rows(path: Path, damaged: list[int] | None = None) -> Iterator[dict[str, Any]]:
    """The answers and failures of a journal in the order they were written.

    Lines that are neither are left out, and their numbers added to `damaged`.
    """
    with files.opened(path) as file:
        for number, line in enumerate(islice(files.pieces(file), 1, None), start=2):
            row = row_of(line)
            if row is not None:
                yield row
            elif damaged is not None:
                damaged.append(number)


def completion_of(row: Mapping[str, Any]) -> Completion:
    """The completion a journal row holds."""
    known: dict[str, Any] = {name: row.get(name) for name in COMPLETION_FIELDS}
    known["seconds"] = known["seconds"] or 0.0
    if found := known["logprobs"]:  # −∞ is null in JSON, and no more than a label that is absent
        known["logprobs"] = {
            label: value for label, value in found.items() if value is not None and isfinite(value)
        }
    return Completion(row["text"], Finish(row["finish"]), **known)
