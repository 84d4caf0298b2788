"""Which of two items an answer ranks first: every rule of the reader, and what it must never take for an answer."""

from __future__ import annotations

import math
import random
import re
import unicodedata
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.nouns import (
    Cell,
    Chat,
    Completion,
    Finish,
    Labels,
    PairAnswer,
    PairOutcome,
    PairVerdict,
    Request,
    Sampling,
    Side,
)
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.choices import LABELS, Choice, Form, Problem, read_choice, read_margin, read_text
from llmfair.rankers.strategies import Letters, Windows
from tests import models
from tests.cli.command import refuses
from tests.models import one_thread as one_thread
from tests.pace import within
from tests.rankers.asking import by_transformers, driven, made, order_of, probe_of, ranker_of, said
from tests.rankers.test_answers import taken
from tests.shared import mockllm, vectors


@pytest.mark.parametrize(
    ("key", "reader"), [("responses", "letter"), ("identifier_responses", "pair")], ids=["letter", "order"]
)
def test_the_reference_replies(key: str, reader: str) -> None:
    cases = vectors("pairwise_replies.json")[key]
    assert len(cases) >= 12
    for case in cases:
        expected = case["llmfair"]["first"] or case["llmfair"]["reason"]
        assert taken(reader, case["response"]) == expected, case["response"]


def test_the_reference_pairs() -> None:
    """Two replies of one pair come to the reference's cell and verdict; the item first at first is protected."""

    def answer(reply: str, sides: tuple[Side, Side]) -> PairAnswer:
        choice = read_text(reply, "letter")
        return PairAnswer(None if choice.item is None else sides[choice.item], choice.problem)

    for case in vectors("pairwise_replies.json")["pairs"]:
        first = answer(case["first_order"], (Side.PROTECTED, Side.UNPROTECTED))
        second = answer(case["swapped_order"], (Side.UNPROTECTED, Side.PROTECTED))
        verdict = PairVerdict("q", "relevant", 0, 0, "p", "u", first, second)
        assert verdict.cell is Cell(case["llmfair_cell"])
        assert verdict.outcome is PairOutcome(case["llmfair_verdict"].lower())


@pytest.mark.parametrize(
    ("finish", "problem"),
    [
        (Finish.LENGTH, "truncated"),
        (Finish.UNFINISHED_THINKING, "truncated"),
        (Finish.FILTERED, "filtered"),
        (Finish.REFUSED, "refused"),
        (Finish.EMPTY, "empty"),
    ],
)
def test_only_an_answer_that_ended_by_itself_is_read(finish: Finish, problem: str) -> None:
    assert read_choice(Completion("[2] > [1]", finish), "order") == Choice(None, Problem(problem))
    assert read_choice(Completion("[2] > [1]", Finish.STOP), "order") == Choice(1)


def test_a_tie_can_be_read() -> None:
    assert [problem for problem in Problem if not Choice(None, problem).unparseable] == [Problem.TIE]
    assert not Choice(0).unparseable


PIECES = [
    "[1]", "[2]", "1", "2", "3", " > ", " = ", ", ", ": ", "\n", ". ", " ", "<think>", "</think>", "answer is ",
    "Passage ", "A", "b", "²", "- ",
]  # fmt: skip


@st.composite
def replies(draw: st.DrawFn) -> str:
    return draw(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=12).map("".join)))


def swapped(text: str, form: Form) -> str:
    text = "".join(unicodedata.normalize("NFKC", character) for character in text)
    if form == "order":
        return text.translate(str.maketrans("12", "21"))
    turned = {"a": "b", "b": "a", "A": "B", "B": "A"}
    return re.sub(r"(?<![^\W_])[abAB](?![^\W_])", lambda letter: turned[letter[0]], text)


@settings(deadline=None)
@given(replies(), st.sampled_from(["order", "letter"]))
def test_any_text_gives_a_label_or_a_reason_and_swapping_the_labels_swaps_the_reading(
    text: str, form: Form
) -> None:
    choice = read_text(text, form)
    assert (choice.item in (0, 1)) == (choice.problem is None)
    if choice.item is not None:
        assert read_text(swapped(text, form), form) == Choice(1 - choice.item)


def test_damaged_answers_land_where_they_belong() -> None:
    damage = mockllm("answers").damage
    problems = {stratum: stratum for stratum in ("duplicate", "out_of_range", "truncated", "empty")}
    problems |= {"zero_based": "out_of_range", "prose": "no_order", "null": "empty"}
    meant = ("missing", "commas", "newlines", "counted", "think", "superscript")
    assert len(problems) + len(meant) == 13
    for seed in range(20):
        rng = random.Random(seed)
        for ranking in ([0, 1], [1, 0]):
            for stratum in (*problems, *meant):
                damaged = damage(ranking, stratum, rng)
                finish = Finish(damaged.finish_reason) if damaged.text else Finish.EMPTY
                choice = read_choice(Completion(damaged.text or "", finish), "order")
                expected = (
                    Choice(ranking[0]) if stratum in meant else Choice(None, Problem(problems[stratum]))
                )
                assert choice == expected, (stratum, damaged)


HUGE = [
    ("1", "\u0301\u0316", 100_000, ""),
    ("", "[", 500_000, ""),
    ("", "[1 ", 150_000, ""),
    ("", "9", 500_000, ""),
    ("1", " ", 500_000, "x"),
    ("", "1 A\n", 100_000, "1 A x"),
    ("", "\n", 500_000, "x"),
    ("", ":", 500_000, ""),
    ("", ":\n", 200_000, ""),
    ("", "passage ", 60_000, "x"),
    ("", "1 > A > ", 60_000, ""),
    ("", "1 = A = ", 60_000, ""),
    ("", "1. ", 150_000, ""),
    ("", "answer is ", 50_000, ""),
    ("", "answer is 1 answer is A ", 20_000, ": A. : 1"),
    ("", ": 1 : A ", 60_000, ": A"),
    (": 1 ", "x", 500_000, ": 1"),
    ("", "</think>", 60_000, ""),
    ("", "<think>", 300_000, ""),
    ("", "1 > 2 ", 8_000, ""),
]


@pytest.mark.parametrize("part", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("head", "again", "times", "tail"), HUGE, ids=[f"{h + a!r}" for h, a, *_ in HUGE])
def test_huge_answers_take_linear_time(head: str, again: str, times: int, tail: str, part: int) -> None:
    text = head + again * (times // part) + tail
    # a quadratic reader needs minutes of the whole
    within(4 / part, lambda: [read_text(text, form) for form in LABELS])


# Margins


def margin(logprobs: dict[str, float], finish: Finish = Finish.STOP) -> Choice:
    return read_margin(Completion("A", finish, logprobs=logprobs), LABELS["letter"])


def test_the_likelier_label_wins_by_its_margin() -> None:
    first = margin({"A": math.log(0.6), "B": math.log(0.3)})
    assert first.item == 0 and not first.unparseable
    assert first.margin == pytest.approx(math.log(2))
    assert first.mass == pytest.approx(0.9)
    second = margin({"A": -3.0, "B": -1.0})
    assert (second.item, second.margin) == (1, -2.0)
    assert margin({"A": -3.0, "B": -1.0}, Finish.LENGTH) == second, "one token is enough for a margin"


def test_equal_labels_are_a_tie() -> None:
    tied = margin({"A": -1.0, "B": -1.0})
    assert tied == Choice(None, Problem.TIE, margin=0.0, mass=2 * math.exp(-1))


@pytest.mark.parametrize("absent", [{}, {"B": -math.inf}])
def test_against_a_label_that_is_not_among_the_alternatives_there_is_no_margin(
    absent: dict[str, float],
) -> None:
    assert margin({"A": 0.0, **absent}) == Choice(0, margin=None, mass=1.0)


@pytest.mark.parametrize("absent", [{}, {"A": -math.inf}, {"A": -math.inf, "B": -math.inf}])
def test_without_both_labels_there_is_no_order(absent: dict[str, float]) -> None:
    assert margin(absent) == Choice(None, Problem.NO_ORDER, mass=0.0)
    assert read_margin(Completion("A", Finish.STOP), ("A", "B")).problem is Problem.NO_ORDER


@pytest.mark.parametrize(
    ("sent", "item", "mass"),
    [
        ({"A": 0.0, "B": -17.0}, 0, 1.0),  # by rounding more than 1
        ({"A": 3.0, "B": 800.0}, 1, 1.0),  # no log-probabilities, but the larger is the likelier
        ({"A": -6.0, "B": -8.0}, 0, math.exp(-6) + math.exp(-8)),
        ({"A": -8.0, "B": -9.0}, None, math.exp(-8) + math.exp(-9)),
        ({"A": -999.0, "B": -999.0}, None, 0.0),
        ({"A": math.nan, "B": math.inf}, None, 0.0),
    ],
)
def test_labels_hold_at_most_all_and_at_least_something(
    sent: dict[str, float], item: int | None, mass: float
) -> None:
    choice = margin(sent)
    assert choice.item == item and choice.mass == pytest.approx(mass)
    assert choice.problem is (None if item is not None else Problem.NO_ORDER)


def test_a_refusal_has_no_margin() -> None:
    assert margin({"A": -1.0, "B": -2.0}, Finish.REFUSED) == Choice(None, Problem.REFUSED)


# A window is ordered by the log-probabilities of its letters at the first token


whole = partial(said, margins=True)


def test_the_question_has_letters() -> None:
    (chat,) = next(ranker_of(Windows(3, 2, 1, question=Letters())).steps(probe_of([0, 0, 0])))
    assert (
        "I will provide you with 3 passages, each indicated by an alphabetical identifier []."
        in chat.messages[1].content
    )
    assert "[A] Title 0\n[B] Title 1\n[C] Title 2" in chat.messages[1].content
    assert chat.expects == Labels(("A", "B", "C"))


def test_windows_by_hand() -> None:
    """As windows, each put in order by its letters: (2, 6) and then (0, 4)."""
    ranked, told = driven(
        ranker_of(Windows(4, 2, 1, question=Letters())).steps(probe_of([0, 5, 1, 4, 3, 2])), whole
    )
    assert told.rounds == [[[2, 3, 4, 5]], [[0, 1, 3, 4]]]
    assert order_of(ranked) == [1, 3, 4, 0, 5, 2]
    assert [one.ranked for one in ranked.encounters] == [("3", "4", "5", "2"), ("1", "0")]
    assert (
        Windows(4, 2, 1, question=Letters()).plan(6).calls
        == Windows(4, 2, 1, question=Letters()).plan(6).rounds
        == 2
    )


@pytest.mark.parametrize(
    ("completion", "answer_class", "order", "named"),
    [
        (
            Completion("C", Finish.LENGTH, logprobs={"A": -3.0, "B": -2.0, "C": -1.0}),
            AnswerClass.OK,
            (2, 1, 0),
            3,
        ),
        (Completion("C", Finish.STOP, logprobs={"C": -1.0, "A": -9.0}), AnswerClass.MISSING, (2, 0, 1), 2),
        (Completion("The", Finish.STOP, logprobs={"C": -9.0, "A": -9.0}), AnswerClass.NO_IDS, None, 0),
        (Completion("C > A", Finish.STOP), AnswerClass.NO_IDS, None, 0),
        (Completion("", Finish.EMPTY), AnswerClass.EMPTY, None, 0),
    ],
)
def test_what_a_first_token_says(
    completion: Completion, answer_class: AnswerClass, order: tuple[int, ...] | None, named: int
) -> None:
    reading = Letters().read(completion, 3, "strict")
    assert (reading.answer_class, reading.permutation, reading.named) == (answer_class, order, named)


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(UsageError, match="letters for 26 items, but --window is 30"):
        made("first", window=30)
    refuses("has no log-probabilities of labels", *"listwise --strategy first -m fake:reader -n 1".split())
    refuses("reads no text of answers", "listwise", "--strategy", "first", "--answers", "text", "-n", "1")


@pytest.mark.whole
def test_the_order_is_that_of_the_logits(tmp_path: Path) -> None:
    """A tiny model of random weights: the ranking is what transformers' own logits of the letters make of it."""
    models.needs_local()
    folder = models.causal(tmp_path / "tiny", "llama", seed=5)
    ranker, probe = ranker_of(Windows(6, 3, 2, question=Letters())), probe_of([0] * 12)
    logits, asked = by_transformers(folder), list[Chat]()

    def noted(chat: Chat) -> Completion:
        asked.append(chat)
        return logits(chat)

    expected, _ = driven(ranker.steps(probe), noted)
    requests = [
        Request(chat, Sampling(margins=True, max_tokens=1), str(k), "p") for k, chat in enumerate(asked)
    ]
    answers = iter(_answers(folder, requests))
    found, _ = driven(ranker.steps(probe), lambda chat: next(answers))
    assert order_of(found) == order_of(expected) != list(range(12))
    assert [one.permutation for one in found.windows] == [one.permutation for one in expected.windows]


def _answers(folder: Path, requests: list[Request]) -> list[Completion]:
    import asyncio

    from llmfair.backends.base import BackendOptions
    from llmfair.backends.hf import hf

    async def ask() -> list[Completion]:
        backend = hf(str(folder), BackendOptions(backend_args={"dtype": "float32"}))
        await backend.open()
        try:
            return [await backend.complete(one) for one in requests]
        finally:
            await backend.close()

    return asyncio.run(ask())
