"""Simulated audits of lists: what windows show first, programs played without a chat, odds that were injected."""

from __future__ import annotations

from functools import partial
from math import exp

import numpy as np
import pytest

from llmfair.audits.aggregates import preference
from llmfair.audits.listwise.plan import answer_in_shown_order
from llmfair.audits.listwise.simulate import (
    AuditSimulation,
    Items,
    Noise,
    play,
    rank_played,
    simulate_encounters,
)
from llmfair.metrics.base import QueryComparisons
from llmfair.nouns import Chat, Encounter, Scores
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.questions import read_scores
from llmfair.rankers.strategies import PartialOrder, Windows, covering, encounters_of
from llmfair.stats.power import Windows as Plan
from llmfair.stats.power import attainable_precision, attainable_ratio, by_windows, first_shown
from llmfair.stats.strata import Comparisons


def parts(n: int, window: int) -> Plan:
    return [(start, start + window) for start in range(0, n, window)]


def test_what_windows_show_for_the_first_time() -> None:
    assert first_shown(covering(7, 3, 2)) == [[4, 5, 6], [2, 3], [0, 1]]
    assert first_shown(parts(6, 3)) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(("n", "window", "step"), [(40, 20, 10), (23, 7, 3), (12, 4, 4)])
def test_they_are_the_encounters_of_an_audit(n: int, window: int, step: int) -> None:
    windows = covering(n, window, step)
    ids = [str(rank) for rank in range(n)]
    asked = [(ids[start:end], ids[start:end]) for start, end in windows]
    found = [e.ranked for e in encounters_of(PartialOrder(number, *of) for number, of in enumerate(asked))]
    assert found == [tuple(ids[r] for r in ranks) for ranks in first_shown(windows) if len(ranks) > 1]


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


@pytest.mark.parametrize("windows", [Windows(20, 10, 3), Windows(5, 1, 1), Windows(6, 4, 2, depth=17)])
def test_windows_through_the_program_reach_what_windows_reach(windows: Windows) -> None:
    lists = [(30, 9, 14), (41, 20, 21)]
    special, general = by_windows(windows.one_pass, windows.passes), partial(rank_played, windows)
    one, other = (attainable_ratio(lists, r, 60, rng=np.random.default_rng(3)) for r in (special, general))
    assert one == other
    judged = [(30, 8), (41, 20)]
    ranks = (special, general)
    found = [attainable_precision(judged, rank, 20, 60, rng=np.random.default_rng(3)) for rank in ranks]
    assert found[0] == found[1]


def test_a_program_is_played_without_a_chat() -> None:
    ranking, answered = play(
        Windows(4, 2, 1), [3, 1, 5, 0, 2, 4], lambda items, alone: [-float(item) for item in items]
    )
    assert ranking == [0, 1, 2, 3, 4, 5]
    assert [compared.round for compared in answered.compared] == [1, 2]
    assert answered.encounters[0].ranked == ("0", "2", "4", "5")


def test_questions_of_one_round_do_not_hang_on_each_other() -> None:
    at_once = [PartialOrder(0, ("a", "b"), ("b", "a")), PartialOrder(0, ("b", "c"), ("c", "b"))]
    assert [one.ranked for one in encounters_of(at_once)] == [("b", "a"), ("c", "b")]
    later = [at_once[0], PartialOrder(1, ("b", "c", "d"), ("d",), ("b", "c"))]
    assert encounters_of(later)[1:] == (Encounter(("b", "c", "d"), ("d",), ("c",)),)
    assert encounters_of([at_once[0], PartialOrder(1, ("b", "c", "d"), ("b",), ("c", "d"))])[1:] == (
        Encounter(("b", "c", "d"), (), ("c", "d")),  # which were shown, and not told apart
    )


def items(rng: np.random.Generator, number: int, n: int = 30) -> Items:
    return Items(str(number), rng.choice([1, -1], n), rng.integers(0, 2, n))


@pytest.mark.parametrize("alike", [0.0, 1.0])
def test_injected_odds_are_found_through_the_program(alike: float) -> None:
    rng = np.random.default_rng(6)
    lists = [items(rng, number) for number in range(20)]
    noise = Noise(alike, 1.0)
    audits = [AuditSimulation(one, Windows(10, 5, 1), 2, 1, noise, (7, k)) for k, one in enumerate(lists)]
    found = preference([one.value(-0.7, 0) for one in audits])
    assert found is not None and found.estimate.low is not None and found.estimate.high is not None
    assert found.estimate.low < exp(-0.7) < found.estimate.high < 0.8


def test_a_ranker_that_changes_nothing_scores_in_falling_order() -> None:
    reading = read_scores(answer_in_shown_order(Chat((), Scores(4))).text, 4)
    assert reading.permutation == (0, 1, 2, 3) and reading.answer_class is AnswerClass.OK
