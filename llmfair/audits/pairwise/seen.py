"""What a sequential pairwise audit sees of the pairs so far: who won, and where the interval of the odds lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmfair.audits.aggregates.pairs import joined, tallied
from llmfair.audits.pairwise.concluding import concluded
from llmfair.metrics.pairs import ADJUSTED_ODDS, JudgedPairs, tally
from llmfair.nouns import Cell, Conclusion, PairVerdict, by_query
from llmfair.stats.pairs import Weights
from llmfair.stats.sequential import FEWEST_UNITS, Decision, look_level

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
