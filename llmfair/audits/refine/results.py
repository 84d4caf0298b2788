"""What an audit of query refinement found, as its results.json has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from llmfair.results import (
    AnswerCounts,
    Count,
    Counts,
    DesignFacts,
    Finding,
    JsonObject,
    Results,
    Share,
)


class RefineFacts(DesignFacts, frozen=True, kw_only=True):
    """What was asked; `documents`: how many the collection has."""

    documents: Count
    k: Annotated[int, Meta(ge=1, description="Documents of a page.")]
    objective: Annotated[str, Meta(description="The measure that the loop improves.")]
    target: Annotated[str, Meta(description="The groups' shares aimed at: a name, or a file's.")]
    aimed: Annotated[str, Meta(description="The measure of a page's order by which nearness is told, too.")]
    utility: Annotated[str, Meta(description="The measure of what refinement costs.")]
    margin: Annotated[float, Meta(description="The loss of utility that still counts as none.")]
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
    ] = None
    baselines: Annotated[
        Mapping[str, str] | None, Meta(description="Rankers that refinement is held against, by name.")
    ] = None
    backgrounds: Annotated[
        Sequence[Mapping[str, float]] | None,
        Meta(
            description="The attribute's shares of the reference population, where they are the user's own."
        ),
    ] = None


class ReplyCounts(AnswerCounts, frozen=True, kw_only=True):
    """Replies of the model; `classes`: how each was read; `asked_again`: those asked after an unreadable one."""

    replies: Count
    unparseable: Count
    classes: Counts
    asked_again: Count

    @property
    def asked(self) -> int:
        return self.replies


class RoundMeans(JsonObject, frozen=True, kw_only=True):
    """The mean figures of all topics after so many rounds; a topic whose loop has ended keeps its page."""

    iteration: Count
    asked: Annotated[int, Meta(ge=0, description="Topics that had this round.")]
    objective: float | None
    aimed: float | None


class PaperTest(JsonObject, frozen=True, kw_only=True):
    """The paper's own test: a t test paired by query, unadjusted; `symbol` where p < 0.05 and the method is better."""

    method: str
    against: str
    measure: str
    queries: Count
    difference: float
    p: Share | None
    symbol: str


class RefineFinding(Finding, frozen=True, kw_only=True):
    """Whether refinement brings the page nearer its target, nearer than without a model, and what that costs.

    `measure` is the objective; nearness is told by `aimed`, too, and the cost by `utility`. `nearer` than the original
    query, `beyond` all controls, of which `control` comes nearest; `loss`: True where relevance is lost, False where at
    most the margin is. None where that is open, or nothing is known. `changed`: topics whose objective did, or whose
    `aimed`, the fewer of both.
    """

    aimed: str
    utility: str
    margin: float
    changed: Count = 0
    nearer: bool | None = None
    beyond: bool | None = None
    control: str | None = None
    loss: bool | None = None
    p: Share | None = None
    p_adjusted: Share | None = None


class RefineResults(Results, frozen=True, kw_only=True):
    """llmfair refine; results.json of its run folder."""

    task: Literal["refine"]
    measure_notes: Mapping[str, str]
    design: RefineFacts
    left_out: Annotated[
        Mapping[str, Sequence[str]], Meta(description="Topics that nothing is measured of, by the reason.")
    ] = {}
    stops: Annotated[Counts, Meta(description="Why the loops ended.")]
    iterations: Annotated[Counts, Meta(description="Topics by how many rounds were kept.")]
    rounds: Sequence[RoundMeans]
    paper: Sequence[PaperTest] = ()
    remarks: Annotated[
        Sequence[str] | None, Meta(description="What has to be said of the orders of baselines.")
    ] = None
    calls_made: Count
    answers: Mapping[str, ReplyCounts]
    findings: Mapping[str, RefineFinding]

    @property
    def calls(self) -> int:
        return self.calls_made
