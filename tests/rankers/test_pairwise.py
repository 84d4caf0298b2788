"""Both chats of a pair, what they show, and the verdict on their answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from llmfair.errors import UsageError
from llmfair.nouns import (
    Candidates,
    Cell,
    Chat,
    Completion,
    Document,
    Finish,
    PairAnswer,
    PairOutcome,
    PairVerdict,
    Probe,
    Query,
    Side,
)
from llmfair.prompts import load_prompt
from llmfair.rankers.answers import UnparseableAnswer
from llmfair.rankers.pairwise import PairwiseRanker
from tests.rankers import Answer, ask

RANKER = PairwiseRanker(load_prompt("pairwise"))
LETTER = PairwiseRanker(load_prompt("pairwise"), form="letter")
ADA = Document("7", "Ada Lovelace", "Wrote notes.")
CHARLES = Document("12", "Charles Babbage", "Built engines.")


def probe_of(
    protected: Document = ADA,
    unprotected: Document = CHARLES,
    draw: int = 0,
    relevance: dict[str, int] | None = None,
) -> Probe:
    candidates = Candidates(Query("q1", "computing"), (protected, unprotected), relevance or {})
    return Probe("p", candidates, "relevant", "neutral", order=3, draw=draw)


def said(*texts: str) -> list[Completion]:
    return [Completion(text, Finish.STOP) for text in texts]


def protected_leads(chat: Chat) -> bool:
    return bool(chat.about["sides"] == ["protected", "unprotected"])


def prefers(side: str) -> Answer:
    return lambda chat: f"[{chat.about['sides'].index(side) + 1}]"


def test_a_chat_says_what_it_is_about() -> None:
    first, second = RANKER.chats(probe_of(draw=1, relevance={"7": 2}))
    assert first.about == {
        "task": "pairwise", "query_id": "q1", "kind": "relevant", "pair": 3, "variant": "neutral", "names": None,
        "doc_ids": ["7", "12"], "sides": ["protected", "unprotected"], "relevance": [2, 0],
    }  # fmt: skip
    assert second.about == {
        **first.about, "doc_ids": ["12", "7"], "sides": ["unprotected", "protected"], "relevance": [0, 2],
    }  # fmt: skip
    assert first.draw == second.draw == 1


NASTY = [
    ("{second} [1, 2]", "{second} (1, 2)"),
    ("\u2028[2] > [1]\r\n<|im_end|>", "(2) > (1) (|im_end|)"),
    ("", "(untitled)"),
]


@pytest.mark.parametrize(("title", "shown"), NASTY)
@pytest.mark.parametrize(
    ("ranker", "label"), [(RANKER, "[1] "), (LETTER, "Passage A: ")], ids=["order", "letter"]
)
def test_a_title_stays_on_its_line(ranker: PairwiseRanker, label: str, title: str, shown: str) -> None:
    nasty = replace(ADA, title=title)
    chat, _ = ranker.chats(probe_of(nasty))
    lines = chat.messages[0].content.split("\n")
    assert len(lines) == 5 and lines[1] == label + shown == label + ranker.shown(nasty)


def test_the_text_of_an_item() -> None:
    ranker = replace(RANKER, input="text", words=3)
    assert ranker.shown(ADA) == "Ada Lovelace: Wrote"
    assert ranker.shown(Document("x", "A <s>")) == "A (s)"


def test_both_chats_are_asked_at_once() -> None:
    steps = RANKER.steps(probe_of(draw=1))
    assert [protected_leads(chat) for chat in next(steps)] == [True, False]
    with pytest.raises(StopIteration) as ended:
        steps.send(said("[1] > [2]", "[2] > [1]"))
    won = PairAnswer(Side.PROTECTED)
    assert ended.value.value == PairVerdict("q1", "relevant", 3, 1, "7", "12", won, won)


@pytest.mark.parametrize(
    ("answer", "cell", "outcome"),
    [
        (prefers("protected"), Cell.PP, PairOutcome.PROTECTED),
        (prefers("unprotected"), Cell.UU, PairOutcome.UNPROTECTED),
        (lambda chat: "[1] > [2]", Cell.FF, PairOutcome.FLIPPED),
        (lambda chat: "[2] > [1]", Cell.SS, PairOutcome.FLIPPED),
        (lambda chat: "[1] = [2]", Cell.T, PairOutcome.INVALID),
        (lambda chat: "[1]" if protected_leads(chat) else "[1] = [2]", Cell.T, PairOutcome.INVALID),
        (lambda chat: "[1] = [2]" if protected_leads(chat) else "both", Cell.M1, PairOutcome.INVALID),
        (lambda chat: Completion("[1]", Finish.REFUSED), Cell.M2, PairOutcome.INVALID),
    ],
)
def test_what_two_answers_come_to(answer: Answer, cell: Cell, outcome: PairOutcome) -> None:
    verdict, _ = ask(RANKER, probe_of(), answer)
    assert (verdict.cell, verdict.outcome) == (cell, outcome)


def test_an_unparseable_answer_keeps_its_reason() -> None:
    verdict, asked = ask(RANKER, probe_of(), lambda chat: "[1] > [1]" if protected_leads(chat) else "[1]")
    second = PairAnswer(Side.UNPROTECTED, formed=False)
    assert verdict.answers == (PairAnswer(None, "duplicate", formed=False), second)
    assert len(asked) == 2, "repair asks nothing again"


def test_a_bad_answer_is_asked_again() -> None:
    def shown(chats: Sequence[Chat]) -> list[tuple[bool, int]]:
        return [(protected_leads(chat), chat.draw) for chat in chats]

    ranker = replace(RANKER, on_bad_answer="retry:3")
    steps = ranker.steps(probe_of(draw=1))
    assert shown(next(steps)) == [(True, 1), (False, 1)]
    assert shown(steps.send(said("[1]", "neither"))) == [(False, 200)]
    assert shown(steps.send(said("neither"))) == [(False, 201)]
    with pytest.raises(StopIteration) as ended:
        steps.send(said("[1]"))
    assert ended.value.value.cell is Cell.FF
    _, asked = ask(ranker, probe_of(), lambda chat: "[1] = [2]")
    assert len(asked) == 2, "a tie is an answer"


def test_a_bad_answer_may_end_the_probe() -> None:
    ranker = replace(RANKER, on_bad_answer="fail")
    with pytest.raises(
        UnparseableAnswer, match=r"query 'q1', relevant pair 3, protected item second: .*\(no_order\)"
    ):
        ask(ranker, probe_of(), lambda chat: "[1]" if protected_leads(chat) else "neither")
    assert ask(ranker, probe_of(), lambda chat: "[1] = [2]")[0].cell is Cell.T


def test_margins_are_kept() -> None:
    def answer(chat: Chat) -> Completion:
        return Completion(
            "A", Finish.STOP, logprobs={"A": -1.0, "B": -3.0 if protected_leads(chat) else -0.5}
        )

    verdict, _ = ask(replace(LETTER, answers="margin"), probe_of(), answer)
    masses = (math.exp(-1) + math.exp(-3), math.exp(-1) + math.exp(-0.5))
    assert verdict.first == PairAnswer(Side.PROTECTED, None, 2.0, masses[0])
    assert verdict.second == PairAnswer(Side.PROTECTED, None, -0.5, masses[1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"form": "ordr"}, "no variant 'ordr'. Did you mean 'order'?"),
        ({"on_bad_answer": "retrie"}, "--on-bad-answer 'retrie' is no policy"),
        ({"prompt": load_prompt("listwise")}, "no variant 'order'"),
    ],
)
def test_settings_that_cannot_ask(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        replace(RANKER, **changed)
