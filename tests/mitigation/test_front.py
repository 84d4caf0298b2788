"""Which remedies are not dominated."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.mitigation.outcome import distance, front
from llmfair.mitigation.remedies import halves

POINTS = st.dictionaries(
    st.sampled_from("abcdefg"), st.tuples(st.sampled_from((0.0, 0.1, 0.5)), st.sampled_from((0.2, 0.8, 0.9)))
)


def test_by_hand() -> None:
    points = {
        "none": (0.5, 0.8),
        "kept": (0.1, 0.8),
        "dear": (0.0, 0.6),
        "useless": (0.5, 0.7),
        "best": (0.5, 0.9),
    }
    assert front(points) == {"kept", "dear", "best"}
    assert front({"one": (0.1, 0.5), "same": (0.1, 0.5)}) == {"one", "same"}


def test_distance_is_the_same_for_odds_and_their_inverse() -> None:
    assert distance(0.5) == distance(2) == pytest.approx(log(2))
    assert distance(1) == 0
    assert distance(None) is distance(0) is None


@given(POINTS)
def test_what_is_left_out_is_dominated_by_what_is_kept(points: dict[str, tuple[float, float]]) -> None:
    best = front(points)
    assert bool(best) == bool(points)
    for name, (far, useful) in points.items():
        dominated = any(points[one][0] <= far and points[one][1] >= useful for one in best - {name})
        assert name in best or dominated


@given(st.integers(0, 12))
def test_orders_are_dealt_into_two_halves(count: int) -> None:
    found = halves(count)
    assert len({frozenset(map(frozenset, pair)) for pair in found}) == len(found) <= 10
    for one, other in found:
        assert sorted((*one, *other)) == [*range(count)] and abs(len(one) - len(other)) <= 1
    assert bool(found) == (count > 1)
