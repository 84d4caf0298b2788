"""Initial orders: what they explain, what noise they leave, how much of them a ranking keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llmfair.stats.intervals import ratio_of_means, run_noise, without_favour
from tests.shared import vectors

Floats = NDArray[np.float64]


def golden() -> tuple[dict[str, Any], dict[str, Floats]]:
    case = vectors("injected_bias")["golden_repeats"]
    names = ("initial_E1", "initial_E0", "final_E1", "final_E0")
    return case, {name: np.array(case[name]) for name in names}


def check(expected: dict[str, float], over: Floats, under: Floats) -> None:
    """Arrays of shape (repeats, queries) against the reference."""
    found, noise = ratio_of_means(over.mean(axis=0), under.mean(axis=0)), run_noise(over, under)
    assert found.value is not None and noise is not None
    assert np.log(found.value) == pytest.approx(expected["log_ratio"], abs=1e-12)
    assert found.error == pytest.approx(expected["se_query"], rel=1e-12)
    assert noise.error == pytest.approx(expected["se_run_benchmark_conditional"], rel=1e-12)
    assert noise.df == 4 * 2


def test_the_reference_of_repeats() -> None:
    case, exposures = golden()
    check(case["plain"], exposures["final_E1"], exposures["final_E0"])


def test_the_reference_of_the_control_variate() -> None:
    case, exposures = golden()
    over, under = (
        np.array(
            without_favour(
                list(exposures[f"final_E{side}"].T), list(exposures[f"initial_E{side}"].T - case["mean_v"])
            )
        ).T
        for side in (1, 0)
    )
    check(case["control_variate"], over, under)


def test_the_slope_by_hand_over_queries_of_unlike_numbers_of_runs() -> None:
    # x = -1, 1, 2 and E = 1, 2, 6, mean 3: λ = (2 − 1 + 6)/6
    first, second = without_favour(
        [np.array([1.0, 2.0]), np.array([6.0])], [np.array([-1.0, 1.0]), np.array([2.0])]
    )
    assert first.tolist() == pytest.approx([1 + 7 / 6, 2 - 7 / 6])
    assert second.tolist() == pytest.approx([6 - 14 / 6])


def test_orders_that_favour_nobody_change_nothing() -> None:
    (same,) = without_favour([np.array([1.0, 2.0])], [np.zeros(2)])
    assert same.tolist() == [1, 2]


def test_one_run_of_each_query_has_no_run_noise() -> None:
    assert run_noise(np.ones((1, 5)), np.ones((1, 5))) is None
    noise = run_noise(np.ones((2, 5)), np.ones((2, 5)))
    assert noise is not None and noise.error == 0
