"""The listwise audit against a known truth: simulated audits of injected preferences on the user's own lists.

Every simulated audit goes through the inference of a real one (`preference`, `concluded`), with the design's lists,
windows and orders. Only the neutral prompt is simulated, by a ranker whose answers can all be read; no model is
asked. The true odds are e to the injected log odds, whatever the slots and the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log, sqrt
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from llmfair.audits.aggregates import Preference
from llmfair.audits.calibrate import (
    Row,
    about,
    found_by_preference,
    row_of,
    settings_of,
    simulated,
)
from llmfair.audits.documents import Calibration, InjectedPreference
from llmfair.audits.listwise.design import ListwiseDesign, make_design
from llmfair.audits.listwise.measure import (
    HEADLINE,
    HowRanked,
    concluded,
    list_odds,
    no_preference,
    unassessable,
    with_disparities,
)
from llmfair.audits.listwise.plan import ListwisePlan
from llmfair.audits.listwise.results import ListwiseFinding
from llmfair.audits.listwise.settings import CalibrateSettings
from llmfair.audits.listwise.simulate import (
    Encounters,
    Items,
    Noise,
    PlayedAudits,
    draw,
    items_of,
)
from llmfair.errors import UsageError
from llmfair.metrics.base import Value
from llmfair.metrics.preference import strata_of
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.results import Count, JsonObject
from llmfair.settings import injected_of
from llmfair.stats.power import FEWEST_TESTED, smallest_ratio

COLUMNS = (
    "injected", "injected_odds", "odds", "log_odds", "log_odds_error", "covered", "covered_error", "covered_n",
    "rejected", "rejected_error", "rejected_n", "within", "outside", "inconclusive", "not_assessable",
)  # fmt: skip


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


DOCUMENTS = {"plan": ListwisePlan, "calibrate": ListwiseCalibration}
"""The types of what `plan` and `calibrate` print with --json."""


@dataclass(frozen=True, slots=True)
class SimulatedAudit:
    """What one audit found, and the p of its sign flip; `odds` None where nothing was compared."""

    odds: Preference | None
    finding: ListwiseFinding
    p: float | None

    @property
    def log_odds(self) -> float | None:
        """None where outcomes are separated, so that there is a bound at most."""
        if self.odds is None or self.odds.bound is not None or self.odds.estimate.value is None:
            return None
        return log(self.odds.estimate.value)


def calibrate(settings: CalibrateSettings, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Injected against recovered, coverage, false-positive rate, power, and the smallest odds that would be found.

    `advance` is called after every audit, injected × runs times. Raises UsageError for wrong input, and when no
    list has items to compare.
    """
    design, betas = make_design(settings), injected_of(settings.injected)
    listed = [items_of(design.dataset.candidates(query), design.sides) for query in design.queries]
    lists = [items for items in listed if items.pairs]
    if not lists:
        raise UsageError(
            "no list has items of both groups with the same grade of relevance.",
            f"llmfair datasets show {design.dataset.name}    counts them",
        )
    read = partial(found_in, level=settings.level, asked=design.asked())
    recovered = found_by_preference(audits(design, settings, lists, betas), betas, read, advance)
    sizes = [items.n for items in listed]
    return {
        **about(design, settings),
        "design": {
            "queries": len(listed),
            "without_comparison": len(listed) - len(lists),
            "candidates": [min(sizes), max(sizes)],
        },
        "settings": {
            name: value
            for name, value in settings_of(settings).items()
            if name not in ("strategy", "answers")
        }
        | design.ordered_by(),
        "injected": [
            _row(beta, outcomes, settings.level) for beta, outcomes in zip(betas, recovered, strict=True)
        ],
        "smallest": _smallest(recovered[betas.index(0)], len(lists), settings.power),
    }


def audits(
    design: ListwiseDesign, settings: CalibrateSettings, lists: Sequence[Items], betas: Sequence[float]
) -> Iterator[tuple[int, Mapping[str, Value]]]:
    """Simulated audits, each with the place of its injected preference."""
    assert isinstance(design.ranker, ListwiseRanker)
    noise = Noise(settings.alike, settings.slots)
    drawn = partial(draw, lists, design.ranker, design.settings, noise)

    def value(query_id: str, drawn: Encounters | PlayedAudits, place: int, run: int) -> Value:
        return drawn.value(betas[place], run)

    return simulated(settings, betas, drawn, value)


def found_in(audit: Mapping[str, Value], level: float, asked: HowRanked) -> SimulatedAudit:
    """What a real audit finds of these values, of a ranker that does its job."""
    odds = list_odds(audit.values(), strata_of(audit.values(), asked.strata), level=level)
    if odds is None:
        return SimulatedAudit(None, unassessable(HEADLINE, "no_encounter"), None)
    conclusion, reason = concluded(odds, True, asked)
    finding = ListwiseFinding(
        measure=HEADLINE, conclusion=conclusion, reason=reason, p_outside=odds.figures.outside(asked.band)
    )
    (finding,) = with_disparities({"neutral": finding}, level).values()
    return SimulatedAudit(odds.pooled, finding, no_preference(odds.pooled, asked))


def _row(beta: float, audits: Sequence[SimulatedAudit], level: float) -> Row:
    """What the audits of one injected preference found. `covered`: intervals that hold the injected odds."""
    limits = [
        (audit.odds.estimate.low, audit.odds.estimate.high)
        for audit in audits
        if audit.odds is not None and audit.odds.bound is None
    ]
    covered = [low <= exp(beta) <= high for low, high in limits if low is not None and high is not None]
    odds = [exp(audit.log_odds) for audit in audits if audit.log_odds is not None]
    flips = [audit.p for audit in audits if audit.p is not None]
    return row_of(COLUMNS, beta, odds, covered, flips, [audit.finding for audit in audits], level, {})


def _smallest(audits: Sequence[SimulatedAudit], queries: int, target: float) -> dict[str, Any]:
    """The odds, one either way, that a test at 5 % finds with power `target`, from the scatter of ln odds at parity.

    None with too few queries for a test.
    """
    logs = [audit.log_odds for audit in audits if audit.log_odds is not None]
    error = float(np.std(logs, ddof=1)) if len(logs) > 1 else None
    below = None
    if error and queries >= FEWEST_TESTED:
        below = smallest_ratio(error * sqrt(queries), queries, target)
    ends = [None, None] if below is None else [below, 1 / below]
    return {"power": target, "queries": queries, "error": error, "odds": ends}
