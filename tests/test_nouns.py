"""Programs advanced by hand."""

from __future__ import annotations

from typing import Any

import pytest

from llmfair.nouns import Attribute, Chat, Completion, Document, Finish, Message, Steps, Text, drive


def chat(text: str) -> Chat:
    return Chat((Message("user", text),), Text())


def upper(chat: Chat) -> Completion:
    return Completion(chat.messages[0].content.upper(), Finish.STOP)


def test_answers_come_back_in_order_and_the_result_is_returned() -> None:
    def steps() -> Steps[list[str]]:
        first = yield [chat("a"), chat("b")]
        nothing = yield []
        second = yield [chat(first[0].text + first[1].text)]
        return [answer.text for answer in (*first, *nothing, *second)]

    assert drive(steps(), upper) == ["A", "B", "AB"]


@pytest.mark.parametrize("raised", [KeyError, StopIteration, KeyboardInterrupt])
def test_what_answering_raises_ends_the_program(raised: type[BaseException]) -> None:
    asked, closed = list[str](), list[bool]()

    def steps() -> Steps[None]:
        try:
            yield [chat("a"), chat("b"), chat("c")]
        finally:
            closed.append(True)

    def answer(chat: Chat) -> Completion:
        asked.append(chat.messages[0].content)
        if asked[-1] != "c":
            raise raised(asked[-1])
        return upper(chat)

    with pytest.raises(raised, match="a"):
        drive(steps(), answer)
    assert closed == [True]
    assert asked == (["a"] if raised is KeyboardInterrupt else ["a", "b", "c"]), "the rest of the step, too"


@pytest.mark.parametrize("mixed", ["drop", "protected", "unprotected"])
@pytest.mark.parametrize("compared", ["pairs", "rest"])
def test_an_item_of_several_groups_is_in_no_contrast(compared: Any, mixed: Any) -> None:
    race = Attribute("race", (), (), {}, mixed=mixed, compared=compared, groups=("A", "B", "C"))
    both = Document("d1", "", groups={"race": ("B", "C")})
    assert race.group(both) is None
    assert {contrast.side(both) for contrast in race.contrasts.values()} == {None}


def test_every_group_has_a_variant_of_its_own() -> None:
    race = Attribute("race", (), (), {}, compared="pairs", groups=("A", "GROUP-3", "a", "b"))
    assert [*race.named.values()] == [None, *race.groups]
