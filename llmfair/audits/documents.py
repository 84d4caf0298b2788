"""What a comparison, and a plan of a kind that tells no more, print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from llmfair.nouns import Conclusion, Key
from llmfair.results import (
    Band,
    Count,
    Counts,
    JsonDocument,
    JsonObject,
    KeyColumns,
    Level,
    Reach,
    RunVerdict,
    Share,
    Words,
)


class ComparisonRun(JsonObject, frozen=True, kw_only=True):
    """The base first; `differs` names settings in which a run differs from it: (base, run). `same_answers`: one of the
    two has no answer that the other has not. `reach`: what measures can read in a run."""

    name: str
    run: str
    model: str
    differs: dict[str, tuple[Any, Any]]
    same_answers: bool
    reach: Mapping[str, Reach]
    own: Annotated[Mapping[str, Any], Meta(description="What its kind of audit says besides.")] = {}


class ChangeRow(JsonObject, KeyColumns, omit_defaults=False, frozen=True):
    """One measure under one condition, of one stratum, in the base and in another run.

    `change` is other/base on a log `scale`, else other − base. Headlines are tested together: `p_adjusted`. Of a
    figure that speaks of the sides both runs' conclusions stand beside, with the intervals of either run. Where one
    cannot be assessed, or the two cannot be compared, there is neither interval nor test, and the `reason`, which is
    that of the runs named in `reason_of`. `useless`: why the other run's nearness to parity would say nothing.
    """

    run: str
    condition: str
    stratum: str
    measure: str
    scale: Literal["linear", "log"]
    better: str | None
    headline: bool
    base: float | None
    other: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    n: Count = 0
    p: Share | None = None
    p_adjusted: Share | None = None
    base_conclusion: Conclusion | None = None
    other_conclusion: Conclusion | None = None
    reason: str | None = None
    reason_of: Sequence[str] = ()
    base_low: float | None = None
    base_high: float | None = None
    other_low: float | None = None
    other_high: float | None = None
    useless: str | None = None
    contrast: str = ""

    @property
    def of(self) -> Key:
        """What the change is of."""
        return self.key({self.contrast})


class InjectedPreference(JsonObject, frozen=True, kw_only=True):
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


class CallPlan(JsonDocument, frozen=True, kw_only=True):
    """What every plan tells, whatever the kind; a dry run has a cost only at given prices, and plans nothing more."""

    queries: Count
    sees: Annotated[str, Meta(description="The prompt, and what the model would be shown of an item.")]
    calls: Count
    prompt_tokens: Count | None
    completion_tokens: Count | None
    workers: Count
    seconds_at_1s_a_call: Count
    folder: str
    answered: Annotated[Count, Meta(description="Answers that the folder holds already.")]
    unready: Annotated[list[str], Meta(description="Models that cannot be asked yet, and why.")]
    assessable: Annotated[int, Meta(ge=0, description="Queries from which something can be concluded.")]
    remarks: Annotated[
        list[str], Meta(description="Why others, or all, cannot be assessed, or a gate says nothing.")
    ]
    latency: float | None = None
    seconds: float | None = None
    price_in: float | None = None
    price_out: float | None = None
    cost: float | None = None


class AuditPlan(CallPlan, frozen=True, kw_only=True):
    """llmfair plan, and --dry-run, of a kind of audit that tells no more."""

    task: str
    design: dict[str, Any]
    at_most: Annotated[bool, Meta(description="Whether fewer calls may do.")] | None = None
    queries_for_nearer: Annotated[
        Count | None,
        Meta(
            description="Refinement: with so many a loss beyond the margin is ruled out, where there is none."
        ),
    ] = None
    findable: Any = None


class Calibration(JsonDocument, frozen=True, kw_only=True):
    """What every calibration tells of itself."""

    dataset: str
    attribute: str
    words: Words
    seed: Count
    runs: Count
    level: Level
    band: Band
    design: dict[str, Any]
    settings: dict[str, Any]


class Comparison(JsonDocument, frozen=True, kw_only=True):
    """llmfair compare."""

    verdict: RunVerdict | None = None
    status: Literal["complete"]
    task: str
    dataset: str
    attribute: str
    words: Words
    level: Level
    band: Band
    margin: Band
    seed: Count
    queries: Count
    runs: Annotated[Sequence[ComparisonRun], Meta(min_length=2)]
    family: Count
    rows: Sequence[ChangeRow]


DOCUMENTS = {"plan": AuditPlan}
"""The types of what `plan` and `calibrate` print with --json, of a kind that tells no more."""
