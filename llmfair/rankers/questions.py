"""Forms of question about items: how they are labelled, what an answer names, and how it is read.

A strategy asks in one form. What is asked of a model in words stands in the prompt file of the form.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, ClassVar, Literal

from llmfair.io import files
from llmfair.nouns import Completion, Expects, Finish, Labels, Permutation, Scores
from llmfair.rankers.answers import BY_FINISH, AnswerClass, ReaderName, Reading, read
from llmfair.rankers.choices import ANSWERED, LEAST_MASS, labels_sent, read_text
from llmfair.rankers.reader import read_support

Margins = Literal["none", "welcome", "needed"]
"""What a form makes of the log-probabilities of labels, where a backend has them."""
MOST_LABELS = len(ascii_uppercase)
OFFERED = frozenset({"query", "k", "title", "n"})
YES, NO = "Yes", "No"
OUT_OF_SIGHT = -50.0
"""The log-probability that stands for that of a label which is not among the alternatives."""
MOSTLY = 0.5
_OF_ORDERS = frozenset("[0123456789] >")


class Question(ABC):
    """One form of question. `prompt`: the task whose prompt words it; `per_list`: scores of a list are one question."""

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


class Order(Question):
    """All items in order, by their numbers: `[2] > [1]`."""

    prompt = "listwise"

    def expects(self, n: int) -> Permutation:
        return Permutation(n)

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        return read(completion, n, reader)


@dataclass(frozen=True)
class BestOf(Question):
    """The best of a group, best first, by their numbers: as large a share of it as `of_group` is of `group`."""

    group: int
    of_group: int
    prompt = "tournament"
    needed: ClassVar[Collection[str]] = ("query", "k", "title", "m")

    def values(self, n: int) -> Mapping[str, Any]:
        return {"n": n, "m": self.best(n)}

    def best(self, n: int) -> int:
        return min(n - 1, math.ceil(n * self.of_group / self.group))

    def expects(self, n: int) -> Permutation:
        return Permutation(n, self.best(n))

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        reading, count = read(completion, n), self.best(n)
        if reading.permutation is None:
            return reading
        named = reading.permutation[: min(reading.named, count)]
        order = (*named, *(place for place in range(n) if place not in named))
        complete = reading.answer_class in (AnswerClass.OK, AnswerClass.MISSING) and len(named) == count
        return Reading(AnswerClass.OK if complete else reading.answer_class, order, len(named))


class Lettered(Question):
    """Items that are called by their letters."""

    def label(self, place: int) -> str:
        return ascii_uppercase[place]

    def expects(self, n: int) -> Labels:
        return Labels(letters(n))


@dataclass(frozen=True)
class Choice(Lettered):
    """The one best item, by its letter: the likeliest label where a backend has margins, else what the answer says."""

    prompt: str
    margins: ClassVar[Margins] = "welcome"

    def best(self, n: int) -> int:
        return 1

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        order, mass = by_margin(completion, letters(n))
        item, bad = order[0] if order else None, AnswerClass.NO_IDS
        if mass < MOSTLY and completion.finish is not Finish.STOP:
            bad = BY_FINISH[completion.finish]
        elif mass < MOSTLY:
            choice = read_text(completion.text, "letter", letters(n))
            item = item if choice.item is None else choice.item
            bad = AnswerClass.__members__.get(choice.problem.name if choice.problem else "", bad)
        if item is None:
            return Reading(bad)
        return Reading(AnswerClass.OK, (item, *(place for place in range(n) if place != item)), 1)


class Letters(Lettered):
    """All items, by how likely each one's letter is as the first token; letters out of sight come last, as shown."""

    prompt = "first"
    margins: ClassVar[Margins] = "needed"

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        if completion.finish not in ANSWERED:
            return Reading(BY_FINISH[completion.finish])
        order, _ = by_margin(completion, letters(n))
        if not order:
            return Reading(AnswerClass.NO_IDS)
        behind = [place for place in range(n) if place not in order]
        return Reading(AnswerClass.MISSING if behind else AnswerClass.OK, (*order, *behind), len(order))


class YesNo(Question):
    """Whether one item is relevant: the logit of yes less that of no where a backend has margins, else 1 or 0."""

    prompt = "pointwise"
    margins: ClassVar[Margins] = "welcome"
    needed: ClassVar[Collection[str]] = ("query", "title")

    def expects(self, n: int) -> Labels:
        return Labels((YES, NO))

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        sent, mass = labels_sent(completion, (YES, NO))
        if mass >= LEAST_MASS:
            yes, no = (max(sent.get(label, -math.inf), OUT_OF_SIGHT) for label in (YES, NO))
            return Reading(AnswerClass.OK, (0,), 1, scores=(yes - no,))
        if completion.finish is not Finish.STOP:
            return Reading(BY_FINISH[completion.finish])
        if (answer := read_support(completion)) is None:
            return Reading(AnswerClass.NO_IDS)
        return Reading(AnswerClass.OK, (0,), 1, scores=(float(answer),))


class ListScores(Question):
    """A score for every document of the list, from rankers that people have; no score is made up."""

    prompt = "scores"
    per_list: ClassVar[bool] = True
    needed: ClassVar[Collection[str]] = ("query", "title")

    def expects(self, n: int) -> Scores:
        return Scores(n)

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        if completion.finish is not Finish.STOP:
            return Reading(BY_FINISH[completion.finish])
        return read_scores(completion.text, n)


ORDER, SCORED, LETTERS = Order(), ListScores(), Letters()


def read_scores(text: str, n: int) -> Reading:
    """What pairs of a place and a score say of n documents, best first, equal scores as they were shown.

    Of two scores the first counts, null is none; documents without a score come last.
    """
    if not text:  # a dry run's answers hold nothing
        return Reading(AnswerClass.EMPTY)
    by_place: dict[int, float] = {}
    wrong: list[AnswerClass] = []
    for place, score in files.decode(text.encode()):
        if not 0 <= place < n:
            wrong.append(AnswerClass.OUT_OF_RANGE)
        elif place in by_place:
            wrong.append(AnswerClass.DUPLICATE)
        elif score is not None:
            by_place[place] = float(score)
    if not by_place:
        return Reading(AnswerClass.NO_IDS)
    without = [place for place in range(n) if place not in by_place]
    wrong += [AnswerClass.MISSING] * bool(without)
    best_first = sorted(by_place, key=lambda place: (-by_place[place], place))
    return Reading(
        wrong[0] if wrong else AnswerClass.OK,
        (*best_first, *without),
        len(best_first),
        scores=tuple(by_place.get(place) for place in range(n)),
    )


def is_formed(completion: Completion, expects: Expects, read: bool) -> bool:
    """Whether a model held to this form may have answered so or begun so; `read`: the answer is of the form."""
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


def letters(n: int) -> tuple[str, ...]:
    """The labels of n items, of which there are `MOST_LABELS` at most."""
    return tuple(ascii_uppercase[:n])


def by_margin(completion: Completion, labels: Sequence[str]) -> tuple[list[int], float]:
    """The places of the labels that are sent, the likeliest first, of equals the one shown first; and their mass."""
    sent, mass = labels_sent(completion, labels)
    places = [place for place, label in enumerate(labels) if label in sent and mass >= LEAST_MASS]
    return sorted(places, key=lambda place: -sent[labels[place]]), mass
