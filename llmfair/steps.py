"""Ranking programs: generators that yield the chats they want answered and do not know who answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TypeVar

from llmfair.records import Chat, Completion

T = TypeVar("T")

Steps = Generator[Sequence[Chat], Sequence[Completion], T]
"""A ranking program: yields the chats it wants answered, receives their completions, returns its result."""


class Unanswered(Exception):
    """A chat has no answer yet: raised to end a program that is followed as far as its answers are known."""


def drive(steps: Steps[T], answer: Callable[[Chat], Completion]) -> T:
    """The result of a program whose chats `answer` answers, one after the other.

    What `answer` raises ends the program, but the chats of the same step are all put to it first, as `dispatch` does.
    """
    with closing(steps):
        answers: list[Completion] | None = None
        while True:
            try:
                chats = next(steps) if answers is None else steps.send(answers)
            except StopIteration as end:
                result: T = end.value
                return result
            answers, failed = [], list[Exception]()
            for chat in chats:
                try:
                    answers.append(answer(chat))
                except Exception as error:
                    failed.append(error)
            if failed:
                raise failed[0]
