"""What a windows study found: what each setting read, could have read, and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from llmfair.audits.listwise.results import ListwiseFinding
from llmfair.results import Band, Count, Ended, Figure, HowDrawn, Reach, Share, Version, Words


@dataclass(frozen=True)
class Read:
    """Answers of one prompt under one setting."""

    windows: Count
    unreadable: Count
    repaired: Count


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """One setting and prompt, or the orders that all began with ("input")."""

    setting: str
    window: Count
    step: Count
    passes: Count
    run: str
    variant: str
    calls: Count
    chains: Ended | None
    answers: Read
    never_ranked: Sequence[Count]
    reach: Mapping[str, Reach]
    finding: ListwiseFinding | None
    figures: Mapping[str, Figure]


@dataclass(frozen=True)
class Unfinished:
    """A setting without results, and why."""

    setting: str
    message: str


@dataclass(frozen=True, kw_only=True)
class StudyResults:
    """llmfair study windows; study.json. What all settings share is empty until one of them has results."""

    schema: Version
    status: Literal["complete", "incomplete", "failed"]
    task: Literal["study windows"]
    dataset: str = ""
    attribute: str = ""
    words: Words | None = None
    model: str = ""
    level: Share = 0.95
    intervals: Mapping[str, Literal["linear-t", "boot-t"]] = field(default_factory=dict)
    band: Band = (0.8, 1.25)
    shown: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    queries: Count = 0
    candidates: tuple[Count, Count] = (0, 0)
    arms: Sequence[str] = ()
    initial: str = ""
    orders: Count = 0
    repeats: Count = 0
    seed: Count = 0
    drawn: HowDrawn | None = None
    rows: Sequence[StudyRow]
    runs: Sequence[str]
    failed: Sequence[Unfinished]
