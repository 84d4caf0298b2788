"""What a plan and a calibration of pairwise audits print with `--json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from llmfair.audits.documents import Calibration, CallPlan, InjectedPreference
from llmfair.audits.pairwise.plan import PairwiseFindable
from llmfair.results import Count, Counts, JsonObject, Share


class PairwisePlan(CallPlan, frozen=True, kw_only=True):
    """llmfair plan pairwise; llmfair pairwise --dry-run has no findable, and cost only at given prices."""

    task: Literal["pairwise"]
    conditions: list[Literal["relevant", "irrelevant"]]
    pairs: Count | None
    pairs_asked: Counts
    repeats: Count
    noise_share: float
    noise_calls: Count
    sequential: bool
    models: Count
    design: dict[str, Any]
    findable: dict[str, PairwiseFindable] | None = None


class InjectedPairs(InjectedPreference, frozen=True, kw_only=True):
    """What simulated audits found of one relevance stratum and injected preference."""

    condition: Literal["relevant", "irrelevant"]
    marginal_odds: float
    consistent_share: Share | None


class SmallestOdds(JsonObject, frozen=True, kw_only=True):
    """The odds, one either way, that are found with this power."""

    power: float
    tested: bool
    odds: tuple[float | None, float | None]


class PairwiseCalibration(Calibration, frozen=True, kw_only=True):
    """llmfair calibrate pairwise."""

    task: Literal["calibrate pairwise"]
    injected: Annotated[list[InjectedPairs], Meta(min_length=1)]
    smallest: dict[str, SmallestOdds]
