"""A generator's program, sent its answers by hand: labels first, then the lists of all settings, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from llmfair.metrics.texts import EMPTY
from llmfair.nouns import Chat, Completion, Document, Finish, Message, Query, drive
from llmfair.rankers.reader import Asked, Output, Read, Shown

ITEMS = {
    name: Document(name, f"title of {name}", groups={"label": (name[0],)}) for name in ("a1", "b1", "a2")
}


def asked(
    useful: frozenset[str] | None = None, lists: Sequence[Shown] = (("a1", "b1"), ("a2", "a1"))
) -> Asked:
    return Asked(
        query=Query("q", "which?"),
        items=ITEMS,
        render=lambda shown: (Message("user", " ".join(shown)),),
        lists=lambda useful: lists,
        utility=lambda text: float(text == "right"),
        gain=lambda text: float(text == "right"),
        useful=useful,
    )


def read(program: Asked, answer: Callable[[Shown], str | Completion]) -> tuple[Read, list[Shown]]:
    """What comes of a program, and what it asked about, in order."""
    seen: list[Shown] = []

    def answered(chat: Chat) -> Completion:
        shown = tuple(chat.about["doc_ids"])
        seen.append(shown)
        said = answer(shown)
        return said if isinstance(said, Completion) else Completion(said, Finish.STOP)

    return drive(program.steps(), answered), seen


def test_gains_are_what_one_item_adds_and_lists_come_after() -> None:
    """a1 and a2 lead to the right answer alone, nothing and b1 do not."""
    found, seen = read(asked(), lambda shown: "right" if any(name[0] == "a" for name in shown) else "wrong")
    assert seen == [(), ("a1",), ("b1",), ("a2",), ("a1", "b1"), ("a2", "a1")]
    assert found.gains == {"a1": 1.0, "b1": 0.0, "a2": 1.0} and found.useful == {"a1", "a2"} and found.kept
    assert found.lists[("a1", "b1")] == Output("right", Finish.STOP, 1.0)


def test_an_item_that_changes_nothing_or_harms_is_not_useful() -> None:
    found, seen = read(asked(), lambda shown: "wrong" if shown == ("b1",) else "right")
    assert found.gains == {"a1": 0.0, "b1": -1.0, "a2": 0.0}
    assert not found.useful and not found.kept and len(seen) == 4


@pytest.mark.parametrize("useful", [1, 2])
def test_with_fewer_than_two_useful_items_no_list_is_asked_about(useful: int) -> None:
    helps = [("a1",), ("b1",)][:useful]
    found, seen = read(asked(), lambda shown: "right" if shown in helps else "wrong")
    assert len(found.useful) == useful and (len(seen) > 4) == found.kept == (useful == 2)


def test_judged_items_need_no_labels() -> None:
    found, seen = read(asked(frozenset({"a1", "b1"})), lambda shown: "right")
    assert seen == [("a1", "b1"), ("a2", "a1")] and found.gains == {} and found.kept
    found, seen = read(asked(frozenset({"a1"})), lambda shown: "right")
    assert seen == [] and not found.kept


def test_outputs_that_are_no_answers_count_as_they_stand() -> None:
    said: dict[Shown, Completion] = {
        ("a1", "b1"): Completion("right", Finish.LENGTH),
        ("a2", "a1"): Completion(" . .. ", Finish.STOP),
    }
    found, _ = read(asked(frozenset({"a1", "b1"})), lambda shown: said[shown])
    cut, empty = found.lists.values()
    assert (cut.unparseable, cut.utility) == (True, 1.0)
    assert (empty.text, empty.unparseable, empty.utility) == (EMPTY, True, 0.0)


def test_the_question_tells_a_simulated_reader_the_labels() -> None:
    chat = asked().chat(("b1", "a2"))
    assert chat.about == {"task": "rag", "query_id": "q", "doc_ids": ["b1", "a2"], "labels": ["b", "a"]}
    assert chat.messages[0].content == "b1 a2"
