"""How often sources of items are named in `llmfair rag` and in logs, fair ones falsely: `python -m benchmarks.sources`.

Simulated audits of twelve sources, of which none or four are planted: one favoured and three overlooked by 1.5 on the
scale of a Gumbel draw, so that the others stay within the band. A query finds 20 items, half of them useful, and shows
the best 5 by draw, usefulness and an appeal of the item's own, whose standard deviation is `appeal`. Items recur over
queries where a source has so many of its own, and keep their appeal. `by query alone` takes them for new in every one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.rows import print_rows
from llmfair.audits.aggregates import Inference, summarise
from llmfair.audits.rag.measure import by_groups
from llmfair.metrics.base import measure_all
from llmfair.metrics.expected import ListSample, Retrieved
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Conclusion

SOURCES, ITEMS, SHOWN = 12, 20, 5
PLANTED = np.array([1.5, -1.5, -1.5, -1.5] + [0.0] * 8)


@dataclass(frozen=True)
class Row:
    """`items` of a source, 0: new ones in every query."""

    queries: int
    items: int
    appeal: float
    planted: bool

    @property
    def name(self) -> str:
        items = f"{self.items:2} items a source" if self.items else "new items"
        return f"{self.queries:4} queries, {items:>17}, appeal {self.appeal:3.1f}, {4 * self.planted} planted"


class Audit(NamedTuple):
    """Of sources, whether each is named: by the audit, and by query alone."""

    named: Sequence[bool]
    by_query: Sequence[bool]


def observed(row: Row, rng: np.random.Generator) -> list[Retrieved]:
    size = SOURCES * (row.items or ITEMS)
    source, appeal = np.arange(size) % SOURCES, rng.normal(scale=row.appeal, size=size)
    queries = []
    for query in range(row.queries):
        if not row.items:
            appeal = rng.normal(scale=row.appeal, size=size)
        items, useful = rng.choice(size, ITEMS, replace=False), rng.permutation(ITEMS) < ITEMS // 2
        liking = appeal[items] + useful + PLANTED[source[items]] * row.planted + rng.gumbel(size=ITEMS)
        names = [f"{item}" if row.items else f"{query} {item}" for item in items]
        best = tuple(names[place] for place in np.argsort(-liking)[:SHOWN])
        groups = {name: f"s{source[item]:02}" for name, item in zip(names, items, strict=True)}
        relevant = frozenset(np.array(names)[useful].tolist())
        lists = (ListSample(best, 1, None, None),)
        queries.append(Retrieved(f"{query}", tuple(names), relevant, SHOWN, None, lists, groups=groups))
    return queries


def audits(row: Row, seeds: Sequence[int]) -> list[Audit]:
    return [audit(row, np.random.default_rng([seed, row.queries, row.items])) for seed in seeds]


def audit(row: Row, rng: np.random.Generator) -> Audit:
    columns = measure_all(parse_measures("EE(group)"), {"log": observed(row, rng)})
    rows = summarise(columns)

    def named(recurring: bool) -> list[bool]:
        each = by_groups(columns, rows, Inference(), (0.8, 1.25), recurring)
        outside = {of.group for of in each if of.group and of.conclusion is Conclusion.OUTSIDE}
        return [f"s{source:02}" in outside for source in range(SOURCES)]

    return Audit(named(True), named(False))


def line(row: Row, results: Sequence[Audit]) -> str:
    cells = []
    for of in zip(*results, strict=True):
        named, fair = np.array(of), (PLANTED == 0) | (not row.planted)
        planted = f"{100 * float(named[:, ~fair].mean()):7.1f}" if row.planted else f"{'':7}"
        false = named[:, fair]
        cells.append(
            f"{100 * float(false.mean()):7.1f} {100 * float(false.any(axis=1).mean()):7.1f} {planted}"
        )
    return f"{row.name}  {'  '.join(cells)}"


ROWS = [
    Row(queries, items, appeal, planted)
    for planted in (False, True)
    for queries in (40, 100, 300)
    for items, appeal in ((0, 0.7), (2, 1.0), (5, 1.0), (20, 0.7))
]
HEADER = (
    f"{'':56}  {'named':23}  by query alone\n"
    f"{'':56}  {'   fair     any planted':23}  {'   fair     any planted':23}"
)

if __name__ == "__main__":
    print_rows(ROWS, audits, line, HEADER, __doc__)
