"""How often `llmfair rag` is right about utility: `python -m benchmarks.kept`, simulated changes of queries.

A row is a law of the changes with its mean in margins; the columns are numbers of queries, each with three shares of
audits: where the interval of t is above −margin, where utility is called kept, and where it is called lost. At −1.02
*kept* is false, at −0.98 *lost* is. The last rows are of four alphas that are tested one after the other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.betting import SHARES, WEIGHTS, fewest_queries
from llmfair.stats.intervals import mean
from llmfair.stats.tradeoff import Utility, losses

Floats = NDArray[np.float64]
Law = Callable[[np.random.Generator, int, float], Floats]
"""Changes of so many queries with this mean; shape (queries,)."""
AUDITS, NOISE = 300, 0.002
QUERIES = (8, 20, 44, 72, 100, 200, 400)
BELOW, ABOVE = -1.02, -0.98


def rare(rng: np.random.Generator, queries: int, centre: float, rest: float, far: float) -> Floats:
    """All change by `rest`, give or take NOISE, but for rare ones that change by `far`: as many as `centre` takes."""
    few = rng.random(queries) < (centre - rest) / (far - rest)
    return np.where(few, far, rest + NOISE * rng.uniform(-1, 1, queries))


def scattered(rng: np.random.Generator, queries: int, centre: float, spread: float) -> Floats:
    return np.clip(rng.normal(centre, spread, queries), -1, 1)


def by_halves(rng: np.random.Generator, queries: int, centre: float, step: float) -> Floats:
    """Each changes by a `step` up or down."""
    return np.where(rng.random(queries) < (1 + centre / step) / 2, step, -step)


def none(rng: np.random.Generator, queries: int, centre: float) -> Floats:
    return np.full(queries, centre)


@dataclass(frozen=True)
class Row:
    """`centre` in margins."""

    name: str
    law: Law
    centre: float
    margin: float = 0.05
    worst_loss: float = 1.0


def rows(margin: float) -> list[Row]:
    normal, coin = partial(scattered, spread=0.1), partial(by_halves, step=0.5)
    laws = {
        "a rare loss of 1, the rest -.9 margins": partial(rare, rest=-0.9 * margin, far=-1.0),
        "a rare loss of 1, the rest -.5 margins": partial(rare, rest=-0.5 * margin, far=-1.0),
        "a rare loss of 1, the rest 0": partial(rare, rest=0.0, far=-1.0),
        "a rare loss of 1, the rest +1 margin": partial(rare, rest=margin, far=-1.0),
        "a rare loss of .5, the rest -.5 margins": partial(rare, rest=-0.5 * margin, far=-0.5),
        "normal, sd .1": normal,
        "half a point up or down": coin,
    }
    gains = {
        "a rare gain of 1, the rest -1.1 margins": partial(rare, rest=-1.1 * margin, far=1.0),
        "normal, sd .1": normal,
        "half a point up or down": coin,
    }
    return [
        *(Row(name, law, BELOW, margin) for name, law in laws.items()),
        *(Row(name, law, ABOVE, margin) for name, law in gains.items()),
        *(Row(f"normal, sd {spread:g}", partial(scattered, spread=spread), 0.0, margin) for spread in (0.05, 0.1, 0.2)),
        Row("nothing changes", none, 0.0, margin),
        Row("a loss of .9 in one of 20, mean -.045", partial(rare, rest=0.0, far=-0.9), -0.045 / margin, margin),
        Row("normal, sd .1", normal, -3.0, margin),
    ]  # fmt: skip


def concluded(row: Row, queries: int, audits: int) -> tuple[float, float, float]:
    """In which share of audits the interval of t is above −margin, utility is called kept, and called lost."""
    rng, utility = np.random.default_rng([queries, 7]), Utility(row.margin, row.worst_loss, row.worst_loss)
    steady, conclusions = 0, []
    for _ in range(audits):
        changes = row.law(rng, queries, row.centre * row.margin)
        low = mean(changes).low
        steady += low is not None and low >= -row.margin
        conclusions.append(losses([changes], utility)[0].conclusion)
    return steady / audits, conclusions.count("kept") / audits, conclusions.count("lost") / audits


def in_order(queries: int, margin: float, centres: Sequence[float], rest: float, audits: int) -> float:
    """In which share of audits of four alphas one is called kept that loses more than the margin."""
    rng, wrong = np.random.default_rng([queries, 8]), 0
    for _ in range(audits):
        every = [rare(rng, queries, centre * margin, rest * margin, -1.0) for centre in centres]
        results = losses(every, Utility(margin, 1.0, 1.0))
        wrong += any(
            loss.conclusion == "kept" and centre < -1 for loss, centre in zip(results, centres, strict=True)
        )
    return wrong / audits


def worst_of_two(margin: float) -> tuple[float, int]:
    """The greatest chance of *kept* at a mean of −margin, and its queries: all lose 1 or the same; exact."""
    from scipy.stats import binom

    worst, numbers = (0.0, 0), np.arange(max(QUERIES) + 1)
    for rest in margin * np.array([-0.9, -0.7, -0.5, -0.2, 0, 0.5, 1, 3]):
        gains = np.array([[rest + 1], [1e-300]]) / (1 - margin)
        small, large = np.log(1 - SHARES + SHARES * gains)
        for queries in range(2, max(QUERIES) + 1):
            losers = numbers[: queries + 1]
            logs = (queries - losers)[:, None] * small + losers[:, None] * large
            passing = np.exp(np.clip(logs, -700, 700)) @ WEIGHTS >= 20
            chance = float(binom.pmf(losers, queries, (margin + rest) / (1 + rest))[passing].sum())
            worst = max(worst, (chance, queries))
    return worst


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--audits", type=int, default=AUDITS, help="audits a row and number of queries")
    options.add_argument("--margins", type=float, nargs="+", default=[0.02, 0.05])
    given = options.parse_args()
    began = time.perf_counter()
    print(f"{given.audits:,} audits a cell: % where t is above -margin, kept, lost; queries across")
    for margin in given.margins:
        steady, spread = fewest_queries(margin, 1.0), fewest_queries(margin, 1.0, spread=0.1)
        print(f"\nmargin {margin:g}: from {steady} queries on where nothing changes, from {spread} at sd .1")
        chance, queries = worst_of_two(margin)
        print(f"at -1, of two values, {100 * chance:.1f} % are kept at most (exact, {queries} queries)")
        print(f"{'mean, law of changes':53} {' '.join(f'{queries:>10}' for queries in QUERIES)}")
        for row in rows(margin):
            shares = [concluded(row, queries, given.audits) for queries in QUERIES]
            cells = ("/".join(f"{100 * share:.0f}" for share in of) for of in shares)
            print(f"{row.centre:+.2f}, {row.name:46} {' '.join(f'{cell:>10}' for cell in cells)}", flush=True)
        for name, centres, rest in (
            ("wrongly kept of four alphas, at -1.02, the rest -.9", [BELOW] * 4, -0.9),
            ("wrongly kept of four alphas, at 0, three at -1.02", [0.0, BELOW, BELOW, BELOW], 0.0),
        ):
            wrong = [in_order(queries, margin, centres, rest, given.audits) for queries in QUERIES]
            print(f"{name:53} {' '.join(f'{100 * share:10.1f}' for share in wrong)}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
