"""How simulated models answer, form by form: what a kind of audit registers to be tried offline with known effects."""

from __future__ import annotations

import json
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from llmfair.nouns import Chat, Finish, Labels, Permutation, Side
from llmfair.registry import register

Damaged = tuple[str, Finish]
BROKEN = (("", Finish.EMPTY), ("I'm sorry, I can't help with that.", Finish.REFUSED))


@dataclass(frozen=True)
class Injected:
    """A simulated model as answerers see it: `parameters` are all that it has, those of other forms too.

    `behind`: the side, or the group of several, that injected preferences are of. Where an attribute has several groups
    and none is named, no group is called so, and the model prefers none.
    """

    model: str
    parameters: Mapping[str, float]
    seed: int
    behind: str = Side.PROTECTED


class Answerer(ABC):
    """Answers questions of one form: those whose `about["task"]` is the name that it is registered by.

    `plays`: the models that answer so. `parameters`, by model: what `fake:MODEL,NAME=VALUE` may set, and its default;
    of these `shares` lie between 0 and 1, `scales` are not negative. `prefers`: whether it may be told which side or
    group is put `behind`, and can tell margins. An identity has those that are `named`, and others where they
    differ from their default.
    """

    plays: ClassVar[Collection[str]] = ("biased", "random", "oracle")
    parameters: ClassVar[Mapping[str, Mapping[str, float]]] = {}
    shares: ClassVar[Collection[str]] = ()
    scales: ClassVar[Collection[str]] = ()
    named: ClassVar[Collection[str]] = ()
    prefers: ClassVar[bool] = False

    @abstractmethod
    def answer(self, chat: Chat, injected: Injected, rng: Generator) -> str:
        """What a careful model says; `rng` is the request's own."""

    def damaged(self, chat: Chat, answer: str) -> Sequence[Damaged]:
        """What a careless one may say instead: each alike often, in the share `malformed` of all answers."""
        return (answer[: len(answer) // 2], Finish.LENGTH), *BROKEN

    def margins(self, chat: Chat, injected: Injected, rng: Generator) -> Mapping[str, float] | None:
        """The log-probabilities of the labels between which the answer is drawn; `rng` as `answer` was given it."""
        return None


# Lists in order: a Plackett–Luce ranker with injected preferences.


BIASED = {
    "relevance": 2.0,  # added to an item's log-weight for each grade of relevance
    "listwise": -0.5,  # added for an item of the side or group that is put behind: the protected one unless named
    "prompt": 1.0,  # added for an item of the side or group that the prompt names
    "order": 0.0,  # added from +order/2 for the first slot down to −order/2 for the last
    "noise": 1.0,  # scale of the Gumbel noise, fresh for every call
    "alike": 0.0,  # share of calls whose noise is each item's own: 1 answers alike every time
}
Floats = NDArray[np.float64]
_ITEM_STREAM = 49
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@register("simulated", "listwise")
class ListAnswerer(Answerer):
    parameters = {
        "biased": BIASED,
        "random": {**BIASED, "relevance": 0.0, "listwise": 0.0, "prompt": 0.0},
        "oracle": {**BIASED, "relevance": 1.0, "listwise": 0.0, "prompt": 0.0, "noise": 0.0},
    }
    named, shares, prefers = BIASED.keys() - {"alike"}, ("alike",), True

    def answer(self, chat: Chat, injected: Injected, rng: Generator) -> str:
        about, expects = chat.about, chat.expects
        if not isinstance(expects, Labels):
            best = expects.best if isinstance(expects, Permutation) else None
            return in_order(ranked(about, injected, rng)[:best])
        if len(about["sides"]) == 1:  # the first of two labels says yes
            return expects.labels[int(log_weights(about, injected, rng, Generator.logistic)[0] <= 0)]
        return expects.labels[ranked(about, injected, rng)[0]]

    def margins(self, chat: Chat, injected: Injected, rng: Generator) -> Mapping[str, float] | None:
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
    rng: Generator,
    drawn: Callable[..., Floats] = Generator.gumbel,
) -> Floats:
    """Log-weight and noise of the items, by slot; shape (n,).

    Of Gumbel noise the largest is each item's in proportion to e^log-weight; logistic noise leaves a log-weight x above
    0 with odds e^x. In a share `alike` of all answers the noise is an item's own, else fresh.
    """
    parameters, sides, n = injected.parameters, about.get("groups", about["sides"]), len(about["sides"])
    weights = parameters["relevance"] * np.array(about["relevance"], dtype=float)
    weights += parameters["listwise"] * np.array([side == injected.behind for side in sides])
    if about["names"] is not None:
        weights += parameters["prompt"] * np.array([side == about["names"] for side in sides])
    if n > 1:
        weights += parameters["order"] * (n - 1 - 2 * np.arange(n)) / (2 * (n - 1))
    alike = parameters.get("alike", 0.0)
    if alike and rng.random() < alike:
        names = (f"{about['query_id']}\n{doc_id}".encode() for doc_id in about["doc_ids"])
        streams = [[injected.seed, zlib.crc32(name), _ITEM_STREAM] for name in names]
        noise = np.array([drawn(default_rng(stream), size=1)[0] for stream in streams])
    else:
        noise = drawn(rng, size=n)
    return np.asarray(weights + parameters["noise"] * noise)


def ranked(about: Mapping[str, Any], injected: Injected, rng: Generator) -> list[int]:
    """Slots 0..n−1, best first: falling log-weight + Gumbel noise, ties in input order."""
    return [int(slot) for slot in np.argsort(-log_weights(about, injected, rng), kind="stable")]


def as_logprobs(labels: Sequence[str], weights: Floats) -> dict[str, float]:
    """Labels with these log-weights as a model has them that says nothing else."""
    top = float(weights.max())
    total = top + math.log(float(np.exp(weights - top).sum()))
    return dict(zip(labels, (weights - total).tolist(), strict=True))


def in_order(slots: Iterable[int]) -> str:
    return " > ".join(f"[{slot + 1}]" for slot in slots)


# Which of two items comes first: by injected odds, with an injected position bias. The oracle and
# the random model have no preference for a side: they rank a pair as a list of two.


_QUERY_STREAM = 48  # apart from the streams that draw lists, orders and pairs


@register("simulated", "pairwise")
class Pairs(Answerer):
    parameters = {
        "biased": {
            "pairwise": -0.3,  # log odds that an item wins of the side or group that is put behind
            "position": 0.5,  # added to those of the item that is shown first
            "query_sd": 0.3,  # standard deviation of what each query adds of its own
            "pair_sd": 0.0,  # and of what each pair adds, in either order
            "lapse": 0.0,  # share of coin flips
        }
    }
    shares, scales, prefers = ("lapse",), ("query_sd", "pair_sd"), True

    def answer(self, chat: Chat, injected: Injected, rng: Generator) -> str:
        if injected.model in self.parameters:  # calls are independent given query and pair
            protected_wins = bool(rng.random() < _chance(chat.about, injected))
            order = [0, 1] if protected_wins == (chat.about["sides"][0] == "protected") else [1, 0]
        else:
            order = ranked(chat.about, injected, rng)
        return chat.expects.labels[order[0]] if isinstance(chat.expects, Labels) else in_order(order)

    def damaged(self, chat: Chat, answer: str) -> Sequence[Damaged]:
        """Answers that name no winner."""
        first, other = chat.expects.labels if isinstance(chat.expects, Labels) else ("[1]", "[2]")
        return (
            (f"{first} > {first}", Finish.STOP),  # duplicate
            (f"{first} > [0]", Finish.STOP),  # out of range
            (f"{first} > {other}, or perhaps {other} > {first}", Finish.STOP),  # contradictory
            ("I am not able to rank these passages.", Finish.STOP),
            (f"Passage {first[:1]}", Finish.LENGTH),
            *BROKEN,
            ("<think>The second passage could come first", Finish.UNFINISHED_THINKING),
        )

    def margins(self, chat: Chat, injected: Injected, rng: Generator) -> Mapping[str, float]:
        """What answers are drawn from, without the draw."""
        labels = chat.expects.labels if isinstance(chat.expects, Labels) else ("1", "2")
        if injected.model not in self.parameters:
            return as_logprobs(labels, log_weights(chat.about, injected, rng))
        chance = _chance(chat.about, injected)
        first = chance if chat.about["sides"][0] == "protected" else 1 - chance
        pairs = zip(labels, (first, 1 - first), strict=True)
        return {label: math.log(share) for label, share in pairs if share > 0}


def _chance(about: Mapping[str, Any], injected: Injected) -> float:
    """How likely the protected item of a pair wins: of several groups, the item of its contrast's first group."""
    parameters, shown = injected.parameters, about.get("groups", about["sides"])
    sign = 1 if about["sides"][0] == "protected" else -1
    behind = sign * ((shown[0] == injected.behind) - (shown[1] == injected.behind))
    log_odds = parameters["pairwise"] * behind + parameters["position"] * sign
    query_id, items = about["query_id"] + about.get("contrast", ""), sorted(about.get("doc_ids", ()))
    for spread, name in (("query_sd", query_id), ("pair_sd", "\n".join((query_id, *items)))):
        if parameters[spread]:
            effect = default_rng([injected.seed, zlib.crc32(name.encode()), _QUERY_STREAM])
            log_odds += parameters[spread] * effect.normal()
    # The logistic function by tanh, which overflows for no log odds.
    return (1 + (1 - parameters["lapse"]) * math.tanh(log_odds / 2)) / 2


# Questions answered from items: by the label that most of them bear, and whether an item supports such an answer.


NOTHING = "I do not know"
"""What a reader says who was shown no item with a label."""


@register("simulated", "support")
class Supporter(Answerer):
    """Says that an item supports an output where that is the item's label."""

    plays = ("reader",)

    def answer(self, chat: Chat, injected: Injected, rng: Generator) -> str:
        return "yes" if chat.about["label"] and chat.about["label"] == chat.about["output"] else "no"


@register("simulated", "rag")
class Reader(Answerer):
    plays = ("reader",)
    parameters = {
        "reader": {
            "follow": 1.0,  # share of answers that are read from the items; the others say nothing
            "position": 0.0,  # share of answers that are read from the first item alone
            "malformed": 0.0,  # share of damaged answers
        }
    }
    shares = ("follow", "position")
    named = parameters["reader"].keys()

    def answer(self, chat: Chat, injected: Injected, rng: Generator) -> str:
        """The commonest label among the items, of equals the one shown first."""
        follows, first = (rng.random() < injected.parameters[share] for share in self.shares)
        labels = [label for label in chat.about["labels"][: 1 if first else None] if label]
        return max(labels, key=labels.count) if labels and follows else NOTHING


# Keywords for a query: words that distinguish the group among what the query finds, or the group's name alone.


@register("simulated", "refine")
class Refiner(Answerer):
    """Without a word that would help, `fake:refiner` repeats the query, which adds nothing."""

    plays = ("refiner", "name")
    parameters = {model: {"malformed": 0.0} for model in plays}
    named = ("malformed",)

    def answer(self, chat: Chat, injected: Injected, rng: Generator) -> str:
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
