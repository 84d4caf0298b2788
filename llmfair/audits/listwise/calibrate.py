"""The listwise instrument against a known truth: simulated audits of planted preferences on the user's own lists.

Every simulated audit goes through the inference of a real one (`findings_of`), with the design's lists, windows,
passes and orders. Only the neutral arm is simulated, by a ranker whose answers can all be read; no model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.aggregates.control import controlled
from llmfair.audits.aggregates.implied import implied_curve
from llmfair.audits.calibrate import (
    BLOCK,
    Row,
    about,
    found_by_preference,
    rng_of,
    row_of,
    settings_of,
    share_of,
    simulated,
)
from llmfair.audits.listwise.design import ListwiseDesign
from llmfair.audits.listwise.findings import HowRanked
from llmfair.audits.listwise.making import make_design
from llmfair.audits.listwise.reach import inference_of
from llmfair.audits.listwise.results import Excess, ListwiseFinding, SignFlip
from llmfair.audits.listwise.settings import CalibrateSettings
from llmfair.audits.listwise.simulate import Kinds, Simulated, kinds_of, simulate
from llmfair.audits.summary import Inference, aggregate
from llmfair.errors import UsageError
from llmfair.metrics.columns import Column
from llmfair.metrics.names import parse_measure
from llmfair.metrics.values import Quotient, Ratio
from llmfair.records import Conclusion
from llmfair.settings import planted_of
from llmfair.stats.conclusions import conclude
from llmfair.stats.implied import OddsCurve
from llmfair.stats.intervals import Estimate
from llmfair.stats.power import FEWEST_TESTED, smallest_ratio
from llmfair.stats.significance import sign_flip

Audit = Mapping[str, Quotient]
"""What one simulated audit measured, by query_id."""
ARM = "neutral"
COLUMNS = (
    "planted", "planted_odds", "odds", "log_odds", "log_odds_error", "exposure_ratio", "excess_ratio", "covered",
    "covered_error", "covered_n", "excess_covered", "excess_covered_error", "rejected", "rejected_error",
    "rejected_n", "within", "outside", "inconclusive", "not_assessable",
)  # fmt: skip
STREAM = 2000
"""The streams of a query's seed that its simulated audits are drawn from: one a block, from here on."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one audit found, and the curve that it reads pair odds from.

    `sums`, shape (6,): Σ over its queries of E1, E0, M1, M0, and of the exposures of relevant and other documents.
    """

    finding: ListwiseFinding
    curve: OddsCurve
    sums: NDArray[np.float64]

    @property
    def excess(self) -> Excess:
        assert self.finding.excess is not None
        return self.finding.excess


def calibrate(settings: CalibrateSettings, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Planted against recovered, coverage, false alarms, power, and the smallest effect that would be found.

    `advance` is called after every audit, planted × runs times. Raises UsageError for wrong input, and when no
    list has items of both sides.
    """
    design, betas = make_design(settings), planted_of(settings.planted)
    inference, asked = inference_of(design), design.asked()
    listed = [kinds_of(design.dataset.candidates(query), design.sides) for query in design.queries]
    lists = [one for one in listed if one.two_sided]
    if inference.surface is None:
        raise UsageError(
            "no list has items of both sides.", f"llmfair datasets show {design.dataset.name}    counts them"
        )
    read = partial(found_in, inference=inference, asked=asked)
    found = found_by_preference(audits(design, settings, lists, betas), betas, read, advance)
    rows = [_row(beta, one, settings.level) for beta, one in zip(betas, found, strict=True)]
    without = found[betas.index(0)]
    relevant, others = _sums(without)[4:]
    curve = inference.surface().curve(relevant / others if others else None)
    sizes = [one.n for one in listed]
    return {
        **about(design, settings),
        "intervals": inference.method(len(lists)),
        "design": {
            "queries": len(listed),
            "one_sided": len(listed) - len(lists),
            "candidates": [min(sizes), max(sizes)],
        },
        "settings": {name: value for name, value in settings_of(settings).items() if name != "strategy"}
        | design.ordered_by(),
        "planted": rows,
        "slope": _slope(rows),
        "smallest": _smallest(without, curve, settings.power),
        "curve": asdict(curve),
    }


def audits(
    design: ListwiseDesign, settings: CalibrateSettings, lists: Sequence[Kinds], betas: Sequence[float]
) -> Iterator[tuple[int, Audit]]:
    """Simulated audits, each with the place of its planted preference."""

    def draw(block: int) -> dict[str, Simulated]:
        return {
            one.query_id: simulate(
                one,
                one.log_weights(betas, settings.relevance),
                design.windows(one.n),
                design.passes,
                BLOCK,
                settings.orders,
                settings.repeats,
                rng=rng_of(settings, one.query_id, STREAM + block),
            )
            for one in lists
        }

    def value(query_id: str, drawn: Simulated, place: int, run: int) -> Quotient:
        return drawn.value(place, run, settings.control_variate)

    return simulated(settings, betas, draw, value)


def found_in(audit: Audit, inference: Inference, asked: HowRanked) -> Found:
    """What a real audit finds of these values; some list must have items of both sides."""
    column = Column(parse_measure("ImpliedOdds(control=order)"), ARM, "", audit)
    # the curve depends on no interval, so the quicker one will do
    curve = implied_curve(list(audit.values()), replace(inference, ci="linear-t"))
    assert curve is not None
    ratios = [(one.ratio, one.by, one.useful or Ratio(0, 0)) for one in audit.values()]
    sides = [[side for ratio in parts for side in (ratio.numerator, ratio.denominator)] for parts in ratios]
    excess = aggregate("ratio-of-means", list(audit.values()), inference)
    assert excess is not None and excess.value is not None
    conclusion, reason = _concluded(excess, curve, asked)
    finding = ListwiseFinding(
        measure=str(column.measure),
        conclusion=conclusion,
        reason=reason,
        excess=Excess(excess.value, excess.low, excess.high, excess.n),
        sign_flip=SignFlip(_sign_flip(list(audit.values()), asked), excess.n, True),
    )
    return Found(finding, curve, np.array(sides).sum(axis=0))


def _concluded(excess: Estimate, curve: OddsCurve, asked: HowRanked) -> tuple[Conclusion, str | None]:
    """The band is compared as exposure ratios, where the whole interval exists whatever odds are in reach."""
    if curve.flat:
        return Conclusion.NOT_ASSESSABLE, "no_common_grade"
    if excess.low is None or excess.high is None:
        return Conclusion.NOT_ASSESSABLE, excess.reason
    if excess.low < curve.low and excess.high > curve.high:
        return Conclusion.NOT_ASSESSABLE, "out_of_reach"
    low, high = (curve.ratio(odds) for odds in asked.band)
    return conclude(excess.low, excess.high, (low, high)), None


def _sign_flip(values: Sequence[Quotient], asked: HowRanked) -> float | None:
    """p of no mean effect over queries, x_q = (E1 − E0) − (M1 − M0); None for too few queries."""
    differences = [
        (value.ratio.numerator - value.ratio.denominator) - (value.by.numerator - value.by.denominator)
        for value in controlled(list(values))
        if isinstance(value, Quotient)
    ]
    if len(differences) < FEWEST_TESTED:
        return None
    return sign_flip(differences, rng=np.random.default_rng(asked.seed))


def _sums(found: Sequence[Found]) -> list[float]:
    """The sums of all audits together."""
    sums: list[float] = sum((one.sums for one in found), np.zeros(6)).tolist()
    return sums


def _row(beta: float, found: Sequence[Found], level: float) -> Row:
    """What the audits of one planted preference found.

    `exposure_ratio` and `excess_ratio` are those of all audits together. `covered`: intervals of implied odds that
    hold the planted odds; `excess_covered`: intervals of the excess ratio that hold `excess_ratio`, whatever odds
    are read from it.
    """
    e1, e0, m1, m0, *_ = _sums(found)
    excess = (e1 / e0) / (m1 / m0)
    limits = [(one, one.excess.low, one.excess.high) for one in found]
    assessed = [(one, low, high) for one, low, high in limits if low is not None and high is not None]
    odds = [read for one in found if (read := one.curve.odds(one.excess.value)) is not None]
    findings = [one.finding for one in found]
    flips = [p for finding in findings if finding.sign_flip and (p := finding.sign_flip.p) is not None]
    # Odds beyond a curve still have a place on the scale of ratios, so that is where coverage is counted.
    covered = [low <= one.curve.ratio(exp(beta)) <= high for one, low, high in assessed]
    own = {
        "exposure_ratio": e1 / e0,
        "excess_ratio": excess,
        **share_of("excess_covered", [low <= excess <= high for _, low, high in assessed]),
        "undefined": {"odds_out_of_reach": len(found) - len(odds)},
    }
    return row_of(COLUMNS, beta, odds, covered, flips, findings, level, own)


def _slope(rows: Sequence[Row]) -> float | None:
    """Recovered log odds for each unit of planted ones (least squares through 0); None where only 0 is planted."""
    pairs = [(row["planted"], row["log_odds"]) for row in rows if row["log_odds"] is not None]
    squares = sum(beta**2 for beta, _ in pairs)
    return sum(beta * found for beta, found in pairs) / squares if squares else None


def _smallest(audits: Sequence[Found], curve: OddsCurve, target: float) -> dict[str, Any]:
    """The effects, one either way, that a test at 5 % finds with power `target`: from the scatter of ln R_x at
    parity. None with too few queries for a test; odds are None beyond the curve.
    """
    logs, queries = [log(one.excess.value) for one in audits], audits[0].excess.n
    error = float(np.std(logs, ddof=1))
    found = error > 0 and queries >= FEWEST_TESTED
    ratio = smallest_ratio(error * sqrt(queries), queries, target) if found else None
    ends = [None, None] if ratio is None else [ratio, 1 / ratio]
    return {
        "power": target,
        "queries": queries,
        "error": error,
        "ratios": ends,
        "odds": [None if end is None else curve.odds(end) for end in ends],
    }
