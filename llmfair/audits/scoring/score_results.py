"""What `llmfair score` finds: measured runs, their conclusions and gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from llmfair.results import (
    Band,
    Count,
    Counts,
    Family,
    Level,
    ProbeCounts,
    Requirement,
    Row,
    RunVerdict,
    Undefined,
    Version,
    Words,
    joined,
)


@dataclass(frozen=True, kw_only=True)
class DocumentCounts:
    """How many documents of how many queries, and the first of these."""

    queries: Count
    documents: Count = 0
    first: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ScoreFacts:
    """What has to be known to read the figures of one condition of a run."""

    queries: Count
    documents: Count = 0
    pairs: Count = 0
    tied: DocumentCounts
    upside_down: bool = False
    unlisted: DocumentCounts
    missing: DocumentCounts = DocumentCounts(queries=0)
    unjudged: DocumentCounts
    not_ranked: DocumentCounts
    longest: Count = 0


@dataclass(frozen=True, kw_only=True)
class IncompleteRun:
    """What is known of a run that is not through, or whose last command was not."""

    status: str
    chains: Mapping[str, ProbeCounts]
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
    conditions: Mapping[str, ScoreFacts]
    undefined: Undefined
    findings: Mapping[str, Mapping[str, Any]]
    relevance: Mapping[str, float | None] = field(default_factory=dict)
    family: Family
    incomplete: IncompleteRun | None = None


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
