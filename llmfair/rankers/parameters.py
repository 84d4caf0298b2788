"""Parameters of rankers behind their names, `fair-star:p=0.3,alpha=0.15`: read, checked, and spelled canonically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.errors import UsageError
from llmfair.metrics.base import Free, read_argument, reader_of, unknown_param

Declared = Mapping[str, Free | tuple[str, ...]]
"""By parameter what it takes: words, the first the default, or Free with its own default."""


def read_parameters(ranker: str, text: str, declared: Declared) -> dict[str, Any]:
    """All parameters by name, those of `key=value,…` over their defaults. Raises UsageError."""
    readers = {name: reader_of(allowed) for name, allowed in declared.items()}
    values: dict[str, Any] = {name: free.default for name, free in readers.items()}
    for assignment in text.split(",") if text else ():
        key, equals, value = map(str.strip, assignment.partition("="))
        if not equals or not value:
            example = ",".join(f"{name}={default}" for name, default in values.items())
            raise UsageError(f"{ranker}: '{assignment}' is not key=value.", f"for example {ranker}:{example}")
        if key not in declared:
            raise unknown_param(ranker, key, declared)
        values[key] = read_argument(f"{ranker}: {key}", value, readers[key])
    return values


def spelled(parameters: Mapping[str, Any]) -> str:
    """Every parameter with its value, for an identity."""
    return " ".join(f"{name}={value}" for name, value in parameters.items())
