"""What a design can find: power of its t test, and the queries, ratios and orders that follow from it."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.stats.power import (
    FEWEST_TESTED,
    power,
    queries_needed,
    smallest_ratio,
)
from tests.shared import vectors


def test_power_of_the_reference() -> None:
    cases = [case for case in vectors("stats")["cases"] if "cohens_d" in case["input"]]
    assert cases
    for case in cases:
        queries = case["expected"]["n_paired"]
        error, level = 1 / sqrt(queries), 1 - case["input"]["alpha"]
        assert power(case["input"]["cohens_d"], error, queries, level) == pytest.approx(
            case["input"]["power"], abs=1e-8
        )


@given(st.floats(0, 15), st.floats(6, 1e6))
def test_power_is_a_probability_that_rises_with_the_effect(delta: float, queries: float) -> None:
    smaller, larger = power(delta, 1, queries), power(delta * 1.1 + 0.01, 1, queries)
    assert 0.05 - 1e-9 <= smaller <= larger + 1e-9 <= 1 + 2e-9


def test_no_effect_is_found_at_the_level_of_the_test() -> None:
    assert power(0, 1, 44) == pytest.approx(0.05)
    assert power(0, 1, 44, level=0.99) == pytest.approx(0.01)
    assert power(1e9, 1, 44) == 1


def test_a_large_effect_on_few_degrees_of_freedom_may_go_unseen() -> None:
    """Of 2 queries t needs 12.7, so 21 errors are missed where the error is estimated more than 1.65 times too large."""
    draws = np.random.default_rng(4).normal(size=(40_000, 2))
    found = (21 + draws[:, 0]) / abs(draws[:, 1]) > 12.7062
    assert power(21, 1, 2) == pytest.approx(found.mean(), abs=0.01) and power(21, 1, 2) < 0.92


@given(st.floats(0.5, 0.99), st.floats(0.02, 2), st.floats(0.1, 0.99))
def test_queries_needed_are_the_fewest_and_the_same_above_parity(
    ratio: float, sd: float, target: float
) -> None:
    needed = queries_needed(ratio, sd, target)
    assert needed is not None
    assert power(log(ratio), sd / sqrt(needed), needed) >= target
    if needed > FEWEST_TESTED:
        assert power(log(ratio), sd / sqrt(needed - 1), needed - 1) < target
    assert queries_needed(exp(-log(ratio)), sd, target) == pytest.approx(needed, abs=1)


@given(st.floats(0.02, 2), st.integers(FEWEST_TESTED, 5000), st.floats(0.06, 0.999))
def test_smallest_ratio_reaches_its_power(sd: float, queries: int, target: float) -> None:
    found = smallest_ratio(sd, queries, target)
    assert power(log(found), sd / sqrt(queries), queries) == pytest.approx(target, abs=1e-6)
    assert smallest_ratio(sd, queries + 1, target) > found


def test_some_ratios_need_more_queries_than_there_are() -> None:
    assert queries_needed(1, 0.1) is None
    assert queries_needed(0.9999, 0.1) is None
    assert queries_needed(1e-9, 0.1) == FEWEST_TESTED


def test_impossible_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="ratio of 0"):
        queries_needed(0, 0.1)
    with pytest.raises(ValueError, match="power of 1"):
        queries_needed(0.9, 0.1, 1)
    with pytest.raises(ValueError, match=r"power of 0\.1: at parity it is 0\.2"):
        queries_needed(0.9, 0.1, 0.1, level=0.8)
    with pytest.raises(ValueError, match="no test"):
        smallest_ratio(0.1, 5)
