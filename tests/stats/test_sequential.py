"""Stopping early without erring more often: e-values, looks, the three decisions, the confidence sequence."""

from __future__ import annotations

from functools import reduce
from itertools import groupby, pairwise
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.sequential import Model, audits, betting, sequential, tally
from llmfair.stats.sequential import (
    FEWEST_UNITS,
    FRACTIONS,
    GRID,
    LOOKS,
    MEANS,
    Decision,
    Direction,
    EProcess,
    Floats,
    log_e,
    look_level,
    on_grid,
    rounds,
)
from tests.shared import vectors

BAND = (0.8, 1.25)
answers = st.lists(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1), max_size=200)


def inside(pairs: int) -> Decision:
    return Decision.INSIDE


def above(pairs: int) -> Decision:
    return Decision.ABOVE


def below(pairs: int) -> Decision:
    return Decision.BELOW


def nowhere(pairs: int) -> None:
    return None


def of_pairs(zeros: int, halves: int, ones: int) -> Floats:
    """So many lost, flipped and won, as counts on the grid."""
    counts: Floats = on_grid(np.repeat([0, 0.5, 1], [zeros, halves, ones])).sum(axis=0)
    return counts


def test_sequential_golden() -> None:
    golden = vectors("injected_bias")["sequential_golden"]
    assert pytest.approx(golden["bet_fractions"], rel=1e-9) == FRACTIONS
    assert golden["min_pairs"] == FEWEST_UNITS
    edges = {"pL": 4 / 9, "pU": 5 / 9}
    ways: dict[str, Direction] = {"up": 1, "down": -1}
    for case in golden["cases"]:
        values = np.resize(case["pattern"], 2000)
        # an interval that agrees: the e-value alone decides when
        agreeing = {"above": above, "below": below, "inside": inside, None: nowhere}[case["decision"]]
        stopped = EProcess(BAND, 1 - golden["alpha"], 2000).after(values, agreeing)
        assert (stopped.decision, stopped.units) == (case["decision"], case["stop"])
        for pairs, expected in case["log_e"].items():
            counts = on_grid(values[: int(pairs)]).sum(axis=0)
            for name, log_value in expected.items():
                way, edge = name.split("_")
                assert log_e(counts, edges[edge], ways[way]) == pytest.approx(log_value, abs=1e-7)


def test_e_values_by_hand() -> None:
    # Against p = ½ one win multiplies every stake by 1 + λ, one loss by 1 − λ; a flip leaves it alone.
    assert exp(log_e(of_pairs(0, 0, 1), 0.5, +1)) == pytest.approx(np.mean(1 + FRACTIONS))
    assert exp(log_e(of_pairs(1, 0, 1), 0.5, +1)) == pytest.approx(np.mean((1 + FRACTIONS) * (1 - FRACTIONS)))
    assert exp(log_e(of_pairs(0, 9, 1), 0.5, -1)) == pytest.approx(np.mean(1 - FRACTIONS))
    assert log_e(of_pairs(0, 0, 0), 0.3, +1) == pytest.approx(0)


@pytest.mark.parametrize("mean", [0.1, 4 / 9, 0.8])
def test_a_bet_gains_nothing_on_average_where_the_claim_is_true(mean: float) -> None:
    # With a share f of flips, P(X = 1) = mean − f/2: the expected factor is 1 whatever f.
    for flips in (0.0, 0.1, 0.2):
        shares = [1 - mean - flips / 2, flips, mean - flips / 2]
        for direction in (+1, -1):
            way: Direction = 1 if direction > 0 else -1
            factors = np.exp(log_e(on_grid(np.array([0, 0.5, 1])), mean, way))
            assert shares @ factors == pytest.approx(1)


@given(st.floats(0, 1), st.sampled_from(MEANS), st.sampled_from([1, -1]))
def test_a_share_between_two_points_of_the_grid_gains_no_more_than_it_may(
    share: float, mean: float, way: Direction
) -> None:
    cap = 1 / mean if way > 0 else 1 / (1 - mean)
    gained = np.log1p(way * cap * (share - mean) * FRACTIONS)
    counted = on_grid(np.array([share]))
    assert counted @ GRID == pytest.approx(share) and counted.sum() == pytest.approx(1)
    by_counts = counted @ np.log1p(way * cap * (GRID[:, None] - mean) * FRACTIONS)
    assert (by_counts <= gained + 1e-9).all()


@settings(deadline=None)
@given(answers, st.lists(st.integers(0, 200)))
def test_the_size_of_batches_changes_nothing(values: list[float], cuts: list[int]) -> None:
    def look(pairs: int) -> Decision | None:
        return Decision.INSIDE if pairs in LOOKS[2:] else Decision.BELOW

    whole = EProcess(BAND, cap=150).after(values, look)
    places = [0, *sorted(cuts), len(values)]
    batches = [values[start:stop] for start, stop in pairwise(places)]
    start = EProcess(BAND, cap=150)
    assert reduce(lambda process, batch: process.after(batch, look), batches, start) == whole
    assert reduce(lambda process, value: process.after([value], look), values, start) == whole


@settings(deadline=None)
@given(answers, st.floats(0.5, 0.95), st.floats(1.05, 3), st.sampled_from(Decision))
def test_swapped_sides_swap_decisions(values: list[float], low: float, high: float, seen: Decision) -> None:
    mirror = {Decision.ABOVE: Decision.BELOW, Decision.BELOW: Decision.ABOVE}
    mirror[Decision.INSIDE] = Decision.INSIDE
    found = EProcess((low, high)).after(values, lambda pairs: seen)
    swapped = EProcess((1 / high, 1 / low)).after(1 - np.array(values), lambda pairs: mirror[seen])
    assert swapped.decision == (mirror[found.decision] if found.decision else None)
    assert swapped.units == found.units
    assert found.confidence is not None and swapped.confidence is not None
    lowest, highest = found.confidence
    assert swapped.confidence == pytest.approx((1 / highest, 1 / lowest))


@settings(deadline=None, max_examples=25)
@given(answers)
@example([1.0] * 8 + [0.0] * 40)  # none
def test_the_confidence_sequence_keeps_the_means_no_bet_ever_excluded(values: list[float]) -> None:
    process = EProcess(BAND).after(values, nowhere)
    counts = np.cumsum(on_grid(np.array(values[: process.units])), axis=0)
    kept = [m for m in MEANS if all(log_e(counts, m, w).max(initial=-inf) < log(2 / 0.05) for w in (1, -1))]
    expected = tuple(mean / (1 - mean) for mean in (kept[0], kept[-1])) if kept else None
    assert process.confidence == (pytest.approx(expected) if expected else None)


def test_nothing_is_decided_before_20_pairs_nor_changed_after_a_decision() -> None:
    undecided = EProcess(BAND).after([1.0] * 19, above)
    assert undecided.decision is None
    decided = undecided.after([0.0] * 5, above)
    assert (decided.decision, decided.units) == (Decision.ABOVE, 20)
    assert decided.after([0.0] * 500, inside) is decided
    assert undecided.after([], inside) is undecided


def test_the_odds_are_looked_at_after_preset_numbers_of_pairs_alone() -> None:
    # An always-first model flips every pair: X says nothing of its odds.
    looked: list[int] = []

    def look(pairs: int) -> None:
        looked.append(pairs)

    assert EProcess(BAND, cap=600).after([0.5] * 600, look).decision is None
    assert looked == [50, 75, 110, 165, 250, 370, 560, 600]
    looked.clear()
    assert EProcess(BAND, cap=12).after([0.5] * 12, look).decision is None and looked == [12]


@pytest.mark.parametrize("seen", [Decision.BELOW, Decision.ABOVE])
def test_before_the_last_look_the_interval_settles_the_inside_alone(seen: Decision) -> None:
    found = EProcess(BAND, cap=300).after([0.5] * 300, lambda pairs: seen)
    assert (found.decision, found.units) == (seen, 300)
    found = EProcess(BAND, cap=300).after([0.5] * 300, lambda pairs: seen if pairs < 165 else Decision.INSIDE)
    assert (found.decision, found.units) == (Decision.INSIDE, 165)


def test_a_look_is_taken_at_a_stricter_level() -> None:
    assert look_level(0.95) == pytest.approx(0.975) and look_level(0.9) == pytest.approx(0.95)


def test_an_e_value_needs_an_interval_beyond_the_band_beside_it() -> None:
    values = [0.5] * 50 + [1.0] * 450
    crossed = EProcess(BAND).after(values, above)
    assert crossed.decision is Decision.ABOVE and 50 < crossed.units < 75
    looked: list[int] = []

    def late(pairs: int) -> Decision | None:
        looked.append(pairs)
        return Decision.ABOVE if pairs >= 110 else None

    found = EProcess(BAND).after(values, late)
    assert (found.decision, found.units) == (Decision.ABOVE, 110)
    assert looked == [50, crossed.units, 75, 110]
    assert EProcess(BAND, cap=500).after(values, nowhere).decision is None
    # the other direction has not crossed
    assert EProcess(BAND).after(values, below).decision is None


@given(st.lists(st.integers(0, 12), max_size=12), st.integers(0, 99))
def test_rounds_ask_every_query_once_until_its_pairs_are_used(pairs: list[int], seed: int) -> None:
    schedule = list(rounds(pairs, np.random.default_rng(seed)))
    assert sorted(schedule) == [(q, number) for q, count in enumerate(pairs) for number in range(count)]
    assert [number for number, _ in groupby(n for _, n in schedule)] == list(range(max(pairs, default=0)))


@pytest.mark.whole
def test_queries_that_differ_make_no_disparity() -> None:
    # at the band's end itself; the e-value alone takes these queries for all
    asked = list(audits(Model(1.25, queries=8, query_sd=0.6), runs=25))
    assert tally(sequential, asked).outside <= 0.05 < 0.15 < tally(betting, asked).outside
