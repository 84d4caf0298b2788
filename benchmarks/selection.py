"""How often intervals of impact ratios hold the truth, and who is falsely below four fifths: `python -m
benchmarks.selection`.

Simulated audits on arrays: lists of 40 people, the best 10 of each selected by a merit of their own, noise, and what
the first group is behind by. People recur over lists where there is a `pool`, and have their merit in all of them.
`by query alone` is the interval that takes people for new in every list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import print_rows
from llmfair.stats.selection import FOUR_FIFTHS, Entries, by_chance, impact_ratios, least_over_greatest

SIZE, SELECTED = 40, 10
SHARES = {2: (0.3, 0.7), 4: (0.15, 0.2, 0.25, 0.4), 8: (0.08, 0.08, 0.1, 0.1, 0.14, 0.15, 0.15, 0.2)}
MANY = 20_000
ALPHA = 0.025


@dataclass(frozen=True)
class Row:
    """`behind`: by how much of a merit's standard deviation the first group is; `pool`: of people, 0: new each time."""

    groups: int
    queries: int
    pool: int
    behind: float

    @property
    def name(self) -> str:
        pool = f"{self.pool} people" if self.pool else "new people"
        return f"{self.groups} groups, {self.queries:2} lists, {pool:>10}, {self.behind:3.1f} behind"


class Audit(NamedTuple):
    covered: float
    by_query: float
    below: bool
    least: float
    chance: float
    power: bool


def entries(row: Row, rng: np.random.Generator) -> Entries:
    people = row.pool or row.queries * SIZE
    group = rng.choice(row.groups, people, p=SHARES[row.groups])
    merit = rng.normal(size=people) - row.behind * (group == 0)
    if row.pool:
        keys = rng.random((row.queries, people))
        lists: NDArray[np.intp] = np.argpartition(keys, SIZE, axis=1)[:, :SIZE]
    else:
        lists = np.arange(people).reshape(row.queries, SIZE)
    scores = merit[lists] + rng.normal(scale=0.5, size=lists.shape)
    chosen = np.argsort(np.argsort(-scores, axis=1), axis=1) < SELECTED
    held, person = np.unique(lists, return_inverse=True)
    query = np.repeat(np.arange(row.queries), SIZE)
    return Entries(
        chosen.ravel().astype(float), group[held][person.ravel()], query, person.ravel(), row.groups
    )


@cache
def truth(row: Row) -> NDArray[np.float64]:
    """The ratios of so many lists that they are certain: a list of new people is like one from any pool."""
    rates = entries(replace(row, queries=MANY, pool=0), np.random.default_rng(0)).rates
    if not row.behind:
        return np.ones(row.groups)
    rates[1:] = np.average(rates[1:], weights=SHARES[row.groups][1:])  # which are alike
    ratios: NDArray[np.float64] = rates / rates.max()
    return ratios


def audits(row: Row, seeds: Sequence[int]) -> list[Audit]:
    return [audit(row, seed) for seed in seeds]


def audit(row: Row, seed: int) -> Audit:
    rng = np.random.default_rng([seed, row.groups, row.queries, row.pool])
    of, true_ratios = entries(row, rng), truth(replace(row, queries=1, pool=0))
    ratios, alone = impact_ratios(of), impact_ratios(replace(of, person=np.arange(len(of.person))))
    below = [each.p_adjusted is not None and each.p_adjusted <= ALPHA for each in ratios]
    held, held_alone = (
        [
            each.low <= true <= each.high
            for each, true in zip(of, true_ratios, strict=True)
            if each.low and each.high
        ]
        for of in (ratios, alone)
    )
    return Audit(
        float(np.mean(held)),
        float(np.mean(held_alone)),
        any(claim for claim, true in zip(below, true_ratios, strict=True) if true >= FOUR_FIFTHS),
        least_over_greatest(of) or 0.0,
        float(by_chance(of, rng, 200).mean()),
        below[0],
    )


def line(row: Row, results: Sequence[Audit]) -> str:
    each = [np.array(column) for column in zip(*results, strict=True)]
    covered, by_query, below, least, chance, power = (float(100 * column.mean()) for column in each)
    return (
        f"{row.name}  {truth(replace(row, queries=1, pool=0))[0]:4.2f}  {covered:6.1f} {by_query:9.1f}"
        f"  {least / 100:6.2f} {chance / 100:6.2f}  {100 * float((each[3] < FOUR_FIFTHS).mean()):8.1f}"
        f"  {below:7.1f} {power:6.1f}"
    )


ROWS = [
    Row(groups, queries, pool, behind)
    for groups in SHARES
    for queries, pool in ((8, 0), (20, 0), (44, 0), (20, 150), (44, 150))
    for behind in (0.0, 0.5)
]
HEADER = (
    f"{'':48}  true  r_g in interval        least ratio  observed  below .8 (Holm)\n"
    f"{'':48}     r    two-way  by query    here chance  below .8   falsely  first"
)

if __name__ == "__main__":
    print_rows(ROWS, audits, line, HEADER, __doc__)
