"""How precise a design makes preference odds: by hand, against simulated audits, and against measured figures."""

from __future__ import annotations

from itertools import combinations
from math import sqrt
from statistics import fmean

import numpy as np
import pytest

from llmfair.audits.aggregates import preference
from llmfair.audits.listwise.simulate import Items, Noise, simulate_encounters
from llmfair.metrics.base import QueryComparisons
from llmfair.rankers.strategies import Compared, covering, encounters_of
from llmfair.stats.power import Meeting, Windows, first_shown, query_sd
from llmfair.stats.strata import Comparisons

EVEN = ((50, 50), (50, 50))
"""Protected and unprotected items of grade 0, and of grade 1: a list of 200."""


def partition(n: int, window: int) -> Windows:
    return [(start, start + window) for start in range(0, n, window)]


def meeting(windows: Windows, n: int = 200, grades: tuple[tuple[int, int], ...] = EVEN) -> Meeting:
    return Meeting(n, grades, tuple(len(ranks) for ranks in first_shown(windows)))


def test_what_windows_show_for_the_first_time() -> None:
    assert first_shown(covering(7, 3, 2)) == [[4, 5, 6], [2, 3], [0, 1]]
    assert first_shown(partition(6, 3)) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(("n", "window", "step"), [(40, 20, 10), (23, 7, 3), (12, 4, 4)])
def test_they_are_the_encounters_of_an_audit(n: int, window: int, step: int) -> None:
    windows = covering(n, window, step)
    ids = [str(rank) for rank in range(n)]
    asked = [(ids[start:end], ids[start:end]) for start, end in windows]
    found = [
        encounter.ranked
        for encounter in encounters_of(Compared(number, *of) for number, of in enumerate(asked))
    ]
    assert found == [tuple(ids[r] for r in ranks) for ranks in first_shown(windows) if len(ranks) > 1]


@pytest.mark.parametrize("windows", [covering(12, 6, 3), partition(12, 4)])
def test_comparisons_by_counting(windows: Windows) -> None:
    """Two given items meet as often as two ranks do that are shown for the first time together."""
    shape = meeting(windows, 12, ((3, 2), (4, 1)))
    meet = sum(len([*combinations(ranks, 2)]) for ranks in first_shown(windows)) / (12 * 11 / 2)
    assert shape.comparisons(3) == pytest.approx(3 * (3 * 2 + 4 * 1) * meet)


def test_the_variance_by_hand() -> None:
    """One window of two protected items and one other: their two comparisons correlate by 1/3."""
    shape = Meeting(3, ((2, 1),), (3,))
    assert shape.share_variance() == pytest.approx((0.25 + 0.25 + 2 * 0.25 / 3) / 4)
    assert shape.share_variance(2, icc=0) == pytest.approx(shape.share_variance() / 2)
    assert shape.share_variance(2, icc=1) == pytest.approx(shape.share_variance())


@pytest.mark.parametrize(
    ("windows", "orders", "icc", "measured"),
    [
        (covering(200, 20, 10), 3, 0.0, 0.017),
        (covering(200, 20, 10), 3, 1.0, 0.032),
        (partition(200, 20), 3, 0.0, 0.017),
        (partition(200, 20), 3, 1.0, 0.029),
        (partition(200, 20), 1, 0.0, 0.023),
        (partition(200, 20), 1, 1.0, 0.027),
    ],
)
def test_errors_of_44_queries_of_200(windows: Windows, orders: int, icc: float, measured: float) -> None:
    """The standard deviations of independent simulations, of 25 to 60 audits each: within 20 %."""
    shape = meeting(windows)
    assert query_sd([shape] * 44, orders, icc) / sqrt(44) == pytest.approx(measured, rel=0.2)


@pytest.mark.whole
@pytest.mark.parametrize("alike", [0.0, 1.0])
@pytest.mark.parametrize(("windows", "orders"), [(covering(60, 20, 10), 3), (partition(60, 20), 1)])
def test_errors_of_simulated_audits(windows: Windows, orders: int, alike: float) -> None:
    """Uneven groups and grades, and items of neither group; 30 queries in 400 audits, a tolerance of four errors."""
    rng = np.random.default_rng(1)
    grades = ((12, 20), (6, 8), (1, 3))
    groups = np.concatenate([np.repeat([1, -1], counts) for counts in grades] + [np.zeros(10, int)])
    of_grade = np.repeat([0, 1, 2, 0], [*map(sum, grades), 10])
    items, audits = Items("q", groups, of_grade), 400
    lists = [
        simulate_encounters(items, windows, audits, orders, noise=Noise(alike), rng=rng) for _ in range(30)
    ]
    logs, counts = [], []
    for audit in range(audits):
        found = preference([one.value(0.0, audit) for one in lists])
        assert found is not None and found.estimate.value is not None
        logs.append(np.log(found.estimate.value))
        counts.append(found.comparisons / 30)
    shape = meeting(windows, 60, grades)
    assert fmean(counts) == pytest.approx(shape.comparisons(orders), rel=0.01)
    assert np.std(logs) == pytest.approx(
        query_sd([shape], orders, alike) / sqrt(30), rel=4 / sqrt(2 * audits)
    )


def test_more_queries_orders_and_less_spread() -> None:
    shape = meeting(covering(200, 20, 10))
    assert query_sd([shape], spread=0.3) ** 2 == pytest.approx(query_sd([shape]) ** 2 + 0.09)
    assert query_sd([shape, Meeting(4, ((4, 0),), (4,))]) == query_sd([shape])
    assert query_sd([shape], 1) > query_sd([shape], 3) > query_sd([shape], 9)
    with pytest.raises(ValueError, match="no list"):
        query_sd([Meeting(4, ((4, 0),), (4,))])


def test_an_injected_preference_and_slots_are_what_is_compared() -> None:
    """With noise that is always alike, an order asked again gives the same outcomes."""
    items = Items("q", np.repeat([1, -1], 6), np.zeros(12, np.intp))
    found = simulate_encounters(items, [(0, 12)], 1500, 1, 2, Noise(1.0, 3.0), rng=np.random.default_rng(2))
    none, strong = (
        [value for audit in range(1500) if isinstance(value := found.value(b, audit), QueryComparisons)]
        for b in (0.0, 99.0)
    )
    assert all(one.ahead == 1 for one in strong)
    outcomes = [one.outcomes for one in none if isinstance(one.outcomes, Comparisons)]
    assert {len(one.ahead) for one in outcomes} == {72}
    assert all((one.ahead[:36] == one.ahead[36:]).all() for one in outcomes)
    slots, ahead = (np.concatenate([getattr(one, name) for one in outcomes]) for name in ("slots", "ahead"))
    edge = slots[:, 0] - slots[:, 1] > 1.9  # the protected item last, the other first
    assert ahead[edge].mean() == pytest.approx(1 / (1 + np.exp(3)), abs=0.02)
