"""What an audit of query refinement found, as its results.json has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
class RefineFacts(DesignFacts):
    """What was asked; `documents`: how many the collection has."""

    documents: Count
    k: Annotated[int, Meta(ge=1, description="Documents of a page.")]
    objective: Annotated[str, Meta(description="The measure that the loop improves.")]
    target: Annotated[str, Meta(description="The groups' shares aimed at: a name, or a file's.")]
    aimed: Annotated[str, Meta(description="The measure of a page's order by which nearness is told, too.")]
    utility: Annotated[str, Meta(description="The measure of what refinement costs.")]
    max_iterations: Count
    keep: str
    allow_unknown: Annotated[
        bool, Meta(description="Whether a round may ask for documents of unknown group.")
    ]
    rerank: str
    weight: float
    form: str
    analyzer: str
    query_text: Annotated[
        Counts | None, Meta(description="Topics by what is searched of them, where some have keywords.")
    ] = left_out_without("query_text")
    baselines: Annotated[
        Mapping[str, str] | None, Meta(description="Rankers that refinement is held against, by name.")
    ] = left_out_without("baselines")
    backgrounds: Annotated[
        Sequence[Mapping[str, float]] | None,
        Meta(
            description="The attribute's shares of the reference population, where they are the user's own."
        ),
    ] = left_out_without("backgrounds")


@dataclass(frozen=True, kw_only=True)
class ReplyCounts(AnswerCounts):
    """Replies of the model; `classes`: how each was read; `asked_again`: those asked after an unreadable one."""

    replies: Count
    unparseable: Count = after("replies")
    classes: Counts
    asked_again: Count

    @property
    def asked(self) -> int:
        return self.replies


@dataclass(frozen=True, kw_only=True)
class RoundMeans:
    """The mean figures of all topics after so many rounds; a topic whose loop has ended keeps its page."""

    iteration: Count
    asked: Annotated[int, Meta(ge=0, description="Topics that had this round.")]
    objective: float | None
    aimed: float | None


@dataclass(frozen=True, kw_only=True)
class PaperTest:
    """The paper's own test: a t test paired by query, unadjusted; `symbol` where p < 0.05 and the method is better."""

    method: str
    against: str
    measure: str
    queries: Count
    difference: float
    p: Share | None
    symbol: str


@dataclass(frozen=True, kw_only=True)
class RefineFinding(Finding):
    """Whether refinement brings the page nearer its target, and whether that costs relevance.

    `measure` is the objective; nearness is told by `aimed`, too, and the cost by `utility`. `nearer`, `loss`: None
    where the intervals leave it open, or nothing is known.
    """

    aimed: str
    utility: str
    nearer: bool | None
    loss: bool | None
    p: Share | None = left_out_without("p")
    p_adjusted: Share | None = left_out_without("p_adjusted")


@dataclass(frozen=True, kw_only=True)
class RefineResults(Results):
    """llmfair refine; results.json of its run folder."""

    task: Literal["refine"] = "refine"
    measure_notes: Mapping[str, str] = after("measures")
    design: RefineFacts
    left_out: Annotated[
        Mapping[str, Sequence[str]], Meta(description="Topics that nothing is measured of, by the reason.")
    ] = after("failures", default_factory=dict)
    stops: Annotated[Counts, Meta(description="Why the loops ended.")] = after("left_out")
    iterations: Annotated[Counts, Meta(description="Topics by how many rounds were kept.")] = after("stops")
    rounds: Sequence[RoundMeans] = after("iterations")
    paper: Sequence[PaperTest] = after("rounds", default=())
    remarks: Annotated[
        Sequence[str] | None, Meta(description="What has to be said of the orders of baselines.")
    ] = field(default=None, metadata={"after": "paper", "needs": "remarks"})
    calls_made: Count = after("paper")
    answers: Mapping[str, ReplyCounts]
    findings: Mapping[str, RefineFinding]

    @property
    def calls(self) -> int:
        return self.calls_made
