"""How often pairs of groups are rightly found outside the band, and groups named: `python -m benchmarks.groups`.

Simulated audits on arrays: a ranker sorts what it is shown by relevance, an item's own quality where items recur,
Gumbel noise and what it has for or against one group. Groups are of uneven shares; those below 10 items are not
compared. *Outside* is what Simes over strata and Holm over pairs leave at 2.5 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import print_rows
from llmfair.stats.significance import holm, named_groups
from llmfair.stats.strata import BAND, Comparisons, Figure, Stratum, figure, simes

RELEVANCE, SLOT = 1.5, 0.5
ALPHA, FEWEST_ITEMS = 0.025, 10
ODDS = 0.45
SHARES: dict[int, Sequence[float]] = {
    3: (0.5, 0.3, 0.2),
    4: (0.5, 0.25, 0.15, 0.1),
    5: (0.4, 0.25, 0.15, 0.12, 0.08),
    21: [1 / (10 + place) for place in range(21)],
}
WINDOW = 20


@dataclass(frozen=True)
class Row:
    """Lists of n items, a third relevant; `pool`: items of all lists, 0 where each is in one. `betas`: of groups."""

    name: str
    betas: tuple[float, ...]
    queries: int
    n: int
    pool: int = 0
    edge: bool = False


class Audit(NamedTuple):
    """Of pairs: the figure of both strata, and whether it is outside, -1 below or 1 above."""

    figures: dict[tuple[int, int], Figure]
    outside: dict[tuple[int, int], int]


def comparisons(row: Row, rng: np.random.Generator) -> tuple[Comparisons, list[int]]:
    """The comparisons of an audit, and the groups that have items enough."""
    shares, items = np.array(SHARES[len(row.betas)]), row.pool or row.queries * row.n
    group = rng.choice(len(shares), items, p=shares / shares.sum())
    relevant, quality = rng.random(items) < 1 / 3, rng.normal(size=items) * (row.pool > 0)
    taste = RELEVANCE * relevant + quality + np.array(row.betas)[group]
    z = np.linspace(-1, 1, WINDOW)
    parts, shown = list[tuple[NDArray[np.generic], ...]](), Counter[tuple[int, Stratum]]()
    for query in range(row.queries):
        listed = rng.choice(row.pool, row.n, replace=False) if row.pool else query * row.n + np.arange(row.n)
        for window in rng.permutation(listed).reshape(-1, WINDOW):
            score = taste[window] - SLOT * z + rng.gumbel(size=WINDOW)
            one, other = np.nonzero(
                (group[window][:, None] < group[window]) & (relevant[window][:, None] == relevant[window])
            )
            first, second = window[one], window[other]
            number = np.full(len(one), query)
            parts.append(
                (number, relevant[first], first, second, score[one] > score[other], z[one], z[other])
            )
            shown[query, Stratum.RELEVANT] += int(relevant[first].sum())
            shown[query, Stratum.IRRELEVANT] += int((~relevant[first]).sum())
    number, of_grade, first, second, ahead, *slots = map(np.concatenate, zip(*parts, strict=True))
    groups = np.stack([group[first], group[second]], axis=1)
    enough = np.bincount(group, minlength=len(shares)) >= FEWEST_ITEMS
    outcomes = Comparisons(
        number, of_grade, shown, WINDOW, first, second, 1.0 * ahead, np.stack(slots, axis=1), groups=groups
    )
    return outcomes.some(enough[groups].all(axis=1)), np.flatnonzero(enough).tolist()


def audit(row: Row, seed: int) -> Audit:
    outcomes, groups = comparisons(row, np.random.default_rng(seed))
    figures, p_values, signs = dict[tuple[int, int], Figure](), list[float | None](), list[int]()
    for pair in combinations(groups, 2):
        of_strata = [figure(outcomes, stratum, pair) for stratum in (None, *Stratum)]
        tested = [(p, value) for value in of_strata if (p := value.outside()) is not None]
        p_values.append(simes([p for p, _ in tested]))
        least = min(tested, key=lambda each: each[0], default=(1.0, of_strata[0]))[1]
        above = bool(least.always_ahead) if least.log_odds is None else least.log_odds > 0
        signs.append(1 if above else -1)
        figures[pair] = of_strata[0]
    adjusted = holm(p_values)
    outside = {
        pair: sign * (p is not None and p <= ALPHA)
        for pair, sign, p in zip(figures, signs, adjusted, strict=True)
    }
    return Audit(figures, outside)


def audits(row: Row, seeds: Sequence[int]) -> list[Audit]:
    return [audit(row, seed) for seed in seeds]


HEADER = (
    "| groups, odds | a fair group named | a fair pair outside | the one named | all its pairs outside "
    f"| intervals that hold | any pair outside at the edge |\n|{' --- |' * 7}"
)


def line(row: Row, results: Sequence[Audit]) -> str:
    """Shares of audits in %; of intervals, those of pairs whose odds are known: all where items have no quality."""
    injected = {place for place, beta in enumerate(row.betas) if beta}
    fair_named, fair_outside, found, all_outside, held = [], [], [], [], list[bool]()
    for each in results:
        behind, ahead = named_groups({(str(a), str(b)): sign for (a, b), sign in each.outside.items()})
        groups = {int(group) for group in (*behind, *ahead)}
        fair_named.append(bool(groups - injected))
        fair = [sign for pair, sign in each.outside.items() if not injected & {*pair}]
        fair_outside.append(any(fair))
        found.append(injected <= groups)
        all_outside.append(all(sign for pair, sign in each.outside.items() if injected & {*pair}))
        for (a, b), value in each.figures.items():
            if (limits := value.interval()) and not (row.pool and injected & {a, b}):
                held.append(limits[0] <= exp(row.betas[a] - row.betas[b]) <= limits[1])
    any_outside = [any(each.outside.values()) for each in results]
    one = bool(injected) and not row.edge
    cells = [
        "" if row.edge else _percent(fair_named), "" if row.edge else _percent(fair_outside),
        _percent(found) if one else "", _percent(all_outside) if one else "", _percent(held),
        _percent(any_outside) if row.edge else "",
    ]  # fmt: skip
    return f"| {row.name} | {' | '.join(cells)} |"


def _percent(facts: Sequence[bool]) -> str:
    return f"{100 * sum(facts) / len(facts):.1f}" if facts else "–"


def rows() -> list[Row]:
    found = []
    for count in SHARES:
        queries, n = (44, 40) if count < 21 else (60, 60)
        kinds = {
            "none": [0.0] * count,
            f"the largest at {ODDS}": [log(ODDS), *[0.0] * (count - 1)],
            f"the smallest at {ODDS}": [*[0.0] * (count - 1), log(ODDS)],
            f"the second at {1 / ODDS:.2f}": [0.0, -log(ODDS), *[0.0] * (count - 2)],
            "two at the band's edge": [log(BAND[0])] * 2 + [0.0] * (count - 2),
        }
        for pool in (0, 300 if count < 21 else 900):
            for kind, betas in kinds.items():
                edge = kind.startswith("two")
                name = f"{count}{', items recur' if pool else ''}: {kind}"
                found.append(Row(name, tuple(betas), queries, n, pool, edge))
    return found


if __name__ == "__main__":
    print_rows(rows(), audits, line, HEADER, __doc__)
