"""Lists in order: a Plackett–Luce ranker with injected preferences (`backends.md` 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from llmfair.backends.simulated.base import BROKEN, Answerer, Damaged, Injected
from llmfair.records import Chat, Finish
from llmfair.registry import register

BIASED = {
    "relevance": 2.0,  # added to an item's log-weight for each grade of relevance
    "listwise": -0.5,  # added for a protected item
    "prompt": 1.0,  # added for an item of the side that the prompt names
    "order": 0.0,  # added from +order/2 for the first slot down to −order/2 for the last
    "noise": 1.0,  # scale of the Gumbel noise, fresh for every call
}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@register("simulated", "listwise")
class ListAnswerer(Answerer):
    parameters: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "biased": BIASED,
        "random": {**BIASED, "relevance": 0.0, "listwise": 0.0, "prompt": 0.0},
        "oracle": {**BIASED, "relevance": 1.0, "listwise": 0.0, "prompt": 0.0, "noise": 0.0},
    }
    always_named = True

    def answer(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> str:
        return in_order(ranked(chat.about, injected.parameters, rng))

    def damaged(self, chat: Chat, answer: str) -> Sequence[Damaged]:
        items = answer.split(" > ")
        n = len(items)
        return (
            (" > ".join(items[: max(1, n // 2)]), Finish.STOP),  # missing
            (" > ".join([*items[:-1], items[0]]), Finish.STOP),  # duplicate
            (" > ".join([*items[:-1], f"[{n + 5}]"]), Finish.STOP),  # out of range
            (f"Here are the {n} passages, the best first: {answer}", Finish.STOP),
            ("I am not able to rank these passages.", Finish.STOP),
            (answer.translate(_SUPERSCRIPTS), Finish.STOP),
            (answer[: len(answer) // 2], Finish.LENGTH),
            *BROKEN,
            (f"<think>Passage {n} could come first", Finish.UNFINISHED_THINKING),
        )


def ranked(about: Mapping[str, Any], parameters: Mapping[str, float], rng: np.random.Generator) -> list[int]:
    """Slots 0..n−1, best first: falling log-weight + Gumbel noise, ties in input order."""
    sides, n = about["sides"], len(about["sides"])
    weights = parameters["relevance"] * np.array(about["relevance"], dtype=float)
    weights += parameters["listwise"] * np.array([side == "protected" for side in sides])
    if about["names"] is not None:
        weights += parameters["prompt"] * np.array([side == about["names"] for side in sides])
    if n > 1:
        weights += parameters["order"] * (n - 1 - 2 * np.arange(n)) / (2 * (n - 1))
    weights += parameters["noise"] * rng.gumbel(size=n)
    return [int(slot) for slot in np.argsort(-weights, kind="stable")]


def in_order(slots: Iterable[int]) -> str:
    return " > ".join(f"[{slot + 1}]" for slot in slots)
