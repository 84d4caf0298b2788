"""What a window plan can reach: injected rankers without noise, from random initial orders."""

from __future__ import annotations

import numpy as np
import pytest

from llmfair.metrics.base import Ratio
from llmfair.stats.power import (
    Plan,
    attainable_odds,
    attainable_precision,
    attainable_ratio,
    by_windows,
    rank_by_taste,
)
from tests.metrics import lettered, raw, value
from tests.pace import within
from tests.shared import vectors


def windows(window: int, step: int, clamp: bool = True) -> Plan:
    """One pass from the end to the head; `clamp`: a last window starts at the head if need be."""

    def plan(n: int) -> list[tuple[int, int]]:
        starts = list(range(n - window, -1, -step))
        found = [(start, start + window) for start in starts]
        if clamp and (not starts or starts[-1] > 0):
            found.append((0, max(2, (starts[-1] if starts else n - window + step) + window - step)))
        return found

    return plan


def test_final_orders_of_the_reference() -> None:
    cases = vectors("injected_bias")["deterministic_always_protected_first"]
    assert cases
    for case in cases:
        n, plan = case["N"], windows(case["window"], case["step"], case["clamp_last_window"])(case["N"])
        assert len(plan) == case["calls"]
        initial = np.full((1, n), 2, np.int8)
        initial[0, np.array(case["initial_protected_positions"]) - 1] = 0
        final = rank_by_taste(initial, plan, 1)[0]
        assert (np.flatnonzero(final == 0) + 1).tolist() == case["final_protected_positions"]
        for tastes, ratio in ((initial[0], case["initial_ratio"]), (final, case["final_ratio"])):
            letters = "".join("p-u"[taste] for taste in tastes)
            assert value("ExpRatio", lettered(letters)) == pytest.approx(ratio, rel=1e-9)


@pytest.mark.parametrize(
    ("window", "step", "passes", "protected", "low", "high"),
    [
        (5, 1, 1, 21, 0.934, 1.585),
        (5, 1, 1, 50, 0.924, 1.249),
        (5, 1, 1, 100, 0.889, 1.125),
        (10, 5, 1, 21, 0.915, 1.682),
        (10, 5, 1, 50, 0.902, 1.298),
        (10, 5, 1, 100, 0.864, 1.158),
        (20, 10, 1, 21, 0.879, 1.976),
        (20, 10, 1, 50, 0.862, 1.431),
        (20, 10, 1, 100, 0.814, 1.229),
        (20, 10, 3, 21, 0.826, 2.247),
        (20, 10, 3, 50, 0.802, 1.684),
        (20, 10, 3, 100, 0.734, 1.361),
    ],
)
def test_attainable_ratio_of_200(
    window: int, step: int, passes: int, protected: int, low: float, high: float
) -> None:
    lists = [(200, protected, 200 - protected)] * 44
    found = attainable_ratio(lists, by_windows(windows(window, step), passes), rng=np.random.default_rng(5))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize(
    ("window", "step", "passes", "with_25", "with_100"),
    [
        (5, 1, 0, 0.125, 0.500),
        (5, 1, 1, 0.30, 0.60),
        (10, 5, 1, 0.35, 0.62),
        (10, 3, 1, 0.43, 0.67),
        (20, 10, 1, 0.56, 0.75),
        (5, 1, 2, 0.48, 0.70),
        (5, 1, 5, 1.00, 1.00),
        (20, 10, 2, 1.00, 1.00),
        (20, 10, 3, 1.00, 1.00),
    ],
)
def test_attainable_precision_of_200(
    window: int, step: int, passes: int, with_25: float, with_100: float
) -> None:
    for relevant, expected in ((25, with_25), (100, with_100)):
        found = attainable_precision(
            [(200, relevant)], by_windows(windows(window, step), passes), 20, rng=np.random.default_rng(5)
        )
        assert found == pytest.approx(expected, abs=0.02)


def whole(n: int) -> list[tuple[int, int]]:
    return [(0, n)]


def test_whole_lists_of_the_reference() -> None:
    for case in vectors("injected_bias")["attainable_ratio"]:
        n, protected = case["N"], case["n_protected"]
        found = attainable_ratio(
            [(n, protected, n - protected)], by_windows(whole, 1), 1, rng=np.random.default_rng(1)
        )
        assert (found.low, found.high) == pytest.approx((case["min"], case["max"]), rel=1e-9)


def test_a_window_over_the_whole_list_puts_one_side_first_and_the_others_between() -> None:
    lists = [(20, 5, 10), (30, 15, 15), (20, 5, 10)]
    found = attainable_ratio(lists, by_windows(whole, 1), 10, rng=np.random.default_rng(1))
    for order, got in (("u-p", found.low), ("p-u", found.high)):
        sides = np.zeros(2)
        for n, protected, unprotected in lists:
            sizes = {"p": protected, "u": unprotected, "-": n - protected - unprotected}
            ratio = raw("ExpRatio", lettered("".join(letter * sizes[letter] for letter in order)))
            assert isinstance(ratio, Ratio)
            sides += ratio.numerator, ratio.denominator
        assert got == pytest.approx(sides[0] / sides[1], rel=1e-12)


def test_lists_without_a_side_count_for_nothing() -> None:
    plan, lists = by_windows(windows(4, 2), 1), [(20, 8, 12), (20, 0, 20), (20, 20, 0)]
    found = attainable_ratio(lists, plan, 50, rng=np.random.default_rng(1))
    assert found == attainable_ratio(lists[:1], plan, 50, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="both groups"):
        attainable_ratio(lists[1:], plan, rng=np.random.default_rng(1))


def test_precision_keeps_its_denominator_on_short_lists_and_weighs_lists_equally() -> None:
    rng = np.random.default_rng(1)
    assert attainable_precision([(4, 2)], by_windows(whole, 1), 20, 10, rng=rng) == pytest.approx(0.1)
    mixed = attainable_precision([(4, 2), (4, 4), (4, 4)], by_windows(whole, 1), 4, 10, rng=rng)
    assert mixed == pytest.approx((0.5 + 1 + 1) / 3)


def test_windows_beyond_the_list_are_cut_and_the_input_is_left_alone() -> None:
    initial = np.array([[2, 0, 1]], np.int8)
    assert rank_by_taste(initial, [(1, 9), (5, 8), (0, 2)], 1).tolist() == [[0, 2, 1]]
    assert initial.tolist() == [[2, 0, 1]]


def test_44_lists_of_200_take_less_than_a_second() -> None:
    lists = [(200, 50 + number, 140 - number) for number in range(44)]
    within(1, lambda: attainable_ratio(lists, by_windows(windows(5, 1), 1), rng=np.random.default_rng(1)))


def test_odds_of_rankings_go_as_far_as_windows_carry_items() -> None:
    """One window over all puts one group first; windows that leave 3 of 4 items alone swap two of them, by hand.

    Of 1 protected item among 4 in random order, a window over the last two helps it in 1 of 4 lists by one place of three:
    ahead of ½ + 1/12 of the others.
    """
    rng = np.random.default_rng(0)
    assert attainable_odds([(4, 2, 2)], by_windows(windows(4, 4), 1), rng=rng) == (None, None)
    low, high = attainable_odds([(4, 1, 3)], by_windows(lambda n: [(n - 2, n)], 1), 40_000, rng=rng)
    assert low is not None and high is not None
    assert (low, high) == pytest.approx((5 / 7, 7 / 5), rel=0.03)
