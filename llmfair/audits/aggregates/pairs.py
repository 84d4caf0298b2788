"""The pairs of all queries joined, and a measure's figure of them with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum

import numpy as np

from llmfair.audits.summary import Inference
from llmfair.metrics.base import Tally, Value
from llmfair.nouns import PairVerdict
from llmfair.registry import register
from llmfair.stats.intervals import Estimate
from llmfair.stats.pairs import Codes, PairContributions, Weights, estimate, pair_p

FEWEST_CONSISTENT = 10
"""From fewer pairs that do not flip, over all queries, no preference has an interval."""


def weights_of(aggregate: str) -> Weights:
    """How pairs weigh in a figure: the same each, or the same every query."""
    return "pooled" if aggregate == "pooled" else "macro"


def joined(values: Iterable[Value], weights: Weights = "macro") -> PairContributions | None:
    """The pairs that count in these tallies, one tally a query; None without any."""
    tallies = [value for value in values if isinstance(value, Tally)]
    kept = [tally.counts.any(axis=1) for tally in tallies]
    if not any(map(np.any, kept)):
        return None
    every = np.concatenate(kept)
    clusters = _clusters(_TheVery(tuple(tally.verdicts for tally in tallies)))
    counts = np.concatenate([tally.counts for tally in tallies])[every].astype(np.float64)
    return PairContributions(counts, clusters[:, every], weights, tallies[0].repeats)


@dataclass(frozen=True, eq=False, slots=True)
class _TheVery:
    """Verdicts of all queries as a key: equal are the very same tuples, for all measures of a run share them."""

    verdicts: tuple[tuple[PairVerdict, ...], ...]

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.verdicts)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TheVery) and [*map(id, self.verdicts)] == [*map(id, other.verdicts)]


@lru_cache(maxsize=4)
def _clusters(of_queries: _TheVery) -> Codes:
    """Codes of every verdict's query, protected and unprotected item; shape (3, verdicts)."""
    verdicts = [verdict for of_query in of_queries.verdicts for verdict in of_query]
    return np.stack(
        [
            np.repeat(
                np.arange(len(of_queries.verdicts)), [len(of_query) for of_query in of_queries.verdicts]
            ),
            _codes([verdict.protected for verdict in verdicts]),
            _codes([verdict.unprotected for verdict in verdicts]),
        ]
    )


def tallied(values: Sequence[Value], weights: Weights, level: float) -> Estimate | None:
    """A measure's figure of all queries; None without tallies, and without a value where it has none."""
    tallies = [value for value in values if isinstance(value, Tally)]
    if not tallies:
        return None
    formula, counted = tallies[0].formula, joined(tallies, weights)
    cells = np.zeros(formula.things.shape[-1]) if counted is None else counted.cells
    reason = formula.undefined(cells)
    if counted is None or reason:
        return Estimate(None, None, None, 0, reason)
    found = estimate(formula, counted, level, formula.logarithmic)
    consistent = fsum(tally.consistent / tally.repeats for tally in tallies)
    if formula.demanding and consistent < FEWEST_CONSISTENT and found.low is not None:
        return replace(found, low=None, high=None, reason="too_few_consistent_pairs")
    if formula.demanding and found.low is not None and found.low == found.high:
        return replace(found, low=None, high=None, reason="degenerate")
    return replace(found, reason="half_added") if not found.reason and formula.adds_half(cells) else found


@register("aggregate", "macro")
def _macro(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """Pairs, every query weighing the same."""
    return tallied(values, "macro", inference.level)


@register("aggregate", "pooled")
def _pooled(values: Sequence[Value], inference: Inference) -> Estimate | None:
    """Pairs, each weighing the same."""
    return tallied(values, "pooled", inference.level)


def tallied_p(values: Sequence[Value], weights: Weights, rng: np.random.Generator) -> float | None:
    """The two-sided p of parity, of a measure that counts PP, UU, FF, SS; None where it has no interval."""
    found, counted = tallied(values, weights, 0.95), joined(values, weights)
    if found is None or found.low is None or counted is None:
        return None
    formula = next(value.formula for value in values if isinstance(value, Tally))
    return pair_p(formula, counted, rng)


def _codes(names: Sequence[str]) -> Codes:
    """A whole number for every name, the same for equal ones; shape (names,)."""
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    return np.fromiter(map(codes.__getitem__, names), np.intp, len(names))
