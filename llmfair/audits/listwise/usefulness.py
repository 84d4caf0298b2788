"""Whether a ranker does its job at all: without that, being near parity says nothing, since noise is near it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from llmfair.audits.aggregates.preference import preference
from llmfair.audits.listwise.results import Usefulness
from llmfair.audits.summary import value_of
from llmfair.metrics.base import Judged
from llmfair.metrics.names import parse_measure
from llmfair.metrics.values import Value
from llmfair.stats import intervals

CUTOFF = 20
SURE = 0.999
"""The level of these intervals: at 95 % one in forty rankers that order by chance would pass for one of use."""
UTILITY = f"nDCG@{CUTOFF}"
"""What says how well a list is ordered by relevance."""


def beyond_initial(ranked: Sequence[Judged], initial: Sequence[Judged]) -> Usefulness | None:
    """nDCG@20 less that of the initial orders, paired by query; None where nothing is judged."""
    before, after = _utility(initial), _utility(ranked)
    return mean_gain(
        {query_id: after[query_id] - before[query_id] for query_id in after.keys() & before.keys()}
    )


def gain_on_chance(judged: Judged) -> float | None:
    """nDCG@20 of a query's rankings less what a random order of its list is expected to have.

    That is the mean gain of the list, discounted over its first 20 ranks, over the best that the judgements allow.
    None without a judged relevant document.
    """
    found = _utility([judged]).get(judged.query_id)
    gains = np.clip(judged.grades, 0, None)
    best = sorted((gain for gain in judged.candidates.relevance.values() if gain > 0), reverse=True)[:CUTOFF]
    if found is None or not best or not len(gains):
        return None
    discounts = 1 / np.log2(np.arange(2, CUTOFF + 2))
    expected = gains.mean() * discounts[: len(gains)].sum() / (np.array(best) @ discounts[: len(best)])
    return found - float(expected)


def of_answers(values: Iterable[Value]) -> Usefulness | None:
    """From answers alone, where nothing is ranked: RelevanceOdds; None without items of different grades."""
    found = preference(values, SURE)
    if found is None:
        return None
    estimate = found.estimate
    if estimate.value is None and estimate.low is None:
        return None
    odds = estimate.value if estimate.value is not None else float(estimate.low or 0.0)
    return Usefulness("RelevanceOdds", 1.0, odds, estimate.low, estimate.high, estimate.n, "chance")


def _utility(queries: Sequence[Judged]) -> dict[str, float]:
    measure = parse_measure(UTILITY)
    return {
        query.query_id: number
        for query in queries
        if any(grade > 0 for grade in query.candidates.relevance.values())
        for value in measure.values(query).values()
        if (number := value_of(value)[0]) is not None
    }


def mean_gain(gains: Mapping[str, float], against: str = "the initial ranking") -> Usefulness | None:
    """From each query's gain in nDCG@20 on what it is held against; None without any."""
    if not gains:
        return None
    mean = intervals.mean([gains[query_id] for query_id in sorted(gains)], SURE)
    assert mean.value is not None
    return Usefulness(UTILITY, 0.0, mean.value, mean.low, mean.high, mean.n, against)
