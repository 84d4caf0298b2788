"""What an audit of retrieval-augmented generation found, as its results.json has it."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from llmfair.audits.rag.settings import LARGEST_ALPHA, LARGEST_K, MOST_SAMPLES
from llmfair.metrics.texts import UTILITIES
from llmfair.results import (
    AnswerCounts,
    Count,
    Counts,
    DesignFacts,
    Figure,
    Finding,
    JsonObject,
    Results,
    Share,
)


class RagFactors(TypedDict):
    """Who scores the items of a condition, and how closely its lists follow the scores."""

    retriever: str
    alpha: Annotated[float, Meta(ge=0, le=LARGEST_ALPHA)] | Literal["deterministic"]


class RagFacts(DesignFacts, frozen=True, kw_only=True):
    """What was asked; numbers have the bounds of their flags.

    `factors` vary between conditions. `recurring`: an id is the same item in all queries. `uncredited`: why answers are
    credited to nothing, where that is so by design. `worst_loss`: the largest loss of utility that a query can have.
    """

    factors: Mapping[str, RagFactors] | None = None
    k: Annotated[int, Meta(ge=1, le=LARGEST_K, description="Items that the generator is shown.")]
    samples: Annotated[int, Meta(ge=1, le=MOST_SAMPLES, description="Lists drawn per query and condition.")]
    useful: Annotated[str, Meta(description="How useful items are told: gain, qrels, or a file of labels.")]
    utility: Annotated[str, Meta(pattern=f"^({'|'.join(UTILITIES)})$")]
    attribution: str
    uncredited: str | None = None
    recurring: bool = True
    margin: float
    worst_loss: Annotated[float, Meta(gt=0)]


class OutputCounts(AnswerCounts, frozen=True, kw_only=True):
    """Distinct outputs of a condition; `classes`: how those ended that are no answers, though measured as they are."""

    outputs: Count
    classes: Counts

    @property
    def asked(self) -> int:
        return self.outputs


class Collected(JsonObject, frozen=True, kw_only=True):
    """The queries kept, those dropped by how many items are useful, of fewer than two; means of the kept ones."""

    kept: Count
    dropped: Mapping[str, Count]
    items: float | None
    useful: float | None
    useful_share: Share | None


class CurvePoint(JsonObject, frozen=True):
    """The mean of `up` over the observations whose `across` is nearest to a place, with its interval over queries."""

    at: Share
    observations: Count
    mean: Figure


class Curve(JsonObject, frozen=True, kw_only=True):
    """One measure over another, of the lists that one retriever drew: an observation is a query under one alpha.

    `slope` of the least-squares line over observations. `area` below the points from 0 to 1, their ends held constant.
    `deterministic`: where the one list by score is.
    """

    across: str
    up: str
    observations: Count
    queries: Count
    slope: float | None
    area: float | None
    deterministic: tuple[float, float] | None
    points: Sequence[CurvePoint]


class IntervalCell(JsonObject, frozen=True, kw_only=True):
    """The observations of one interval of disparity beside the one list by score.

    `difference` of the pooled means, with the p of the unpaired test; starred: Student's p below 0.05. `paired`: each
    query's mean in the interval less its own baseline; p adjusted (Holm) over the intervals of all retrievers.
    """

    interval: str
    observations: Count
    queries: Count
    difference: float | None
    starred: bool
    p_student: Share | None
    paired: Figure | None


class Intervals(JsonObject, frozen=True):
    """Utility by interval of disparity; `baseline`: mean utility of the retriever's one list by score."""

    disparity: str
    utility: str
    baseline: float | None
    cells: Sequence[IntervalCell]


class JudgedPairs(JsonObject, frozen=True):
    """What a model was asked of pairs of item and output, each once; `by` is what measures call it."""

    model: str
    by: str
    asked: Count
    supported: Count
    unparseable: Count


class RagFinding(Finding, frozen=True, kw_only=True):
    """Whether a condition's utility is kept, beside the one list by score of the same retriever.

    `disparity`: its expected exposure disparity, in the norm of the run's table. `margin`: the mean loss of utility
    that counts as kept; `worst_loss`: the largest that a query can have. `lower`: the mean change is above it with the
    certainty of the level, by betting. `p` of a mean loss beyond the margin, and adjusted: the largest p of the alphas
    tested up to this one. `losers`: queries that lost more than the margin.
    """

    disparity: float | None
    margin: float
    worst_loss: float
    lower: float | None = None
    p: Share | None = None
    p_adjusted: Share | None = None
    losers: Count | None = None


class RagResults(Results, frozen=True, kw_only=True):
    """llmfair rag; results.json of its run folder.

    By retriever: utility by interval of disparity, and what fairer lists cost (`tradeoff`).
    """

    task: Literal["rag"]
    design: RagFacts
    collection: Collected
    intervals: Mapping[str, Intervals] = {}
    tradeoff: Mapping[str, Sequence[Curve]] = {}
    judged: JudgedPairs | None = None
    calls_made: Count
    answers: Mapping[str, OutputCounts]
    findings: Mapping[str, RagFinding]

    @property
    def calls(self) -> int:
        return self.calls_made

    def of_conditions(self) -> Mapping[str, Names[str]]:
        return {
            **super().of_conditions(),
            "answers": self.answers,
            "design.factors": self.design.factors or {},
        }
