"""What a design can find: power of its t test, and the queries, ratios and orders that follow from it."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.stats.power import (
    FEWEST_TESTED,
    Pairing,
    pairs_needed,
    power,
    queries_needed,
    smallest_pair_ratio,
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


@pytest.mark.parametrize("level", [0.8, 0.99, 0.999])
def test_what_is_found_depends_on_the_level(level: float) -> None:
    pairing = Pairing()
    for queries in (6, 8, 200):
        found = smallest_pair_ratio(20, queries, pairing, 0.8, level)
        if found is not None:
            error = pairing.query_sd(found, 20) / sqrt(queries)
            assert power(log(found), error, queries, level) == pytest.approx(0.8, abs=1e-6)
    sd = pairing.query_sd(0.8, 20)
    needed = queries_needed(0.8, sd, level=level)
    assert needed is not None and power(log(0.8), sd / sqrt(needed), needed, level) >= 0.8
    assert power(log(0.8), sd / sqrt(needed - 1), needed - 1, level) < 0.8
    pairs = pairs_needed(0.7, 60, pairing, level=level)
    assert pairs is not None and pairs > 1
    errors = [pairing.query_sd(0.7, count) / sqrt(60) for count in (pairs - 1, pairs)]
    fewer, enough = (power(log(0.7), error, 60, level) for error in errors)
    assert fewer < 0.8 <= enough


def test_queries_of_unequal_pairs_count_as_their_harmonic_mean() -> None:
    counts, pairing = [2] * 9 + [1], Pairing()
    error = sqrt(sum(pairing.query_sd(0.8, count) ** 2 for count in counts)) / 10
    assert pairing.query_sd(0.8, 10 / 5.5) / sqrt(10) == pytest.approx(error)


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


@pytest.mark.parametrize(
    ("icc", "pairs", "smallest", "queries"),
    [
        (0.00, (8, 34, 142), (0.872, 0.917, 0.941, 0.973), (73, 17, 6)),
        (0.02, (9, 101, None), (0.852, 0.886, 0.900, 0.913), (100, 45, 34)),
        (0.05, (12, None, None), (0.826, 0.852, 0.862, 0.870), (140, 87, 76)),
        (0.10, (27, None, None), (0.792, 0.811, 0.817, 0.823), (207, 157, 146)),
    ],
)
def test_pairwise_designs_of_the_table(
    icc: float,
    pairs: tuple[int | None, ...],
    smallest: tuple[float, ...],
    queries: tuple[int, ...],
) -> None:
    balanced = Pairing(icc)
    assert tuple(pairs_needed(ratio, 44, balanced) for ratio in (0.8, 0.9, 0.95)) == pairs
    found = [smallest_pair_ratio(count, 44, balanced) for count in (20, 50, 100, 500)]
    assert found == pytest.approx(smallest, abs=0.0005)
    assert tuple(queries_needed(0.9, balanced.query_sd(0.9, count)) for count in (20, 100, 500)) == queries


@pytest.mark.parametrize(("consistent", "share"), [(0.3, 0.6), (0.8, 1.6)])
def test_consistent_answers_cost_pairs(consistent: float, share: float) -> None:
    usual = pairs_needed(0.9, 44, Pairing(icc=0))
    found = pairs_needed(0.9, 44, Pairing(0, consistent))
    assert usual is not None and found is not None
    assert found / usual == pytest.approx(share, abs=0.03)


def test_error_of_the_balanced_ratio_is_what_simulated_pairs_show() -> None:
    # PP .35, UU .15, flips .5: a ratio of .6/.4
    counts = np.random.default_rng(8).multinomial(880, [0.35, 0.15, 0.5], 20_000)
    half = counts[:, 2] / 2
    simulated = np.log((counts[:, 0] + half) / (counts[:, 1] + half))
    assert simulated.std() == pytest.approx(Pairing(icc=0).query_sd(1.5, 20) / sqrt(44), rel=0.02)
    assert simulated.mean() == pytest.approx(log(1.5), abs=0.005)


def test_pairs_of_a_query_that_are_alike_count_as_fewer() -> None:
    independent, alike = Pairing(icc=0), Pairing(icc=0.05)
    assert alike.query_sd(0.9, 1) == pytest.approx(independent.query_sd(0.9, 1))
    # design effect 1 + 19 · .05 = 1.95
    assert alike.query_sd(0.9, 20) == pytest.approx(independent.query_sd(0.9, 20) * sqrt(1.95))


@settings(deadline=None)
@given(
    st.floats(0.4, 0.95),
    st.integers(6, 300),
    st.floats(0, 0.2),
    st.sampled_from([Pairing(), Pairing(0.01, 0.8), Pairing(0.1, 0.6)]),
)
def test_pairs_needed_are_the_fewest_and_the_same_above_parity(
    ratio: float, queries: int, icc: float, pairing: Pairing
) -> None:
    pairing = replace(pairing, icc=icc)
    needed = pairs_needed(ratio, queries, pairing)

    def reached(pairs: int) -> float:
        return power(log(ratio), pairing.query_sd(ratio, pairs) / sqrt(queries), queries)

    if needed is None:
        assert reached(10**6) < 0.8
    else:
        assert reached(needed) >= 0.8 - 1e-9
        assert needed == 1 or reached(needed - 1) < 0.8
    above = pairs_needed(1 / ratio, queries, pairing)
    assert above == needed or abs((above or 0) - (needed or 0)) <= 1


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(6, 300), st.floats(0, 1), st.floats(0.05, 1))
def test_smallest_pair_ratio_reaches_its_power(
    pairs: int, queries: int, icc: float, consistent: float
) -> None:
    pairing = Pairing(icc, consistent)
    found = smallest_pair_ratio(pairs, queries, pairing)
    if found is not None:
        error = pairing.query_sd(found, pairs) / sqrt(queries)
        assert power(log(found), error, queries) == pytest.approx(0.8, abs=1e-6)


def test_what_pairs_cannot_show() -> None:
    assert smallest_pair_ratio(1, 6, Pairing(icc=1, consistent=0.1)) is None
    # half of the answers flip: all others for one side make 3 to 1
    assert Pairing(consistent=0.5).query_sd(2.999, 20) > 0
    with pytest.raises(ValueError, match="consistent"):
        Pairing(consistent=0.5).query_sd(3.001, 20)
    with pytest.raises(ValueError, match="0 pairs"):
        Pairing().query_sd(0.9, 0)
    with pytest.raises(ValueError, match="no test"):
        pairs_needed(0.9, 5, Pairing())
    with pytest.raises(ValueError, match="no test"):
        smallest_pair_ratio(20, 5, Pairing())
