"""What pages show beside figures, found by those who know measures, settings and journals (`audits/runs/`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmfair.metrics.base import Measure

Declared = Mapping[str, "Measure"]
"""Measures by the names that results have; one that nothing here defines is absent."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """An answer as it came: the question's chat, what it showed, and how the answer ended."""

    key: str
    probe: str
    shown: str
    ended: str
    finish: str
    text: str
    chat: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Exhibits:
    """`command` asks the same again; `queries` and `titles` are by id."""

    measures: Declared
    command: str | None = None
    titles: Mapping[str, str] = field(default_factory=dict)
    queries: Mapping[str, str] = field(default_factory=dict)
    evidence: Sequence[Evidence] = ()
