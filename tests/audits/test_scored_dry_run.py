"""A dry run of a ranker that scores lists counts its requests, and needs no answer to do so."""

from __future__ import annotations

from llmfair.audits.listwise.plan import answer_in_shown_order
from llmfair.nouns import Chat, Scores
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.strategies import read_scores


def test_a_ranker_that_changes_nothing_scores_in_falling_order() -> None:
    reading = read_scores(answer_in_shown_order(Chat((), Scores(4))).text, 4)
    assert reading.permutation == (0, 1, 2, 3) and reading.answer_class is AnswerClass.OK
