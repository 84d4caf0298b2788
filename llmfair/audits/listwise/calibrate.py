"""The listwise instrument against a known truth: simulated audits of planted preferences on the user's own lists.

Every simulated audit goes through the inference of a real one (`findings_of`), with the design's lists, windows,
passes and orders. Only the neutral arm is simulated, by a ranker whose answers can all be read; no model is asked.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.listwise.design import ListwiseDesign
from llmfair.audits.listwise.findings import HowRanked, findings_of
from llmfair.audits.listwise.making import make_design
from llmfair.audits.listwise.reach import inference_of
from llmfair.audits.listwise.results import Excess, ListwiseFinding
from llmfair.audits.listwise.settings import CalibrateSettings
from llmfair.audits.listwise.simulate import Kinds, kinds_of, simulate
from llmfair.audits.summary import Inference, implied_curve
from llmfair.errors import UsageError
from llmfair.jsonfiles import SCHEMA
from llmfair.metrics.base import Column
from llmfair.metrics.names import parse_measure
from llmfair.metrics.values import Quotient, Ratio
from llmfair.settings import band_of, planted_of
from llmfair.stats.conclusions import Conclusion
from llmfair.stats.implied import OddsCurve
from llmfair.stats.power import FEWEST_TESTED, smallest_ratio

Audit = Mapping[str, Quotient]
"""What one simulated audit measured, by query_id."""
ARM = "neutral"
BLOCK = 50
"""Audits simulated at once, from one seed: more runs leave the earlier ones as they were."""
STREAM = 2000
"""The streams of a query's seed that its simulated audits are drawn from: one a block, from here on."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one audit found, and the curve that it reads pair odds from."""

    finding: ListwiseFinding
    curve: OddsCurve

    @property
    def excess(self) -> Excess:
        assert self.finding.excess is not None
        return self.finding.excess


@dataclass(frozen=True)
class Recovered:
    """What audits of one planted preference found; shares with their Monte Carlo error and the audits they are of.

    `odds` are the median implied pair odds, `log_odds` the mean of their logarithms; `exposure_ratio` and
    `excess_ratio` those of all audits together. `covered`: intervals of implied odds that hold the planted odds;
    `excess_covered`: intervals of the excess ratio that hold `excess_ratio`, whatever odds are read from it.
    `rejected`: sign flips with p < 1 − level, at 0 the false alarms, elsewhere the power. `undefined` counts, by
    reason, audits without a figure; a share of no audit is None.
    """

    planted: float
    planted_odds: float
    odds: float | None
    log_odds: float | None
    log_odds_error: float | None
    exposure_ratio: float
    excess_ratio: float
    covered: float | None
    covered_error: float | None
    covered_n: int
    excess_covered: float | None
    excess_covered_error: float | None
    rejected: float | None
    rejected_error: float | None
    rejected_n: int
    within: float
    outside: float
    inconclusive: float
    not_assessable: float
    undefined: Mapping[str, int]


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
    found: list[list[Found]] = [[] for _ in betas]
    sums = np.zeros((len(betas), 6))
    for place, audit in audits(design, settings, lists, betas):
        sums[place] += _sums(audit)
        found[place].append(found_in(audit, inference, asked))
        advance()
    rows = [
        recovered(beta, one, (e1 / e0, m1 / m0), settings.level)
        for beta, one, (e1, e0, m1, m0, *_) in zip(betas, found, sums.tolist(), strict=True)
    ]
    none = betas.index(0)
    relevant, others = sums[none, 4:].tolist()
    curve = inference.surface().curve(relevant / others if others else None)
    sizes = [one.n for one in listed]
    return {
        "schema": SCHEMA,
        "task": "calibrate listwise",
        "dataset": design.dataset.name,
        "attribute": design.attribute.name,
        "words": {side.value: word for side, word in design.attribute.words.items()},
        "seed": settings.seed,
        "runs": settings.runs,
        "level": settings.level,
        "band": list(band_of(settings.band)),
        "intervals": inference.method(len(lists)),
        "design": {
            "queries": len(listed),
            "one_sided": len(listed) - len(lists),
            "candidates": [min(sizes), max(sizes)],
        },
        "settings": {
            item.name: getattr(settings, item.name)
            for item in fields(settings)
            if item.metadata["panel"] in ("Data", "Prompt", "Statistics") and item.name != "strategy"
        }
        | design.ordered_by(),
        "planted": [asdict(row) for row in rows],
        "slope": _slope(rows),
        "smallest": _smallest(found[none], curve, settings.power),
        "curve": asdict(curve),
    }


def found_in(audit: Audit, inference: Inference, asked: HowRanked) -> Found:
    """What a real audit finds of these values; some list must have items of both sides."""
    column = Column(parse_measure("ImpliedOdds(control=order)"), ARM, "", audit)
    # the curve depends on no interval, so the quicker one will do
    curve = implied_curve(list(audit.values()), replace(inference, ci="linear-t"))
    assert curve is not None
    return Found(findings_of([column], {}, inference, asked)[ARM], curve)


def recovered(beta: float, found: Sequence[Found], ratios: tuple[float, float], level: float) -> Recovered:
    """What the audits of one planted preference found; `ratios` are R and R_rel of all of them together."""
    limits = [(one, one.excess.low, one.excess.high) for one in found]
    assessed = [(one, low, high) for one, low, high in limits if low is not None and high is not None]
    bounds = [(low, high) for _, low, high in assessed]
    # Odds beyond a curve still have a place on the scale of ratios, so that is where coverage is counted.
    shown, excess = [one.curve.ratio(exp(beta)) for one, *_ in assessed], ratios[0] / ratios[1]
    covered = share([low <= ratio <= high for ratio, (low, high) in zip(shown, bounds, strict=True)])
    excess_covered = share([low <= excess <= high for low, high in bounds])
    findings = [one.finding for one in found]
    flips = [p for finding in findings if finding.sign_flip and (p := finding.sign_flip.p) is not None]
    rejected = share([p < 1 - level for p in flips])
    odds = [read for one in found if (read := one.curve.odds(one.excess.value)) is not None]
    logs = np.log(odds)
    ends = Counter(str(finding.conclusion) for finding in findings)
    undefined = Counter(finding.reason for finding in findings if finding.reason is not None)
    undefined["odds_out_of_reach"] = len(findings) - len(odds)
    return Recovered(
        planted=beta,
        planted_odds=exp(beta),
        odds=float(np.median(odds)) if odds else None,
        log_odds=float(logs.mean()) if odds else None,
        log_odds_error=float(logs.std(ddof=1) / sqrt(len(odds))) if len(odds) > 1 else None,
        exposure_ratio=ratios[0],
        excess_ratio=excess,
        covered=covered[0],
        covered_error=covered[1],
        covered_n=len(bounds),
        excess_covered=excess_covered[0],
        excess_covered_error=excess_covered[1],
        rejected=rejected[0],
        rejected_error=rejected[1],
        rejected_n=len(flips),
        **{str(end): ends[str(end)] / len(findings) for end in Conclusion},
        undefined={reason: n for reason, n in sorted(undefined.items()) if n},
    )


def share(holds: Sequence[bool]) -> tuple[float | None, float | None]:
    """A share with its Monte Carlo error, which is not 0 where all or none hold [Agresti & Coull 1998]."""
    if not holds:
        return None, None
    middle = (sum(holds) + 2) / (len(holds) + 4)
    return sum(holds) / len(holds), sqrt(middle * (1 - middle) / (len(holds) + 4))


def audits(
    design: ListwiseDesign, settings: CalibrateSettings, lists: Sequence[Kinds], betas: Sequence[float]
) -> Iterator[tuple[int, Audit]]:
    """Simulated audits, each with the place of its planted preference; all preferences meet the same noise."""
    for block, first in enumerate(range(0, settings.runs, BLOCK)):
        simulated = {
            one.query_id: simulate(
                one,
                one.log_weights(betas, settings.relevance),
                design.windows(one.n),
                design.passes,
                BLOCK,
                settings.orders,
                settings.repeats,
                rng=np.random.default_rng([settings.seed, zlib.crc32(one.query_id.encode()), STREAM + block]),
            )
            for one in lists
        }
        for run in range(min(BLOCK, settings.runs - first)):
            for place in range(len(betas)):
                yield (
                    place,
                    {
                        query_id: one.value(place, run, settings.control_variate)
                        for query_id, one in simulated.items()
                    },
                )


def _sums(audit: Audit) -> NDArray[np.float64]:
    """Σ over the queries of E1, E0, M1, M0, and of the exposures of relevant and other documents; shape (6,)."""
    ratios = [(one.ratio, one.by, one.useful or Ratio(0, 0)) for one in audit.values()]
    sides = [[side for ratio in parts for side in (ratio.numerator, ratio.denominator)] for parts in ratios]
    sums: NDArray[np.float64] = np.array(sides).sum(axis=0)
    return sums


def _slope(rows: Sequence[Recovered]) -> float | None:
    """Recovered log odds for each unit of planted ones (least squares through 0); None where only 0 is planted."""
    pairs = [(row.planted, row.log_odds) for row in rows if row.log_odds is not None]
    planted = sum(beta**2 for beta, _ in pairs)
    return sum(beta * found for beta, found in pairs) / planted if planted else None


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
