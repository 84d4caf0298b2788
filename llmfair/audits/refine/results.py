"""What an audit of query refinement found, as its results.json has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from llmfair.results import AnswerCounts, Count, Counts, DesignFacts, Finding, JsonObject, Results, Share


class RefineFacts(DesignFacts, frozen=True, kw_only=True):
    """What was asked; `documents`: how many the collection has, `k`: those of a page.

    `objective`: the measure that the loop improves; `target`: the groups' shares aimed at, a name or a file's; `aimed`:
    the measure of a page's order that nearness is judged by, too; `utility`: that of what refinement costs; `margin`:
    the loss of utility that still counts as none. `allow_unknown`: a round may ask for documents of unknown group.
    `query_text`: topics by what is searched of them. `baselines`: rankers that refinement is
    held against, by name. `backgrounds`: shares of the reference population, where they are the user's own.
    """

    documents: Count
    k: Annotated[int, Meta(ge=1)]
    objective: str
    target: str
    aimed: str
    utility: str
    margin: float
    max_iterations: Count
    keep: str
    allow_unknown: bool
    rerank: str
    weight: float
    form: str
    analyzer: str
    query_text: Counts
    baselines: Mapping[str, str] | None = None
    backgrounds: Sequence[Mapping[str, float]] | None = None


class ReplyCounts(AnswerCounts, frozen=True, kw_only=True):
    """Replies of the model; `classes`: how each was read; `asked_again`: those asked after an unreadable one."""

    replies: Count
    classes: Counts
    asked_again: Count

    @property
    def asked(self) -> int:
        return self.replies


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
    """llmfair refine; results.json of its run folder.

    `left_out`: topics that nothing is measured of, by the reason; `stops`: why the loops ended; `iterations`: topics by
    how many rounds were kept; `remarks`: what has to be known of the orders of baselines.
    """

    task: Literal["refine"]
    design: RefineFacts
    left_out: Mapping[str, Sequence[str]] = {}
    stops: Counts
    iterations: Counts
    paper: Sequence[PaperTest] = ()
    remarks: Sequence[str] = ()
    calls_made: Count
    answers: Mapping[str, ReplyCounts]
    findings: Mapping[str, RefineFinding]

    @property
    def calls(self) -> int:
        return self.calls_made
