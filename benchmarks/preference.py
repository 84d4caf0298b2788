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
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from llmfair.audits.plan import share
from llmfair.stats.significance import sign_flip
from llmfair.stats.strata import Comparisons, Figure, Stratum, figure, null_scores

Floats = NDArray[np.float64]
Shown = tuple[NDArray[np.intp], Floats, Floats]
"""Items that meet for the first time, their scores, both (audits, orders, f), and their slots z, (f,)."""

AUDITS, AUDITS_AT_ONCE = 300, 50
BAR, AGAIN = (0.92, 0.98), 4
"""Where the share of intervals that hold the truth should lie; of 300 audits one row in 50 is beyond by chance, and
gets so many times as many."""
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
class Audit:
    """The odds of one audit, None where outcomes are separated, and p of the sign flip where nothing is preferred."""

    figure: Figure
    p: float | None

    @property
    def limits(self) -> tuple[float, float] | None:
        return self.figure.interval(LEVEL)


def rows() -> list[Row]:
    return [
        Row(queries, n, windows, noise, slots, odds)
        for (queries, n), windows, noise, slots, odds in product(SIZES, (True, False), NOISES, SLOTS, ODDS)
    ]


def audits(row: Row, several: int, seed: Sequence[int]) -> list[Audit]:
    rng = np.random.default_rng(seed)
    columns = [
        (audit, np.full(len(audit), query), ahead, first, second)
        for query in range(row.queries)
        for audit, _, ahead, first, second in comparisons(row, query, several, rng)
    ]
    audit, query, ahead, first, second = (np.concatenate(column) for column in zip(*columns, strict=True))
    by_audit = np.argsort(audit, kind="stable")
    ends = np.cumsum(np.bincount(audit, minlength=several))[:-1]
    slots = np.stack([first, second], axis=1)
    parts = (np.split(column[by_audit], ends) for column in (query, ahead.astype(float), slots))
    return [_audit(row, compared(*part), rng) for part in zip(*parts, strict=True)]


def _audit(row: Row, outcomes: Comparisons, rng: np.random.Generator) -> Audit:
    odds = replace(figure(outcomes), fit=None) if row.odds != 1 else figure(outcomes)
    if odds.fit is None:
        return Audit(odds, None)
    p = sign_flip(null_scores(outcomes, None, odds.fit), rng=rng, draws=999)
    return Audit(replace(odds, fit=None), p)


def compared(query: NDArray[np.intp], ahead: Floats, slots: Floats) -> Comparisons:
    """Comparisons of irrelevant items that are in no other."""
    n = len(query)
    shown = {(number, Stratum.IRRELEVANT): int(count) for number, count in enumerate(np.bincount(query))}
    return Comparisons(
        query, np.zeros(n, bool), shown, WINDOW, np.arange(n), np.arange(n, 2 * n), ahead, slots
    )


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


def line(row: Row, results: Sequence[Audit]) -> str:
    """What the audits of a row come to, in one line."""
    figures = [each.figure for each in results if each.figure.log_odds is not None]
    logs = np.array([each.log_odds for each in figures])
    error = np.sqrt(np.mean([(each.error or 0.0) ** 2 for each in figures]))
    limits = [each.limits for each in results]
    held, _ = share([low <= row.odds <= high for low, high in filter(None, limits)])
    within, within_error = share([each.figure.within(BAND, LEVEL) for each in results])
    flips, _ = share([each.p < 1 - LEVEL for each in results if each.p is not None])
    assert held is not None and within is not None and within_error is not None
    wrong = not BAND[0] < row.odds < BAND[1] and within > 0.025 + 2 * within_error
    return (
        f"{row.queries:2} × {row.n:3} {'windows' if row.windows else 'partition':<9} {row.noise:<13}"
        f" {row.slots:<6} {row.odds:4.2f}  {np.exp(np.median(logs)):5.3f} {logs.std():.3f} {error:.3f}"
        f"  {100 * held:5.1f}{'' if BAR[0] <= held <= BAR[1] else '*':1} {100 * within:5.1f}{'*' if wrong else '':1}"
        f" {'' if flips is None else f'{100 * flips:.1f}':>5} {len(results) - len(figures) or '':>4}"
    ).rstrip()


def in_parallel(
    pool: Executor, wanted: Mapping[int, Row], several: int, attempt: int = 0
) -> Iterator[tuple[int, list[Audit]]]:
    """So many audits of every row, by the row's place in `rows()`; another attempt, another seed."""
    firsts = range(0, several, AUDITS_AT_ONCE)
    tasks = [
        (row, min(AUDITS_AT_ONCE, several - first), [place, first, attempt])
        for place, row in wanted.items()
        for first in firsts
    ]
    results = pool.map(audits, *zip(*tasks, strict=True)) if tasks else iter(())
    for place in wanted:
        yield place, [each for _ in firsts for each in next(results)]


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
        f"{read.audits:,} audits a row; * beyond 92 to 98 %, or WITHIN more often than 2.5 % and two errors"
    )
    print("lists    design    noise         slots  true   odds  sd    error  held  WITHIN flip none")
    beyond = {}
    with ProcessPoolExecutor(read.processes) as pool:
        for place, results in in_parallel(pool, wanted, read.audits):
            print(text := line(wanted[place], results), flush=True)
            if "*" in text:
                beyond[place] = wanted[place]
        if beyond:
            print(f"rows with * again, {AGAIN * read.audits:,} other audits each")
        for place, results in in_parallel(pool, beyond, AGAIN * read.audits, attempt=1):
            print(line(wanted[place], results), flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
