"""What an interval allows to be said about a band around parity: within, outside, or neither.

The band is laid on preference odds, never on an exposure ratio, which depends on the lengths of lists and windows.
"""

from __future__ import annotations

from math import ceil, log

from llmfair.nouns import Conclusion as Conclusion

SAME_ANSWERS, OTHER_REACH, OTHER_DESIGN = "same_answers", "other_reach", "other_design"
"""Why figures of two runs are not tested against each other: there is but one set of answers, or no one scale."""
CERTAIN, LIKELY = 1.96, 0.84
"""Standard errors on either side of a 95 % interval, and those that make 80 % power of half."""


def conclude(low: float | None, high: float | None, band: tuple[float, float]) -> Conclusion:
    """Where the interval [low, high] lies; without one nothing can be assessed. All on one scale."""
    if low is None or high is None:
        return Conclusion.NOT_ASSESSABLE
    if high < band[0] or low > band[1]:
        return Conclusion.OUTSIDE
    if band[0] <= low and high <= band[1]:
        return Conclusion.WITHIN
    return Conclusion.INCONCLUSIVE


def queries_to_settle(
    value: float, low: float, high: float, queries: int, band: tuple[float, float]
) -> int | None:
    """About how many queries leave the interval within the band, or outside it, with 80 % power.

    If the estimate stays where it is and queries vary as these do, so that the interval of logarithms shrinks with the
    root of their number. None at the very edge of the band, and where there is no logarithm.
    """
    if not 0 < low < high:
        return None
    distance = min(abs(log(value / edge)) for edge in band)
    if not distance:
        return None
    half = log(high / low) / 2
    return ceil(queries * (half / distance * (1 + LIKELY / CERTAIN)) ** 2)
