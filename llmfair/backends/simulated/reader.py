"""Questions answered from items: by the label that most of them bear, and whether an item supports such an answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import numpy as np

from llmfair.backends.simulated.base import Answerer, Injected
from llmfair.nouns import Chat
from llmfair.registry import register

NOTHING = "I do not know"
"""What a reader says who was shown no item with a label."""


@register("simulated", "support")
class Supporter(Answerer):
    """Says that an item supports an output where that is the item's label."""

    plays: ClassVar[Collection[str]] = ("reader",)

    def answer(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> str:
        return "yes" if chat.about["label"] and chat.about["label"] == chat.about["output"] else "no"


@register("simulated", "rag")
class Reader(Answerer):
    plays: ClassVar[Collection[str]] = ("reader",)
    parameters: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "reader": {
            "follow": 1.0,  # share of answers that are read from the items; the others say nothing
            "position": 0.0,  # share of answers that are read from the first item alone
            "malformed": 0.0,  # share of damaged answers
        }
    }
    shares: ClassVar[Sequence[str]] = ("follow", "position")
    always_named = True

    def answer(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> str:
        """The commonest label among the items, of equals the one shown first."""
        follows, first = (rng.random() < injected.parameters[share] for share in self.shares)
        labels = [label for label in chat.about["labels"][: 1 if first else None] if label]
        return max(labels, key=labels.count) if labels and follows else NOTHING
