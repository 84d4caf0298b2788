"""Comparisons of all queries become odds: of a preference for items, and of one for slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.summary import Inference
from llmfair.metrics.base import QueryComparisons, Value
from llmfair.registry import register
from llmfair.stats.intervals import FEWEST_QUERIES, Estimate
from llmfair.stats.preference import (
    FEWEST_COMPARISONS,
    Alternatives,
    Comparisons,
    Fit,
    jackknife_error,
    log_interval,
    one_way_bound,
    preference_fit,
    slots_decide,
)

LARGEST_LOG = 700.0
"""Beyond this e to it is no number."""
Bound = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Preference:
    """Odds with their interval, how many comparisons are behind them, and the queries' scores where they are 1.

    `bound`: the odds are at most, or at least, what the estimate says, since slots or groups decide every outcome;
    `slots_decide`: slots alone do, so that no preference for items shows. `tied`: the share of comparisons, each
    query weighing alike, that neither item is ahead in.
    """

    estimate: Estimate
    comparisons: int
    null_scores: NDArray[np.float64]
    bound: Bound | None = None
    slots_decide: bool = False
    tied: float = 0.0

    def could_leave(self, band: tuple[float, float]) -> bool:
        """Whether odds would lie beyond the band if one group were ahead wherever there is no tie."""
        least = self.tied / 2 / (1 - self.tied / 2)
        return least < band[0] or least * band[1] < 1


def preference(values: Iterable[Value], level: float = 0.95) -> Preference | None:
    """The odds that the first of two items is put ahead, over queries; None without any comparison.

    Where outcomes are separated no finite odds are the likeliest, and there is a bound. If one side is always
    ahead, odds beyond which that is too unlikely. Else slots decide, and the odds that leave them out are nearer
    to 1 than those of items in equal slots.
    """
    compared = _compared(values)
    fit = _fit(compared)
    if fit is not None:
        tied = float(np.mean([one.tied / one.count.sum() for one in compared if one.count.sum()]))
        return Preference(fit.odds(level), fit.comparisons, fit.null_scores, tied=tied)
    count = round(sum(float(one.count.sum()) for one in compared))
    if not count:
        return None
    shares = np.array([one.ahead.sum() / one.count.sum() for one in compared])
    if 0 < shares.mean() < 1:
        return _without_slots(compared, count, level)
    queries, high = len(compared), one_way_bound(len(compared), level)
    reason = "too_few_comparisons" if count < FEWEST_COMPARISONS else "always_one_way"
    if queries < FEWEST_QUERIES:
        reason = "too_few_queries"
    if reason != "always_one_way":
        return Preference(Estimate(None, None, None, queries, reason), count, shares - 0.5)
    if shares.mean():
        return Preference(Estimate(None, 1 / high, None, queries, reason), count, shares - 0.5, "at least")
    return Preference(Estimate(None, None, high, queries, reason), count, shares - 0.5, "at most")


def _without_slots(compared: Sequence[QueryComparisons], count: int, level: float) -> Preference:
    fit = _fit_without_slots(compared)
    if fit is None:  # of a single query
        return Preference(Estimate(None, None, None, len(compared), "too_few_queries"), count, np.zeros(0))
    estimate = fit.odds(level)
    bound: Bound = "at most" if fit.log_odds < 0 else "at least"
    decided = slots_decide([_of(one) for one in compared], _window(compared))
    reason = estimate.reason or ("slots_decide" if decided else "separated")
    told = Estimate(estimate.value, estimate.low, estimate.high, estimate.n, reason, estimate.error)
    return Preference(told, count, fit.null_scores, bound, decided)


@lru_cache(maxsize=16)
def _fit(compared: tuple[QueryComparisons, ...]) -> Fit | None:
    """The fit of these very comparisons, which tables, conclusions and contrasts all ask for."""
    return preference_fit([_of(one) for one in compared], _window(compared))


def _fit_without_slots(compared: Sequence[QueryComparisons]) -> Fit | None:
    return preference_fit([_of(replace(one, slots=None)) for one in compared])


@register("aggregate", "preference-odds")
def _preference_odds(values: Sequence[Value], inference: Inference) -> Estimate | None:
    found = preference(values, inference.level)
    return None if found is None else found.estimate


@register("aggregate", "slot-odds")
def _slot_odds(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """Without a value where outcomes are separated, so that no finite odds are the likeliest; None without slots."""
    compared = _compared(values)
    if _window(compared) < 2:
        return None
    fit = _fit(compared)
    if fit is not None:
        return fit.slot_odds(inference.level)
    found = preference(values, inference.level)
    return None if found is None else Estimate(None, None, None, len(compared), found.estimate.reason)


def odds_by_query(values: Mapping[str, Value]) -> dict[str, float]:
    """Each query's part of the odds: e to its jackknife pseudo-value, whose mean over queries is near ln odds.

    They pair what two runs or prompts make of the same queries. Where slots decide, of the odds that leave them out, as
    `preference` has them. Empty where there are no finite odds.
    """
    known = {query_id: value for query_id, value in values.items() if isinstance(value, QueryComparisons)}
    compared = _compared(known.values())
    fit = _fit(compared) or _fit_without_slots(compared)
    if fit is None or fit.queries != len(known):
        return {}
    parts = fit.log_odds + (fit.queries - 1) * fit.changes[:, 0]
    return {
        query_id: float(np.exp(part))
        for query_id, part in zip(known, parts, strict=True)
        if abs(part) < LARGEST_LOG
    }


def preference_change(
    one: Mapping[str, Value], other: Mapping[str, Value], level: float = 0.95
) -> tuple[Estimate, NDArray[np.float64]] | None:
    """The quotient of two odds over the same queries with its interval, and each query's part of its logarithm.

    The parts are jackknife pseudo-values, shape (queries,). None where either has no finite odds, or no query is
    in both.
    """
    shared = sorted(
        query_id
        for query_id in one.keys() & other.keys()
        if isinstance(one[query_id], QueryComparisons) and isinstance(other[query_id], QueryComparisons)
    )
    fits: list[Fit] = []
    for values in (one, other):
        compared = _compared(values[query_id] for query_id in shared)
        fit = _fit(compared)
        if fit is None or fit.queries != len(shared):
            return None
        fits.append(fit)
    change = fits[0].log_odds - fits[1].log_odds
    moved = fits[0].changes[:, 0] - fits[1].changes[:, 0]
    estimate = log_interval(change, jackknife_error(moved), len(shared), level)
    return estimate, change + (len(shared) - 1) * moved


def _compared(values: Iterable[Value]) -> tuple[QueryComparisons, ...]:
    return tuple(value for value in values if isinstance(value, QueryComparisons))


def _of(value: QueryComparisons) -> Comparisons:
    if value.chosen is None:
        return Comparisons(value.ahead, value.count, value.slots)
    first, starts = value.chosen
    return Comparisons(value.ahead, value.count, chosen=Alternatives(first, value.slots, starts))


def _window(compared: Sequence[QueryComparisons]) -> int:
    return max((one.window for one in compared), default=1)
