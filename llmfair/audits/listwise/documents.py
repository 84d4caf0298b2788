"""What a plan and a calibration of listwise audits print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from llmfair.audits.documents import Planted
from llmfair.results import Band, Count, Level, Reach, Share, Version, Words


class Effect(TypedDict):
    """An exposure ratio, and the pair odds behind it."""

    ratio: float
    odds: float | None
    useful_odds: float | None


class ListwiseFindable(TypedDict):
    """What a design finds with the power asked for."""

    queries: Count
    target: float
    tau: float
    reason: str | None
    sd: float | None
    error: float | None
    effect: Effect | None
    power: Share | None
    queries_needed: Count | None
    smallest: list[Effect]


class ListwisePlan(TypedDict):
    """llmfair plan listwise; llmfair listwise --dry-run has no findable, and cost only at given prices."""

    schema: Version
    task: Literal["listwise"]
    queries: Count
    candidates: tuple[Count, Count]
    protected: tuple[Count, Count]
    arms: Annotated[list[str], Meta(min_length=1)]
    window: Count | None
    step: Count | None
    passes: Count | None
    initial: str
    orders: Count
    seed: Count
    chains: Count
    longest_chain: Count
    seconds_at_1s_a_call: float
    prompt_tokens: Count
    completion_tokens: Count
    calls: Count
    workers: Count
    folder: str
    answered: Annotated[Count, Meta(description="Answers that the folder holds already.")]
    cached: Annotated[Count, Meta(description="Answers beside those that the shared cache holds.")]
    left: Annotated[Count, Meta(description="Calls that are left, at most.")]
    unready: NotRequired[Annotated[list[str], Meta(description="Models that cannot be asked yet, and why.")]]
    reach: Mapping[str, Reach]
    render: str
    latency: NotRequired[float]
    seconds: NotRequired[float]
    price_in: NotRequired[float | None]
    price_out: NotRequired[float | None]
    cost: NotRequired[float | None]
    findable: NotRequired[ListwiseFindable]


class PlantedLists(Planted):
    """What simulated audits found of one planted preference; shares with their Monte Carlo error."""

    exposure_ratio: float
    excess_ratio: float
    excess_covered: Share | None
    excess_covered_error: float | None


class Curve(TypedDict):
    """Exposure ratios by planted preference."""

    betas: list[float]
    ratios: list[float]


class SmallestRatio(TypedDict):
    """The effects, one either way, that are found with this power."""

    power: float
    queries: Count
    error: float
    ratios: tuple[float | None, float | None]
    odds: tuple[float | None, float | None]


class ListwiseCalibration(TypedDict):
    """llmfair calibrate listwise."""

    schema: Version
    task: Literal["calibrate listwise"]
    dataset: str
    attribute: str
    words: Words
    seed: Count
    runs: Count
    level: Level
    band: Band
    design: dict[str, Any]
    settings: dict[str, Any]
    planted: Annotated[list[PlantedLists], Meta(min_length=1)]
    slope: float | None
    intervals: str
    curve: Curve
    smallest: SmallestRatio
