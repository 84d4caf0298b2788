"""What pages show beside figures, found by those who know measures, settings and journals (`audits/runs/`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a measure says of itself; `says` is a sentence on what it is, `cite` where it is from.

    `reach`: the measure whose attainable range bounds it, if any. `set_of`: how many first items it counts, of a
    measure to which their order is nothing.
    """

    label: str
    parity: float | None
    scale: str
    better: str | None
    agreement: bool
    of_all: bool
    set_of: float | None
    headline: bool
    worded: bool
    shows: str
    reach: str
    cite: str
    says: str


Declared = Mapping[str, Declaration]
"""Declarations of measures by name; of a measure that nothing here defines there is none."""


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
