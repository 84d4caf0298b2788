"""Audits of one list by injected rankers, simulated by the hundred: the values that a real audit would measure.

Documents of one side and one grade are interchangeable, so a list is simulated by kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmfair.metrics.values import ControlledExposures, Quotient, Ratio
from llmfair.nouns import Candidates, Side
from llmfair.stats.injected import kind_exposures, random_lists, rank_injected

Floats = NDArray[np.float64]

CERTAIN = 50.0
"""Log-weights of relevance are cut to ± this: farther apart no order is ever lost."""


@dataclass(frozen=True)
class Kinds:
    """A query's list by kinds: how many documents of which side (None: neither) and which grade."""

    query_id: str
    counts: tuple[int, ...]
    sides: tuple[Side | None, ...]
    grades: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.counts)

    @property
    def two_sided(self) -> bool:
        return all(self.on(side).any() for side in Side)

    def on(self, side: Side) -> Floats:
        """The number of documents of each kind on this side; shape (kinds,)."""
        return np.array(self.counts, np.float64) * [found is side for found in self.sides]

    @property
    def sided(self) -> Floats:
        """The number of documents of each kind that has a side; shape (kinds,)."""
        return self.on(Side.PROTECTED) + self.on(Side.UNPROTECTED)

    def log_weights(self, betas: Sequence[float], relevance: float) -> Floats:
        """Of rankers with these log pair odds for the protected, and so much for a grade: (rankers, 1, kinds)."""
        grades = np.clip(relevance * np.array(self.grades), -CERTAIN, CERTAIN)
        protected = np.array([side is Side.PROTECTED for side in self.sides])
        weights: Floats = np.multiply.outer(np.array(betas), protected)[:, None, :] + grades
        return weights

    @cached_property
    def to_sides(self) -> Floats:
        """Exposures of kinds times this are E1, E0; shape (kinds, 2). The list needs both sides."""
        return np.stack([self.on(side) / self.on(side).sum() for side in Side], axis=1)

    @cached_property
    def to_relevance(self) -> Floats:
        """Exposures of kinds times this are M1, M0, each side with the mean exposure of its grades; (kinds, 2)."""
        same_grade = np.equal.outer(self.grades, self.grades)
        share_of_grade = self.sided / np.maximum(same_grade @ self.sided, 1)
        weights: Floats = share_of_grade[:, None] * (same_grade @ self.to_sides)
        return weights


@dataclass(frozen=True)
class SimulatedAudits:
    """Audits of one list: mean exposures of two sides on the last axis.

    `final` has E1, E0 of every initial order, shape (rankers, runs, orders, 2), `initial` those of the orders
    themselves, (runs, orders, 2); `relevance` has M1, M0 over all orders, (rankers, runs, 2). `mean` is v̄ of the list.
    """

    final: Floats
    initial: Floats
    relevance: Floats
    mean: float

    def value(self, ranker: int, run: int, control_variate: bool = True) -> Quotient:
        """One audit's excess ratio, as `ExcessRatio(control=order)` has it; or as `ExcessRatio`."""
        final = self.final[ranker, run]
        orders = zip(final, self.initial[run], strict=True) if control_variate else ()
        controlled = tuple(
            ControlledExposures(_pair(after), _pair(before), self.mean) for after, before in orders
        )
        return Quotient(
            Ratio(*_pair(final.mean(axis=0)), controlled=controlled),
            Ratio(*_pair(self.relevance[ranker, run])),
        )


def kinds_of(candidates: Candidates, sides: Mapping[str, Side | None]) -> Kinds:
    """A candidate list by kinds."""
    relevance = candidates.relevance
    counts = Counter((relevance.get(d, 0), str(sides[d]), sides[d]) for d in candidates.doc_ids)
    kinds = sorted(counts, key=lambda kind: kind[:2])
    return Kinds(
        query_id=candidates.query.query_id,
        counts=tuple(counts[kind] for kind in kinds),
        sides=tuple(side for _, _, side in kinds),
        grades=tuple(grade for grade, _, _ in kinds),
    )


def simulate(
    listed: Kinds,
    log_weights: ArrayLike,
    windows: Sequence[tuple[int, int]],
    passes: int,
    runs: int,
    orders: int,
    repeats: int = 1,
    *,
    rng: np.random.Generator,
) -> SimulatedAudits:
    """Audits of rankers with these log-weights of kinds, shape (rankers, 1 or runs × orders × repeats, kinds).

    All rankers get the same uniformly random initial orders and the same noise. Raises ValueError as
    `rank_injected` does.
    """
    weights, kinds = np.asarray(log_weights, np.float64), len(listed.counts)
    initial = random_lists(listed.counts, runs * orders, rng=rng)
    shown = np.broadcast_to(
        initial.repeat(repeats, axis=0), (len(weights), runs * orders * repeats, listed.n)
    )
    ranked = rank_injected(shown, weights, windows, passes, rng=rng)
    after = kind_exposures(ranked, kinds).reshape(len(weights), runs, orders, repeats, kinds).mean(axis=3)
    before = kind_exposures(initial, kinds).reshape(runs, orders, kinds)
    return SimulatedAudits(
        final=after @ listed.to_sides,
        initial=before @ listed.to_sides,
        relevance=after.mean(axis=2) @ listed.to_relevance,
        mean=float(before[0, 0] @ listed.counts) / listed.n,
    )


def _pair(sides: Floats) -> tuple[float, float]:
    protected, unprotected = sides.tolist()
    return protected, unprotected
