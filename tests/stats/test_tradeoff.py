"""Slope, area and intervals of disparity: reference figures, scipy, and cells worked by hand."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from llmfair.stats import tradeoff
from llmfair.stats.intervals import clustered_mean, mean
from tests.shared import realdata, vectors

NEAR = 1e-9
numbers = st.lists(st.integers(-20, 20).map(lambda number: number / 8), min_size=2, max_size=12)


def test_slope_and_area_of_the_reference_curves() -> None:
    for case in vectors("disparity_curve")["cases"]:
        x, y, expected = case["input"]["disparity"], case["input"]["quality"], case["expected"]
        fitted, below = tradeoff.line(x, y), tradeoff.area(x, y)
        found = (None, None) if fitted is None else (fitted.slope, fitted.intercept)
        assert found == pytest.approx((expected["slope"], expected["intercept"]), abs=NEAR), case["id"]
        assert below is not None
        assert below.whole == pytest.approx(expected["auc_0_1_constant_extrapolation"], abs=NEAR), case["id"]
        assert below.observed == pytest.approx(expected["auc_observed_range"], abs=NEAR), case["id"]
        assert (below.low, below.high) == (min(x), max(x))


def test_one_disparity_has_no_slope_and_an_area_of_its_mean() -> None:
    assert tradeoff.line([0.5, 0.5], [0.1, 0.3]) is None
    assert tradeoff.area([0.5, 0.5], [0.25, 0.75]) == tradeoff.Area(0.5, 0.0, 0.5, 0.5)
    assert tradeoff.line([], []) is None
    assert tradeoff.area([], []) is None


def test_observations_go_to_the_nearest_anchor_and_halfway_ones_upwards() -> None:
    x = [0.0, 0.0999999, 0.1, 0.3 - 1e-12, 0.95, 1.0]
    y = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
    found = tradeoff.anchors(x, y, ["a", "b", "a", "b", "a", "b"])
    assert [(one.disparity, one.quality.value, one.observations) for one in found] == [
        (0.0, 2.0, 2), (0.2, 5.0, 1), (0.4, 7.0, 1), (1.0, 10.0, 2),
    ]  # fmt: skip
    both = tradeoff.averaged([found, found[:1], tradeoff.anchors([0.0], [5.0], ["a"])])
    assert both[0].tolist() == [0.0, 0.2, 0.4, 1.0]
    assert both[1].tolist() == [3.0, 5.0, 7.0, 10.0]


def test_several_observations_of_a_query_are_one_unit() -> None:
    values, queries = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 9.0]), np.arange(6)
    assert clustered_mean(values, queries) == mean(values)
    twice = clustered_mean(np.tile(values, 2), np.tile(queries, 2))
    assert (twice.value, twice.low, twice.high, twice.n) == pytest.approx(
        (mean(values).value, mean(values).low, mean(values).high, 6)
    )


def test_edges_of_intervals_belong_above_and_rounding_decides_nothing() -> None:
    x = [0.0, 0.2 - 1e-12, 0.2, 0.1 + 0.5, 0.6 - 1e-8, 0.8, 1.0, 1.0 + 1e-12, -1e-12]
    assert [tradeoff.INTERVALS[place] for place in tradeoff.interval_of(x)] == [
        "[0,.2)", "[.2,.4)", "[.2,.4)", "[.6,.8)", "[.4,.6)", "[.8,1]", "[.8,1]", "[.8,1]", "[0,.2)",
    ]  # fmt: skip


def test_cells_worked_by_hand() -> None:
    baseline = dict.fromkeys("abcdefg", 0.5) | {"h": 0.9}
    queries = [*"abcdef", *"abcdef"]
    disparity = [0.9] * 6 + [0.1] * 6
    utility = [0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.1, 0.2, 0.3, 0.2, 0.1, 0.3]
    low, _, empty, _, high = tradeoff.cells(disparity, utility, queries, baseline)
    assert (low.observations, low.queries, empty.observations, empty.queries) == (6, 6, 0, 0)
    assert {empty.difference, empty.p_student, empty.paired, empty.p_adjusted} == {None}
    assert low.difference == pytest.approx(0.2 - 0.55)
    assert high.difference == pytest.approx(0.55 - 0.55)
    assert low.paired is not None
    assert high.paired is not None
    assert low.paired.value == pytest.approx(-0.3)
    assert high.paired.value == pytest.approx(0.05)  # each query against its own, h nowhere
    before = list(baseline.values())
    assert low.p_student == pytest.approx(stats.ttest_ind(utility[6:], before).pvalue)
    assert low.p_welch == pytest.approx(stats.ttest_ind(utility[6:], before, equal_var=False).pvalue)
    assert low.starred
    assert not high.starred
    assert low.p_paired == pytest.approx(stats.ttest_1samp(np.array(utility[6:]) - 0.5, 0).pvalue)
    assert low.p_paired is not None
    assert low.p_adjusted == pytest.approx(2 * low.p_paired)  # two cells were tested
    assert high.p_adjusted == high.p_paired
    first, second = tradeoff.adjusted([[low], [low, high]])
    assert first[0].p_adjusted == pytest.approx(3 * low.p_paired)
    assert second[1] == high


@pytest.mark.filterwarnings("ignore:Precision loss")  # of scipy, where all of one sample are equal
@given(numbers, numbers)
def test_unpaired_tests_are_those_of_scipy(one: list[float], other: list[float]) -> None:
    if len(set(one)) > 1 or len(set(other)) > 1:
        assert tradeoff.student_p(one, other) == pytest.approx(stats.ttest_ind(one, other).pvalue, abs=NEAR)
        expected = stats.ttest_ind(one, other, equal_var=False).pvalue
        assert tradeoff.welch_p(one, other) == pytest.approx(expected, abs=NEAR)
    else:
        alike = 1.0 if one[0] == other[0] else 0.0
        assert tradeoff.student_p(one, other) == tradeoff.welch_p(one, other) == alike


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(-0.02, 0.1, "kept"), (-0.05, -0.021, "lost"), (-0.05, 0.0, "inconclusive"), (None, None, None)],
)
def test_what_an_interval_says_of_a_loss(low: float | None, high: float | None, said: str | None) -> None:
    assert tradeoff.keeping(low, high, 0.02) == said


def test_intervals_are_those_of_the_papers_table() -> None:
    path = realdata("fairrag/paper_tables/fairrag_table2_disparity_intervals.csv")
    columns = next(csv.reader(path.read_text(encoding="utf-8").splitlines()))[4:]
    edges = [tuple(float(edge) for edge in column.removeprefix("d_").split("_")) for column in columns]
    assert [tradeoff.INTERVALS[tradeoff.interval_of([low])[0]] for low, _ in edges] == list(
        tradeoff.INTERVALS
    )


RANGE = tradeoff.Utility(margin=0.05, worst_loss=1.0, best_gain=1.0)


def test_without_any_change_68_queries_keep_utility_and_67_do_not() -> None:
    """The full share doubles at a mean of −.05 by 1/.95 a query: half of (1/.95)^68 and the other shares exceed 20."""
    (enough,), (few,) = tradeoff.losses([np.zeros(68)], RANGE), tradeoff.losses([np.zeros(67)], RANGE)
    assert (enough.conclusion, enough.reason, enough.losers) == ("kept", None, 0)
    assert (few.conclusion, few.reason) == ("inconclusive", "rare_losses")
    assert few.lower is not None and enough.lower is not None and few.lower < -0.05 <= enough.lower
    wealth = 0.5 / 0.95**68 + sum((1 + share / 10 / 19) ** 68 for share in range(1, 10)) / 18
    assert enough.p == enough.p_adjusted == pytest.approx(1 / wealth)


def test_alphas_are_tested_until_one_is_not_kept() -> None:
    steady, few, lost = np.zeros(80), np.zeros(40), np.full(40, -0.5)
    results = tradeoff.losses([steady, few, steady, lost, []], RANGE)
    assert [(loss.conclusion, loss.reason) for loss in results] == [
        ("kept", None),
        ("inconclusive", "rare_losses"),
        ("inconclusive", "larger_alpha"),
        ("lost", None),
        (None, "no_useful_items"),
    ]
    assert results[2].p == results[0].p and results[2].p_adjusted == results[1].p
    assert results[3].losers == 40
    assert tradeoff.losses([few[:4], steady], RANGE)[1].reason == "larger_alpha"


def test_a_loss_beyond_the_worst_says_nothing() -> None:
    utility = tradeoff.Utility(0.05, worst_loss=0.2, best_gain=1.0)
    (loss,) = tradeoff.losses([np.append(np.zeros(80), -0.3)], utility)
    assert (loss.conclusion, loss.reason, loss.lower) == (None, "beyond_worst_loss", None)
    (allowed,) = tradeoff.losses([np.append(np.zeros(80), -0.2)], utility)
    assert allowed.conclusion == "kept" and allowed.losers == 1


@given(st.lists(st.integers(-10, 10).map(lambda tenth: tenth / 10), min_size=5, max_size=60))
def test_a_limit_is_below_the_mean_and_moves_with_its_changes(changes: list[float]) -> None:
    (loss,) = tradeoff.losses([changes], RANGE)
    (better,) = tradeoff.losses([np.minimum(np.array(changes) + 0.1, 1.0)], RANGE)
    assert loss.lower is not None and better.lower is not None
    assert -1 <= loss.lower <= np.mean(changes) + 1e-9
    assert better.lower >= loss.lower - 1e-9
    assert (loss.conclusion == "kept") == (loss.lower >= -0.05)
