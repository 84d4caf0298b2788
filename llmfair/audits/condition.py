"""What is compared within an audit, whatever its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmfair.rundir import COLUMNS


@dataclass(frozen=True)
class Condition:
    """What is compared within an audit: a prompt, a stratum of pairs, a retriever and its temperature.

    `name` stands in tables and gates; each of `factors` has a column of its own in the CSV files.
    """

    name: str
    factors: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if taken := sorted({*self.factors} & {*COLUMNS}):
            raise ValueError(
                f"a factor cannot be called {taken[0]!r}: the CSV files have that column already"
            )
