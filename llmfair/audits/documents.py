"""What a comparison, and a plan of a kind that tells no more, print with `--json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from llmfair.nouns import Conclusion
from llmfair.results import Band, Count, Counts, Level, Reach, RunVerdict, Share, Version, Words


class ComparisonRun(TypedDict):
    """The base first; `differs` names settings in which a run differs from it: (base, run).

    `same_answers`: one of the two has no answer that the other has not. `reach`: what measures can read in a run.
    """

    name: str
    run: str
    model: str
    differs: dict[str, tuple[Any, Any]]
    same_answers: bool
    reach: dict[str, Reach]


class ComparisonRow(TypedDict):
    """One measure and condition of both runs; `change`: a difference, on a logarithmic scale a ratio.

    `reason_of`: the runs whose reason it is. `base_low` to `other_high`: the intervals of either run, of figures that
    speak of the sides. `useless`: why nothing says that the other run's ranker does its job.
    """

    run: str
    condition: str
    measure: str
    scale: Literal["linear", "log"]
    better: str | None
    headline: bool
    base: float | None
    other: float | None
    change: float | None
    low: float | None
    high: float | None
    n: Count | None
    p: Share | None
    p_adjusted: Share | None
    base_conclusion: Conclusion | None
    other_conclusion: Conclusion | None
    reason: str | None
    reason_of: list[str]
    base_low: float | None
    base_high: float | None
    other_low: float | None
    other_high: float | None
    useless: str | None


class InjectedPreference(TypedDict):
    """What simulated audits found of one injected preference; shares with their Monte Carlo error."""

    injected: float
    injected_odds: float
    odds: float | None
    log_odds: float | None
    log_odds_error: float | None
    covered: Share | None
    covered_error: float | None
    covered_n: Count
    rejected: Share | None
    rejected_error: float | None
    rejected_n: Count
    within: Share
    outside: Share
    inconclusive: Share
    not_assessable: Share
    undefined: Counts


class CallPlan(TypedDict):
    """What every plan tells, whatever the kind; a dry run has a cost only at given prices, and plans nothing more."""

    schema: Version
    queries: Count
    sees: Annotated[str, Meta(description="The prompt, and what the model would be shown of an item.")]
    calls: Count
    prompt_tokens: Count | None
    completion_tokens: Count | None
    workers: Count
    seconds_at_1s_a_call: Count
    folder: str
    answered: Annotated[Count, Meta(description="Answers that the folder holds already.")]
    cached: Annotated[Count, Meta(description="Answers beside those that the shared cache holds.")]
    left: Annotated[Count, Meta(description="Calls that are left, at most.")]
    unready: Annotated[list[str], Meta(description="Models that cannot be asked yet, and why.")]
    assessable: Annotated[int, Meta(ge=0, description="Queries from which something can be concluded.")]
    remarks: Annotated[
        list[str], Meta(description="Why others, or all, cannot be assessed, or a gate says nothing.")
    ]
    latency: NotRequired[float]
    seconds: NotRequired[float]
    price_in: NotRequired[float | None]
    price_out: NotRequired[float | None]
    cost: NotRequired[float | None]


class AuditPlan(CallPlan):
    """llmfair plan, and --dry-run, of a kind of audit that tells no more."""

    task: str
    design: dict[str, Any]
    at_most: NotRequired[Annotated[bool, Meta(description="Whether fewer calls may do.")]]
    findable: NotRequired[Any]


class Calibration(TypedDict):
    """What every calibration tells of itself."""

    schema: Version
    dataset: str
    attribute: str
    words: Words
    seed: Count
    runs: Count
    level: Level
    band: Band
    design: dict[str, Any]
    settings: dict[str, Any]


class Comparison(TypedDict):
    """llmfair compare."""

    verdict: NotRequired[RunVerdict]
    schema: Version
    status: Literal["complete"]
    task: str
    dataset: str
    attribute: str
    words: Words
    level: Level
    band: Band
    seed: Count
    queries: Count
    runs: Annotated[list[ComparisonRun], Meta(min_length=2)]
    family: Count
    rows: list[ComparisonRow]
