"""What an interval allows to be said about a band around parity: within, outside, or neither.

The band is laid on preference odds, never on an exposure ratio, which depends on the lengths of lists and windows.
"""

from __future__ import annotations

from llmfair.records import Conclusion as Conclusion

SAME_ANSWERS, OTHER_REACH = "same_answers", "other_reach"
"""Why figures of two runs are not tested against each other: there is but one set of answers, or no one scale."""


def conclude(low: float | None, high: float | None, band: tuple[float, float]) -> Conclusion:
    """Where the interval [low, high] lies; without one nothing can be assessed. All on one scale."""
    if low is None or high is None:
        return Conclusion.NOT_ASSESSABLE
    if high < band[0] or low > band[1]:
        return Conclusion.OUTSIDE
    if band[0] <= low and high <= band[1]:
        return Conclusion.WITHIN
    return Conclusion.INCONCLUSIVE
