"""How simulated models answer the questions of `numbers.py`: by chance, to the protected side some points less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from llmfair.backends.simulated import Answerer, Injected
from llmfair.nouns import Chat, Side


class Rated(Answerer):
    parameters: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "biased": {"points": -1.0},  # added for an item of the protected side
        "random": {"points": 0.0},
        "oracle": {"points": 0.0},
    }

    def answer(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> str:
        protected = chat.about["side"] == Side.PROTECTED
        return f"I say {rng.integers(4, 8) + protected * injected.parameters['points']:g}."
