"""How simulated models answer, form by form: what a kind of audit registers to be tried offline with known effects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from llmfair.nouns import Chat, Finish

Damaged = tuple[str, Finish]
BROKEN: Sequence[Damaged] = (("", Finish.EMPTY), ("I'm sorry, I can't help with that.", Finish.REFUSED))


@dataclass(frozen=True)
class Injected:
    """A simulated model as answerers see it: `parameters` are all that it has, those of other forms too."""

    model: str
    parameters: Mapping[str, float]
    seed: int


class Answerer(ABC):
    """Answers questions of one form: those whose `about["task"]` is the name that it is registered by.

    `plays`: the models that answer so. `parameters`, by model: what `fake:MODEL,NAME=VALUE` may set, and its default;
    of these `shares` lie between 0 and 1, `scales` are not negative. An identity names those that differ from their
    default, or are `always_named` and not `seldom` set. `with_margins`: the models that can tell margins.
    """

    plays: ClassVar[Collection[str]] = ("biased", "random", "oracle")
    parameters: ClassVar[Mapping[str, Mapping[str, float]]] = {}
    shares: ClassVar[Collection[str]] = ()
    scales: ClassVar[Collection[str]] = ()
    always_named: ClassVar[bool] = False
    seldom: ClassVar[Collection[str]] = ()
    with_margins: ClassVar[Collection[str]] = ()

    @abstractmethod
    def answer(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> str:
        """What a careful model says; `rng` is the request's own."""

    def damaged(self, chat: Chat, answer: str) -> Sequence[Damaged]:
        """What a careless one may say instead: each alike often, in the share `malformed` of all answers."""
        return (answer[: len(answer) // 2], Finish.LENGTH), *BROKEN

    def margins(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> Mapping[str, float] | None:
        """The log-probabilities of the labels between which the answer is drawn; `rng` as `answer` was given it."""
        return None
