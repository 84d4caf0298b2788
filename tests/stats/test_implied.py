"""The pair odds that ratios imply: known tables, symmetry, and planted preferences of any usefulness recovered."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.stats.implied import Cells, OddsCurve, OddsSurface, odds_surface
from llmfair.stats.planted import kind_exposures, random_lists, rank_planted
from llmfair.stats.reach import Plan, attainable_ratio
from tests.pace import within
from tests.shared import vectors
from tests.stats import covering, whole


def cells_of(*counts: int) -> Cells:
    """Protected, unprotected, of neither side; of each the relevant ones, then the others."""
    kinds = [(side, grade) for side in (0, 1, 2) for grade in (1, 0)]
    return tuple(sorted((*kind, count) for kind, count in zip(kinds, counts, strict=False) if count))


def odds_curve(
    lists: list[tuple[int, int, int]], windows: Plan, passes: int, draws: int = 2000, *, seed: int = 1
) -> OddsCurve:
    """The curve of lists without a relevant document, as (n, protected, unprotected)."""
    cells = [cells_of(0, p, 0, u, 0, n - p - u) for n, p, u in lists]
    return odds_surface(cells, windows, passes, draws, rng=np.random.default_rng(seed)).curve()


@pytest.mark.parametrize(
    ("windows", "passes", "expected"),
    [
        (whole, 1, (1.043, 1.098, 1.194, 1.441)),
        (covering(5, 1), 1, (1.022, 1.049, 1.082, 1.120)),
        (covering(20, 10), 1, (1.033, 1.071, 1.127, 1.215)),
        (covering(20, 10), 3, (1.067, 1.147, 1.248, 1.350)),
    ],
)
def test_ratios_behind_pair_odds_100_of_200(windows: Plan, passes: int, expected: tuple[float, ...]) -> None:
    """Monte Carlo: sd of a curve here ≤ .0013, of the printed figures (880 draws) about .002."""
    curve = odds_curve([(200, 100, 100)] * 44, windows, passes, seed=1)
    found = [curve.ratio(odds) for odds in (1.25, exp(0.5), exp(1), exp(3))]
    assert found == pytest.approx(expected, abs=0.005)


def test_the_slope_of_whole_lists_is_kappa() -> None:
    """R is odd in β up to β³, which moves the slope between ±.25 by under 1 %."""
    for constants in vectors("planted_bias")["exposure_constants"]:
        n = constants["N"]
        for protected in (n // 2, n // 5):
            lists, draws = [(n, protected, n - protected)], 600_000 // n
            curve = odds_curve(lists, whole, 1, draws, seed=2)
            slope = log(curve.ratio(exp(0.25)) / curve.ratio(exp(-0.25))) / 0.5
            assert slope == pytest.approx(constants["kappa"], rel=0.03)


def test_a_curve_ends_at_the_attainable_range_of_whole_lists() -> None:
    lists = [(200, 50, 150)] * 3 + [(120, 30, 90)]
    curve = odds_curve(lists, whole, 1, seed=3)
    reach = attainable_ratio(lists, whole, 1, 10, rng=np.random.default_rng(3))
    assert (curve.low, curve.high) == pytest.approx((reach.low, reach.high), rel=0.01)
    assert reach.low < curve.low < curve.high < reach.high


def test_swapping_the_sides_inverts_the_odds() -> None:
    lists, plan = [(60, 20, 40)] * 5 + [(40, 10, 30), (60, 20, 30)], covering(20, 10)
    curve = odds_curve(lists, plan, 3, 4000, seed=4)
    swapped = odds_curve([(n, u, p) for n, p, u in lists], plan, 3, 4000, seed=5)
    for odds in (0.3, 0.8, 1.25, 3.0):
        found = swapped.odds(1 / curve.ratio(odds))
        assert found is not None
        assert log(found) == pytest.approx(-log(odds), abs=0.05)


CURVE = odds_curve([(30, 10, 15), (20, 10, 10)], covering(10, 5), 2, 400, seed=6)


@given(st.floats(-5.9, 5.9))
def test_odds_and_ratio_are_inverse_and_rising(beta: float) -> None:
    ratio = CURVE.ratio(exp(beta))
    found, more = CURVE.odds(ratio), CURVE.ratio(exp(beta + 0.1))
    assert found is not None
    assert log(found) == pytest.approx(beta, abs=1e-6)
    assert more > ratio
    assert (ratio > 1) == (beta > 0) or abs(log(ratio)) < 1e-9


def test_parity_is_odds_of_1_and_ratios_beyond_the_curve_have_none() -> None:
    assert CURVE.odds(1.0) == 1.0
    assert CURVE.ratio(1.0) == 1.0
    assert CURVE.odds(CURVE.low) == pytest.approx(exp(-6))
    assert CURVE.odds(CURVE.high) == pytest.approx(exp(6))
    for ratio in (CURVE.low * 0.999, CURVE.high * 1.001, 0.0, float("inf"), float("nan")):
        assert CURVE.odds(ratio) is None
    for odds in (0.0, -1.0, exp(6.1), float("nan")):
        with pytest.raises(ValueError, match="beyond"):
            CURVE.ratio(odds)


def test_interpolation_and_flat_stretches_by_hand() -> None:
    curve = OddsCurve((-2.0, -1.0, 0.0, 1.0, 2.0), (exp(-0.2), exp(-0.2), 1.0, 1.0, exp(0.4)))
    assert curve.odds(exp(-0.2)) == pytest.approx(exp(-1))
    assert curve.odds(exp(-0.1)) == pytest.approx(exp(-0.5))
    assert curve.odds(1.0) == 1.0
    assert curve.odds(exp(0.2)) == pytest.approx(exp(1))
    assert curve.ratio(exp(1.5)) == pytest.approx(exp(0.2))
    unranked = odds_curve([(10, 5, 5)], lambda n: [], 1, 20, seed=7)
    assert (unranked.low, unranked.high, unranked.odds(1.0)) == (1.0, 1.0, 1.0)
    assert unranked.odds(1.01) is None


def test_lists_without_a_side_count_for_nothing() -> None:
    plan, lists = covering(4, 2), [(20, 8, 12), (20, 0, 20), (20, 20, 0)]
    curve = odds_curve(lists, plan, 1, 50, seed=1)
    assert curve == odds_curve(lists[:1], plan, 1, 50, seed=1)
    with pytest.raises(ValueError, match="both sides"):
        odds_curve(lists[1:], plan, 1, seed=1)


def planted(
    cells: Cells, alpha: float, beta: float, windows: Plan, passes: int, draws: int
) -> tuple[float, float]:
    """Usefulness and excess ratio of a ranker that adds β to the protected alone, from its final lists."""
    rng = np.random.default_rng(11)
    sides, grades, counts = np.array(cells).T
    kinds = random_lists(counts.tolist(), draws, rng=rng)
    ranked = rank_planted(
        kinds, alpha * grades + beta * (sides == 0), windows(int(counts.sum())), passes, rng=rng
    )
    mean = kind_exposures(ranked, len(cells)).mean(axis=0)

    def of(members: np.ndarray) -> float:
        return float(np.average(mean[members], weights=counts[members]))

    expected = np.array([of(grades == grade) for grade in grades])
    e1, e0 = (of(sides == side) for side in (0, 1))
    m1, m0 = (np.average(expected[sides == s], weights=counts[sides == s]) for s in (0, 1))
    return of(grades >= 1) / of(grades < 1), float((e1 / e0) / (m1 / m0))


CELLS = cells_of(5, 25, 10, 20, 0, 0)
GRADED: Cells = ((0, 0, 20), (0, 1, 6), (0, 2, 4), (1, 0, 22), (1, 1, 5), (1, 2, 3))


@pytest.fixture(scope="module")
def surface() -> OddsSurface:
    return odds_surface([CELLS], covering(20, 10), 3, 1000, rng=np.random.default_rng(12))


def test_sides_without_a_common_grade_show_no_preference(surface: OddsSurface) -> None:
    """Whatever the odds, the ratio is what relevance gives: the curve is flat, and says so."""
    confounded: Cells = ((0, 1, 10), (1, 0, 30))
    flat = odds_surface([confounded], covering(20, 10), 3, 50, rng=np.random.default_rng(14))
    assert flat.curve().flat and flat.curve(2.0).flat
    assert not surface.curve(2.0).flat


@pytest.fixture(scope="module")
def of_grades() -> OddsSurface:
    return odds_surface([GRADED], covering(20, 10), 3, 1000, rng=np.random.default_rng(13))


RECOVERED = [
    *((GRADED, "of_grades", alpha, beta, 0.08) for alpha in (-1.5, 0.7, 2.0) for beta in (-0.5, 0.5)),
    *(
        (CELLS, "surface", alpha, beta, 0.06 + 0.06 * abs(beta))
        for alpha in (0.0, 0.7, 2.0, 2.7)
        for beta in (-1.2, -0.4, 0.4, 1.2)
    ),
]


@pytest.mark.parametrize(("cells", "of", "alpha", "beta", "error"), RECOVERED)
def test_planted_odds_are_recovered_however_useful_the_ranker(
    cells: Cells, of: str, alpha: float, beta: float, error: float, request: pytest.FixtureRequest
) -> None:
    usefulness, ratio = planted(cells, alpha, beta, covering(20, 10), 3, 4000)
    found = request.getfixturevalue(of).curve(usefulness, ratio).odds(ratio)
    assert found is not None and log(found) == pytest.approx(beta, abs=error)


def test_without_its_usefulness_a_useful_ranker_would_be_taken_for_another(surface: OddsSurface) -> None:
    """Where relevance decides, there is less left to prefer: the reason why usefulness is asked for."""
    usefulness, ratio = planted(CELLS, 3.0, -0.8, covering(20, 10), 3, 4000)
    blind, matched = surface.curve().odds(ratio), surface.curve(usefulness, ratio).odds(ratio)
    assert blind is not None and matched is not None
    assert log(blind) > -0.6 > log(matched)


def test_usefulness_beyond_the_grid_takes_its_end(surface: OddsSurface) -> None:
    assert surface.curve(0.01).ratios == pytest.approx(surface.ratios[0])
    assert surface.curve(99.0).ratios == pytest.approx(surface.ratios[-1])


def test_a_surface_between_its_rows_by_hand() -> None:
    surface = OddsSurface(
        (-1.0, 0.0, 1.0), (0.0, 2.0), ((0.5, 1.0, 2.0), (0.8, 1.0, 1.25)), ((1.0, 1.0, 1.0), (4.0, 4.0, 4.0))
    )
    half = surface.curve(2.0)  # half way between ln 1 and ln 4
    assert half.ratios == pytest.approx(((0.5 * 0.8) ** 0.5, 1.0, (2 * 1.25) ** 0.5))


@pytest.mark.whole
def test_44_lists_of_200_take_a_second_or_so() -> None:
    lists = [cells_of(10, 90, 10, 90)] * 44
    within(3, lambda: odds_surface(lists, covering(20, 10), 3, rng=np.random.default_rng(1)))
