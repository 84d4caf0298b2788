"""What `llmfair score` finds: measured runs, their conclusions and gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from llmfair.results import (
    Band,
    Count,
    Counts,
    Ended,
    Family,
    Level,
    Requirement,
    Row,
    RunVerdict,
    Undefined,
    Version,
    Words,
    joined,
)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How many documents of how many queries, and the first of these."""

    queries: Count
    documents: Count = 0
    first: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What has to be known to read the figures of one condition of a run."""

    queries: Count
    documents: Count = 0
    pairs: Count = 0
    tied: Counted
    upside_down: bool = False
    unlisted: Counted
    missing: Counted = Counted(queries=0)
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
    verdict: RunVerdict | None = None
    dataset: str
    attribute: str
    model: str
    task: str
    words: Words
    measures: Sequence[str]
    conditions: Mapping[str, Scored]
    undefined: Undefined
    findings: Mapping[str, Mapping[str, Any]]
    relevance: Mapping[str, float | None] = field(default_factory=dict)
    family: Family
    incomplete: Incomplete | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreResults:
    """llmfair score; results.json of its --output. `verdict` is that of the run with the gravest."""

    schema: Version
    status: Literal["complete", "failed"]
    verdict: RunVerdict | None = None
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
    limits: Mapping[str, str] = field(default_factory=dict, metadata={"needs": "limits"})
    rows: Sequence[Row]

    @property
    def of_measures(self) -> dict[str, str]:
        """What has to be known to read figures, by measure."""
        return joined(self.measure_notes, self.limits)
