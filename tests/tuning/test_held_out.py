"""How many queries measure an adapter: what they allow, and what is held out by default."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmfair.audits.pairwise.results import PairFinding
from llmfair.nouns import Conclusion
from llmfair.tuning.drawing import Precision, chance_within, expected, held_out, measured, train_share
from llmfair.tuning.results import HeldOut

BAND = (0.8, 1.25)


def test_a_hand_case() -> None:
    """Of a known error almost: 10,001 queries of sd 10 have one of .1, an interval of ± .196 and .027 left over."""
    queries, sd = 10_001, 10.0
    error = sd / sqrt(queries)
    left = 0.2231436 - 1.960201 * error
    by_hand = 2 * NormalDist().cdf(left / error) - 1
    one = Precision(1.0, sd)
    assert chance_within(queries, [one], BAND, 0.95) == pytest.approx(by_hand, abs=0.003)
    assert chance_within(queries, [one, one], BAND, 0.95) == pytest.approx(by_hand**2, abs=0.003)


def test_what_intervals_of_few_queries_do() -> None:
    """Of 40,000 samples of 20 queries, as often as it is said."""
    rng, sd = np.random.default_rng(0), 0.3
    values = rng.normal(0, sd, (40_000, 20))
    half = 2.093024 * values.std(axis=1, ddof=1) / sqrt(20)
    inside = np.abs(values.mean(axis=1)) + half < 0.2231436
    assert chance_within(20, [Precision(1.0, sd)], BAND, 0.95) == pytest.approx(inside.mean(), abs=0.006)


@given(st.floats(0.05, 2), st.floats(0.3, 1), st.integers(0, 200))
def test_more_queries_allow_more_and_what_is_needed_is_the_least(
    sd: float, share: float, queries: int
) -> None:
    strata = [Precision(1.0, sd), Precision(share, sd)]
    held = held_out(queries, strata, BAND, 0.95)
    assert held.chance is not None and held.needed is not None
    assert (held.chance >= 0.8) == (queries >= held.needed)
    assert chance_within(held.needed - 1, strata, BAND, 0.95) < 0.8
    assert chance_within(2 * held.needed, strata, BAND, 0.95) > 0.8


def test_what_is_not_measured_allows_nothing_that_is_known() -> None:
    finding = PairFinding(measure="AdjustedOdds", conclusion=Conclusion.INCONCLUSIVE, reason=None, queries=20)
    assert held_out(20, measured(20, [finding]), BAND, 0.95) == HeldOut(20, None, None)
    assert held_out(4, [Precision(1.0, 1e-6)], BAND, 0.95).chance == 0.0, "fewer than five have no interval"
    assert held_out(20, [Precision(1.0, 100.0)], BAND, 0.95).needed is None
    assert measured(20, [replace(finding, error=0.1)]) == [Precision(1.0, 0.1 * sqrt(20))]


def test_pairs_of_a_query_add_little() -> None:
    few, many = expected([6] * 10), expected([50] * 10)
    assert few.sd > many.sd > few.sd / 2
    assert expected([50, 0] * 5) == Precision(0.5, many.sd)


@pytest.mark.parametrize(
    ("usable", "needed", "share"),
    [(44, 57, 0.5), (200, 57, 0.715), (1000, 57, 0.8), (44, None, 0.5), (10, 163, 0.5)],
)
def test_the_default_split(usable: int, needed: int | None, share: float) -> None:
    assert train_share(usable, needed) == pytest.approx(share)
