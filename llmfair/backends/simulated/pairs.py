"""Which of two items comes first: by injected odds, with an injected position bias (`backends.md` 7).

The oracle and the random model have no preference for a side: they rank a pair as a list of two.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from llmfair.backends.simulated.base import BROKEN, Answerer, Damaged, Injected
from llmfair.backends.simulated.lists import as_logprobs, in_order, log_weights, ranked
from llmfair.nouns import Chat, Finish, Labels
from llmfair.registry import register

_QUERY_STREAM = 48  # apart from the streams that draw lists, orders and pairs


@register("simulated", "pairwise")
class Pairs(Answerer):
    parameters: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "biased": {
            "pairwise": -0.3,  # log odds that the protected item of a pair wins
            "position": 0.5,  # added to them where that item is shown first, taken off where second
            "query_sd": 0.3,  # standard deviation of what each query adds of its own
            "pair_sd": 0.0,  # and of what each pair adds, in either order
            "lapse": 0.0,  # share of coin flips
        }
    }
    shares, scales = ("lapse",), ("query_sd", "pair_sd")
    with_margins = Answerer.plays

    def answer(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> str:
        if injected.model in self.parameters:
            order = _chosen(chat.about, injected, rng)
        else:
            order = ranked(chat.about, injected, rng)
        return chat.expects.labels[order[0]] if isinstance(chat.expects, Labels) else in_order(order)

    def damaged(self, chat: Chat, answer: str) -> Sequence[Damaged]:
        """Answers that name no winner."""
        one, other = chat.expects.labels if isinstance(chat.expects, Labels) else ("[1]", "[2]")
        return (
            (f"{one} > {one}", Finish.STOP),  # duplicate
            (f"{one} > [0]", Finish.STOP),  # out of range
            (f"{one} > {other}, or perhaps {other} > {one}", Finish.STOP),  # contradictory
            ("I am not able to rank these passages.", Finish.STOP),
            (f"Passage {one[:1]}", Finish.LENGTH),
            *BROKEN,
            ("<think>The second passage could come first", Finish.UNFINISHED_THINKING),
        )

    def margins(self, chat: Chat, injected: Injected, rng: np.random.Generator) -> Mapping[str, float]:
        """What answers are drawn from, without the draw."""
        labels = chat.expects.labels if isinstance(chat.expects, Labels) else ("1", "2")
        if injected.model not in self.parameters:
            return as_logprobs(labels, log_weights(chat.about, injected, rng))
        chance = _chance(chat.about, injected)
        first = chance if chat.about["sides"][0] == "protected" else 1 - chance
        pairs = zip(labels, (first, 1 - first), strict=True)
        return {label: math.log(share) for label, share in pairs if share > 0}


def _chosen(about: Mapping[str, Any], injected: Injected, rng: np.random.Generator) -> list[int]:
    """The two slots of a pair, the winner's first; calls are independent given query and pair (`pairwise.md` 12)."""
    protected_leads = about["sides"][0] == "protected"
    protected_wins = bool(rng.random() < _chance(about, injected))
    return [0, 1] if protected_wins == protected_leads else [1, 0]


def _chance(about: Mapping[str, Any], injected: Injected) -> float:
    """How likely the protected item of a pair wins."""
    parameters, protected_leads = injected.parameters, about["sides"][0] == "protected"
    log_odds = parameters["pairwise"] + parameters["position"] * (1 if protected_leads else -1)
    query_id, items = about["query_id"], sorted(about.get("doc_ids", ()))
    for spread, name in (("query_sd", query_id), ("pair_sd", "\n".join((query_id, *items)))):
        if parameters[spread]:
            own = np.random.default_rng([injected.seed, zlib.crc32(name.encode()), _QUERY_STREAM])
            log_odds += parameters[spread] * own.normal()
    # The logistic function by tanh, which overflows for no log odds.
    return (1 + (1 - parameters["lapse"]) * math.tanh(log_odds / 2)) / 2
