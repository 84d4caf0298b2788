"""Which of two is the more relevant: by heapsort, or every pair in both orders."""

from __future__ import annotations

import random
from functools import partial

import pytest

from llmfair.nouns import Chat, Completion, Encounter, Finish
from llmfair.rankers.strategies import AllPairs, Heapsort
from tests.rankers.asking import as_shown, driven, made, order_of, probe_of, ranker_of, said


def test_the_question_is_the_published_one() -> None:
    (chat,) = next(ranker_of(Heapsort()).steps(probe_of([0, 0])))
    assert chat.messages[1].content == (
        'Given a query "Physics", which of the following two passages is more relevant to the query?\n\n'
        "Passage A: Title 0\n\nPassage B: Title 1\n\nOutput only the letter of the more relevant passage, A or B:"
    )


def test_a_heap_by_hand() -> None:
    """Five items, the best two: 1 of (1; 3, 4), then 0 of (0; 1, 2), then what sinks from the head."""
    ranked, told = driven(ranker_of(Heapsort(2)).steps(probe_of([0, 1, 4, 3, 2])), said)
    # (3, 4) gives 3, (1, 3) lifts 3 to place 1; (3, 2) gives 2, (0, 2) lifts 2 to the head; out goes 2, 4 comes:
    # (3, 0) gives 3, (4, 3) lifts 3, and 4 meets 1, the one child left.
    assert told.asked == [[3, 4], [1, 3], [3, 2], [0, 2], [3, 0], [4, 3], [4, 1]]
    assert order_of(ranked) == [2, 3, 0, 1, 4]
    assert ranked.encounters == (Encounter(("3", "4"), ("3",), ("4",)),)
    assert (Heapsort(2).plan(5).calls, Heapsort(2).plan(5).exact) == (2 + 4 + 3, False)


def test_in_both_orders_a_pair_that_is_not_agreed_on_stays() -> None:
    ranked, told = driven(
        ranker_of(Heapsort(3, 2)).steps(probe_of([0, 1, 2])), partial(said, chosen=as_shown)
    )
    assert told.rounds == [[[1, 2], [2, 1]], [[0, 1], [1, 0]], [[2, 1], [1, 2]]]
    assert order_of(ranked) == [0, 2, 1]
    assert len(ranked.encounters) == 2  # both orders of the first pair: neither hung on the other
    grades = random.Random(1).sample(range(30), 30)
    ranked, told = driven(ranker_of(Heapsort(10, 2)).steps(probe_of(grades)), said)
    assert [grades[item] for item in order_of(ranked)[:10]] == list(range(29, 19, -1))
    assert len(told.asked) == 2 * len(told.rounds) <= Heapsort(10, 2).plan(30).calls


def test_all_pairs_by_hand() -> None:
    ranked, told = driven(ranker_of(AllPairs()).steps(probe_of([1, 0, 2])), said)
    assert told.rounds == [[[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]]]
    assert (AllPairs().plan(3).calls, AllPairs().plan(3).rounds) == (6, 1)
    assert order_of(ranked) == [2, 0, 1]
    assert ranked.ranking is not None and ranked.ranking.scores == (2.0, 1.0, 0.0)
    assert len(ranked.encounters) == 6


def test_half_a_point_each_where_the_orders_disagree() -> None:
    """A model that always says A: all items have the same points, and keep the initial ranking."""
    ranked, _ = driven(ranker_of(AllPairs()).steps(probe_of([0, 5, 9, 1])), partial(said, chosen=as_shown))
    assert order_of(ranked) == [0, 1, 2, 3]
    assert ranked.ranking is not None and ranked.ranking.scores == (1.5,) * 4

    def only_two_and_one(chat: Chat) -> Completion:
        return said(chat) if {*chat.about["doc_ids"]} == {"1", "2"} else Completion("A", Finish.STOP)

    ranked, _ = driven(ranker_of(AllPairs()).steps(probe_of([0, 5, 9, 1])), only_two_and_one)
    assert order_of(ranked) == [2, 0, 3, 1]


@pytest.mark.parametrize("n", [2, 9, 25])
def test_a_perfect_model_gives_the_perfect_order(n: int) -> None:
    grades = random.Random(n).sample(range(n), n)
    ranked, _ = driven(ranker_of(AllPairs()).steps(probe_of(grades)), said)
    assert [grades[item] for item in order_of(ranked)] == list(range(n - 1, -1, -1))
    ranked, _ = driven(ranker_of(Heapsort(7)).steps(probe_of(grades)), partial(said, margins=True))
    assert [grades[item] for item in order_of(ranked)[:7]] == list(range(n - 1, -1, -1))[:7]


def test_parameters() -> None:
    assert made("pairwise-sort") == Heapsort(20, 1) and made("pairwise-sort:k=5,orders=2") == Heapsort(5, 2)
    assert made("pairwise-sort:method=allpairs", depth=9) == AllPairs(9)
