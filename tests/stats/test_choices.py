"""Strengths behind orders, the offset to parity, and a miniature of the benchmark of preference odds."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

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

Floats = NDArray[np.float64]


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
