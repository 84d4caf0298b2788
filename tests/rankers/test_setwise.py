"""Which of a few is the most relevant: a heap of parents with c − 1 children each, sorted until the top stands."""

from __future__ import annotations

import random
from functools import partial

import pytest

from llmfair.errors import UsageError
from llmfair.nouns import Completion, Encounter, Expects, Finish, Labels, Permutation, Scores
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.questions import Choice, is_formed
from llmfair.rankers.strategies import Setwise
from tests.rankers.asking import as_shown, driven, made, order_of, probe_of, ranker_of, said


def test_the_question_is_the_published_one() -> None:
    (chat,) = next(ranker_of(Setwise(3)).steps(probe_of([0, 0, 0])))
    assert chat.messages[1].content == (
        'Given a query "Physics", which of the following passages is the most relevant one to the query?\n\n'
        'Passage A: "Title 0"\n\nPassage B: "Title 1"\n\nPassage C: "Title 2"\n\n'
        "Output only the passage label of the most relevant passage:"
    )
    assert chat.expects == Labels(("A", "B", "C"))


def test_a_heap_by_hand() -> None:
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


def test_a_model_that_always_says_a_takes_the_heap_as_it_stands() -> None:
    """Nothing sinks, so the head goes out and the last item takes its place: 0, 9, 8, …"""
    ranked, _ = driven(ranker_of(Setwise(4, 4)).steps(probe_of([0] * 10)), partial(said, chosen=as_shown))
    assert order_of(ranked) == [0, 9, 8, 7, 1, 2, 3, 4, 5, 6]


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


def test_parameters() -> None:
    assert made("setwise:k=5,c=3") == Setwise(3, 5) and made("setwise", depth=30) == Setwise(4, 20, 30)
    for spec, said_of_it in (
        ("setwise:c=1", "from 2 to 26"),
        ("setwise:c=x", "c cannot be"),
        ("setwise:q=1", "no parameter 'q'"),
    ):
        with pytest.raises(UsageError) as raised:
            made(spec)
        assert said_of_it in f"{raised.value.message} {raised.value.hint}"
