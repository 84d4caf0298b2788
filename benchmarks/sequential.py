"""What `--sequential` saves and how often it errs: `python -m benchmarks.sequential`, 500 audits a row.

Simulated audits of at most 1,000 pairs, asked in rounds over the queries and decided by the audit's own functions. A
model has true odds e^β with the position taken out and a position bias γ: the protected item wins with probability
σ(β ± γ). Queries may differ: β is then normal over them, around what makes the odds of all true. A model either tosses
a coin for each answer, or in half of the cases answers as it did in the other order. At the band's ends every
conclusion is false. Beside it the same pairs asked without stopping, an interval that is looked at after every pair,
and the e-value without an interval beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice, product
from math import ceil, log, sqrt

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr, ndtri

from llmfair.audits.pairwise.measure import seen
from llmfair.nouns import PairAnswer, PairVerdict, Side
from llmfair.stats.sequential import FEWEST_UNITS, Decision, EProcess, rounds

Floats = NDArray[np.float64]
Stop = tuple[Decision | None, int]
"""What was concluded, after how many pairs."""

CAP, ITEMS, AUDITS = 1000, 20, 500
BAND, LEVEL = (0.8, 1.25), 0.95
RARE, RARE_ODDS = 1 / 6, 0.776
POSITIONS, QUERIES = (0.0, 2.0, 2.6), (8, 44)
EDGES = tuple(ratio / (1 + ratio) for ratio in BAND)
ANSWERS = tuple(PairAnswer(side, None) for side in (Side.UNPROTECTED, Side.PROTECTED))


@dataclass(frozen=True)
class Model:
    """True odds, position bias γ, how often an answer is the other order's, beyond chance, and how queries differ.

    `rare`: such a share of queries has all of the preference, the others none (without a position bias).
    """

    odds: float
    position: float = 0.0
    queries: int = 44
    steady: float = 0.0
    query_sd: float = 0.0
    rare: float = 0.0

    def shares(self, own: Floats) -> tuple[Floats, Floats, Floats]:
        """How often the protected item wins shown first, shown second, and both times, by a query's β."""
        first, second = expit(own + self.position), expit(own - self.position)
        chance = first * second
        return first, second, chance + self.steady * (np.minimum(first, second) - chance)

    @cached_property
    def centre(self) -> float:
        """The mean of β over queries: with it e^β, the position taken out of all their shares, is `odds`.

        Of rare queries with a preference, their own.
        """
        if self.rare:
            return float(logit(0.5 + (self.odds / (1 + self.odds) - 0.5) / self.rare))
        if not self.query_sd:
            return log(self.odds)
        places, weights = hermegauss(40)

        def apart(centre: float) -> float:
            mean = [weights @ share / weights.sum() for share in self.shares(centre + self.query_sd * places)]
            return float(logit(mean[0]) + logit(mean[1])) / 2 - log(self.odds)

        return float(brentq(apart, -5, 5))


@dataclass(frozen=True)
class Asked:
    """An audit's answers in schedule order, shape (CAP,): wins of the protected item shown first, and second."""

    query: NDArray[np.intp]
    number: NDArray[np.intp]
    first: NDArray[np.bool_]
    second: NDArray[np.bool_]

    @property
    def values(self) -> Floats:
        """X: ½ where the answers flip."""
        return (self.first + self.second.astype(np.float64)) / 2

    @cached_property
    def verdicts(self) -> list[PairVerdict]:
        columns = (column.tolist() for column in (self.query, self.number, self.first, self.second))
        return [
            PairVerdict(
                f"q{query}",
                "relevant",
                number,
                0,
                f"q{query}p{number % ITEMS}",
                f"q{query}u{(number + number // ITEMS) % ITEMS}",
                ANSWERS[first],
                ANSWERS[second],
            )
            for query, number, first, second in zip(*columns, strict=True)
        ]


@dataclass(frozen=True)
class Tally:
    """Over simulated audits: mean pairs asked, and how often each was concluded."""

    pairs: float
    inside: float
    outside: float

    @property
    def saved(self) -> float:
        return 1 - self.pairs / CAP


def audits(model: Model, runs: int = AUDITS, seed: int = 0) -> Iterator[Asked]:
    """Audits of a model, each with its own schedule and answers."""
    for run in range(runs):
        deviations = np.random.default_rng([seed, run, 64]).normal(size=model.queries)
        schedule = rounds([ceil(CAP / model.queries)] * model.queries, np.random.default_rng([seed, run, 32]))
        query, number = np.array(list(islice(schedule, CAP))).T
        own = model.centre + model.query_sd * deviations[query]
        if model.rare:
            own = np.where(ndtr(deviations[query]) < model.rare, model.centre, 0.0)
        first, second, both = model.shares(own)
        cell = np.random.default_rng([seed, run]).random(CAP)
        yield Asked(
            query, number, cell < first, (cell < both) | ((cell >= first) & (cell < first + second - both))
        )


def sequential(asked: Asked) -> Stop:
    """The audit's own rule."""
    process = EProcess(BAND, LEVEL, CAP).after(
        asked.values, lambda pairs: seen(asked.verdicts[:pairs], BAND, LEVEL)
    )
    return process.decision, process.units


def betting(asked: Asked) -> Stop:
    """The e-value alone, whatever the interval over queries says."""
    for way in (Decision.ABOVE, Decision.BELOW):
        process = EProcess(BAND, LEVEL, CAP + 1).after(asked.values, partial(_always, way))
        if process.decision is not None:
            return way, process.units
    return None, CAP


def fixed(asked: Asked) -> Stop:
    """All pairs, then Wald's interval of the balanced ratio."""
    return _looking(asked, CAP)


def peeking(asked: Asked) -> Stop:
    """The same interval after every pair, until it decides."""
    return _looking(asked, FEWEST_UNITS)


def tally(design: Callable[[Asked], Stop], asked: Sequence[Asked]) -> Tally:
    """What a design makes of audits."""
    stops = [design(one) for one in asked]
    decisions = [decision for decision, _ in stops]
    inside = decisions.count(Decision.INSIDE) / len(stops)
    return Tally(
        pairs=float(np.mean([pairs for _, pairs in stops])),
        inside=inside,
        outside=1 - inside - decisions.count(None) / len(stops),
    )


def _always(seen: Decision, pairs: int) -> Decision:
    return seen


def _looking(asked: Asked, earliest: int) -> Stop:
    """The first conclusion of Wald's interval of the mean of X, every pair taken as independent."""
    values, pairs = asked.values, np.arange(1, CAP + 1)
    means = np.cumsum(values) / pairs
    half = ndtri((1 + LEVEL) / 2) * np.sqrt((np.cumsum(values**2) / pairs - means**2) / pairs)
    low, high = means - half, means + half
    found = {
        Decision.ABOVE: low > EDGES[1],
        Decision.BELOW: high < EDGES[0],
        Decision.INSIDE: (low >= EDGES[0]) & (high <= EDGES[1]),
    }
    stops = [
        (decision, int(places[0]) + earliest)
        for decision, holds in found.items()
        if len(places := np.flatnonzero(holds[earliest - 1 :]))
    ]
    return min(stops, key=lambda stop: stop[1], default=(None, CAP))


def rows() -> Iterator[tuple[Model, Callable[[Asked], Stop]]]:
    """Both ends of the band under every position bias, then what is saved where there is something to find."""
    for odds, position, queries in product(BAND[::-1], POSITIONS, QUERIES):
        yield Model(odds, position, queries), sequential
    for queries in QUERIES:
        yield Model(BAND[1], 0, queries, steady=0.5), sequential
    for odds, query_sd, queries in product(BAND[::-1], (0.3, 0.6), QUERIES):
        yield Model(odds, 0, queries, query_sd=query_sd), sequential
    for queries in (8, 12, 15, 20, 44):
        yield Model(RARE_ODDS, 0, queries, rare=RARE), sequential
    for queries in QUERIES:
        yield Model(BAND[1], 0, queries, query_sd=0.6), betting
    yield Model(BAND[1]), peeking
    for odds in (0.6, 1.0, 1.7):
        yield Model(odds), sequential
        yield Model(odds), fixed
    for odds, position, steady in ((1.0, 0.0, 0.5), (1.0, 2.0, 0.0), (0.6, 2.0, 0.0)):
        yield Model(odds, position, steady=steady), sequential


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--design", choices=("pairs", "partition"), default="pairs")
    if options.parse_args(arguments).design == "partition":
        from benchmarks import sequential_windows

        sequential_windows.main()
    else:
        of_pairs()


def of_pairs() -> None:
    print(f"{AUDITS} audits a row, at most {CAP:,} pairs, band {BAND[0]:g}–{BAND[1]:g}; seed 0")
    print(
        "odds  position  queries  steady  query sd  rule        mean pairs  calls saved  within  outside  ± (of 5 %)"
    )
    error = sqrt(0.05 * 0.95 / AUDITS)
    for model, design in rows():
        found = tally(design, list(audits(model)))
        print(
            f"{model.odds:4.2f}  {model.position:8.1f}  {model.queries:7}  {model.steady:6.1f}"
            f"  {model.query_sd:8.1f}  {design.__name__:<10}  {found.pairs:10.0f}  {found.saved:11.1%}"
            f"  {found.inside:6.1%}  {found.outside:7.1%}  {error:10.1%}",
            flush=True,
        )
    values = next(audits(Model(1.25))).values
    times = []
    for _ in range(5):
        started = time.perf_counter()
        EProcess(BAND, LEVEL).after(values, lambda pairs: None)
        times.append(time.perf_counter() - started)
    print(f"{CAP:,} pairs in one batch: {1000 * min(times):.1f} ms")


if __name__ == "__main__":
    main()
