"""What a sequential listwise audit sees of the windows so far: who is ahead, and where the odds lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from llmfair.audits.aggregates.preference import preference
from llmfair.audits.listwise.findings import HowRanked, concluded
from llmfair.metrics.names import parse_measure
from llmfair.metrics.values import QueryComparisons, Value
from llmfair.nouns import Conclusion
from llmfair.stats.sequential import Decision, look_level

HEADLINE = parse_measure("PreferenceOdds")


class WindowShare(NamedTuple):
    """A window of a query, and what it says of the preference."""

    query_id: str
    value: Value


def share(met: WindowShare) -> float:
    """X of a window: the share of its comparisons that the protected item won, ½ where it has none."""
    value = met.value
    return float(value.ahead.sum() / value.count.sum()) if isinstance(value, QueryComparisons) else 0.5


def seen(windows: Sequence[WindowShare], asked: HowRanked, level: float) -> Decision | None:
    """Where the odds of these windows lie by their interval, at the level of one look of several; None if nowhere.

    Whether the ranker does its job is no matter here: that more windows show it is not waited for.
    """
    found = preference(together(windows), look_level(level))
    if found is None:
        return None
    conclusion, _ = concluded(found, True, asked)
    if conclusion is Conclusion.WITHIN:
        return Decision.INSIDE
    if conclusion is Conclusion.OUTSIDE:
        low = found.estimate.low
        return Decision.BELOW if low is None or low < asked.band[0] else Decision.ABOVE
    return None


def together(windows: Iterable[WindowShare]) -> Iterator[QueryComparisons]:
    """What all windows of a query compare, for every query that has something."""
    by_query: dict[str, list[QueryComparisons]] = {}
    for query_id, value in windows:
        if isinstance(value, QueryComparisons):
            by_query.setdefault(query_id, []).append(value)
    yield from map(_joined, by_query.values())


def _joined(windows: Sequence[QueryComparisons]) -> QueryComparisons:
    return QueryComparisons(
        np.concatenate([one.ahead for one in windows]),
        np.concatenate([one.count for one in windows]),
        np.concatenate([one.slots for one in windows if one.slots is not None]),
        max(one.window for one in windows),
    )
