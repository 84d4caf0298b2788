"""Choices among several items, as a conditional logit: against plain likelihoods, and against comparisons of two."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.preference import (
    BAND,
    NOISES,
    SLOTS,
    Found,
    Row,
    found_in,
    mean_log_odds,
    rows,
    true_log_odds,
)
from llmfair.nouns import Conclusion
from llmfair.stats.power import bradley_terry, offset_to_parity
from llmfair.stats.preference import Alternatives, Comparisons, preference_fit

Floats = NDArray[np.float64]


def drawn(
    rng: np.random.Generator, beta: float, gamma: float, sizes: tuple[int, int], sets: int
) -> Comparisons:
    """A query's choices by an injected ranker; the chosen item stands first in its set."""
    first, slots, starts = list[float](), list[float](), list[int]()
    for _ in range(sets):
        n = int(rng.integers(*sizes))
        groups = np.zeros(n)
        groups[: int(rng.integers(1, n))] = 1
        z = np.linspace(-1, 1, n)[rng.permutation(n)]
        best = int(np.argmax(beta * groups + gamma * z + rng.gumbel(size=n)))
        order = [best, *(place for place in range(n) if place != best)]
        starts.append(len(first))
        first += groups[order].tolist()
        slots += z[order].tolist()
    chosen = Alternatives(np.array(first), np.array(slots), np.array(starts))
    return Comparisons(chosen.first[chosen.starts], np.ones(sets), chosen=chosen)


def test_it_maximises_the_likelihood_of_the_choices() -> None:
    rng = np.random.default_rng(4)
    queries = [drawn(rng, -0.7, 0.8, (3, 6), 12) for _ in range(9)]
    fit = preference_fit(queries, 5)
    assert fit is not None

    def unlikely(coefficients: Floats) -> float:
        total = 0.0
        for query in queries:
            assert query.chosen is not None and query.chosen.slots is not None
            ends = [*query.chosen.starts[1:], len(query.chosen.first)]
            for start, end in zip(query.chosen.starts, ends, strict=True):
                z = query.chosen.slots[start:end]
                design = np.stack([query.chosen.first[start:end], z, z**2, z**3, z**4], axis=1)
                logs = design @ coefficients
                total += (np.log(np.exp(logs).sum()) - logs[0]) / len(query.total)
        return total

    found = minimize(unlikely, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert fit.coefficients == pytest.approx(found.x, abs=1e-5)
    assert fit.comparisons == 9 * 12
    # leaving a query out moves the maximum by about one Newton step
    least = [
        minimize(lambda c, out=out: unlikely_without(queries, out, c), fit.coefficients).x[0]
        for out in range(2)
    ]
    assert fit.log_odds - np.array(least) == pytest.approx(fit.changes[:2, 0], abs=0.05)


def unlikely_without(queries: list[Comparisons], out: int, coefficients: Floats) -> float:
    total = 0.0
    for query in (one for number, one in enumerate(queries) if number != out):
        assert query.chosen is not None and query.chosen.slots is not None
        sets = np.split(np.arange(len(query.chosen.first)), query.chosen.starts[1:])
        for places in sets:
            z = query.chosen.slots[places]
            logs = np.stack([query.chosen.first[places], z, z**2, z**3, z**4], axis=1) @ coefficients
            total += float(np.log(np.exp(logs).sum()) - logs[0]) / len(query.total)
    return total


def test_choices_among_two_are_comparisons() -> None:
    rng = np.random.default_rng(5)
    choices = [drawn(rng, 0.5, 0.4, (2, 3), 15) for _ in range(8)]
    pairs = []
    for query in choices:
        assert query.chosen is not None and query.chosen.slots is not None
        z = query.chosen.slots.reshape(-1, 2)
        won = query.ahead.astype(bool)
        slots = np.where(won[:, None], z, z[:, ::-1])
        pairs.append(Comparisons(query.ahead, query.total, slots))
    one, other = preference_fit(choices, 2), preference_fit(pairs, 2)
    assert one is not None and other is not None
    assert one.coefficients == pytest.approx(other.coefficients, abs=1e-9)
    assert one.changes == pytest.approx(other.changes, abs=1e-9)
    assert one.null_scores == pytest.approx(other.null_scores, abs=1e-9)


def test_one_group_that_is_always_chosen_has_no_finite_odds() -> None:
    one = Alternatives(np.array([1.0, 0, 0] * 5), None, np.arange(0, 15, 3))
    assert preference_fit([Comparisons(np.ones(5), np.ones(5), chosen=one)] * 6) is None


# Strengths behind orders, and the offset that brings two groups to parity


def test_two_items_by_hand() -> None:
    # a is ahead in 3 of 3 orders and in half of the tie: 3.5 of 4, ln(3.5/0.5) = ln 7
    strengths = bradley_terry([[0, 1]] * 3)
    assert strengths[0] - strengths[1] == pytest.approx(np.log(7), abs=1e-8)
    assert bradley_terry([[0]]).tolist() == [0.0]


@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_likelihood_is_at_its_top_and_follows_mean_ranks(n: int, orders: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranks = np.array([rng.permutation(n) for _ in range(orders)])
    strengths = bradley_terry(ranks)
    chance = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    np.fill_diagonal(chance, 0)
    won = (n - 1 - ranks).sum(axis=0) + (n - 1) / 2
    assert (orders + 1) * chance.sum(axis=1) == pytest.approx(won, abs=1e-6)
    total = ranks.sum(axis=0)
    one, other = np.nonzero(total[:, None] < total[None, :])
    assert (strengths[one] > strengths[other]).all()


def test_offset_is_the_weighted_median() -> None:
    assert offset_to_parity([np.array([1.0, 2.0, 3.0])]) == 2.0
    assert offset_to_parity([np.array([1.0, 2.0])]) == 1.5
    # a query with many comparisons weighs as much as one with few
    assert offset_to_parity([np.array([5.0]), np.array([1.0] * 100)]) == 3.0
    with pytest.raises(ValueError, match="compared"):
        offset_to_parity([np.array([])])


# A miniature of the benchmark of preference odds


def share(found: list[Found], conclusion: Conclusion) -> float:
    return float(np.mean([one.conclusion is conclusion for one in found]))


def test_the_true_odds_are_those_of_all_queries_together() -> None:
    """Without slots by hand: the log odds of the mean share, which queries that differ draw nearer to parity."""
    row = Row(8, 40, True, "fresh", "none", 0.5)
    mean = mean_log_odds(row)
    draws = 1 / (1 + np.exp(-(mean + 0.3 * np.random.default_rng(0).standard_normal(400_000))))
    assert draws.mean() / (1 - draws.mean()) == pytest.approx(0.5, abs=0.001)
    assert 0.49 < exp(mean) < 0.5
    assert all(true_log_odds(0.0, slots) == pytest.approx(0, abs=1e-6) for slots in SLOTS)
    assert len(rows()) == 3 * 2 * 3 * 3 * 5


@pytest.mark.parametrize("windows", [True, False], ids=["windows", "partition"])
def test_a_row_of_the_benchmark_in_few_audits(windows: bool) -> None:
    found = found_in(Row(12, 40, windows, "the same", "middle", 0.7), 40, [1])
    logs = [one.log_odds for one in found if one.log_odds is not None]
    assert np.mean(logs) == pytest.approx(log(0.7), abs=4 * np.std(logs) / 40**0.5)
    assert np.mean([one.held for one in found]) >= 0.85
    assert share(found, Conclusion.WITHIN) <= 0.1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("windows", [True, False], ids=["windows", "partition"])
def test_intervals_hold_the_truth(windows: bool, noise: str) -> None:
    """Two Monte Carlo errors of 400 audits, 2.2 %, beside the bars."""
    for queries, odds in ((8, BAND[1]), (12, 1.0)):
        found = found_in(Row(queries, 40, windows, noise, "middle", odds), 400, [2])
        assert 0.93 - 0.022 <= np.mean([one.held for one in found if one.held is not None]) <= 0.97 + 0.022
        if odds == BAND[1]:
            assert share(found, Conclusion.WITHIN) <= 0.025 + 0.02
        else:
            assert np.mean([one.p is not None and one.p < 0.05 for one in found]) <= 0.05 + 0.022
