"""Keywords for a query: words that distinguish the group among what the query finds, or the group's name alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import numpy as np

from llmfair.backends.simulated.base import BROKEN, Answerer, Damaged, Injected
from llmfair.nouns import Chat, Finish
from llmfair.registry import register


@register("simulated", "refine")
class Refiner(Answerer):
    """Without a word that would help, `fake:refiner` repeats the query, which adds nothing."""

    plays: ClassVar[Collection[str]] = ("refiner", "name")
    parameters: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "refiner": {"malformed": 0.0},
        "name": {"malformed": 0.0},
    }
    always_named = True

    def answer(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> str:
        about = chat.about
        named = [about["subgroup"]] if injected.model == "name" else about["hints"]
        return json.dumps({"keywords": named or [about["query"]]}, ensure_ascii=False)

    def damaged(self, chat: Chat, answer: str) -> Sequence[Damaged]:
        words = ", ".join(json.loads(answer)["keywords"])
        return (
            (f"```json\n{answer}\n```", Finish.STOP),
            (f"Here is a list of relevant keywords:\n- {words}", Finish.STOP),
            (f"{chat.about['query']} {words}", Finish.STOP),
            (" ".join(f"keyword{number}" for number in range(40)), Finish.STOP),
            (answer[: len(answer) // 2], Finish.LENGTH),
            *BROKEN,
        )
