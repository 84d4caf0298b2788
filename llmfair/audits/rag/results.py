"""What an audit of retrieval-augmented generation found, as its results.json has it."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from llmfair.results import (
    AnswerCounts,
    Count,
    Counts,
    DesignFacts,
    Finding,
    Results,
    Share,
    after,
    left_out_without,
)


@dataclass(frozen=True, kw_only=True)
class RagFacts(DesignFacts):
    """What was asked."""

    k: Annotated[int, Meta(ge=1, description="Items that the generator is shown.")]
    samples: Annotated[int, Meta(ge=1, description="Lists drawn per query and condition.")]
    useful: Literal["gain", "qrels"]
    utility: str
    attribution: str
    margin: float


@dataclass(frozen=True, kw_only=True)
class OutputCounts(AnswerCounts):
    """Distinct outputs of a condition; `classes`: how those ended that are no answers, though measured as they are."""

    outputs: Count
    unparseable: Count = after("outputs")
    classes: Counts

    @property
    def asked(self) -> int:
        return self.outputs


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The queries: how many were kept, and those dropped with fewer than two useful items; means of the kept ones."""

    kept: Count
    dropped: Annotated[
        Mapping[str, Count], Meta(description="Dropped queries, by how many items are useful.")
    ]
    items: float | None
    useful: float | None
    useful_share: Share | None


@dataclass(frozen=True, kw_only=True)
class RagFinding(Finding):
    """Whether a condition's utility is kept, beside the one list by score of the same retriever.

    `disparity`: its expected exposure disparity. `margin`: the loss of utility that counts as kept.
    """

    disparity: float | None
    margin: float
    p: Share | None = left_out_without("p")
    p_adjusted: Share | None = left_out_without("p_adjusted")


@dataclass(frozen=True, kw_only=True)
class RagResults(Results):
    """llmfair rag; results.json of its run folder."""

    task: Literal["rag"] = "rag"
    measure_notes: Mapping[str, str] = after("measures")
    design: RagFacts
    collection: Collected = after("failures")
    calls_made: Count = after("collection")
    answers: Mapping[str, OutputCounts]
    findings: Mapping[str, RagFinding]

    @property
    def calls(self) -> int:
        return self.calls_made

    def of_conditions(self) -> Mapping[str, Names[str]]:
        return {**super().of_conditions(), "answers": self.answers}
