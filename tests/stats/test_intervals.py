"""Aggregates over queries and their intervals; what initial orders explain, and what noise they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llmfair.stats.intervals import (
    Estimate,
    geometric_mean,
    mean,
    ratio_of_means,
    ratio_scores,
    without_favour,
)
from llmfair.stats.significance import LabelledItems, holm, permutations, sign_flip, stratum_means
from tests.fresh import loaded_by
from tests.metrics import lettered, value
from tests.shared import vectors

# t_{.975} of published tables, by degrees of freedom
T = {4: 2.776445, 5: 2.570582, 43: 2.016692}


def test_mean_with_the_t_interval_by_hand() -> None:
    # mean 3, s² = 2.5, s/√5 = .7071068
    found = mean([1, 2, 3, 4, 5])
    assert found.value == 3
    assert (found.low, found.high) == pytest.approx((3 - T[4] * 0.5**0.5, 3 + T[4] * 0.5**0.5), abs=1e-6)
    assert (found.n, found.reason) == (5, None)


def test_geometric_mean_by_hand() -> None:
    found = geometric_mean([1, 2, 4, 8, 16])
    half = T[4] * np.log(2) * 0.5**0.5
    assert found.value == pytest.approx(4)
    assert (found.low, found.high) == pytest.approx((4 * np.exp(-half), 4 * np.exp(half)), rel=1e-6)


def test_ratio_of_means_by_hand() -> None:
    # Σa = 15, Σb = 10: d_q = q/15 − 1/5 for q = 1..5, so Σd² = 10/225 and V = 5/4 · 10/225
    found = ratio_of_means([1, 2, 3, 4, 5], [2, 2, 2, 2, 2])
    half = T[4] * (5 / 4 * 10 / 225) ** 0.5
    assert found.value == pytest.approx(1.5)
    assert (found.low, found.high) == pytest.approx((1.5 * np.exp(-half), 1.5 * np.exp(half)), rel=1e-6)


AGGREGATES: list[Callable[..., Estimate]] = [
    mean,
    geometric_mean,
    lambda values, level=0.95: ratio_of_means(values, np.ones(len(values)), level),
]


def test_limits_by_betting_where_all_values_are_the_same_by_hand() -> None:
    """Eight times 1: a share f bet against μ makes (1 − f + f/μ)⁸ of 1, and 40 of all together refute it."""
    found = mean([1.0] * 8, bounds=(0.0, 1.0))
    assert found.low is not None
    made = [(1 - share + share / found.low) ** 8 for share in np.arange(1, 11) / 10]
    assert made[-1] / 2 + sum(made[:-1]) / 18 == pytest.approx(40)
    assert (found.value, found.high, found.reason) == (1, 1, "nearly_all_same")


@pytest.mark.parametrize(
    ("n", "unlike", "betting"), [(20, 0, True), (20, 5, True), (20, 6, False), (44, 7, True), (44, 8, False)]
)
def test_few_values_that_differ_say_too_little_of_their_spread(n: int, unlike: int, betting: bool) -> None:
    values = np.where(np.arange(n) < unlike, 0.5, 1.0)
    assert (mean(values, bounds=(0.0, 1.0)) != mean(values)) is betting
    assert mean(np.linspace(0, 1, 8), bounds=(0.0, 1.0)) == mean(np.linspace(0, 1, 8))


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=5, max_size=60), st.floats(-5, 5))
def test_limits_of_bounded_means_have_width_hold_the_mean_and_know_neither_end_nor_unit(
    values: list[float], unit: float
) -> None:
    array = np.array(values)
    found, mirrored = mean(array, bounds=(0.0, 1.0)), mean(1 - array, bounds=(0.0, 1.0))
    assert found.low is not None and found.high is not None and found.value is not None
    assert found.low <= found.value <= found.high and found.low < found.high
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-9)
    moved = mean(3 * array + unit, bounds=(unit, 3 + unit))
    assert (moved.low, moved.high) == pytest.approx((3 * found.low + unit, 3 * found.high + unit), abs=1e-6)


@pytest.mark.parametrize("aggregate", AGGREGATES[:2])
@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [[[1.0, 2.0]]]])
def test_what_is_not_a_number_per_query_is_refused(
    aggregate: Callable[..., Estimate], values: list[float]
) -> None:
    with pytest.raises(ValueError, match="finite"):
        aggregate(values)


def test_impossible_ratios_are_refused() -> None:
    assert ratio_of_means([1, 2, 3], [2, -1, 3]).value == 6 / 4, "of one query what is left may be below 0"
    with pytest.raises(ValueError, match="positive"):
        geometric_mean([1, 0])


@given(st.lists(st.floats(0.1, 10), min_size=5, max_size=30), st.data())
def test_swapping_sides_inverts_the_ratio_of_means(numerators: list[float], data: st.DataObject) -> None:
    size = len(numerators)
    denominators = data.draw(st.lists(st.floats(0.1, 10), min_size=size, max_size=size))
    found, opposite = ratio_of_means(numerators, denominators), ratio_of_means(denominators, numerators)
    assert None not in (found.low, found.high, opposite.low, opposite.high)
    ends = np.array([found.value, found.low, found.high], float)
    assert ends * np.array([opposite.value, opposite.high, opposite.low], float) == pytest.approx(1)
    assert ratio_scores(np.array([numerators]), np.array([denominators])).sum() == pytest.approx(0, abs=1e-12)


def test_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(7)
    truth, covered, sims = 0.9, 0, 1500
    for _ in range(sims):
        level = rng.normal(1, 0.1, 44)
        found = ratio_of_means(
            truth * level * np.exp(rng.normal(0, 0.1, 44)), level * np.exp(rng.normal(0, 0.1, 44))
        )
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert 0.93 <= covered / sims <= 0.97


def test_stats_import_no_scipy() -> None:
    assert "scipy" not in loaded_by("import llmfair.stats.intervals, llmfair.stats.power")


def test_a_product_of_ratios_by_hand() -> None:
    """(Σa/Σb)(Σc/Σd): scores add up, so a factor that is 1 in every query changes nothing."""
    over, under = np.array([1, 2, 3, 4, 5.0]), np.array([2, 2, 3, 2, 2.0])
    plain = ratio_of_means(over, under)
    doubled = ratio_of_means([over, over], [under, over])
    assert (doubled.low, doubled.high) == pytest.approx((plain.low, plain.high))
    found = ratio_of_means([over, under], [under, over[::-1]])
    assert found.value == pytest.approx(1)
    scores = over / 15 - over[::-1] / 15
    assert found.error == pytest.approx((5 / 4 * np.sum(scores**2)) ** 0.5)
    assert ratio_scores(np.array([over, under]), np.array([under, over[::-1]])) == pytest.approx(scores)


def boot(over: np.ndarray, under: np.ndarray, seed: int = 0, level: float = 0.95) -> Estimate:
    return ratio_of_means(over, under, level, "boot-t", np.random.default_rng(seed))


def test_bootstrap_t_is_about_the_t_interval_where_that_is_exact() -> None:
    rng = np.random.default_rng(1)
    over, under = rng.normal(1, 0.05, (2, 44))
    linear, found = ratio_of_means(over, under), boot(over, under)
    assert found.value == linear.value and found.error == linear.error and found.low and found.high
    assert (found.low, found.high) == pytest.approx((linear.low, linear.high), abs=0.15 * linear.error)
    assert boot(over, under) == found != boot(over, under, seed=1)
    narrow = boot(over, under, level=0.5)
    assert narrow.low and narrow.high and found.low < narrow.low < narrow.high < found.high


def test_bootstrap_t_covers_skewed_ratios_of_few_queries_better() -> None:
    """Coverage of ln R over 10 queries with a log-normal side."""
    rng, truth = np.random.default_rng(2), np.exp(0.5)
    held = np.zeros(2)
    for _ in range(300):
        over, under = np.exp(rng.normal(0, 1, 10)), rng.normal(1, 0.05, 10)
        for place, found in enumerate((ratio_of_means(over, under), boot(over, under))):
            assert found.low is not None and found.high is not None
            held[place] += found.low <= truth <= found.high
    assert held[1] > held[0] and held[1] / 300 > 0.85


def test_resamples_without_a_side_are_dropped_and_too_many_of_them_refused() -> None:
    over, under = np.array([0, 0, 0, 0, 0, 1.0]), np.ones(6)
    found = boot(over, under)  # a third of the resamples miss the one query
    assert found.reason == "linear_t_instead"
    assert (found.low, found.high) == (ratio_of_means(over, under).low, ratio_of_means(over, under).high)
    assert boot(np.ones(6), np.ones(6)).low == pytest.approx(1)
    assert boot(np.ones(4), np.ones(4)).reason == "too_few_queries"


# Tests and intervals against reference figures


GENERATOR = np.random.default_rng(0)


def cases(tag: str) -> tuple[list[dict[str, Any]], float]:
    """The reference cases of a tag and their tolerance."""
    reference = vectors("stats")
    found = [case for case in reference["cases"] if tag in case["tags"]]
    assert found
    return found, reference["meta"]["tolerance_abs"]


def test_paired_differences() -> None:
    found, tolerance = cases("ttest")
    for case in found:
        differences = np.subtract(case["input"]["b"], case["input"]["a"])
        expected, estimate = case["expected"], mean(differences)
        assert estimate.value is not None
        assert estimate.value == pytest.approx(expected["mean_diff"], abs=tolerance)
        assert (estimate.low, estimate.high) == pytest.approx(tuple(expected["t_ci95"]), abs=tolerance)
        if expected["paired_t"] is not None:
            assert estimate.value / estimate.error == pytest.approx(expected["paired_t"], abs=tolerance)
            touching = mean(differences, 1 - expected["paired_p"])  # this interval ends at 0
            end = touching.low if estimate.value > 0 else touching.high
            assert end == pytest.approx(0, abs=tolerance)
        if "exact_sign_flip_p_two_sided" in expected:
            p = sign_flip(differences, rng=GENERATOR)
            assert p == pytest.approx(expected["exact_sign_flip_p_two_sided"], abs=tolerance)


def test_holm() -> None:
    found, tolerance = cases("multiplicity")
    for case in found:
        assert holm(case["input"]["p_values"]) == pytest.approx(case["expected"]["holm"], abs=tolerance)


def exposure_ratio(protected: Iterable[bool]) -> float:
    found = value("ExpRatio", lettered("".join("up"[label] for label in protected)))
    assert found is not None
    return found


def test_all_assignments_of_labels_to_ranks() -> None:
    found, tolerance = cases("permutation")
    for case in found:
        labels, expected = case["input"]["protected_by_rank"], case["expected"]
        observed = exposure_ratio(labels)
        assert observed == pytest.approx(expected["exposure_ratio"], abs=tolerance)
        places = range(len(labels))
        ratios = np.array([exposure_ratio(i in c for i in places) for c in combinations(places, sum(labels))])
        assert len(ratios) == expected["n_assignments"]
        assert ratios.mean() == pytest.approx(expected["null_mean_of_ratio"], abs=tolerance)
        two_sided = np.abs(np.log(ratios)) >= abs(np.log(observed)) - 1e-12
        assert two_sided.mean() == pytest.approx(expected["exact_p_two_sided_abs_log_ratio"], abs=tolerance)
        assert (ratios <= observed + 1e-12).mean() == pytest.approx(expected["exact_p_lower"], abs=tolerance)


def test_stratified_permutation() -> None:
    golden = vectors("injected_bias")["golden_permutation"]
    protected, strata = np.array(golden["ranking_protected"], bool), np.array(golden["ranking_relevant"])
    exposures = 1 / np.log1p(np.arange(1, len(protected) + 1))
    query = LabelledItems(exposures, protected, strata)

    by_relevance, observed = stratum_means(query), (exposures[protected].mean(), exposures[~protected].mean())
    assert observed == pytest.approx((golden["E1"], golden["E0"]), rel=1e-9)
    assert by_relevance == pytest.approx((golden["perm_mean_E1"], golden["perm_mean_E0"]), rel=1e-9)
    sides = {"ratio": observed, "relevance_ratio": by_relevance}
    for name, (over, under) in sides.items():
        assert over / under == pytest.approx(golden[name], rel=1e-9)
    excess = ratio_of_means([[observed[0]], [by_relevance[1]]], [[observed[1]], [by_relevance[0]]]).value
    assert excess == pytest.approx(golden["excess_ratio"], rel=1e-9)

    def statistic(labels: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
        return permutations([[LabelledItems(exposures, labels, strata)]], [GENERATOR], draws=0)[0].statistic

    relevant, other = np.flatnonzero(strata == 1), np.flatnonzero(strata == 0)
    every = [
        statistic(np.isin(np.arange(len(strata)), [*first, *second]))
        for first, second in product(
            combinations(relevant, int(protected[relevant].sum())),
            combinations(other, int(protected[other].sum())),
        )
    ]
    assert len(every) == golden["n_perm"]
    exact = float(np.mean(np.abs(every) >= abs(statistic(protected)) - 1e-12))
    assert exact == golden["exact_two_sided_p"]

    (found,) = permutations([[query]], [np.random.default_rng(3)])
    assert found.p == pytest.approx(exact, abs=4 * (exact * (1 - exact) / found.draws) ** 0.5)
    assert found.z == pytest.approx((observed[0] - observed[1] - 0.0420127867) / golden["perm_sd_diff"])


Floats = NDArray[np.float64]


def golden_repeats() -> tuple[dict[str, Any], dict[str, Floats]]:
    case = vectors("injected_bias")["golden_repeats"]
    names = ("initial_E1", "initial_E0", "final_E1", "final_E0")
    return case, {name: np.array(case[name]) for name in names}


def check_repeats(expected: dict[str, float], over: Floats, under: Floats) -> None:
    """Arrays of shape (repeats, queries) against the reference."""
    found = ratio_of_means(over.mean(axis=0), under.mean(axis=0))
    assert found.value is not None
    assert np.log(found.value) == pytest.approx(expected["log_ratio"], abs=1e-12)
    assert found.error == pytest.approx(expected["se_query"], rel=1e-12)


def test_the_reference_of_repeats() -> None:
    case, exposures = golden_repeats()
    check_repeats(case["plain"], exposures["final_E1"], exposures["final_E0"])


def test_the_reference_of_the_control_variate() -> None:
    case, exposures = golden_repeats()
    left = []
    for side in (1, 0):
        initial = exposures[f"initial_E{side}"].T - case["mean_v"]
        left.append(np.array(without_favour(list(exposures[f"final_E{side}"].T), list(initial))).T)
    check_repeats(case["control_variate"], *left)


def test_the_slope_by_hand_over_queries_of_unlike_numbers_of_runs() -> None:
    # x = -1, 1, 2 and E = 1, 2, 6, mean 3: λ = (2 − 1 + 6)/6
    first, second = without_favour(
        [np.array([1.0, 2.0]), np.array([6.0])], [np.array([-1.0, 1.0]), np.array([2.0])]
    )
    assert first.tolist() == pytest.approx([1 + 7 / 6, 2 - 7 / 6])
    assert second.tolist() == pytest.approx([6 - 14 / 6])
