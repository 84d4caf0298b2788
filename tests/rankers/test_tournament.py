"""Groups of which the best advance: points by stage, rounds side by side."""

from __future__ import annotations

import random
from functools import partial

import pytest

from llmfair.errors import UsageError
from llmfair.nouns import Chat, Completion, Encounter, Expects, Finish, Labels, Permutation, Scores
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.questions import Choice, is_formed
from llmfair.rankers.strategies import (
    OUT_OF_SIGHT,
    AllPairs,
    BestOf,
    Heapsort,
    Pointwise,
    Setwise,
    Tournament,
    YesNo,
)
from tests.rankers.asking import as_shown, driven, made, order_of, probe_of, ranker_of, said


def of(group: int, best: int, rounds: int = 1) -> Tournament:
    return Tournament(BestOf(group, best), rounds)


def test_the_question_says_how_many_advance() -> None:
    (chat,) = next(ranker_of(of(4, 2)).steps(probe_of([0] * 4)))
    assert [message.role for message in chat.messages] == ["system", *["user", "assistant"] * 5, "user"]
    assert (
        "select the 2 documents that are most relevant to the given query: Physics."
        in chat.messages[1].content
    )
    assert "output the numbers of the 2 documents" in chat.messages[-1].content
    assert chat.expects == Permutation(4, 2)


def test_a_tournament_by_hand() -> None:
    """Nine items in groups of up to four, the best half through: 3 + 3 + 3, 2 + 2 + 2 are 3 + 3, 4, 2."""
    grades = [3, 8, 0, 7, 5, 1, 6, 2, 4]
    tournament = of(4, 2)
    ranked, told = driven(ranker_of(tournament).steps(probe_of(grades)), said)
    assert [[len(group) for group in one] for one in told.rounds] == [[3, 3, 3], [3, 3], [4], [2]]
    assert (tournament.plan(9).calls, tournament.plan(9).rounds, tournament.plan(9).exact) == (7, 4, True)
    points = dict.fromkeys(range(9), 0)
    for one in told.rounds:
        for group in one:
            for item in sorted(group, key=lambda item: -grades[item])[: tournament.question.best(len(group))]:
                points[item] += 1
    assert order_of(ranked) == sorted(range(9), key=lambda item: -points[item])
    assert ranked.ranking is not None and ranked.ranking.scores is not None
    assert ranked.ranking.scores[0] == 4 and points[1] == 4
    first = ranked.encounters
    assert [len(one.shown) for one in first] == [3, 3, 3] and all(len(one.ranked) == 2 for one in first)
    assert {item for one in first for item in one.shown} == {str(item) for item in range(9)}


def test_rounds_are_asked_side_by_side_in_other_groups() -> None:
    grades = random.Random(3).sample(range(40), 40)
    ranked, told = driven(ranker_of(of(10, 5, 3)).steps(probe_of(grades)), said)
    assert [len(one) for one in told.rounds] == [12, 6, 3, 3, 3, 3]
    groups = [frozenset(group) for group in told.rounds[0]]
    assert len({*groups}) == 12
    assert len(ranked.encounters) == 12  # the groups of a first stage hang on no answer
    assert order_of(ranked)[0] == grades.index(39)


def test_within_one_group_the_best_stand_in_order() -> None:
    grades = random.Random(4).sample(range(16), 16)
    ranked, _ = driven(ranker_of(of(16, 8)).steps(probe_of(grades)), said)
    found = [grades[item] for item in order_of(ranked)]
    assert found[:2] == [15, 14] and {*found[:4]} == {15, 14, 13, 12} and {*found[:8]} == {*range(8, 16)}


def test_a_model_that_names_the_first_it_sees_sends_the_first_on() -> None:
    ranked, told = driven(ranker_of(of(6, 3)).steps(probe_of([0] * 6)), partial(said, chosen=as_shown))
    (first,), *_ = told.rounds
    assert {*order_of(ranked)[:3]} == {*first[:3]}
    assert order_of(ranked)[3:] == sorted(first[3:])


@pytest.mark.parametrize(
    ("text", "answer_class", "order", "named"),
    [
        ("[3] > [1]", AnswerClass.OK, (2, 0, 1, 3), 2),
        ("[3], [1]", AnswerClass.OK, (2, 0, 1, 3), 2),
        ("[3] > [1] > [4] > [2]", AnswerClass.OK, (2, 0, 1, 3), 2),
        ("[3]", AnswerClass.MISSING, (2, 0, 1, 3), 1),
        ("[3] > [9]", AnswerClass.OUT_OF_RANGE, (2, 0, 1, 3), 1),
        ("None of them.", AnswerClass.NO_IDS, None, 0),
    ],
)
def test_what_an_answer_names(
    text: str, answer_class: AnswerClass, order: tuple[int, ...] | None, named: int
) -> None:
    reading = BestOf(4, 2).read(Completion(text, Finish.STOP), 4, "strict")
    assert (reading.answer_class, reading.permutation, reading.named) == (answer_class, order, named)


def test_parameters() -> None:
    assert made("tournament:rounds=5,group=8,best=2") == of(8, 2, 5)
    with pytest.raises(UsageError, match="would be all"):
        made("tournament:group=5,best=5")


# Which of two is the more relevant


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


def test_parameters_of_pairwise_sort() -> None:
    assert made("pairwise-sort") == Heapsort(20, 1) and made("pairwise-sort:k=5,orders=2") == Heapsort(5, 2)
    assert made("pairwise-sort:method=allpairs", depth=9) == AllPairs(9)


# Which of a few is the most relevant


def test_the_question_of_setwise_is_the_published_one() -> None:
    (chat,) = next(ranker_of(Setwise(3)).steps(probe_of([0, 0, 0])))
    assert chat.messages[1].content == (
        'Given a query "Physics", which of the following passages is the most relevant one to the query?\n\n'
        'Passage A: "Title 0"\n\nPassage B: "Title 1"\n\nPassage C: "Title 2"\n\n'
        "Output only the passage label of the most relevant passage:"
    )
    assert chat.expects == Labels(("A", "B", "C"))


def test_a_heap_of_sets_by_hand() -> None:
    """Seven items, two children each, the best three.

    Built: 2 of (2; 5, 6) becomes 6, 1 of (1; 3, 4) becomes 3, then 0 of (0; 3, 6): 6 rises, and 0 sinks below (2, 5):
    5 rises. Heap 6 3 5 1 4 0 2. Out goes 6, 2 takes its place: (2; 3, 5) gives 5, (2; 0) stays. Out goes 5,
    0 takes its place: (0; 3, 2) gives 3, (0; 1, 4) gives 4. Out goes 3.
    """
    ranked, told = driven(ranker_of(Setwise(3, 3)).steps(probe_of([0, 1, 2, 3, 1, 4, 5])), said)
    assert told.asked == [
        [2, 5, 6], [1, 3, 4], [0, 3, 6], [0, 5, 2], [2, 3, 5], [2, 0], [0, 3, 2], [0, 1, 4],
    ]  # fmt: skip
    assert order_of(ranked) == [6, 5, 3, 0, 1, 2, 4]
    plan = Setwise(3, 3).plan(7)
    assert (plan.calls, plan.rounds, plan.exact) == (1 + 1 + 2 + 2 + 2, 8, False)
    assert ranked.encounters == (
        Encounter(("2", "5", "6"), ("6",), ("2", "5")),
        Encounter(("1", "3", "4"), ("3",), ("1", "4")),
    )


@pytest.mark.parametrize(("c", "k"), [(2, 5), (3, 10), (4, 20), (7, 1)])
def test_a_perfect_model_gives_the_perfect_top(c: int, k: int) -> None:
    grades = random.Random(c).sample(range(40), 40)
    ranked, _ = driven(ranker_of(Setwise(c, k)).steps(probe_of(grades)), partial(said, margins=c == 4))
    assert [grades[item] for item in order_of(ranked)[:k]] == list(range(39, 39 - k, -1))
    assert order_of(ranked)[k:] == [item for item in range(40) if grades[item] < 40 - k]


@pytest.mark.parametrize(
    ("completion", "chosen"),
    [
        (Completion("B", Finish.STOP), 1),
        (Completion("Passage C", Finish.STOP), 2),
        (Completion("**passage b.**", Finish.STOP), 1),
        (Completion("A", Finish.STOP, logprobs={"A": -2.0, "C": -0.3}), 2),
        (Completion("A", Finish.LENGTH, logprobs={"B": -0.2}), 1),
        (Completion("Passage C", Finish.STOP, logprobs={"A": -9.0}), 2),
        (Completion("The", Finish.LENGTH, logprobs={"A": -9.0, "B": -5.0}), 1),
        (Completion("The", Finish.LENGTH, logprobs={"A": -9.0, "B": -8.0}), AnswerClass.TRUNCATED),
        (Completion("A", Finish.STOP, logprobs={"A": 800.0, "B": 801.0}), 1),
        (Completion("D", Finish.STOP), AnswerClass.OUT_OF_RANGE),
        (Completion("A and B are", Finish.STOP), AnswerClass.NO_IDS),
        (Completion("", Finish.EMPTY), AnswerClass.EMPTY),
        (Completion("B", Finish.LENGTH), AnswerClass.TRUNCATED),
        (Completion("Hm", Finish.STOP, logprobs={"Z": -0.1}), AnswerClass.NO_IDS),
        (Completion("Passage", Finish.LENGTH, logprobs={}), AnswerClass.TRUNCATED),
    ],
)
def test_what_is_chosen(completion: Completion, chosen: int | AnswerClass) -> None:
    reading = Choice("setwise").read(completion, 3, "strict")
    found = reading.answer_class if reading.permutation is None else reading.permutation[0]
    assert found == chosen


TWO, ONE_OF_TWO = Permutation(2), Labels(("A", "B"))


@pytest.mark.parametrize(
    ("text", "finish", "expects", "formed"),
    [
        ("[2] > [1]", Finish.STOP, TWO, True),
        (" [2] > [1]\n", Finish.STOP, TWO, True),
        ("[2] > [1", Finish.LENGTH, TWO, True),
        ("[2]", Finish.STOP, Permutation(2, 1), True),
        ("[2]", Finish.STOP, TWO, False),
        ("2 > 1", Finish.STOP, TWO, False),
        ("Sure: [2] > [1]", Finish.STOP, TWO, False),
        ("I think that", Finish.LENGTH, TWO, False),
        ("<think>", Finish.UNFINISHED_THINKING, TWO, False),
        ("", Finish.LENGTH, TWO, True),  # thoughts apart took all of it
        ("no", Finish.REFUSED, TWO, True),  # the server's word, not the model's
        ("A", Finish.STOP, ONE_OF_TWO, True),
        ("A.", Finish.STOP, ONE_OF_TWO, False),
        ("Passage", Finish.LENGTH, ONE_OF_TWO, False),
        ("[[0, 1.0]]", Finish.STOP, Scores(1), True),
    ],
)
def test_what_a_model_that_is_held_to_a_form_may_answer(
    text: str, finish: Finish, expects: Expects, formed: bool
) -> None:
    assert is_formed(Completion(text, finish), expects, read=True) is formed
    assert not (finish is Finish.STOP and is_formed(Completion("A", finish), ONE_OF_TWO, read=False))


def test_parameters_of_setwise() -> None:
    assert made("setwise:k=5,c=3") == Setwise(3, 5) and made("setwise", depth=30) == Setwise(4, 20, 30)
    with pytest.raises(UsageError) as raised:
        made("setwise:c=1")
    assert "from 2 to 26" in raised.value.hint


# One chat per item


POINTWISE = made("pointwise")


def test_the_question_of_pointwise_is_the_published_one() -> None:
    (chat, *_) = next(ranker_of(POINTWISE).steps(probe_of([1, 0])))
    assert [message.role for message in chat.messages] == ["system", "user"]
    assert chat.messages[1].content == (
        "Passage: Title 0\nQuery: Physics\nDoes the passage answer the query? Answer 'Yes' or 'No'"
    )
    assert chat.expects == Labels(("Yes", "No"))


def test_all_items_are_asked_at_once_and_ordered_by_score() -> None:
    grades = [1, 3, 0, 2, 3]
    ranked, told = driven(ranker_of(POINTWISE).steps(probe_of(grades)), lambda chat: said(chat, margins=True))
    assert told.rounds == [[[0], [1], [2], [3], [4]]]
    assert (POINTWISE.plan(5).calls, POINTWISE.plan(5).rounds) == (5, 1)
    assert order_of(ranked) == [1, 4, 3, 0, 2]
    assert ranked.ranking is not None and ranked.ranking.scores == (3.0, 3.0, 2.0, 1.0, 0.0)


def test_without_margins_yes_is_one_and_ties_keep_the_initial_ranking() -> None:
    ranked, _ = driven(ranker_of(POINTWISE).steps(probe_of([0, 2, 0, 1])), said)
    assert order_of(ranked) == [1, 3, 0, 2]
    (encounter,) = ranked.encounters
    assert encounter.scores == (1.0, 1.0, 0.0, 0.0) and encounter.shown == ()


def test_what_cannot_be_read_comes_last_and_is_compared_with_nothing() -> None:
    ranked, _ = driven(
        ranker_of(POINTWISE).steps(probe_of([1, 0, 1])),
        lambda chat: said(chat) if chat.about["doc_ids"] != ["0"] else Completion("Perhaps.", Finish.STOP),
    )
    assert order_of(ranked) == [2, 1, 0]
    assert (
        ranked.encounters[0].ranked == ("2", "1")
        and ranked.ranking is not None
        and ranked.ranking.scores is None
    )


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        (Completion("yes.", Finish.STOP), 1.0),
        (Completion("**No**", Finish.STOP), 0.0),
        (Completion("Yes", Finish.STOP, logprobs={"Yes": -0.5, "No": -2.0}), 1.5),
        (Completion("x", Finish.LENGTH, logprobs={"Yes": -1.0}), -1.0 - OUT_OF_SIGHT),
        (Completion("No, it", Finish.LENGTH, logprobs={"Yes": -9.0, "No": -9.0}), None),
        (Completion("No.", Finish.STOP, logprobs={"Yes": -9.0}), 0.0),
        (Completion("", Finish.EMPTY), None),
        (Completion("Yes and no", Finish.STOP), None),
    ],
)
def test_what_an_answer_scores(completion: Completion, score: float | None) -> None:
    reading = YesNo().read(completion, 1, "strict")
    assert reading.scores == (None if score is None else (score,))
    assert (reading.answer_class is AnswerClass.OK) == (score is not None)


def test_depth_leaves_the_tail() -> None:
    ranked, told = driven(ranker_of(Pointwise(depth=2)).steps(probe_of([0, 1, 9])), said)
    assert told.asked == [[0], [1]] and order_of(ranked) == [1, 0, 2]
