"""One chat per item: by the log-odds of yes where they are known, else by yes and no."""

from __future__ import annotations

import pytest

from llmfair.nouns import Completion, Finish, Labels
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.strategies import OUT_OF_SIGHT, Pointwise, YesNo
from tests.rankers.asking import driven, made, order_of, probe_of, ranker_of, said

POINTWISE = made("pointwise")


def test_the_question_is_the_published_one() -> None:
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
