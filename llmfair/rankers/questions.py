"""Forms of question about items: how they are labelled, what an answer names, and how it is read.

A strategy asks in one form. What is asked of a model in words stands in the prompt file of the form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, ClassVar, Literal

from llmfair.errors import UsageError
from llmfair.nouns import Completion, Expects, Finish, Labels, Permutation
from llmfair.rankers.answers import BY_FINISH, AnswerClass, ReaderName, Reading, read
from llmfair.rankers.choices import LEAST_MASS, labels_sent, read_text

Margins = Literal["none", "welcome", "needed"]
"""What a form makes of the log-probabilities of labels, where a backend has them."""
MOST_LABELS = len(ascii_uppercase)
OFFERED = frozenset({"query", "k", "title", "n"})
"""Placeholders of every question's prompt."""


class Question(ABC):
    """One form of question. `prompt`: the task whose prompt words it, by placeholders `OFFERED` and those `needed`.

    `per_list`: scores of a list are one question.
    """

    prompt: str
    per_list: ClassVar[bool] = False
    margins: ClassVar[Margins] = "none"
    needed: ClassVar[Collection[str]] = ("query", "k", "title")

    def label(self, place: int) -> str | int:
        """What the item in this place is called, from 0."""
        return place + 1

    def values(self, n: int) -> Mapping[str, Any]:
        """What else the prompt says of a question about n items."""
        return {"n": n}

    @abstractmethod
    def expects(self, n: int) -> Expects:
        """The shape of an answer about n items."""

    def best(self, n: int) -> int | None:
        """How many of n items an answer names that puts them before all the others; None: it orders them all."""
        return None

    @abstractmethod
    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        """What an answer about n items says of them."""


@dataclass(frozen=True)
class Order(Question):
    """All items in order, by their numbers: `[2] > [1]`."""

    prompt: str = "listwise"

    def expects(self, n: int) -> Permutation:
        return Permutation(n)

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        return read(completion, n, reader)


ORDER = Order()


@dataclass(frozen=True)
class Choice(Question):
    """The one best item, by its letter: the likeliest label where a backend has margins, else what the answer says.

    Where an answer begins otherwise than with a label, as in `Passage B`, labels hold little of the first token's
    probability, and the text decides if it can be read.
    """

    prompt: str
    margins: ClassVar[Margins] = "welcome"

    def label(self, place: int) -> str:
        return ascii_uppercase[place]

    def expects(self, n: int) -> Labels:
        return Labels(letters(n))

    def best(self, n: int) -> int:
        return 1

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        order, mass = by_margin(completion, letters(n))
        if mass >= MOSTLY:
            return first_of(order[0], n)
        if completion.finish is not Finish.STOP:
            bad = BY_FINISH[completion.finish]
        else:
            choice = read_text(completion.text, "letter", letters(n))
            if choice.item is not None:
                return first_of(choice.item, n)
            name = choice.problem.name if choice.problem else ""
            bad = AnswerClass.__members__.get(name, AnswerClass.NO_IDS)
        return first_of(order[0], n) if order else Reading(bad)


MOSTLY = 0.5
ANSWERED = (Finish.STOP, Finish.LENGTH)
"""How answers end whose first token has margins."""


def is_formed(completion: Completion, expects: Expects, read: bool) -> bool:
    """Whether a model that is held to this form may have answered so; `read`: its answer is one of the form.

    What breaks off at its limit may be a beginning; an empty answer, and a refusal by the server, are none of a model.
    """
    text, ended = completion.text.strip(), completion.finish is Finish.STOP
    if completion.finish in (Finish.FILTERED, Finish.REFUSED) or not text:
        return True
    match expects:
        case Permutation(n, best):
            alike = _OF_ORDERS.issuperset(text) and not (ended and text.count("[") != (best or n))
        case Labels(labels):
            alike = any(label.startswith(text) for label in labels)
        case _:
            return True
    return alike and (read or not ended)


_OF_ORDERS = frozenset("[0123456789] >")


def letters(n: int) -> tuple[str, ...]:
    """The labels of n items. Raises UsageError for more than there are letters."""
    if n > MOST_LABELS:
        raise UsageError(f"{n} items have no letters of their own.", f"at most {MOST_LABELS} at once")
    return tuple(ascii_uppercase[:n])


def by_margin(completion: Completion, labels: Sequence[str]) -> tuple[list[int], float]:
    """The places of the labels that are sent, the likeliest first, of equals the one shown first; and their mass.

    None where they hold less than LEAST_MASS, or the answer ended in some other way than by itself or at its limit.
    """
    sent, mass = labels_sent(completion, labels) if completion.finish in ANSWERED else ({}, 0.0)
    places = [place for place, label in enumerate(labels) if label in sent and mass >= LEAST_MASS]
    return sorted(places, key=lambda place: -sent[labels[place]]), mass


def first_of(item: int, n: int) -> Reading:
    """One item before the n − 1 others, which stay as they were shown."""
    return Reading(AnswerClass.OK, (item, *(place for place in range(n) if place != item)), 1)
