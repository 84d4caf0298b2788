"""Tests and intervals against reference figures: t, sign flips, Holm, permutations of labels, power."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from llmfair.stats.intervals import mean, ratio_of_means
from llmfair.stats.significance import LabelledItems, holm, means, null_of, permutation, sign_flip
from tests.metrics import lettered, value
from tests.shared import vectors

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


def test_random_sign_flips_of_100_differences_are_close_to_t() -> None:
    found, _ = cases("ttest")
    (case,) = (case for case in found if len(case["input"]["a"]) == 100)
    differences = np.subtract(case["input"]["a"], case["input"]["b"])
    p = sign_flip(differences, rng=np.random.default_rng(1))
    assert p == pytest.approx(case["expected"]["paired_p"], abs=0.02)


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
        ratios = np.array(
            [
                exposure_ratio(place in chosen for place in places)
                for chosen in combinations(places, sum(labels))
            ]
        )
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

    null, observed = null_of(query), means(query)
    assert observed == pytest.approx((golden["E1"], golden["E0"]), rel=1e-9)
    assert (null.protected, null.unprotected) == pytest.approx(
        (golden["perm_mean_E1"], golden["perm_mean_E0"]), rel=1e-9
    )
    assert null.variance**0.5 == pytest.approx(golden["perm_sd_diff"], rel=1e-9)
    sides = {"ratio": observed, "relevance_ratio": (null.protected, null.unprotected)}
    for name, (over, under) in sides.items():
        assert over / under == pytest.approx(golden[name], rel=1e-9)
    excess = ratio_of_means([[observed[0]], [null.unprotected]], [[observed[1]], [null.protected]]).value
    assert excess == pytest.approx(golden["excess_ratio"], rel=1e-9)

    def statistic(labels: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
        return permutation([LabelledItems(exposures, labels, strata)], [GENERATOR], draws=0).statistic

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

    found = permutation([query], [np.random.default_rng(3)])
    assert found.p == pytest.approx(exact, abs=4 * (exact * (1 - exact) / found.draws) ** 0.5)
    assert found.z == pytest.approx((observed[0] - observed[1] - 0.0420127867) / golden["perm_sd_diff"])
