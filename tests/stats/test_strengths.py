"""Strengths behind orders, and the offset that brings two groups to parity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.stats.power import bradley_terry, offset_to_parity


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
