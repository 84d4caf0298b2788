"""The Plackett-Luce ranker: its chances against the enumeration of all orders, its draws against its chances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llmfair.rankers.plackett_luce import (
    deterministic,
    draws,
    gold_scores,
    inclusion,
    log_weights,
    noise,
    normalised,
)
from tests.pace import within
from tests.shared import vectors


def probability(weights: NDArray[np.float64], order: Sequence[int]) -> float:
    """The chance of beginning with these places, one factor a draw [Eq. 1]."""
    left = [weights[list(order[drawn:])] for drawn in range(len(order))]
    others = np.delete(weights, order)
    of = [np.concatenate([rest, others]) for rest in left]  # what is drawn stands first
    return prod(float(np.exp(rest[0] - rest.max()) / np.exp(rest - rest.max()).sum()) for rest in of)


ALPHAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
scores_of = st.lists(st.integers(-40, 40).map(lambda score: score / 8), min_size=1, max_size=6)


def enumerated(weights: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """The inclusion probabilities, added up over all orders of the first k."""
    found = np.zeros(len(weights))
    for first in permutations(range(len(weights)), min(k, len(weights))):
        found[list(first)] += probability(weights, first)
    return found


def test_the_chances_of_the_reference_figures() -> None:
    for case in vectors("plackett_luce")["cases"]:
        given, expected = case["input"], case["expected"]
        weights = log_weights(given["scores"], given["alpha"])
        assert normalised(given["scores"]) == pytest.approx(expected["normalised_scores_1_2"], abs=1e-10)
        assert weights == pytest.approx(expected["log_weights_normalised_pow_alpha"], rel=1e-12)
        for k, known in expected["top_k"].items():
            found = inclusion(weights, int(k))
            assert found == pytest.approx(known["inclusion_probability"], abs=1e-10), case["id"]
            assert (found**2).sum() == pytest.approx(known["EE_D_exact"], abs=1e-10), case["id"]
        for known in expected.get("ranking_probabilities", ()):
            assert probability(weights, known["ranking"]) == pytest.approx(known["p"], abs=1e-10)
        ranks = np.diff(
            [np.zeros(len(weights)), *(inclusion(weights, k + 1) for k in range(len(weights)))], axis=0
        )
        matrix = np.transpose(expected["P_matrix_rows_docs_cols_ranks"])
        assert ranks[: len(matrix)] == pytest.approx(matrix, abs=1e-10), case["id"]


def test_forty_thousand_draws_of_each_reference_case() -> None:
    samples = 40_000
    for case in vectors("plackett_luce")["cases"]:
        weights = log_weights(case["input"]["scores"], case["input"]["alpha"])
        for k, known in case["expected"]["top_k"].items():
            lists = draws(weights, int(k), noise(11, case["id"], samples, len(weights)))
            shares = np.bincount(lists.ravel(), minlength=len(weights)) / samples
            p = np.clip(known["inclusion_probability"], 0, 1)
            assert (np.abs(shares - p) <= 5 * np.sqrt(p * (1 - p) / samples) + 1e-12).all(), case["id"]


@given(scores_of, st.sampled_from(ALPHAS), st.integers(1, 7))
def test_the_quadrature_equals_the_enumeration(scores: list[float], alpha: float, k: int) -> None:
    weights = log_weights(scores, alpha)
    assert inclusion(weights, k) == pytest.approx(enumerated(weights, k), abs=1e-10)


@given(scores_of, st.integers(1, 7))
def test_alpha_0_shows_all_alike_and_a_larger_alpha_never_less_unequally(scores: list[float], k: int) -> None:
    n, k = len(scores), min(k, len(scores))
    assert inclusion(log_weights(scores, 0), k) == pytest.approx(np.full(n, k / n), abs=1e-12)
    unequal = [float((enumerated(log_weights(scores, alpha), k) ** 2).sum()) for alpha in ALPHAS]
    assert (np.diff(unequal) > -1e-8).all()


def test_exact_chances_and_draws_keep_their_bars() -> None:
    # 60 s and 5 s for 1,000 queries under 4 alphas
    scores = np.random.default_rng(2).exponential(size=190)
    weights = [log_weights(scores, alpha) for alpha in (1, 2, 4, 8)]
    within(60 / 200, lambda: [inclusion(one, 5) for one in weights * 5])

    def drawn() -> None:
        for query in range(10):
            shared = noise(0, f"q{query}", 100, 190)
            for one in weights:
                np.bincount(draws(one, 5, shared).ravel(), minlength=190)

    within(5 / 100, drawn)


def test_a_flood_of_equals_behind_a_few_that_are_certain() -> None:
    scores = np.array([5.0, 5.0] + [0.0] * 8)
    expected = [1.0, 1.0] + [3 / 8] * 8
    assert inclusion(log_weights(scores, 8), 5) == pytest.approx(expected, abs=1e-12)


def test_draws_of_more_samples_begin_with_those_of_fewer_and_another_query_moves_none() -> None:
    assert np.array_equal(noise(7, "q1", 100, 9)[:20], noise(7, "q1", 20, 9))
    assert not np.array_equal(noise(7, "q1", 20, 9), noise(7, "q2", 20, 9))
    assert not np.array_equal(noise(7, "q1", 20, 9), noise(8, "q1", 20, 9))
    weights = log_weights(np.arange(9.0), 2)
    few, many = (draws(weights, 4, noise(7, "q1", samples, 9)) for samples in (20, 100))
    assert np.array_equal(many[:20], few)


def test_draws_are_lists_of_distinct_items_ordered_as_all_items_would_be() -> None:
    weights, drawn = log_weights([3.0, 1.0, 2.0, 0.0], 1), noise(1, "q", 500, 4)
    whole = draws(weights, 4, drawn)
    assert np.array_equal(draws(weights, 2, drawn), whole[:, :2])
    assert np.array_equal(draws(weights, 9, drawn), whole)
    assert (np.sort(whole, axis=1) == np.arange(4)).all()


def test_equals_are_drawn_alike_however_large_alpha_is() -> None:
    first = draws(log_weights([9.0, 9.0, 0.0], 60), 1, noise(1, "q", 400, 3))[:, 0]
    assert 140 < np.count_nonzero(first == 0) < 260
    assert not (first == 2).any()


def test_the_deterministic_list_keeps_the_order_of_ties() -> None:
    assert deterministic([1.0, 3.0, 3.0, 2.0], 3).tolist() == [1, 2, 3]
    assert deterministic([1.0, 1.0], 5).tolist() == [0, 1]


def test_gold_retrieves_useful_items_only() -> None:
    scores = gold_scores([True, False, True, False])
    assert scores.tolist() == [10.0, 0.0, 10.0, 0.0]
    assert inclusion(log_weights(scores, 8), 2) == pytest.approx([1, 0, 1, 0], abs=1e-12)
    assert log_weights(gold_scores([True, True]), 8).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_not_finite_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="the score of item 2 is"):
        log_weights([1.0, score], 1)


def test_scores_far_apart_do_not_overflow() -> None:
    assert log_weights([-1e308, 1e308], 1).tolist() == [1.0, 2.0]
