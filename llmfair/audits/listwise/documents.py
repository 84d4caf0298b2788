"""What a plan and a calibration of listwise audits print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from llmfair.audits.documents import Calibration, CallPlan, InjectedPreference
from llmfair.audits.listwise.plan import ListwiseFindable
from llmfair.results import Count, JsonObject, Reach


class StrategyPlan(JsonObject, frozen=True, kw_only=True):
    """One of several strategies: what it takes, the range of ExpRatio within reach, and what it can find."""

    strategy: str
    at_most: bool
    window: Count | None
    step: Count | None
    passes: Count | None
    calls: Count
    prompt_tokens: Count
    completion_tokens: Count
    cost: float | None = None
    longest_chain: Count
    folder: str
    reach: Reach
    comparisons: float | None = None
    error: float | None = None
    power: float | None = None
    queries_needed: Count | None = None


class ListwisePlan(CallPlan, frozen=True, kw_only=True):
    """llmfair plan listwise; llmfair listwise --dry-run has no findable, and cost only at given prices."""

    task: Literal["listwise"]
    candidates: tuple[Count, Count]
    protected: tuple[Count, Count]
    conditions: Annotated[list[str], Meta(min_length=1)]
    window: Count | None
    step: Count | None
    passes: Count | None
    initial: str
    orders: Count
    seed: Count
    chains: Count
    longest_chain: Count
    reach: Mapping[str, Reach]
    render: str
    findable: ListwiseFindable | None = None
    strategies: list[StrategyPlan] | None = None


class SmallestOdds(JsonObject, frozen=True, kw_only=True):
    """The preference odds, one either way, that are found with this power; `error` is that of ln odds."""

    power: float
    queries: Count
    error: float | None
    odds: tuple[float | None, float | None]


class ListwiseCalibration(Calibration, frozen=True, kw_only=True):
    """llmfair calibrate listwise."""

    task: Literal["calibrate listwise"]
    injected: Annotated[list[InjectedPreference], Meta(min_length=1)]
    smallest: SmallestOdds
