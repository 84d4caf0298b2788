"""Groups of which the best advance: points by stage, rounds side by side."""

from __future__ import annotations

import random
from functools import partial

import pytest

from llmfair.errors import UsageError
from llmfair.nouns import Completion, Finish, Permutation
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.strategies import BestOf, Tournament
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
