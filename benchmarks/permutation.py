"""How long testing takes: `python -m benchmarks.permutation`, best of three.

The stratified permutation test, 9,999 shuffles over 44 queries × 200 documents (3 initial orders, 50 relevant
and 50 irrelevant documents a side), beside a plain Python loop of it, and sign flips of 44 queries.
"""

from __future__ import annotations

import random

import numpy as np

from benchmarks.commands import best
from llmfair.stats.significance import LabelledItems, permutations, sign_flip, stratum_means

DRAWS, LOOPED = 9_999, 50


def labelled(queries: int, documents: int, orders: int, rng: np.random.Generator) -> list[LabelledItems]:
    """Queries ranked at random; half of the documents relevant, half of either kind protected."""
    weights = 1 / np.log1p(np.arange(1, documents + 1))
    places = np.arange(documents)
    return [
        LabelledItems(
            rng.permuted(np.tile(weights, (orders, 1)), axis=1).mean(axis=0), places % 2 == 0, places % 4 // 2
        )
        for _ in range(queries)
    ]


def looped(queries: list[LabelledItems], draws: int, seed: int) -> float:
    """The same test in plain Python: `random.shuffle` of the labels within query × stratum."""
    shuffler = random.Random(seed)
    lists = []
    for query in queries:
        strata: dict[int, list[tuple[float, bool]]] = {}
        for exposure, label, stratum in zip(
            query.exposures.tolist(), query.protected.tolist(), query.strata.tolist(), strict=True
        ):
            strata.setdefault(stratum, []).append((exposure, label))
        lists.append([([e for e, _ in one], [label for _, label in one]) for one in strata.values()])
    expected = sum(over - under for over, under in map(stratum_means, queries))

    def statistic(shuffled: bool) -> float:
        total = -expected
        for strata in lists:
            sums, counts = [0.0, 0.0], [0, 0]
            for exposures, labels in strata:
                if shuffled:
                    shuffler.shuffle(labels)
                for exposure, label in zip(exposures, labels, strict=True):
                    sums[label] += exposure
                    counts[label] += 1
            total += sums[1] / counts[1] - sums[0] / counts[0]
        return total

    observed = abs(statistic(shuffled=False))
    return (1 + sum(abs(statistic(shuffled=True)) >= observed - 1e-12 for _ in range(draws))) / (draws + 1)


def main() -> None:
    queries = labelled(44, 200, 3, np.random.default_rng(1))
    seconds = best(lambda: permutations([queries], np.random.default_rng(2).spawn(44), DRAWS))
    plain = best(lambda: looped(queries, LOOPED, 2)) * DRAWS / LOOPED
    print(
        f"permutation test, 44 × 200, {DRAWS:,} shuffles: {seconds:.2f} s; a plain loop {plain:.0f} s "
        f"(from {LOOPED} shuffles), {plain / seconds:.0f} × as long"
    )
    values = np.random.default_rng(3).normal(size=44)
    seconds = best(lambda: sign_flip(values, rng=np.random.default_rng(4), draws=DRAWS))
    print(f"sign flips, 44 queries, {DRAWS:,} draws: {1000 * seconds:.1f} ms")


if __name__ == "__main__":
    main()
