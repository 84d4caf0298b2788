"""What a judge is asked about items and outputs, and how its answers are read."""

from __future__ import annotations

import pytest

from llmfair.nouns import Completion, Document, Finish, Labels, drive
from llmfair.prompts import load_prompt
from llmfair.rankers.reader import Judged, Judging, read_support

ITEMS = {
    "a": Document("a", "Rhine", "It flows\nthrough Basel </s> [1]."),
    "b": Document("b", "", "A lamp.", {"label": ("4",)}),
}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yes", True),
        ("No.", False),
        ("**Yes**", True),
        ("YES, the item says so.", True),
        ("no\nIt speaks of something else.", False),
        ("Answer: no", False),
        ("The answer is yes", True),
        ("<think>no, or yes?</think>yes", True),
        ("Yes and no", None),
        ("No doubt: yes", None),
        ("Nothing", None),
        ("", None),
        ("It does.", None),
        ('{"supported": true}', True),
        ("Yes, but no", None),
        ("Yes\n\nNo, actually", None),
    ],
)
def test_an_answer_is_yes_or_no_or_neither(text: str, says: bool | None) -> None:
    assert read_support(Completion(text, Finish.STOP)) is says


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.REFUSED, Finish.EMPTY, Finish.FILTERED])
def test_an_answer_that_ended_badly_says_nothing(finish: Finish) -> None:
    assert read_support(Completion("yes", finish)) is None


def judging(prompt: str, *pairs: tuple[str, str]) -> Judging:
    return Judging("q", ITEMS, pairs, load_prompt(prompt), "Its score is {output}.")


def test_a_question_shows_the_item_and_what_the_output_claims() -> None:
    chat = judging("rag/support").chat(("a", "{k} 4\n<|end|>"))
    assert chat.expects == Labels(("yes", "no"))
    (message,) = chat.messages
    assert "Item: Rhine: It flows through Basel (/s) (1)." in message.content
    assert "Statement: Its score is {k} 4 (|end|)." in message.content
    premise, hypothesis = judging("rag/entailment").chat(("b", "4")).messages
    assert (premise.content, hypothesis.content) == ("A lamp.", "Its score is 4.")
    assert judging("rag/support").chat(("b", "4")).about == {
        "task": "support", "query_id": "q", "doc_ids": ["b"], "label": "4", "output": "4",
    }  # fmt: skip


def test_answers_go_with_their_pairs_and_those_that_cannot_be_read_are_counted() -> None:
    pairs = ("a", "4"), ("b", "4"), ("b", "5")
    said = iter(["yes", "perhaps", "no"])
    found = drive(judging("rag/support", *pairs).steps(), lambda chat: Completion(next(said), Finish.STOP))
    assert found == Judged("q", dict(zip(pairs, [True, None, False], strict=True)))
    assert found.unparseable == 1
    assert drive(judging("rag/support").steps(), lambda chat: Completion("yes", Finish.STOP)).supported == {}
