"""Means near an end, labels of items that recur, single items: `python -m benchmarks.means`, 300 audits a row.

Three rules beside what would be concluded without them, on arrays. The 95 % interval of a mean whose queries nearly all
have one value, by betting and by t. p of no group effect of rankers without any, which order lists by relevance, the
items' own qualities and Gumbel noise, with one label an item over all lists and with labels shuffled list by list. And
the interval of an excess ratio that is refused where lists have one protected item.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import print_lines
from llmfair.audits.aggregates import Inference
from llmfair.stats.intervals import Estimate, mean
from llmfair.stats.significance import LabelledItems, permutations, stratum_means

Floats = NDArray[np.float64]

AUDITS = 300
LEVEL = 0.95
RELEVANCE = 1.5
ORDERS = 3


@dataclass(frozen=True)
class Losses:
    """How far some queries are below 1: `scale` times a beta law, or all alike where `b` is 0."""

    name: str
    a: float
    b: float
    scale: float = 1.0

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        return self.scale * (rng.beta(self.a, self.b, shape) if self.b else np.ones(shape))

    @property
    def mean(self) -> float:
        return self.scale * (self.a / (self.a + self.b))


LAWS = (
    Losses("all of it", 1, 0),
    Losses("a fifth", 1, 0, 0.2),
    Losses("any part", 1, 1),
    Losses("mostly little", 1, 4),
)


def holds(found: Estimate, truth: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def means_near_an_end(audits: int) -> Iterator[str]:
    """Values of 1, of which a share is lower; their range is 0 to 1."""
    yield (
        "| queries | share below 1 | by | t holds the mean | no width | now | its width |\n"
        + "| --- " * 7
        + "|"
    )
    rng = np.random.default_rng(0)
    for queries in (8, 20, 44):
        for share in (0.05, 0.1, 0.2):
            for law in LAWS:
                shape = (audits, queries)
                values = 1 - law.draw(shape, rng) * (rng.random(shape) < share)
                truth = 1 - share * law.mean
                plain = [mean(each, LEVEL) for each in values]
                now = [mean(each, LEVEL, (0.0, 1.0)) for each in values]
                flat = np.mean([one.low == one.high for one in plain])
                width, before = (np.median([(o.high or 0) - (o.low or 0) for o in of]) for of in (now, plain))
                yield (
                    f"| {queries} | {share:.0%} | {law.name} | {percent(holds(one, truth) for one in plain)} | "
                    f"{flat:.0%} | {percent(holds(one, truth) for one in now)} | {width:.3f} (t {before:.3f}) |"
                )


@dataclass(frozen=True)
class Lists:
    """`pool`: the items that all lists are drawn from, 0: no item is in two. `relevant`: shares of protected and other
    items that are relevant to a query; `quality`: what items differ in beside it, in scales of a t law."""

    name: str
    queries: int
    n: int
    pool: int
    relevant: tuple[float, float] = (0.2, 0.2)
    protected: float = 0.5
    quality: float = 1.0

    def draw(self, rng: np.random.Generator) -> list[LabelledItems]:
        pool = self.pool or self.queries * self.n
        sided = rng.permutation(pool) < self.protected * pool
        quality = self.quality * rng.standard_t(3, pool)
        every = rng.permutation(pool)
        lists = []
        for query in range(self.queries):
            own = every[query * self.n : (query + 1) * self.n]
            items = rng.choice(pool, self.n, replace=False) if self.pool else own
            grades = (rng.random(self.n) < np.where(sided[items], *self.relevant)).astype(int)
            tastes = RELEVANCE * grades + quality[items] + rng.gumbel(size=(ORDERS, self.n))
            exposures = (1 / np.log1p(1 + np.argsort(np.argsort(-tastes)))).mean(axis=0)
            lists.append(LabelledItems(exposures, sided[items], grades, tuple(map(str, items))))
        return [one for one in lists if one.protected.any() and not one.protected.all()]


RECURRING = (
    Lists("44 × 60, no item twice", 44, 60, 0),
    Lists("44 × 40 from 60", 44, 40, 60),
    Lists("44 × 40 from 60, relevant 10 and 40 %", 44, 40, 60, (0.1, 0.4)),
    Lists("44 × 60 from 400, relevant 5 and 15 %", 44, 60, 400, (0.05, 0.15)),
    Lists("44 × 60 from 300, a minority, relevant 50 and 5 %", 44, 60, 300, (0.5, 0.055), 0.12),
    Lists("44 × 60 from 1,500", 44, 60, 1500),
    Lists("8 × 40 from 200", 8, 40, 200),
    Lists("44 × 40 from 60, equal qualities", 44, 40, 60, quality=0.0),
)


def labels_of_recurring_items(audits: int) -> Iterator[str]:
    """How often p < .05 of rankers that know no groups."""
    yield "| lists | list by list | now |\n| --- | --- | --- |"
    for lists in RECURRING:
        rngs = np.random.default_rng(1).spawn(audits)
        drawn = [lists.draw(rng) for rng in rngs]
        apart = [[LabelledItems(q.exposures, q.protected, q.strata) for q in audit] for audit in drawn]
        shares = [percent(_p(audit) < 1 - LEVEL for audit in audits_of) for audits_of in (apart, drawn)]
        yield f"| {lists.name} | {' | '.join(shares)} |"


def _p(audit: list[LabelledItems]) -> float:
    (tested,) = permutations([audit], np.random.default_rng(2).spawn(len(audit)), 199)
    return tested.p or 0.0


def excess_of_single_items(audits: int) -> Iterator[str]:
    """How often the interval of an excess ratio holds 1, of rankers without preference."""
    yield "| queries | protected items a list | holds 1 | now |\n| --- | --- | --- | --- |"
    rng = np.random.default_rng(3)
    for queries, n in ((8, 20), (20, 20), (44, 60)):
        for items in (1, 2, 3):
            protected = np.arange(n) < items
            held = []
            for _ in range(audits):
                sides = []
                for _ in range(queries):
                    grades = (rng.random(n) < 0.3).astype(int)
                    tastes = RELEVANCE * grades + rng.gumbel(size=(ORDERS, n))
                    exposures = (1 / np.log1p(1 + np.argsort(np.argsort(-tastes)))).mean(axis=0)
                    listed = LabelledItems(exposures, protected, grades)
                    own = exposures[protected].mean(), exposures[~protected].mean()
                    sides.append((*own, *stratum_means(listed)))
                e1, e0, m1, m0 = np.array(sides).T.tolist()
                held.append(holds(Inference(LEVEL, documents=n).ratio([e1, m0], [e0, m1]), 1))
            now = "no interval" if items < 2 else "the same"
            yield f"| {queries} | {items} | {percent(held)} | {now} |"


def percent(holds: Iterator[bool] | list[bool]) -> str:
    return f"{100 * np.mean(list(holds)):.1f} %"


def lines(audits: int) -> Iterator[str]:
    for part in (means_near_an_end, labels_of_recurring_items, excess_of_single_items):
        yield from part(audits)
        yield ""


if __name__ == "__main__":
    print_lines(__doc__, AUDITS, lines)
