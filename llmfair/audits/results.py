"""What the general commands give: measured runs and studies; and which class reads the results of which task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llmfair.audits.kind import kind_of
from llmfair.audits.listwise.results import ListwiseFinding
from llmfair.results import (
    Band,
    Count,
    Counts,
    Ended,
    Family,
    Figure,
    HowDrawn,
    Level,
    Reach,
    Requirement,
    Row,
    Share,
    Undefined,
    Version,
    Words,
    typed,
)


def found_of(document: Mapping[str, Any], where: str | Path = "results") -> Any:
    """Results, as JSON has them, as the class of their task. Raises UsageError naming the field that is wrong."""
    task = document["task"]
    general = {"score": ScoreResults, "study windows": StudyResults}
    return typed(document, general.get(task) or kind_of(task).results(), where)


# Measured runs


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How many documents of how many queries, and the first of these."""

    queries: Count
    documents: Count = 0
    first: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What has to be known to read the figures of one variant of a run."""

    queries: Count
    documents: Count = 0
    pairs: Count = 0
    tied: Counted
    upside_down: bool = False
    unlisted: Counted
    unjudged: Counted
    not_ranked: Counted
    longest: Count = 0


@dataclass(frozen=True, kw_only=True)
class Incomplete:
    """What is known of a run that is not through, or whose last command was not."""

    status: str
    chains: Mapping[str, Ended]
    failures: Counts


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """One run; `findings` are those of its kind of audit, `relevance` the ratio that relevance alone gives."""

    run: str
    dataset: str
    attribute: str
    model: str
    task: Literal["listwise", "pairwise"]
    words: Words
    measures: Sequence[str]
    variants: Mapping[str, Scored]
    undefined: Undefined
    findings: Mapping[str, Mapping[str, Any]]
    relevance: Mapping[str, float | None] = field(default_factory=dict)
    family: Family
    incomplete: Incomplete | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreResults:
    """llmfair score; results.json of its --output."""

    schema: Version
    status: Literal["complete", "failed"]
    task: Literal["score"]
    level: Level
    band: Band
    measures: Sequence[str]
    labels: Mapping[str, str]
    measure_notes: Mapping[str, str]
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    command: str = ""
    runs: Sequence[ScoredRun]
    requirements: Sequence[Requirement] = ()
    rows: Sequence[Row]


# A study of windows


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
