"""A strategy's own program, answered at once: what it can reach, and what its encounters say."""

from __future__ import annotations

from functools import partial
from math import exp

import numpy as np
import pytest

from llmfair.audits.aggregates import preference
from llmfair.audits.listwise.plan import answer_in_shown_order
from llmfair.audits.listwise.simulate import Items, Noise, PlayedAudits, play, rank_played
from llmfair.nouns import Chat, Encounter, Scores
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.strategies import PartialOrder, Windows, encounters_of, read_scores
from llmfair.stats.power import attainable_precision, attainable_ratio, by_windows


@pytest.mark.parametrize("windows", [Windows(20, 10, 3), Windows(5, 1, 1), Windows(6, 4, 2, depth=17)])
def test_windows_through_the_program_reach_what_windows_reach(windows: Windows) -> None:
    lists = [(30, 9, 14), (41, 20, 21)]
    special, general = by_windows(windows.one_pass, windows.passes), partial(rank_played, windows)
    one, other = (
        attainable_ratio(lists, rank, 60, rng=np.random.default_rng(3)) for rank in (special, general)
    )
    assert one == other
    judged = [(30, 8), (41, 20)]
    found = [
        attainable_precision(judged, rank, 20, 60, rng=np.random.default_rng(3))
        for rank in (special, general)
    ]
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
    audits = [
        PlayedAudits(one, Windows(10, 5, 1), 2, 1, Noise(alike, 1.0), (7, k)) for k, one in enumerate(lists)
    ]
    found = preference([one.value(-0.7, 0) for one in audits])
    assert found is not None and found.estimate.low is not None and found.estimate.high is not None
    assert found.estimate.low < exp(-0.7) < found.estimate.high < 0.8


def test_a_ranker_that_changes_nothing_scores_in_falling_order() -> None:
    reading = read_scores(answer_in_shown_order(Chat((), Scores(4))).text, 4)
    assert reading.permutation == (0, 1, 2, 3) and reading.answer_class is AnswerClass.OK
