"""What windows show for the first time, and what simulated audits compare of it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from llmfair.audits.listwise.simulate import Items, Noise, simulate_encounters
from llmfair.metrics.base import QueryComparisons
from llmfair.rankers.strategies import PartialOrder, covering, encounters_of
from llmfair.stats.power import Windows, comparisons, first_shown
from llmfair.stats.strata import Comparisons


def partition(n: int, window: int) -> Windows:
    return [(start, start + window) for start in range(0, n, window)]


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
        for encounter in encounters_of(PartialOrder(number, *of) for number, of in enumerate(asked))
    ]
    assert found == [tuple(ids[r] for r in ranks) for ranks in first_shown(windows) if len(ranks) > 1]


@pytest.mark.parametrize("windows", [covering(12, 6, 3), partition(12, 4)])
def test_comparisons_by_counting(windows: Windows) -> None:
    """Two given items meet as often as two ranks do that are shown for the first time together."""
    meet = sum(len([*combinations(ranks, 2)]) for ranks in first_shown(windows)) / (12 * 11 / 2)
    assert comparisons(12, 10, windows) == pytest.approx(10 * meet)


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
