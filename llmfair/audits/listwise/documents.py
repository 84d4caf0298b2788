"""What a plan and a calibration of listwise audits print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from llmfair.audits.documents import Calibration, Planned, Planted
from llmfair.audits.listwise.plan import ListwiseFindable
from llmfair.results import Count, Reach, Share


class ListwisePlan(Planned):
    """llmfair plan listwise; llmfair listwise --dry-run has no findable, and cost only at given prices."""

    task: Literal["listwise"]
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
    reach: Mapping[str, Reach]
    render: str
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


class ListwiseCalibration(Calibration):
    """llmfair calibrate listwise."""

    task: Literal["calibrate listwise"]
    planted: Annotated[list[PlantedLists], Meta(min_length=1)]
    slope: float | None
    intervals: str
    curve: Curve
    smallest: SmallestRatio
