"""What a plan and a calibration of pairwise audits print with `--json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from llmfair.audits.documents import Planted
from llmfair.results import Band, Count, Counts, Level, Share, Version, Words


class PairwiseFindable(TypedDict):
    """What a design finds of one kind of pairs."""

    queries: Count
    pairs: float
    ratio: float
    level: float
    target: float
    icc: float
    consistent: float
    reason: str | None
    error: float | None
    power: Share | None
    pairs_needed: Count | None
    queries_needed: Count | None
    smallest: float | None
    items_recur: bool


class PairwisePlan(TypedDict):
    """llmfair plan pairwise; llmfair pairwise --dry-run has no findable, and cost only at given prices."""

    schema: Version
    task: Literal["pairwise"]
    queries: Count
    kinds: list[Literal["relevant", "irrelevant"]]
    pairs: Count | None
    pairs_asked: Counts
    repeats: Count
    noise_share: float
    noise_calls: Count
    sequential: bool
    models: Count
    design: dict[str, Any]
    seconds_at_1s_a_call: float
    prompt_tokens: Count
    completion_tokens: Count
    calls: Count
    workers: Count
    folder: str
    answered: Annotated[Count, Meta(description="Answers that the folder holds already.")]
    cached: NotRequired[
        Annotated[Count, Meta(description="Answers beside those that the shared cache holds.")]
    ]
    left: NotRequired[Annotated[Count, Meta(description="Calls that are left, at most.")]]
    unready: NotRequired[Annotated[list[str], Meta(description="Models that cannot be asked yet, and why.")]]
    latency: NotRequired[float]
    seconds: NotRequired[float]
    price_in: NotRequired[float | None]
    price_out: NotRequired[float | None]
    cost: NotRequired[float | None]
    findable: NotRequired[dict[str, PairwiseFindable]]


class PlantedPairs(Planted):
    """What simulated audits found of one kind of pairs and planted preference."""

    kind: Literal["relevant", "irrelevant"]
    marginal_odds: float
    consistent_share: Share | None


class SmallestOdds(TypedDict):
    """The odds, one either way, that are found with this power."""

    power: float
    tested: bool
    odds: tuple[float | None, float | None]


class PairwiseCalibration(TypedDict):
    """llmfair calibrate pairwise."""

    schema: Version
    task: Literal["calibrate pairwise"]
    dataset: str
    attribute: str
    words: Words
    seed: Count
    runs: Count
    level: Level
    band: Band
    design: dict[str, Any]
    settings: dict[str, Any]
    planted: Annotated[list[PlantedPairs], Meta(min_length=1)]
    smallest: dict[str, SmallestOdds]
