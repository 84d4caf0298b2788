"""Simulated answers on the pairs of an audit, and the truth that they are drawn from.

P(protected wins | order) = σ(β + b_q + b_k ± γ): β injected, b_q of the query, b_k of the pair, +γ where the protected
item is shown first; calls are independent given these (`pairwise.md` 12). Whole audits are drawn as arrays, query by
query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.pairwise.design import PairwiseDesign
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings
from llmfair.audits.planning.calibrate import BLOCK, rng_of, simulated
from llmfair.metrics.pairs import ADJUSTED_ODDS, CELLS, PROTECTED, UNPARSEABLE, UNPROTECTED
from llmfair.metrics.values import Tally
from llmfair.nouns import PairAnswer, PairStratum, PairVerdict, Probe

Audit = Mapping[str, Tally]
"""What one simulated audit measured, by query_id."""
Pairs = Mapping[str, tuple[PairVerdict, ...]]
"""The pairs of each query, by query_id, an entry for every time they are asked; their answers mean nothing."""
STREAM = 3000
"""The streams of a query's seed that its simulated answers are drawn from: one a block, from here on."""
GRID = np.linspace(-10, 10, 2001)
"""Standard normal deviates that an average over queries is taken on."""


def marginal_odds(beta: float, position: float, spread: float) -> float:
    """The position-adjusted odds over all pairs, e^((logit p1 + logit p2)/2), p the mean of σ(β + b ± γ).

    b is normal with the standard deviation `spread`, so the odds are nearer to 1 than e^β of the typical pair.
    """
    weights = np.exp(-(GRID**2) / 2)
    log_odds = np.array([[position], [-position]]) + beta + spread * GRID
    first, second = (_sigma(log_odds) @ weights / weights.sum()).tolist()
    return exp((log(first / (1 - first)) + log(second / (1 - second))) / 2)


def pairs_of(design: PairwiseDesign, stratum: PairStratum) -> Pairs:
    """The pairs of the design that count, of the queries that have any."""
    repeats = design.settings.repeats
    return {
        query_id: tuple(_unanswered(probe, stratum) for probe in one if probe.draw < repeats)
        for query_id, one in design.pairs[stratum].items()
        if one
    }


def _unanswered(probe: Probe, stratum: PairStratum) -> PairVerdict:
    protected, unprotected = probe.candidates.doc_ids
    nothing = PairAnswer(None, "simulated")
    query_id = probe.candidates.query.query_id
    return PairVerdict(query_id, stratum, probe.order, probe.draw, protected, unprotected, nothing, nothing)


def pair_audits(
    pairs: Pairs, stratum: PairStratum, settings: CalibratePairwiseSettings, betas: Sequence[float]
) -> Iterator[tuple[int, Audit]]:
    """Simulated audits, each with the place of its injected preference."""

    def draw(block: int) -> dict[str, NDArray[np.intp]]:
        stream = (STREAM + block, get_args(PairStratum).index(stratum))
        return {
            query_id: simulate_answers(
                betas,
                [verdict.number for verdict in asked],
                settings,
                rng=rng_of(settings, query_id, *stream),
            )
            for query_id, asked in pairs.items()
        }

    def value(query_id: str, answers: NDArray[np.intp], place: int, run: int) -> Tally:
        return _tally(pairs[query_id], answers[place, run], settings.repeats)

    return simulated(settings, betas, draw, value)


def simulate_answers(
    betas: Sequence[float],
    numbers: Sequence[int],
    settings: CalibratePairwiseSettings,
    *,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Answers of one query in BLOCK audits, as `JudgedPairs.answers` has them; shape (betas, BLOCK, pairs, 2).

    `numbers` says which pair each is: one asked several times stays the same.
    """
    own = settings.query_sd * rng.normal(size=(BLOCK, 1, 1))
    drawn, damaged = rng.random((2, BLOCK, len(numbers), 2))
    different, pair = np.unique(numbers, return_inverse=True)
    own = own + settings.pair_sd * rng.normal(size=(BLOCK, len(different), 1))[:, pair]
    order = settings.position * np.array([1, -1])
    wins = drawn < _sigma(np.reshape(betas, (-1, 1, 1, 1)) + own + order)
    read = np.where(wins, PROTECTED, UNPROTECTED)
    return np.where(damaged < settings.malformed, UNPARSEABLE, read)


def _tally(verdicts: tuple[PairVerdict, ...], answers: NDArray[np.intp], repeats: int) -> Tally:
    """The answers on a query's pairs, shape (pairs, 2), as the position-adjusted odds count them."""
    first, second = answers.T
    cells = CELLS[first, second].sum(axis=0)
    counts = ADJUSTED_ODDS.things[first, second]
    return Tally(ADJUSTED_ODDS, verdicts, counts, int(cells.sum()), int(cells[:2].sum()), repeats)


def _sigma(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-log_odds))
