"""How long the measures of pairs take: `python -m benchmarks.pairs`, one core, best of three.

44 queries × 1,000 pairs of two strata, items from a pool that recurs over queries: all measures of pairs with
three-way intervals, from the verdicts to the rows; beside a plain Python loop of one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from math import sqrt

import numpy as np

from benchmarks.commands import best
from llmfair.audits.aggregates import summarise
from llmfair.audits.pairwise.design import MEASURED
from llmfair.metrics.base import measure_all
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.metrics.pairs import JudgedPairs
from llmfair.nouns import Cell, PairAnswer, PairStratum, PairVerdict, Side

QUERIES, PAIRS, POOL = 44, 1_000, 500
KINDS: tuple[PairStratum, ...] = ("relevant", "irrelevant")


def asked(stratum: PairStratum, rng: np.random.Generator) -> list[tuple[PairVerdict, ...]]:
    """Verdicts of every query; a tenth of the pairs asked twice."""
    answers = [PairAnswer(Side.PROTECTED), PairAnswer(Side.UNPROTECTED), PairAnswer(None, "no_order")]
    found = []
    for query in range(QUERIES):
        drawn = rng.choice(3, (2, 2, PAIRS), p=[0.53, 0.45, 0.02])
        items = rng.integers(0, POOL, (2, PAIRS)).tolist()
        found.append(
            tuple(
                PairVerdict(
                    str(query),
                    stratum,
                    t,
                    draw,
                    f"p{p}",
                    f"u{u}",
                    *(answers[one] for one in drawn[draw, :, t]),
                )
                for t, (p, u) in enumerate(zip(*items, strict=True))
                for draw in range(2 if t < PAIRS // 10 else 1)
            )
        )
    return found


def judged(verdicts: Sequence[tuple[PairVerdict, ...]]) -> list[JudgedPairs]:
    """The queries as they are measured, nothing computed yet."""
    return [JudgedPairs(str(query), of_query) for query, of_query in enumerate(verdicts)]


def looped(verdicts: Sequence[tuple[PairVerdict, ...]]) -> tuple[float, float]:
    """The balanced ratio and the three-way standard error of its logarithm, in plain Python."""
    wins = {Cell.PP: (2, 0), Cell.UU: (0, 2), Cell.FF: (1, 1), Cell.SS: (1, 1)}
    rows = []
    for of_query in verdicts:
        readable = [(v, wins[v.cell]) for v in of_query if v.draw == 0 and v.cell in wins]
        rows += [(v.query_id, v.protected, v.unprotected, 1 / len(readable), *won) for v, won in readable]
    over, under = sum(w * a for *_, w, a, _ in rows), sum(w * b for *_, w, _, b in rows)
    variance, singles = 0.0, []
    for size in (1, 2, 3):
        for ways in combinations(range(3), size):
            sums: dict[tuple[str, ...], float] = defaultdict(float)
            for row in rows:
                *names, weight, a, b = row
                sums[tuple(str(names[way]) for way in ways)] += weight * (a / over - b / under)
            squares = sum(one * one for one in sums.values())
            if size == 1:
                squares *= len(sums) / (len(sums) - 1)
                singles.append(squares)
            variance += squares if size % 2 else -squares
    return over / under, sqrt(max(variance, *singles))


def main() -> None:
    rng = np.random.default_rng(1)
    verdicts = {stratum: asked(stratum, rng) for stratum in KINDS}
    measures = parse_measures(MEASURED)

    def everything() -> None:
        summarise(measure_all(measures, {stratum: judged(of_kind) for stratum, of_kind in verdicts.items()}))

    seconds = best(everything)
    print(f"{len(measures)} measures of {len(KINDS)} strata, {QUERIES} × {PAIRS:,} pairs: {seconds:.2f} s")
    balanced, relevant = [parse_measure("BalancedRatio")], verdicts["relevant"]
    one = best(lambda: summarise(measure_all(balanced, {"relevant": judged(relevant)})))
    plain = best(lambda: looped(relevant))
    print(f"BalancedRatio of one stratum: {1000 * one:.0f} ms; a plain loop {1000 * plain:.0f} ms")
    row = summarise(measure_all(balanced, {"relevant": judged(relevant)}))[-1]
    print(f"  {row.value:.10f} and {looped(relevant)[0]:.10f}")


if __name__ == "__main__":
    main()
