"""Power of a design, injected rankers and what windows can reach, strengths behind orders."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.strategies import row
from llmfair.audits.listwise.simulate import Noise
from llmfair.metrics.base import Ratio
from llmfair.rankers.strategies import PLANS
from llmfair.stats import power
from llmfair.stats.intervals import ratio_scores
from tests.metrics import lettered, raw, value
from tests.shared import vectors


def test_power_of_the_reference() -> None:
    cases = [case for case in vectors("stats")["cases"] if "cohens_d" in case["input"]]
    assert cases
    for case in cases:
        queries = case["expected"]["n_paired"]
        error, level = 1 / sqrt(queries), 1 - case["input"]["alpha"]
        assert power.power(case["input"]["cohens_d"], error, queries, level) == pytest.approx(
            case["input"]["power"], abs=1e-8
        )


@given(st.floats(0, 15), st.floats(6, 1e6))
def test_power_is_a_probability_that_rises_with_the_effect(delta: float, queries: float) -> None:
    smaller, larger = power.power(delta, 1, queries), power.power(delta * 1.1 + 0.01, 1, queries)
    assert 0.05 - 1e-9 <= smaller <= larger + 1e-9 <= 1 + 2e-9


def test_no_effect_is_found_at_the_level_of_the_test() -> None:
    assert power.power(0, 1, 44) == pytest.approx(0.05)
    assert power.power(0, 1, 44, level=0.99) == pytest.approx(0.01)
    assert power.power(1e9, 1, 44) == 1


@given(st.floats(0.5, 0.99), st.floats(0.02, 2), st.floats(0.1, 0.99))
def test_queries_needed_are_the_fewest_and_as_above_parity(ratio: float, sd: float, target: float) -> None:
    needed = power.queries_needed(ratio, sd, target)
    assert needed is not None
    assert power.power(log(ratio), sd / sqrt(needed), needed) >= target
    if needed > power.FEWEST_TESTED:
        assert power.power(log(ratio), sd / sqrt(needed - 1), needed - 1) < target
    assert power.queries_needed(exp(-log(ratio)), sd, target) == pytest.approx(needed, abs=1)


@given(st.floats(0.02, 2), st.integers(power.FEWEST_TESTED, 5000), st.floats(0.06, 0.999))
def test_smallest_ratio_reaches_its_power(sd: float, queries: int, target: float) -> None:
    found = power.smallest_ratio(sd, queries, target)
    assert power.power(log(found), sd / sqrt(queries), queries) == pytest.approx(target, abs=1e-6)
    assert power.smallest_ratio(sd, queries + 1, target) > found


def test_some_ratios_need_more_queries_than_there_are() -> None:
    assert power.queries_needed(1, 0.1) is None
    assert power.queries_needed(0.9999, 0.1) is None
    assert power.queries_needed(1e-9, 0.1) == power.FEWEST_TESTED


Case = dict[str, Any]
Kinds = NDArray[np.uint8]
# of the kinds of a reference case
PROTECTED, RELEVANT = [True, False, True, False], [True, True, False, False]


def counts(case: Case) -> list[int]:
    """Documents of each kind: protected and unprotected relevant, then protected and unprotected rest."""
    relevant = [case["experts_protected"], case["experts_unprotected"]]
    sides = [case["n_protected"], case["N"] - case["n_protected"]]
    return relevant + [side - known for side, known in zip(sides, relevant, strict=True)]


def log_weights(case: Case) -> NDArray[np.float64]:
    return np.array(case["alpha"] * np.array(RELEVANT) + case["beta"] * np.array(PROTECTED), np.float64)


def sides_of(exposures: NDArray[np.float64], case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E1 and E0 of every list from its mean exposure per kind."""
    held = exposures * counts(case)
    n1 = case["n_protected"]
    return held[:, PROTECTED].sum(axis=1) / n1, held[:, ~np.array(PROTECTED)].sum(axis=1) / (case["N"] - n1)


def initial_lists(case: Case, draws: int, rng: np.random.Generator) -> Kinds:
    """The initial orders of a reference case; sides and blocks come first with ties at random."""
    orders = power.random_lists(counts(case), draws, rng=rng)
    first = {"prot_first": [0, 1, 0, 1], "unprot_first": [1, 0, 1, 0], "deltr": [1, 0, 3, 2]}
    if case["initial_order"] == "random":
        return orders
    places = np.argsort(np.array(first[case["initial_order"]])[orders], axis=1, kind="stable")
    return np.take_along_axis(orders, places, axis=1)


def assert_near(scores: NDArray[np.float64], found: float, expected: float, *more: float) -> None:
    """Within 4 standard errors of a log ratio over lists, `more` being other standard errors."""
    error = np.sqrt(np.sum(scores**2) + sum(other**2 for other in more))
    assert abs(log(found) - log(expected)) <= 4 * error + 1e-9


def test_sliding_windows_of_the_reference() -> None:
    rng = np.random.default_rng(20)
    queries = 1500
    for case in vectors("injected_bias")["listwise_sliding_window_mc"]:
        plan = PLANS["rankgpt" if case["last_partial_window"] == "dropped" else "covering"]
        windows = plan(case["N"], case["window"], case["step"], None)
        initial = initial_lists(case, queries, rng)
        final = power.rank_injected(
            initial, log_weights(case), windows, case["passes"], rng=rng, kept=case["malformed"]
        )
        e1, e0 = sides_of(power.kind_exposures(final, 4), case)
        tolerance = 4 * np.sqrt(
            case["sd_influence_per_query"] ** 2 / queries + (case["ratio_mc_se"] / case["ratio"]) ** 2
        )
        assert abs(log(e1.sum() / e0.sum()) - log(case["ratio"])) <= tolerance, case

        i1, i0 = sides_of(power.kind_exposures(initial, 4), case)
        scores = ratio_scores(i1[None], i0[None])
        reference_error = np.sqrt(np.sum(scores**2) * queries / case["mc_queries"])
        assert_near(scores, i1.sum() / i0.sum(), case["initial_ratio"], reference_error)

        precisions = np.array(RELEVANT)[final[:, :20]].mean(axis=1)
        error = np.sqrt(precisions.var() / queries + case["precision_mc_se"] ** 2)
        assert abs(precisions.mean() - case["precision_at_20"]) <= 4 * error + 1e-9, case


def test_extreme_weights_sort_as_a_taste_does_and_others_are_refused() -> None:
    rng = np.random.default_rng(9)
    initial, windows = power.random_lists([6, 3, 7], 200, rng=rng), [(8, 99), (4, 12), (0, 8)]
    final = power.rank_injected(initial, [50, 0, -50], windows, 2, rng=rng)
    assert (final == power.by_windows(lambda n: windows, 2)(initial.astype(np.int8))).all()
    for bad in ([61, 0, -60], [np.inf, 0, 0], [np.nan, 0, 0]):
        with pytest.raises(ValueError, match="apart"):
            power.rank_injected(initial, bad, windows, 1, rng=rng)


def test_a_list_has_its_own_weights_and_axes_before_the_draws_share_the_noise() -> None:
    lists = power.random_lists([5, 5], 300, rng=np.random.default_rng(10))
    strong = np.repeat([[30.0, 0.0], [0.0, 30.0]], 150, axis=0)
    first = power.rank_injected(lists, strong, [(0, 10)], 1, rng=np.random.default_rng(11))[:, :5]
    assert (first[:150] == 0).all()
    assert (first[150:] == 1).all()

    betas = np.array([[[-1.0, 0]], [[0.5, 0]]])
    together = power.rank_injected(
        np.stack([lists, lists]), betas, [(4, 10), (0, 6)], 2, rng=np.random.default_rng(12), kept=0.2
    )
    for beta, ranked in zip(betas, together, strict=True):
        alone = power.rank_injected(
            lists, beta, [(4, 10), (0, 6)], 2, rng=np.random.default_rng(12), kept=0.2
        )
        assert (ranked == alone).all()


def test_exposures_of_kinds_by_hand() -> None:
    found = power.kind_exposures(np.array([[0, 2, 0]], np.uint8), 4)
    assert found[0].tolist() == pytest.approx([(1 / log(2) + 1 / log(4)) / 2, 0, 1 / log(3), 0])


def test_exposures_of_ranks_vary_as_the_reference_says() -> None:
    """The squared coefficient of variation of 1/ln(1+a); of two ranks by hand."""
    first, second = 1 / log(2), 1 / log(3)
    cases = [(row["N"], row["cv2_v"]) for row in vectors("injected_bias")["exposure_constants"]]
    for n, expected in [*cases, (2, ((first - second) / (first + second)) ** 2)]:
        weights = power.rank_exposures(n)
        assert weights.var() / weights.mean() ** 2 == pytest.approx(expected, rel=1e-9)


# Injected preference odds are found by every strategy, whether its ranker's noise is fresh or an item's own


SPECS = (
    "windows", "pointwise", "pointwise yes or no", "setwise", "pairwise-sort", "pairwise-sort:method=allpairs", "first",
    "tournament",
)  # fmt: skip
NOISY = [(spec, alike) for alike in (0.0, 1.0) for spec in SPECS if alike or "pairwise" not in spec]
"""Hundreds of pairs take long: noise of an item's own, which also decides whom it meets, is the harder of the two."""


@pytest.mark.whole
@pytest.mark.parametrize(("spec", "alike"), NOISY)
def test_injected_odds_are_recovered(spec: str, alike: float) -> None:
    audits = 5 if "allpairs" in spec else 12
    # a heap's first comparisons are few: those of two children that nobody has seen before
    queries, sizes, orders = (30, (30, 40), 3) if spec == "pairwise-sort" else (20, (14, 20), 2)
    found, covered, _ = row(spec, 0.5, Noise(alike, 2.0), audits, queries, sizes, orders)
    logs = np.log(found)
    assert len(found) >= 0.9 * audits
    assert abs(logs.mean() - log(0.5)) < 3 * logs.std(ddof=1) / sqrt(len(logs)) + 0.03
    assert sum(covered) >= 0.8 * len(covered)


def windows(window: int, step: int, plan: str = "covering") -> power.Plan:
    """One pass from the end to the head."""
    return lambda n: PLANS[plan](n, window, step, None)


def test_final_orders_of_the_reference() -> None:
    cases = vectors("injected_bias")["deterministic_always_protected_first"]
    assert cases
    for case in cases:
        n, kind = case["N"], "covering" if case["clamp_last_window"] else "rankgpt"
        plan = windows(case["window"], case["step"], kind)
        assert len(plan(n)) == case["calls"]
        initial = np.full((1, n), 2, np.int8)
        initial[0, np.array(case["initial_protected_positions"]) - 1] = 0
        final = power.by_windows(plan, 1)(initial)[0]
        assert (np.flatnonzero(final == 0) + 1).tolist() == case["final_protected_positions"]
        for tastes, ratio in ((initial[0], case["initial_ratio"]), (final, case["final_ratio"])):
            letters = "".join("p-u"[taste] for taste in tastes)
            assert value("ExpRatio", lettered(letters)) == pytest.approx(ratio, rel=1e-9)


@pytest.mark.parametrize(
    ("window", "step", "passes", "protected", "low", "high"),
    [
        (5, 1, 1, 21, 0.934, 1.585),
        (5, 1, 1, 100, 0.889, 1.125),
        (10, 5, 1, 50, 0.902, 1.298),
        (20, 10, 1, 21, 0.879, 1.976),
        (20, 10, 1, 100, 0.814, 1.229),
        (20, 10, 3, 21, 0.826, 2.247),
        (20, 10, 3, 100, 0.734, 1.361),
    ],
)
def test_attainable_ratio_of_200(
    window: int, step: int, passes: int, protected: int, low: float, high: float
) -> None:
    lists = [(200, protected, 200 - protected)] * 44
    ranked = power.by_windows(windows(window, step), passes)
    found = power.attainable_ratio(lists, ranked, rng=np.random.default_rng(5))
    assert found == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize(
    ("window", "step", "passes", "with_25", "with_100"),
    [
        (5, 1, 0, 0.125, 0.500),
        (5, 1, 1, 0.30, 0.60),
        (20, 10, 1, 0.56, 0.75),
        (5, 1, 2, 0.48, 0.70),
        (20, 10, 3, 1.00, 1.00),
    ],
)
def test_precision_of_200(window: int, step: int, passes: int, with_25: float, with_100: float) -> None:
    for relevant, expected in ((25, with_25), (100, with_100)):
        ranked = power.by_windows(windows(window, step), passes)
        found = power.attainable_precision([(200, relevant)], ranked, 20, rng=np.random.default_rng(5))
        assert found == pytest.approx(expected, abs=0.02)


def whole(n: int) -> list[tuple[int, int]]:
    return [(0, n)]


def test_whole_lists_of_the_reference() -> None:
    for case in vectors("injected_bias")["attainable_ratio"]:
        n, protected = case["N"], case["n_protected"]
        found = power.attainable_ratio(
            [(n, protected, n - protected)], power.by_windows(whole, 1), 1, rng=np.random.default_rng(1)
        )
        assert found == pytest.approx((case["min"], case["max"]), rel=1e-9)


def test_a_window_over_the_whole_list_puts_one_side_first_and_the_others_between() -> None:
    lists = [(20, 5, 10), (30, 15, 15), (20, 5, 10)]
    found = power.attainable_ratio(lists, power.by_windows(whole, 1), 10, rng=np.random.default_rng(1))
    for order, got in zip(("u-p", "p-u"), found, strict=True):
        sides = np.zeros(2)
        for n, protected, unprotected in lists:
            sizes = {"p": protected, "u": unprotected, "-": n - protected - unprotected}
            ratio = raw("ExpRatio", lettered("".join(letter * sizes[letter] for letter in order)))
            assert isinstance(ratio, Ratio)
            sides += ratio.numerator, ratio.denominator
        assert got == pytest.approx(sides[0] / sides[1], rel=1e-12)


def test_precision_keeps_its_denominator_on_short_lists_and_weighs_lists_equally() -> None:
    rng = np.random.default_rng(1)
    assert power.attainable_precision([(4, 2)], power.by_windows(whole, 1), 20, 10, rng=rng) == pytest.approx(
        0.1
    )
    mixed = power.attainable_precision([(4, 2), (4, 4), (4, 4)], power.by_windows(whole, 1), 4, 10, rng=rng)
    assert mixed == pytest.approx((0.5 + 1 + 1) / 3)


def test_windows_beyond_the_list_are_cut_and_the_input_is_left_alone() -> None:
    initial = np.array([[2, 0, 1]], np.int8)
    assert power.by_windows(lambda n: [(1, 9), (5, 8), (0, 2)], 1)(initial).tolist() == [[0, 2, 1]]
    assert initial.tolist() == [[2, 0, 1]]


def test_odds_of_rankings_go_as_far_as_windows_carry_items() -> None:
    """One window over all puts one group first; windows that leave 3 of 4 items alone swap two of them, by hand.

    Of 1 protected item among 4 in random order, a window over the last two helps it in 1 of 4 lists by one place of three:
    ahead of ½ + 1/12 of the others.
    """
    rng = np.random.default_rng(0)
    assert power.attainable_odds([(4, 2, 2)], power.by_windows(windows(4, 4), 1), rng=rng) == (None, None)
    low, high = power.attainable_odds(
        [(4, 1, 3)], power.by_windows(lambda n: [(n - 2, n)], 1), 40_000, rng=rng
    )
    assert low is not None and high is not None
    assert (low, high) == pytest.approx((5 / 7, 7 / 5), rel=0.03)


Floats = NDArray[np.float64]


def test_two_items_by_hand() -> None:
    # a is ahead in 3 of 3 orders and in half of the tie: 3.5 of 4, ln(3.5/0.5) = ln 7
    strengths = power.bradley_terry([[0, 1]] * 3)
    assert strengths[0] - strengths[1] == pytest.approx(np.log(7), abs=1e-8)
    assert power.bradley_terry([[0]]).tolist() == [0.0]


@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_likelihood_is_at_its_top_and_follows_mean_ranks(n: int, orders: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranks = np.array([rng.permutation(n) for _ in range(orders)])
    strengths = power.bradley_terry(ranks)
    chance = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    np.fill_diagonal(chance, 0)
    won = (n - 1 - ranks).sum(axis=0) + (n - 1) / 2
    assert (orders + 1) * chance.sum(axis=1) == pytest.approx(won, abs=1e-6)
    total = ranks.sum(axis=0)
    one, other = np.nonzero(total[:, None] < total[None, :])
    assert (strengths[one] > strengths[other]).all()


def test_offset_is_the_weighted_median() -> None:
    assert power.offset_to_parity([np.array([1.0, 2.0, 3.0])]) == 2.0
    assert power.offset_to_parity([np.array([1.0, 2.0])]) == 1.5
    # a query with many comparisons weighs as much as one with few
    assert power.offset_to_parity([np.array([5.0]), np.array([1.0] * 100)]) == 3.0
    with pytest.raises(ValueError, match="at least one"):
        power.offset_to_parity([np.array([])])
