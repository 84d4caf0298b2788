"""Stopping early without erring more often: e-values, the three decisions, the confidence sequence, the schedule."""

from __future__ import annotations

from functools import reduce
from itertools import groupby, islice, pairwise
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.sequential import CAP, audits, fixed, peeking, sequential, tally
from llmfair.stats.sequential import (
    FEWEST_PAIRS,
    FRACTIONS,
    MEANS,
    VALUES,
    Decision,
    Direction,
    EProcess,
    log_e,
    rounds,
)
from tests.shared import vectors

BAND = (0.8, 1.25)
answers = st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=200)


def always(pairs: int) -> bool:
    return True


def never(pairs: int) -> bool:
    return False


def test_sequential_golden() -> None:
    golden = vectors("planted_bias")["sequential_golden"]
    assert pytest.approx(golden["bet_fractions"], rel=1e-9) == FRACTIONS
    assert golden["min_pairs"] == FEWEST_PAIRS
    edges = {"pL": 4 / 9, "pU": 5 / 9}
    ways: dict[str, Direction] = {"up": 1, "down": -1}
    for case in golden["cases"]:
        values = np.resize(case["pattern"], 2000)
        stopped = EProcess(BAND, 1 - golden["alpha"]).after(values, always)
        assert (stopped.decision, stopped.pairs) == (case["decision"], case["stop"])
        for pairs, expected in case["log_e"].items():
            counts = [np.count_nonzero(values[: int(pairs)] == value) for value in VALUES]
            for name, log_value in expected.items():
                way, edge = name.split("_")
                assert log_e(counts, edges[edge], ways[way]) == pytest.approx(log_value, abs=1e-7)


def test_e_values_by_hand() -> None:
    # Against p = ½ one win multiplies every stake by 1 + λ, one loss by 1 − λ; a flip leaves it alone.
    assert exp(log_e([0, 0, 1], 0.5, +1)) == pytest.approx(np.mean(1 + FRACTIONS))
    assert exp(log_e([1, 0, 1], 0.5, +1)) == pytest.approx(np.mean((1 + FRACTIONS) * (1 - FRACTIONS)))
    assert exp(log_e([0, 9, 1], 0.5, -1)) == pytest.approx(np.mean(1 - FRACTIONS))
    assert log_e([0, 0, 0], 0.3, +1) == pytest.approx(0)


@pytest.mark.parametrize("mean", [0.1, 4 / 9, 0.8])
def test_a_bet_gains_nothing_on_average_where_the_claim_is_true(mean: float) -> None:
    # With a share f of flips, P(X = 1) = mean − f/2: the expected factor is 1 whatever f.
    for flips in (0.0, 0.1, 0.2):
        shares = [1 - mean - flips / 2, flips, mean - flips / 2]
        for direction in (+1, -1):
            way: Direction = 1 if direction > 0 else -1
            factors = np.exp(log_e(np.eye(3), mean, way))
            assert shares @ factors == pytest.approx(1)


@settings(deadline=None)
@given(answers, st.lists(st.integers(0, 200)))
def test_the_size_of_batches_changes_nothing(values: list[float], cuts: list[int]) -> None:
    def settled(pairs: int) -> bool:
        return pairs % 7 == 0

    whole = EProcess(BAND).after(values, settled)
    places = [0, *sorted(cuts), len(values)]
    batches = [values[start:stop] for start, stop in pairwise(places)]
    assert reduce(lambda process, batch: process.after(batch, settled), batches, EProcess(BAND)) == whole
    assert reduce(lambda process, value: process.after([value], settled), values, EProcess(BAND)) == whole


@settings(deadline=None)
@given(answers, st.floats(0.5, 0.95), st.floats(1.05, 3))
def test_swapping_the_sides_swaps_above_and_below(values: list[float], low: float, high: float) -> None:
    found = EProcess((low, high)).after(values, always)
    swapped = EProcess((1 / high, 1 / low)).after(1 - np.array(values), always)
    mirror = {
        Decision.ABOVE: Decision.BELOW,
        Decision.BELOW: Decision.ABOVE,
        Decision.INSIDE: Decision.INSIDE,
    }
    assert swapped.decision == (mirror[found.decision] if found.decision else None)
    assert swapped.pairs == found.pairs
    assert swapped.peaks == pytest.approx(found.peaks[::-1])
    assert found.confidence is not None and swapped.confidence is not None
    lowest, highest = found.confidence
    assert swapped.confidence == pytest.approx((1 / highest, 1 / lowest))


@settings(deadline=None, max_examples=25)
@given(answers)
@example([1.0] * 8 + [0.0] * 40)  # none
def test_the_confidence_sequence_keeps_the_means_no_bet_ever_excluded(values: list[float]) -> None:
    process = EProcess(BAND).after(values, never)
    counts = np.cumsum(np.array(values[: process.pairs])[:, None] == VALUES, axis=0)
    kept = [
        mean
        for mean in MEANS
        if all(log_e(counts, mean, way).max(initial=-inf) < log(2 / 0.05) for way in (1, -1))
    ]
    expected = tuple(mean / (1 - mean) for mean in (kept[0], kept[-1])) if kept else None
    assert process.confidence == (pytest.approx(expected) if expected else None)


def test_a_confidence_sequence_can_end_empty() -> None:
    # A trend, which no fixed p explains: wins alone, then losses alone.
    process = EProcess((0.01, 100)).after([1.0] * 60 + [0.0] * 300, never)
    assert process.decision is None
    assert process.confidence is None


def test_decisions_come_from_the_log_e_values() -> None:
    process = EProcess(BAND).after([1.0, 0.5, 0.5, 0.5] * 50, always)
    assert process.decision is Decision.ABOVE
    assert process.log_e[Decision.ABOVE] >= log(2 / 0.05)
    before = EProcess(BAND).after(([1.0, 0.5, 0.5, 0.5] * 50)[: process.pairs - 1], always)
    assert before.decision is None
    assert before.log_e[Decision.ABOVE] < log(2 / 0.05)
    assert before.log_e[Decision.INSIDE] < log(1 / 0.05)


def test_a_higher_level_asks_for_more_pairs() -> None:
    found = [EProcess(BAND, level).after([1.0, 0.5, 0.5] * 200, never).pairs for level in (0.9, 0.95, 0.99)]
    assert found == sorted(set(found))


def test_nothing_is_decided_before_20_pairs_nor_changed_after_a_decision() -> None:
    undecided = EProcess(BAND).after([1.0] * 19, always)
    assert undecided.decision is None
    decided = undecided.after([0.0] * 5, always)
    assert (decided.decision, decided.pairs) == (Decision.ABOVE, 20)
    assert decided.after([0.0] * 500, always) is decided
    assert undecided.after([], always) is undecided


def test_inside_waits_for_the_interval_of_the_adjusted_odds() -> None:
    # An always-first model flips every pair: X alone would say `inside` after 50.
    asked: list[int] = []

    def settled(pairs: int) -> bool:
        asked.append(pairs)
        return pairs == 60

    found = EProcess(BAND).after([0.5] * 100, settled)
    assert (found.decision, found.pairs) == (Decision.INSIDE, 60)
    assert asked == list(range(50, 61))
    assert EProcess(BAND).after([0.5] * 1000, never).decision is None


def test_above_comes_before_inside() -> None:
    values = [0.5] * 60 + [1.0] * 60
    above = EProcess(BAND).after(values, never)
    assert above.decision is Decision.ABOVE
    assert EProcess(BAND).after(values, lambda pairs: pairs >= above.pairs) == above


def test_impossible_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="no band"):
        EProcess((1.25, 0.8))
    with pytest.raises(ValueError, match="no band"):
        EProcess((0, 1.25))
    with pytest.raises(ValueError, match="level"):
        EProcess(BAND, 95)
    with pytest.raises(ValueError, match="0, 1/2 or 1"):
        EProcess(BAND).after([0.25], always)
    with pytest.raises(ValueError, match="0, 1/2 or 1"):
        EProcess(BAND).after([float("nan")], always)
    with pytest.raises(ValueError, match="fewer than 0"):
        list(rounds([3, -1], np.random.default_rng(0)))


@given(st.lists(st.integers(0, 12), max_size=12), st.integers(0, 99))
def test_rounds_ask_every_query_once_until_its_pairs_are_used(pairs: list[int], seed: int) -> None:
    schedule = list(rounds(pairs, np.random.default_rng(seed)))
    assert sorted(schedule) == [
        (query, number) for query, count in enumerate(pairs) for number in range(count)
    ]
    assert [number for number, _ in groupby(number for _, number in schedule)] == list(
        range(max(pairs, default=0))
    )


def test_rounds_are_fresh_orders_that_the_seed_repeats() -> None:
    schedule = list(rounds([3] * 44, np.random.default_rng([7, 32])))
    orders = [[query for query, number in schedule if number == one] for one in range(3)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    again = rounds([3] * 44, np.random.default_rng([7, 32]))
    assert list(islice(again, 10)) == schedule[:10]


@pytest.mark.parametrize(("ratio", "saved"), [(0.6, 0.7), (1.0, 0.4), (1.7, 0.7)])
def test_most_pairs_are_saved(ratio: float, saved: float) -> None:
    found = tally(sequential, ratio, list(audits(ratio, runs=20)))
    assert found.saved >= saved
    assert found.false == 0


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "saved"), [(0.6, 0.75), (1.0, 0.5), (1.7, 0.75)])
def test_pairs_saved_over_200_audits(ratio: float, saved: float) -> None:
    asked = list(audits(ratio, runs=200))
    assert tally(sequential, ratio, asked).saved >= saved
    assert tally(sequential, ratio, asked).decided >= 0.95
    assert tally(fixed, ratio, asked).pairs == CAP


@pytest.mark.slow
@pytest.mark.parametrize("ratio", BAND)
@pytest.mark.parametrize("spread", [0, 0.05])
def test_false_conclusions_at_the_edge(ratio: float, spread: float) -> None:
    asked = list(audits(ratio, spread, runs=1000))
    assert tally(sequential, ratio, asked).false <= 0.05
    assert tally(peeking, ratio, asked).false > 0.2
