"""What a study of several audits finds; a kind declares what its own tells besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from llmfair.results import Band, Count, HowDrawn, Row, RunVerdict, Share, Version, Words


@dataclass(frozen=True)
class UnfinishedSetting:
    """A setting without results, and why."""

    setting: str
    message: str


@dataclass(frozen=True, kw_only=True)
class StudyResults:
    """What audits under several settings found; study.json. What they share is empty until one of them has results."""

    schema: Version
    status: Literal["complete", "incomplete", "failed"]
    verdict: RunVerdict | None = None
    task: str
    dataset: str = ""
    attribute: str = ""
    words: Words | None = None
    model: str = ""
    level: Share = 0.95
    band: Band = (0.8, 1.25)
    shown: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    queries: Count = 0
    conditions: Sequence[str] = ()
    seed: Count = 0
    drawn: HowDrawn | None = None
    rows: Sequence[Any]
    runs: Sequence[str]
    failed: Sequence[UnfinishedSetting]

    @property
    def about(self) -> tuple[str, str, str]:
        """What was asked about and of whom, for a title."""
        protected = self.words.protected if self.words else ""
        simulated = ", a simulated model" * self.model.startswith("fake:")
        return self.dataset, f"{self.attribute} (protected: {protected})", self.model + simulated

    @property
    def missing(self) -> list[str]:
        """Settings without results, and why."""
        return [f"{one.setting}: {one.message}" for one in self.failed]


@dataclass(frozen=True)
class SettingRow(Row):
    """A line of one setting's metrics.csv."""

    setting: str


@dataclass(frozen=True, kw_only=True)
class PlainStudyResults(StudyResults):
    """A study that tells no more."""

    rows: Sequence[SettingRow]
