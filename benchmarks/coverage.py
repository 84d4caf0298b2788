"""Whether listwise intervals hold the truth and tests keep their size: `python -m benchmarks.coverage`.

Simulated audits of 44 queries × 200 documents, half of them protected, at the default setting (window 20, step 10,
three passes, three random initial orders, control variate), by Plackett–Luce rankers with a weight of 2 for a
relevant document. Every audit goes through the inference of a real one. All figures follow from the seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.rows import print_lines
from llmfair.audits.aggregates import Inference, aggregate, controlled
from llmfair.audits.plan import share
from llmfair.metrics.base import ControlledExposures, Quotient, Ratio
from llmfair.nouns import Side
from llmfair.rankers.strategies import covering
from llmfair.stats.intervals import Estimate
from llmfair.stats.power import kind_exposures, random_lists, rank_injected
from llmfair.stats.significance import LabelledItems, permutations, sign_flip

Floats = NDArray[np.float64]

QUERIES, RUNS, ORDERS, PASSES = 44, 1000, 3, 3
LEVEL = 0.95
RELEVANCE = 2.0
SIDES = (Side.PROTECTED, Side.PROTECTED, Side.UNPROTECTED, Side.UNPROTECTED)
GRADES = (0, 1, 0, 1)
EVEN, UNEVEN = (50, 50, 50, 50), (95, 5, 85, 15)
"""Documents of a list: protected, protected relevant, unprotected, unprotected relevant."""
WINDOWS = covering(sum(EVEN), window=20, step=10)


# Documents of one side and one grade are interchangeable, so a list is simulated by kinds.


CERTAIN = 50.0
"""Log-weights of relevance are cut to ± this: farther apart no order is ever lost."""


@dataclass(frozen=True)
class Kinds:
    """A query's list by kinds: how many documents of which side (None: neither) and which grade."""

    counts: tuple[int, ...]
    sides: tuple[Side | None, ...]
    grades: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.counts)

    def on(self, side: Side) -> Floats:
        """The number of documents of each kind on this side; shape (kinds,)."""
        return np.array(self.counts, np.float64) * [found is side for found in self.sides]

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
        sided = self.on(Side.PROTECTED) + self.on(Side.UNPROTECTED)
        share_of_grade = sided / np.maximum(same_grade @ sided, 1)
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


@dataclass(frozen=True)
class Ranker:
    """Log pair odds for the protected: `beta` on average, with standard deviation `spread` over queries."""

    name: str
    beta: float = 0.0
    spread: float = 0.0


RANKERS = (
    Ranker("no preference"),
    Ranker("preference, log odds -0.3", beta=-0.3),
    Ranker("no mean preference, query sd 0.5", spread=0.5),
)


@dataclass(frozen=True)
class Share:
    """A share of simulated audits, with its Monte Carlo error."""

    name: str
    value: float
    error: float
    n: int

    def __str__(self) -> str:
        return f"{self.name:<62} {self.value:.3f} ±{self.error:.3f}  ({self.n:,} audits)"


def coverage(ranker: Ranker, queries: int = QUERIES, runs: int = RUNS, seed: int = 0) -> Share:
    """The share of intervals of the excess ratio that hold its truth over queries of this kind.

    The truth of a ranker with any preference comes from as many audits of another seed.
    """
    truth = 1.0
    if ranker.beta or ranker.spread:
        sums = np.zeros(4)
        for one in _lists(ranker, EVEN, queries, runs, seed + 1):
            sums += [*one.final.mean(axis=(0, 1, 2)), *one.relevance.mean(axis=(0, 1))]
        truth = float(sums[0] / sums[1] / (sums[2] / sums[3]))
    held = []
    for audit in _audits(_lists(ranker, EVEN, queries, runs, seed), runs):
        found = aggregate("ratio-of-means", audit, Inference(LEVEL, seed=seed))
        assert found is not None and found.low is not None and found.high is not None
        held.append(found.low <= truth <= found.high)
    return _share(f"{ranker.name}: intervals that hold R_x = {truth:.4f}", held)


def rejections(queries: int = QUERIES, runs: int = RUNS, seed: int = 0) -> dict[str, Share]:
    """A ranker without preference, relevant 5 % of the protected and 15 % of the unprotected: who is rejected.

    `naive`: t on R, as if relevance did not matter. `t` on the excess ratio, `sign_flip` over queries, and
    `permutation`: labels shuffled among equally relevant documents.
    """
    naive, excess, flips = [], [], []
    for audit in _audits(_lists(RANKERS[0], UNEVEN, queries, runs, seed), runs):
        naive.append(_rejects(aggregate("ratio-of-means", [one.ratio for one in audit], Inference(LEVEL))))
        excess.append(_rejects(aggregate("ratio-of-means", audit, Inference(LEVEL))))
        flips.append(sign_flip(_differences(audit), rng=np.random.default_rng(seed)) < 1 - LEVEL)
    documents = _documents(queries, runs, seed)
    permuted = [
        (found.p or 0) < 1 - LEVEL
        for run, audit in enumerate(documents)
        for found in permutations([audit], np.random.default_rng([seed, run]).spawn(queries), 999)
    ]
    return {
        "naive": _share("t on R, without relevance: rejected", naive),
        "t": _share("t on R_x: rejected", excess),
        "sign_flip": _share("sign flip by query: rejected", flips),
        "permutation": _share("shuffles of equally relevant documents: rejected", permuted),
    }


def _lists(
    ranker: Ranker, counts: tuple[int, ...], queries: int, runs: int, seed: int
) -> Iterator[SimulatedAudits]:
    """Every query's list in all audits; a query's preference is drawn anew in each audit."""
    listed = Kinds(counts, SIDES, GRADES)
    for query in range(queries):
        rng = np.random.default_rng([seed, query])
        betas = (ranker.beta + ranker.spread * rng.standard_normal(runs)).repeat(ORDERS)
        weights = listed.log_weights(betas.tolist(), RELEVANCE).transpose(1, 0, 2)
        yield simulate(listed, weights, WINDOWS, PASSES, runs, ORDERS, rng=rng)


def _audits(lists: Iterator[SimulatedAudits], runs: int) -> Iterator[list[Quotient]]:
    """The values of every query, audit by audit."""
    held = list(lists)
    return ([one.value(0, run) for one in held] for run in range(runs))


def _documents(queries: int, runs: int, seed: int) -> Iterator[list[LabelledItems]]:
    """Audits of the uneven lists with every document's exposure: each document is a kind of its own."""
    protected = np.repeat([side is Side.PROTECTED for side in SIDES], UNEVEN)
    grades = np.repeat(GRADES, UNEVEN)
    n = len(grades)
    weights = 1 / np.log1p(np.arange(1, n + 1))
    for run in range(runs):
        rng = np.random.default_rng([seed, run, 1])
        lists = rank_injected(
            random_lists([1] * n, queries * ORDERS, rng=rng), RELEVANCE * grades, WINDOWS, PASSES, rng=rng
        )
        exposures = np.empty(lists.shape)
        np.put_along_axis(exposures, lists.astype(np.intp), np.broadcast_to(weights, lists.shape), axis=1)
        means = exposures.reshape(queries, ORDERS, n).mean(axis=1)
        yield [LabelledItems(one, protected, grades) for one in means]


def _differences(audit: Sequence[Quotient]) -> list[float]:
    """x_q = (E1 − E0) − (M1 − M0), initial orders controlled for."""
    return [
        (one.ratio.numerator - one.ratio.denominator) - (one.by.numerator - one.by.denominator)
        for one in controlled(audit)
        if isinstance(one, Quotient)
    ]


def _rejects(found: Estimate | None) -> bool:
    """Whether the interval leaves out 1: the t test of that."""
    assert found is not None and found.low is not None and found.high is not None
    return not found.low <= 1 <= found.high


def _share(name: str, holds: Sequence[bool]) -> Share:
    value, error = share(holds)
    assert value is not None and error is not None
    return Share(name, value, error, len(holds))


def lines(audits: int) -> Iterator[str]:
    yield f"{QUERIES} queries × {sum(EVEN)}, window 20, step 10, 3 passes, 3 orders; seed 0"
    for ranker in RANKERS:
        yield f"  {coverage(ranker, runs=audits)}"
    yield "relevant 5 % of the protected, 15 % of the unprotected; a ranker without preference; 5 % would be right"
    for rejected in rejections(runs=audits).values():
        yield f"  {rejected}"


if __name__ == "__main__":
    print_lines(__doc__, RUNS, lines)
