"""Lists in order: a Plackett–Luce ranker with injected preferences (`backends.md` 7)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from llmfair.backends.simulated.base import BROKEN, Answerer, Damaged, Injected
from llmfair.nouns import Chat, Finish, Labels, Permutation
from llmfair.registry import register

BIASED = {
    "relevance": 2.0,  # added to an item's log-weight for each grade of relevance
    "listwise": -0.5,  # added for a protected item
    "prompt": 1.0,  # added for an item of the side that the prompt names
    "order": 0.0,  # added from +order/2 for the first slot down to −order/2 for the last
    "noise": 1.0,  # scale of the Gumbel noise, fresh for every call
    "alike": 0.0,  # share of calls whose noise is each item's own: 1 answers alike every time
}
Floats = NDArray[np.float64]
_ITEM_STREAM = 49
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def gumbel(rng: np.random.Generator, n: int) -> Floats:
    """Noise of which the largest is each item's in proportion to e^log-weight."""
    return rng.gumbel(size=n)


def yes_or_no(rng: np.random.Generator, n: int) -> Floats:
    """Noise that leaves a log-weight x above 0 with odds e^x."""
    return rng.logistic(size=n)


@register("simulated", "listwise")
class ListAnswerer(Answerer):
    parameters: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "biased": BIASED,
        "random": {**BIASED, "relevance": 0.0, "listwise": 0.0, "prompt": 0.0},
        "oracle": {**BIASED, "relevance": 1.0, "listwise": 0.0, "prompt": 0.0, "noise": 0.0},
    }
    always_named, seldom, shares = True, ("alike",), ("alike",)
    with_margins = Answerer.plays

    def answer(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> str:
        about, expects = chat.about, chat.expects
        if not isinstance(expects, Labels):
            best = expects.best if isinstance(expects, Permutation) else None
            return in_order(ranked(about, injected, rng)[:best])
        if len(about["sides"]) == 1:  # the first of two labels says yes
            return expects.labels[int(log_weights(about, injected, rng, yes_or_no)[0] <= 0)]
        return expects.labels[ranked(about, injected, rng)[0]]

    def margins(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> Mapping[str, float] | None:
        """As the answer is drawn: of items the noisy log-weights, of one item alone its own against 0."""
        if not isinstance(chat.expects, Labels):
            return None
        weights = log_weights(chat.about, injected, rng)
        return as_logprobs(chat.expects.labels, weights if len(weights) > 1 else np.append(weights, 0.0))

    def damaged(self, chat: Chat, answer: str) -> Sequence[Damaged]:
        if isinstance(chat.expects, Labels):
            return (("I am not able to say.", Finish.STOP), *BROKEN)
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


def log_weights(
    about: Mapping[str, Any],
    injected: Injected,
    rng: np.random.Generator,
    drawn: Callable[[np.random.Generator, int], Floats] = gumbel,
) -> Floats:
    """Log-weight and noise of the items, by slot; shape (n,).

    The noise is fresh, but in a share `alike` of all answers an item's own: the same whenever it is asked about.
    """
    parameters, sides, n = injected.parameters, about["sides"], len(about["sides"])
    weights = parameters["relevance"] * np.array(about["relevance"], dtype=float)
    weights += parameters["listwise"] * np.array([side == "protected" for side in sides])
    if about["names"] is not None:
        weights += parameters["prompt"] * np.array([side == about["names"] for side in sides])
    if n > 1:
        weights += parameters["order"] * (n - 1 - 2 * np.arange(n)) / (2 * (n - 1))
    alike = parameters.get("alike", 0.0)
    if alike and rng.random() < alike:
        names = (f"{about['query_id']}\n{doc_id}".encode() for doc_id in about["doc_ids"])
        streams = [[injected.seed, zlib.crc32(name), _ITEM_STREAM] for name in names]
        noise = np.array([drawn(np.random.default_rng(stream), 1)[0] for stream in streams])
    else:
        noise = drawn(rng, n)
    weights += parameters["noise"] * noise
    found: Floats = weights
    return found


def ranked(about: Mapping[str, Any], injected: Injected, rng: np.random.Generator) -> list[int]:
    """Slots 0..n−1, best first: falling log-weight + Gumbel noise, ties in input order."""
    return [int(slot) for slot in np.argsort(-log_weights(about, injected, rng), kind="stable")]


def as_logprobs(labels: Sequence[str], weights: Floats) -> dict[str, float]:
    """Labels with these log-weights as a model has them that says nothing else."""
    top = float(weights.max())
    whole = top + math.log(float(np.exp(weights - top).sum()))
    return dict(zip(labels, (weights - whole).tolist(), strict=True))


def in_order(slots: Iterable[int]) -> str:
    return " > ".join(f"[{slot + 1}]" for slot in slots)
