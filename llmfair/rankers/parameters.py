"""Parameters of rankers behind their names, `fair-star:p=0.3,alpha=0.15`: read, checked, and spelled canonically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.errors import UsageError, did_you_mean
from llmfair.metrics.base import Free

Declared = Mapping[str, Free | tuple[str, ...]]
"""By parameter what it takes: words, the first the default, or Free with its own default."""


def read_parameters(ranker: str, text: str, declared: Declared) -> dict[str, Any]:
    """All parameters by name, those of `key=value,…` over their defaults. Raises UsageError."""
    found = {name: of[0] if isinstance(of, tuple) else of.default for name, of in declared.items()}
    for assignment in text.split(",") if text else ():
        key, equals, value = map(str.strip, assignment.partition("="))
        if not equals or not value:
            example = ",".join(f"{name}={default}" for name, default in found.items())
            raise UsageError(f"{ranker}: '{assignment}' is not key=value.", f"for example {ranker}:{example}")
        if key not in declared:
            raise UsageError(
                f"{ranker} has no parameter '{key}'.{did_you_mean(key, declared)}",
                f"known: {', '.join(declared)}",
            )
        found[key] = _read(f"{ranker}: {key}", value, declared[key])
    return found


def _read(what: str, text: str, allowed: Free | tuple[str, ...]) -> Any:
    if isinstance(allowed, tuple):
        if text in allowed:
            return text
        raise UsageError(
            f"{what} cannot be '{text}'.{did_you_mean(text, allowed)}", f"one of: {', '.join(allowed)}"
        )
    try:
        return allowed.read(text)
    except ValueError:
        near = did_you_mean(text, allowed.words)
        raise UsageError(f"{what} cannot be '{text}'.{near}", f"it is {allowed.says}") from None


def spelled(parameters: Mapping[str, Any]) -> str:
    """Every parameter with its value, for an identity."""
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def number(default: float, low: float, high: float) -> Free:
    """A number from `low` to `high`."""

    def read(text: str) -> float:
        value = float(text)
        if not (low <= value <= high and text.isascii() and "_" not in text):
            raise ValueError(text)
        return value

    return Free(default, read, f"a number from {low:g} to {high:g}")


def whole(default: int, high: int, least: int = 1) -> Free:
    """A whole number from `least` to `high`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= high):
            raise ValueError(text)
        return int(text)

    return Free(default, read, f"a whole number from {least} to {high:,}")
