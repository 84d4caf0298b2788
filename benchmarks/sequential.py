"""How many pairs `--sequential` saves, and how often it errs: `python -m benchmarks.sequential`.

Simulated audits of 44 queries, half of whose pairs get the same answer in both orders, at most 1,000 pairs. Three
ways of asking the same pairs: the e-process of an audit; all 1,000, then a Wald interval of the balanced ratio;
that interval looked at after every pair. At the band's edge every conclusion is false. Queries may differ; the
statement is about these queries, so their mean is held at the truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from llmfair.stats.intervals import standard_error
from llmfair.stats.sequential import FEWEST_PAIRS, Decision, EProcess, rounds

Floats = NDArray[np.float64]
Stop = tuple[Decision | None, int]
"""What was concluded, after how many pairs."""

QUERIES, CAP, CONSISTENT, BATCH = 44, 1000, 0.5, 64
AUDITS, AUDITS_AT_THE_EDGE = 200, 1000  # 5 % of 200 have a Monte Carlo error of 1.5 %, of 1,000 0.7 %
BAND, LEVEL = (0.8, 1.25), 0.95
EDGES = tuple(ratio / (1 + ratio) for ratio in BAND)
TRUTHS = ((0.6, 0.0), (1.0, 0.0), (1.25, 0.0), (1.25, 0.05), (1.7, 0.0))
"""Balanced ratios, and the standard deviation over queries of p = R/(1+R)."""


@dataclass(frozen=True)
class Asked:
    """An audit's answers in schedule order, shape (CAP,): wins of the protected item shown first, and second."""

    query: NDArray[np.intp]
    first: Floats
    second: Floats

    @property
    def values(self) -> Floats:
        """X: ½ where the answers flip."""
        return (self.first + self.second) / 2


@dataclass(frozen=True)
class Tally:
    """Over simulated audits: mean pairs asked, and the shares that concluded something, and something false."""

    pairs: float
    decided: float
    false: float

    @property
    def saved(self) -> float:
        return 1 - self.pairs / CAP


def audits(ratio: float, spread: float = 0.0, runs: int = AUDITS, seed: int = 0) -> Iterator[Asked]:
    """Audits of a model of this balanced ratio; flips follow either position equally often."""
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        deviations = spread * rng.standard_normal(QUERIES)
        means = ratio / (1 + ratio) + deviations - deviations.mean()
        schedule = rounds([ceil(CAP / QUERIES)] * QUERIES, np.random.default_rng([seed, run, 32]))
        query = np.array([one for one, _ in islice(schedule, CAP)])
        wins = (means - (1 - CONSISTENT) / 2)[query]  # P(PP): p less half of the flips
        cell = rng.random(CAP)
        protected, flipped = cell < wins, cell >= CONSISTENT
        led = rng.random(CAP) < 0.5
        yield Asked(query, np.where(flipped, led, protected) * 1.0, np.where(flipped, ~led, protected) * 1.0)


def sequential(asked: Asked) -> Stop:
    """The e-process of an audit, in batches."""
    process = EProcess(BAND, LEVEL)
    for start in range(0, CAP, BATCH):
        process = process.after(
            asked.values[start : start + BATCH], lambda pairs: adjusted_odds_in_band(asked, pairs)
        )
    return process.decision, process.pairs


def fixed(asked: Asked) -> Stop:
    """All pairs, then one look."""
    return _looking(asked, CAP)


def peeking(asked: Asked) -> Stop:
    """The same interval after every pair, until it decides."""
    return _looking(asked, FEWEST_PAIRS)


def adjusted_odds_in_band(asked: Asked, pairs: int) -> bool:
    """Whether the t interval over queries of the position-adjusted odds of the first pairs lies in the band."""
    query, wins = asked.query[:pairs], np.stack([asked.first, asked.second])[:, :pairs]
    _, place, counts = np.unique(query, return_inverse=True, return_counts=True)
    weights = 1 / counts[place]
    shares = wins @ weights / weights.sum()
    if not ((shares > 0) & (shares < 1)).all():
        return False
    centre = np.log(shares / (1 - shares)).mean()
    per_pair = (
        ((wins - shares[:, None]) / (shares * (1 - shares))[:, None]).mean(axis=0) * weights / weights.sum()
    )
    half = stdtrit(len(counts) - 1, (1 + LEVEL) / 2) * standard_error(
        np.bincount(place, per_pair).astype(np.float64)
    )
    return bool(np.log(BAND[0]) <= centre - half and centre + half <= np.log(BAND[1]))


def tally(design: Callable[[Asked], Stop], ratio: float, asked: Sequence[Asked]) -> Tally:
    """What a design makes of audits whose true balanced ratio is `ratio`."""
    true = {
        Decision.BELOW: ratio < BAND[0],
        Decision.INSIDE: BAND[0] < ratio < BAND[1],
        Decision.ABOVE: ratio > BAND[1],
        None: True,
    }
    stops = [design(one) for one in asked]
    return Tally(
        pairs=float(np.mean([pairs for _, pairs in stops])),
        decided=float(np.mean([decision is not None for decision, _ in stops])),
        false=float(np.mean([not true[decision] for decision, _ in stops])),
    )


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


def main() -> None:
    print(
        f"{AUDITS} audits, {QUERIES} queries, {CONSISTENT:.0%} of the pairs consistent, at most {CAP:,}; seed 0"
    )
    print("ratio  query sd  design       mean pairs  calls saved  decided  false")
    for ratio, spread in TRUTHS:
        asked = list(audits(ratio, spread, AUDITS_AT_THE_EDGE if ratio in BAND else AUDITS))
        for design in (sequential, fixed, peeking):
            found = tally(design, ratio, asked)
            print(
                f"{ratio:5.2f}  {spread:8.2f}  {len(asked):6,}  {design.__name__:<11}"
                f"  {found.pairs:10.0f}  {found.saved:11.1%}  {found.decided:7.1%}  {found.false:5.1%}"
            )
    values = next(audits(1.25)).values
    times = []
    for _ in range(5):
        started = time.perf_counter()
        EProcess(BAND, LEVEL).after(values, lambda pairs: False)
        times.append(time.perf_counter() - started)
    print(f"{CAP:,} pairs in one batch: {1000 * min(times):.1f} ms")


if __name__ == "__main__":
    main()
