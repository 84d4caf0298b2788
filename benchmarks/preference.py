"""Whether intervals of preference odds of lists hold the truth: `python -m benchmarks.preference`.

Simulated audits, apart from the product's own simulator: a ranker sorts what it is shown by relevance, a preference
for the protected, the slot, and Gumbel noise. The noise is drawn for every window, once and for all for every item,
or either in half of the windows. Lists have uneven groups and grades, and queries differ in their preference.
Estimates and conclusions are those of real audits.

The true odds are those of the estimator over infinitely many such queries. Every query weighs alike by its
comparisons, so they are not e to the mean log odds of the queries, but where the expected share that is ahead is
explained, averaged over queries; the mean log odds are chosen so that the true odds are the row's.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from llmfair.audits.aggregates import preference
from llmfair.audits.plan import share
from llmfair.metrics.base import QueryComparisons, Value
from llmfair.metrics.preference import pairs_shown
from llmfair.stats.intervals import Conclusion, conclude
from llmfair.stats.significance import sign_flip
from llmfair.stats.strata import Comparisons

Floats = NDArray[np.float64]
Shown = tuple[NDArray[np.intp], Floats, Floats]
"""Items that meet for the first time, their scores, both (audits, orders, f), and their slots z, (f,)."""

AUDITS, AUDITS_AT_ONCE = 500, 50
AGAIN = 4
"""Times as many audits for rows beyond a bar: of 500 audits about one row in 25 lies there by chance."""
BAND, LEVEL = (0.8, 1.25), 0.95
WINDOW, STEP = 20, 10
RELEVANCE, QUERY_SD = 1.5, 0.3
SIZES = ((44, 200), (12, 40), (8, 40))
ODDS = (0.5, 0.7, 0.8, 1.0, 1.25)
NOISES: Mapping[str, float] = {"fresh": 0.0, "half and half": 0.5, "the same": 1.0}
"""The share of windows that are answered with the same noise every time."""
SLOTS: Mapping[str, Callable[[Floats], Floats]] = {
    "none": lambda z: 0 * z,
    "first": lambda z: -2 * z,
    "middle": lambda z: -2 * np.cos(np.pi * z),
}
"""What a slot adds to an item's log-weight, z from -1 (first) to 1 (last); 4 lie between the best and the worst."""


@dataclass(frozen=True)
class Row:
    """Audits of one ranker with one design; `windows` that slide over three random orders, or `several` partitions."""

    queries: int
    n: int
    windows: bool
    noise: str
    slots: str
    odds: float
    several: int = 1

    @property
    def orders(self) -> int:
        return 3 if self.windows else self.several


@dataclass(frozen=True)
class Found:
    """What one audit found. `bound`: outcomes were separated, so that there were no odds but a bound."""

    log_odds: float | None
    error: float
    held: bool | None
    conclusion: Conclusion
    bound: bool
    p: float | None


def rows() -> list[Row]:
    return [
        Row(queries, n, windows, noise, slots, odds)
        for (queries, n), windows, noise, slots, odds in product(SIZES, (True, False), NOISES, SLOTS, ODDS)
    ]


def found_in(row: Row, audits: int, seed: Sequence[int]) -> list[Found]:
    """What so many audits found."""
    rng = np.random.default_rng(seed)
    columns = [_query(row, query, audits, rng) for query in range(row.queries)]
    return [_found(row, [column[audit] for column in columns], rng) for audit in range(audits)]


def _found(row: Row, values: Sequence[Value], rng: np.random.Generator) -> Found:
    found = preference(values, LEVEL)
    assert found is not None
    estimate, low, high = found.estimate, found.estimate.low, found.estimate.high
    bound = found.bound is not None
    if bound:
        # a bound says nothing of odds between itself and 1
        beyond = (high is not None and high < BAND[0]) or (low is not None and low > BAND[1])
        conclusion = Conclusion.OUTSIDE if beyond else Conclusion.NOT_ASSESSABLE
    else:
        conclusion = conclude(low, high, BAND)
    return Found(
        None if bound or estimate.value is None else log(estimate.value),
        estimate.error,
        None if bound or low is None or high is None else low <= row.odds <= high,
        conclusion,
        bound,
        sign_flip(found.null_scores, rng=rng, draws=999) if row.odds == 1 else None,
    )


def _query(row: Row, query: int, audits: int, rng: np.random.Generator) -> list[QueryComparisons]:
    """A query's comparisons in every audit."""
    parts = [
        (audit, ahead, first, second)
        for audit, _, ahead, first, second in comparisons(row, query, audits, rng)
    ]
    audit, ahead, first, second = (np.concatenate(part) for part in zip(*parts, strict=True))
    by_audit = np.argsort(audit, kind="stable")
    ends = np.cumsum(np.bincount(audit, minlength=audits))[:-1]
    outcomes = np.split(ahead[by_audit].astype(float), ends)
    slots: list[Floats] = np.split(np.stack([first, second], axis=1)[by_audit], ends)
    return [query_of(str(query), one, places) for one, places in zip(outcomes, slots, strict=True)]


def query_of(name: str, ahead: Floats, slots: Floats) -> QueryComparisons:
    """Comparisons of irrelevant items that are in no other query."""
    n = len(ahead)
    relevant = np.zeros(n, bool)
    outcomes = Comparisons(
        np.zeros(n, np.intp), relevant, pairs_shown(relevant), WINDOW, np.arange(n), np.arange(n, 2 * n),
        ahead, slots,
    )  # fmt: skip
    return QueryComparisons(outcomes, [f"{name} {item}" for item in range(2 * n)])


def comparisons(
    row: Row, query: int, audits: int, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_], Floats, Floats]]:
    """What every window of a query compares: audit, order, whether the protected item is ahead, both slots z."""
    protected, grades = _items(row.n, query)
    betas = mean_log_odds(row) + QUERY_SD * rng.standard_normal((audits, 1))
    taste = RELEVANCE * grades + betas * protected
    for items, scores, z in (_windows if row.windows else _partition)(row, taste, rng):
        members = protected[items], grades[items]
        alike = members[0][..., :, None] & ~members[0][..., None, :]
        alike &= members[1][..., :, None] == members[1][..., None, :]
        audit, order, first, second = np.nonzero(alike)
        ahead = scores[audit, order, first] > scores[audit, order, second]
        yield audit, order, ahead, z[first], z[second]


def _items(n: int, query: int) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which of a list's items are protected, 20 to 60 %, and their grades, 0 to 2; the same in all audits."""
    rng = np.random.default_rng([n, query])
    return rng.random(n) < rng.uniform(0.2, 0.6), rng.choice(3, n, p=rng.dirichlet((6, 3, 1)))


def _windows(row: Row, taste: Floats, rng: np.random.Generator) -> Iterator[Shown]:
    """The first pass of sliding windows over random orders: what enters a window meets for the first time."""
    lists, always = _orders(row, taste, rng), rng.gumbel(size=taste.shape)
    end, ranked = row.n, row.n
    while ranked:
        start = max(0, end - WINDOW)
        items = lists[..., start:end]
        scores = _scores(row, items, taste, always, rng)
        yield items[..., : ranked - start], scores[..., : ranked - start], _z(end - start)[: ranked - start]
        lists[..., start:end] = np.take_along_axis(items, np.argsort(-scores, axis=-1), axis=-1)
        end, ranked = end - STEP, start


def _partition(row: Row, taste: Floats, rng: np.random.Generator) -> Iterator[Shown]:
    """Random windows of equal size, every item in one."""
    lists, always = _orders(row, taste, rng), rng.gumbel(size=taste.shape)
    for items in np.array_split(lists, ceil(row.n / WINDOW), axis=-1):
        yield items, _scores(row, items, taste, always, rng), _z(items.shape[-1])


def _orders(row: Row, taste: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    return rng.permuted(np.tile(np.arange(row.n), (len(taste), row.orders, 1)), axis=-1)


def _scores(
    row: Row, items: NDArray[np.intp], taste: Floats, always: Floats, rng: np.random.Generator
) -> Floats:
    """What the items of a window are sorted by; noise of their own, or the same whenever they are shown."""
    audit = np.arange(len(items))[:, None, None]
    same = rng.random((*items.shape[:-1], 1)) < NOISES[row.noise]
    noise = np.where(same, always[audit, items], rng.gumbel(size=items.shape))
    found: Floats = taste[audit, items] + SLOTS[row.slots](_z(items.shape[-1])) + noise
    return found


def _z(window: int) -> Floats:
    return np.linspace(-1, 1, window)


_MEANS: dict[tuple[str, float], float] = {}


def mean_log_odds(row: Row) -> float:
    """The mean over queries of their log odds with which the true odds are the row's."""
    if (row.slots, row.odds) not in _MEANS:
        _MEANS[row.slots, row.odds] = float(
            brentq(lambda mean: true_log_odds(mean, row.slots) - log(row.odds), -2, 2)
        )
    return _MEANS[row.slots, row.odds]


def true_log_odds(mean: float, slots: str) -> float:
    """What the estimator says of infinitely many queries, knowing the shape of the slot effect but not its size.

    Over all pairs of slots of a window, and over queries by quadrature.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    effect = SLOTS[slots](_z(WINDOW))
    between = (effect[:, None] - effect)[~np.eye(WINDOW, dtype=bool)]
    ahead = (weights / weights.sum()) @ (1 / (1 + np.exp(-(mean + QUERY_SD * nodes)[:, None] - between)))

    def loss(fit: Floats) -> float:
        found = fit[0] + fit[1] * between
        return float(np.mean(np.logaddexp(0, found) - ahead * found))

    return float(minimize(loss, (mean, 1.0), tol=1e-10).x[0])


def line(row: Row, found: Sequence[Found]) -> str:
    """What the audits of a row found, in one line; shares with their Monte Carlo error."""
    logs = np.array([one.log_odds for one in found if one.log_odds is not None])
    errors = [one.error for one in found if one.log_odds is not None]
    held, held_error = share([one.held for one in found if one.held is not None])
    within, within_error = share([one.conclusion is Conclusion.WITHIN for one in found])
    bounds = [one for one in found if one.bound]
    false = sum(one.conclusion is Conclusion.OUTSIDE and BAND[0] <= row.odds <= BAND[1] for one in bounds)
    flips, _ = share([one.p < 1 - LEVEL for one in found if one.p is not None])
    assert held is not None and held_error is not None and within is not None and within_error is not None
    wrong = not BAND[0] < row.odds < BAND[1] and within > 0.025 + 2 * within_error
    return (
        f"{row.queries:2} × {row.n:3} {'windows' if row.windows else 'partition':<9} {row.noise:<13}"
        f" {row.slots:<6} {row.odds:4.2f}  {np.exp(np.median(logs)):5.3f} {logs.std():.3f}"
        f" {np.sqrt(np.mean(np.square(errors))):.3f}  {100 * held:5.1f}{'' if 0.93 <= held <= 0.97 else '*':1}"
        f" {100 * within:5.1f}{'*' if wrong else '':1}"
        f" {'' if flips is None else f'{100 * flips:.1f}':>5} {f'{len(bounds)}, {false}' if bounds else '':>6}"
    )


def in_parallel(
    pool: Executor, wanted: Mapping[int, Row], audits: int, attempt: int = 0
) -> Iterator[tuple[int, list[Found]]]:
    """What so many audits of every row found, by the row's place in `rows()`; another attempt, another seed."""
    firsts = range(0, audits, AUDITS_AT_ONCE)
    tasks = [
        (row, min(AUDITS_AT_ONCE, audits - first), [place, first, attempt])
        for place, row in wanted.items()
        for first in firsts
    ]
    results = pool.map(found_in, *zip(*tasks, strict=True)) if tasks else iter(())
    for place in wanted:
        yield place, [one for _ in firsts for one in next(results)]


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--audits", type=int, default=AUDITS, help="audits a row")
    options.add_argument("--processes", type=int, default=os.cpu_count())
    options.add_argument("--queries", type=int, help="only rows of so many queries")
    options.add_argument("--odds", type=float, nargs="+", default=ODDS, help="only rows of these odds")
    read = options.parse_args(arguments)
    started = time.perf_counter()
    wanted = {
        place: row
        for place, row in enumerate(rows())
        if read.queries in (None, row.queries) and row.odds in read.odds
    }
    print(
        f"{read.audits:,} audits a row; * beyond 93 to 97 %, or WITHIN more often than 2.5 % and two errors"
    )
    print("lists    design    noise         slots  true   odds  sd    error  held  WITHIN flip bounds, false")
    beyond = {}
    with ProcessPoolExecutor(read.processes) as pool:
        for place, found in in_parallel(pool, wanted, read.audits):
            print(told := line(wanted[place], found), flush=True)
            if "*" in told:
                beyond[place] = wanted[place]
        if beyond:
            print(f"rows with * again, {AGAIN * read.audits:,} other audits each")
        for place, found in in_parallel(pool, beyond, AGAIN * read.audits, attempt=1):
            print(line(wanted[place], found), flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
