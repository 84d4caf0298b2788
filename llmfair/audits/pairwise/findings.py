"""What may be concluded of a relevance stratum: where its odds lie, and whether its answers say anything of them.

Odds have an interval while both shares p1, p2 of the protected item's wins, shown first and second, are measured.
Where one is all but 0 or 1, the items' places decide nearly every answer of one order, or one group wins in both: the
odds then have no size, but they have a side, and a bound on that side. Answers that agree over both orders no more than
coins do are no evidence of parity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.aggregates import joined, tallied
from llmfair.audits.pairwise.results import Bound
from llmfair.metrics.pairs import ADJUSTED_ODDS, KAPPA, JudgedPairs, tally
from llmfair.nouns import Cell, Conclusion, PairVerdict, by_query
from llmfair.stats.intervals import Estimate, conclude
from llmfair.stats.pairs import PairContributions, Weights, estimate, intraclass
from llmfair.stats.sequential import FEWEST_UNITS, Decision, look_level
from llmfair.stats.significance import sign_test

Band = tuple[float, float]

POSITION = ("position_driven", "one_sided")
FEWEST_CONSISTENT_SHARE = 0.10
NEAR_CERTAIN = 0.02
"""Within this of 0 or 1, how often the protected item wins when shown first or second is position, not content."""
KAPPA_LEVEL = 0.999
"""Of models that toss a coin for every answer, one in 2,000 has a lower limit above 0 at this level."""


@dataclass(frozen=True, slots=True)
class PairConclusion:
    """A conclusion; why there is none or no interval; the bound that stands in an interval's place."""

    conclusion: Conclusion
    reason: str | None = None
    bound: Bound | None = None


def concluded(odds: Estimate, counted: PairContributions, band: Band, level: float) -> PairConclusion:
    """Where the odds lie by their interval or, where they have no size, by their bound."""
    reason = _unmeasured(counted.shares)
    if reason is None:
        if odds.low is None or odds.high is None:
            return PairConclusion(Conclusion.NOT_ASSESSABLE, odds.reason)
        return _answering(PairConclusion(conclude(odds.low, odds.high, band)), counted)
    bound = bound_of(counted, level)
    if bound is None:
        return PairConclusion(Conclusion.NOT_ASSESSABLE, reason)
    low, high = (0.0, bound.odds) if bound.side == "at most" else (bound.odds, inf)
    return PairConclusion(conclude(low, high, band), reason, bound)


def settled(
    found: PairConclusion, decision: Decision | None, counted: PairContributions, band: Band
) -> PairConclusion:
    """What a sequential audit concludes: what was settled, and of odds without a size no more than that.

    `found` at the level that is printed: where it is not outside, as of a folder measured again at another level, no
    decision makes it so.
    """
    unmeasured = found.reason in POSITION
    if decision is None:
        still = unmeasured and found.conclusion is Conclusion.NOT_ASSESSABLE
        return found if still else PairConclusion(Conclusion.INCONCLUSIVE)
    if decision is Decision.INSIDE:
        return _answering(PairConclusion(Conclusion.WITHIN), counted)
    if found.conclusion is not Conclusion.OUTSIDE:
        return found if unmeasured else PairConclusion(Conclusion.INCONCLUSIVE)
    if not unmeasured:
        return found
    below = decision is Decision.BELOW
    bound = Bound("at most", band[0]) if below else Bound("at least", band[1])
    return PairConclusion(Conclusion.OUTSIDE, found.reason, bound)


def bound_of(counted: PairContributions, level: float) -> Bound | None:
    """What odds are at most or at least whose shares p1, p2 are too near 0 or 1 for an interval.

    None unless a tenth of the pairs are consistent and, over queries, the sign test says whom they favour. Both shares
    are drawn towards ½ as if the model tossed a coin in some answers: in twice as many as are `NEAR_CERTAIN`, or as n
    pairs without a single case leave open (−ln(α/2)/n, n divided by the design effect). The bound is the outer limit
    of these odds.
    """
    pp, uu, *_ = counted.shares
    effects = np.bincount(counted.clusters[0], counted.counts @ np.array([1, -1, 0, 0]))
    if pp + uu < FEWEST_CONSISTENT_SHARE or sign_test(effects) >= 1 - level:
        return None
    alike = intraclass(counted)
    pairs = counted.cells.sum() / max(1.0, 1.0 if alike is None else alike.design_effect)
    least = max(NEAR_CERTAIN, -log((1 - level) / 2) / pairs)
    if least >= 0.5:
        return None

    def drawn_in(cells: NDArray[Any]) -> Any:
        pp, uu, ff, ss = cells / cells.sum()
        return (
            sum(
                np.log(least + (1 - 2 * least) * wins) - np.log(least + (1 - 2 * least) * losses)
                for wins, losses in ((pp + ff, uu + ss), (pp + ss, uu + ff))
            )
            / 2
        )

    found = estimate(drawn_in, counted, level)
    if found.low is None or found.high is None:
        return None
    return Bound("at most", found.high) if pp < uu else Bound("at least", found.low)


def _unmeasured(shares: NDArray[np.float64]) -> str | None:
    """Why odds of these shares of PP, UU, FF, SS have no size."""
    pp, uu, ff, ss = shares
    if min(max(pp + ff, pp + ss), max(uu + ff, uu + ss)) <= NEAR_CERTAIN:
        return "one_sided"
    certain = min(pp + ff, uu + ss, pp + ss, uu + ff)
    return "position_driven" if pp + uu < FEWEST_CONSISTENT_SHARE or certain <= NEAR_CERTAIN else None


def _answering(found: PairConclusion, counted: PairContributions) -> PairConclusion:
    """Parity needs answers that agree over both orders beyond chance: the lower limit of Kappa is above 0."""
    if found.conclusion is not Conclusion.WITHIN or (reason := useless(counted)) is None:
        return found
    return PairConclusion(Conclusion.NOT_ASSESSABLE, reason)


def useless(counted: PairContributions) -> str | None:
    """Why nothing says that the model compares the items: its answers to both orders agree no more than coins do."""
    kappa = estimate(KAPPA.figure, counted, KAPPA_LEVEL, logarithmic=False)
    return None if kappa.low is not None and kappa.low > 0 else "chance_answers"


# What a sequential pairwise audit sees of the pairs so far: who won, and where the interval of the odds lies.


GAIN = {Cell.PP: 1.0, Cell.UU: 0.0}


def share(verdict: PairVerdict) -> float:
    """X of a pair: 1 when the protected item won both times, 0 when the other did, ½ for anything else."""
    return GAIN.get(verdict.cell, 0.5)


def judged_of(verdicts: Sequence[PairVerdict], repeats: int, forced: bool = False) -> Iterator[JudgedPairs]:
    """The queries of these verdicts, as measures see them."""
    for query_id, of_it in by_query(verdicts):
        yield JudgedPairs(query_id, tuple(of_it), repeats, forced)


def seen(
    verdicts: Sequence[PairVerdict], band: tuple[float, float], level: float, weights: Weights = "macro"
) -> Decision | None:
    """Where the odds of these pairs lie by their interval, at the level of one look of several; None if nowhere."""
    if len(verdicts) < FEWEST_UNITS:
        return None
    values = [tally(judged, ADJUSTED_ODDS) for judged in judged_of(verdicts, repeats=1)]
    odds, counted = tallied(values, weights, look_level(level)), joined(values, weights)
    if odds is None or odds.value is None or counted is None:
        return None
    found = concluded(odds, counted, band, look_level(level))
    if found.conclusion is Conclusion.WITHIN or found.reason == "chance_answers":
        return Decision.INSIDE
    if found.conclusion is Conclusion.OUTSIDE:
        return Decision.BELOW if odds.value < 1 else Decision.ABOVE
    return None
