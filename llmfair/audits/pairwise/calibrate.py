"""The pairwise instrument against a known truth: simulated audits of injected odds on the user's own pairs.

Every simulated audit goes through the inference of a real one, with the design's very pairs and the items that
recur in them. Its intervals are held against the odds over all queries, which a spread over queries brings nearer
to 1 than the typical query's (`pairwise.md` 13).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import exp, hypot, log
from typing import Any

import numpy as np

from llmfair.audits.aggregates import Inference, aggregate
from llmfair.audits.calibrate import Row, about, found_by_preference, row_of, settings_of
from llmfair.audits.pairwise.making import make_pair_design
from llmfair.audits.pairwise.outcome import HEADLINE, HowAsked, finding_of
from llmfair.audits.pairwise.plan import Audit, check_power, marginal_odds, pair_audits, pairs_of
from llmfair.audits.pairwise.results import PairFinding
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings
from llmfair.errors import UsageError
from llmfair.metrics.base import Column, Measure
from llmfair.metrics.names import parse_measure
from llmfair.nouns import PairStratum
from llmfair.settings import band_of, injected_of
from llmfair.stats.intervals import Estimate

COLUMNS = (
    "condition", "injected", "injected_odds", "marginal_odds", "odds", "log_odds", "log_odds_error", "consistent_share",
    "covered", "covered_error", "covered_n", "rejected", "rejected_error", "rejected_n", "within", "outside",
    "inconclusive", "not_assessable",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoundPairs:
    """What one audit found: the position-adjusted odds with their interval, and the finding."""

    odds: Estimate
    finding: PairFinding


def calibrate_pairwise(
    settings: CalibratePairwiseSettings, advance: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Injected against recovered, coverage, false-positive rate, power, and the smallest odds that would be found.

    `advance` is called after every audit, strata × injected × runs times. Raises UsageError for wrong input, and
    when no query has pairs; a stratum without any is left out.
    """
    check_power(settings.power, settings.level)
    design, betas = make_pair_design(settings), injected_of(settings.injected)
    inference = Inference(level=settings.level, seed=settings.seed)
    measure, band = parse_measure(f"{HEADLINE}(agg={settings.weights})"), band_of(settings.band)
    pairs = {stratum: of_it for stratum in design.strata if (of_it := pairs_of(design, stratum))}
    if not pairs:
        raise UsageError(
            "no query has pairs of a protected and an unprotected item.",
            f"llmfair datasets show {design.dataset.name}    counts them",
        )
    rows, smallest = list[Row](), {}
    for stratum, of_it in pairs.items():
        found = found_by_preference(
            pair_audits(of_it, stratum, settings, betas),
            betas,
            partial(found_in_pairs, stratum=stratum, measure=measure, inference=inference, band=band),
            advance,
        )
        of_kind = [_row(stratum, beta, one, settings) for beta, one in zip(betas, found, strict=True)]
        rows += of_kind
        smallest[stratum] = _smallest(of_kind, settings)
    return {
        **about(design, settings),
        "design": {
            "queries": len(design.queries),
            "conditions": {
                stratum: {"queries": len(of_it), "pairs": sum(map(len, of_it.values())) // settings.repeats}
                for stratum, of_it in pairs.items()
            },
            "without_pairs": [stratum for stratum in design.strata if stratum not in pairs],
        },
        "settings": settings_of(settings),
        "injected": rows,
        "smallest": smallest,
    }


def found_in_pairs(
    audit: Audit, stratum: PairStratum, measure: Measure, inference: Inference, band: tuple[float, float]
) -> FoundPairs:
    """What a real audit finds of these values."""
    odds = aggregate(measure.aggregate, audit.values(), inference)
    assert odds is not None
    return FoundPairs(odds, finding_of(Column(measure, stratum, "", audit), (), HowAsked(inference, band)))


def _row(
    stratum: PairStratum, beta: float, found: Sequence[FoundPairs], settings: CalibratePairwiseSettings
) -> Row:
    """What the audits of one stratum and injected preference found, held against the true odds.

    `injected_odds` are those of the typical query, e^β, and `marginal_odds` the true position-adjusted odds over all
    queries, which intervals are to hold. `consistent_share` is the mean over audits.
    """
    truth = marginal_odds(beta, settings.position, hypot(settings.query_sd, settings.pair_sd))
    bounds = [(one.odds.low, one.odds.high) for one in found]
    covered = [low <= truth <= high for low, high in bounds if low is not None and high is not None]
    odds = [one.odds.value for one in found if one.odds.value is not None]
    findings = [one.finding for one in found]
    flips = [p for finding in findings if (p := finding.p) is not None]
    consistent = [s for finding in findings if (s := finding.consistent_share) is not None]
    own = {
        "condition": stratum,
        "marginal_odds": truth,
        "consistent_share": float(np.mean(consistent)) if consistent else None,
    }
    return row_of(COLUMNS, beta, odds, covered, flips, findings, settings.level, own)


def _smallest(rows: Sequence[Row], settings: CalibratePairwiseSettings) -> dict[str, Any]:
    """The odds, one below and one above parity, from which on audits of one stratum find a preference often enough.

    By the share of all audits with p < 1 − level, which knows the design's own test and how few its items may be;
    linear between the logarithms of injected odds. None where no injected odds are found with the power asked for.
    """
    below = [row for row in reversed(rows) if row["injected"] <= 0]
    above = [row for row in rows if row["injected"] >= 0]
    return {
        "power": settings.power,
        "tested": any(row["rejected_n"] for row in rows),
        "odds": [_crossing(side, settings.runs, settings.power) for side in (below, above)],
    }


def _crossing(side: Sequence[Row], runs: int, target: float) -> float | None:
    """The odds at which the share of audits that find them reaches the target, going outwards from parity."""
    found = [(log(row["marginal_odds"]), (row["rejected"] or 0.0) * row["rejected_n"] / runs) for row in side]
    for (nearer, fewer), (further, more) in pairwise(found):
        if fewer < target <= more:
            return exp(nearer + (target - fewer) / (more - fewer) * (further - nearer))
    return None
