"""Simulated models: offline, seeded, with a bias of known size. They read what a chat is about, not its words.

`fake:oracle` ranks by relevance, then input order; `fake:random` by chance; `fake:biased` as a Plackett–Luce
ranker with planted preferences, and between two items by planted odds. Parameters follow after commas:
`fake:biased,listwise=-0.5,malformed=0.1`. Every answer is drawn from its request's key, so answers depend
neither on order nor on how many are in flight.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from llmfair.backends.base import BackendOptions, RateLimited
from llmfair.errors import UsageError, did_you_mean
from llmfair.records import Chat, Completion, Finish, Labels, Request, Text
from llmfair.registry import register

PARAMETERS = {
    "relevance": 2.0,  # added to an item's log-weight for each grade of relevance
    "listwise": -0.5,  # added for a protected item
    "prompt": 1.0,  # added for an item of the side that the prompt names
    "order": 0.0,  # added from +order/2 for the first slot down to −order/2 for the last
    "noise": 1.0,  # scale of the Gumbel noise, fresh for every call
    "malformed": 0.01,  # share of damaged answers
    "latency": 0.0,  # seconds before each answer
    "rate_429": 0.0,  # share of attempts refused as rate limited
}
PAIR_PARAMETERS = {
    "pairwise": -0.3,  # log odds that the protected item of a pair wins
    "position": 0.5,  # added to them where that item is shown first, taken off where second
    "query_sd": 0.3,  # standard deviation of what each query adds of its own
    "lapse": 0.0,  # share of coin flips
}
SHARES = ("malformed", "rate_429", "lapse")
MODELS: dict[str, Mapping[str, float]] = {
    "biased": {**PARAMETERS, **PAIR_PARAMETERS},
    "random": {**PARAMETERS, "relevance": 0.0, "listwise": 0.0, "prompt": 0.0},
    "oracle": {**PARAMETERS, "relevance": 1.0, "listwise": 0.0, "prompt": 0.0, "noise": 0.0},
}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@register("backend", "fake")
def fake(name: str, options: BackendOptions) -> Fake:
    """A simulated model by name and parameters. Raises UsageError for an unknown one."""
    model, *assignments = name.split(",")
    if model not in MODELS:
        raise UsageError(
            f"no simulated model 'fake:{model}'.{did_you_mean(model, MODELS)}",
            f"known: {', '.join('fake:' + known for known in MODELS)}",
        )
    parameters = dict(MODELS[model])
    for assignment in assignments:
        key, _, text = assignment.partition("=")
        if key not in parameters:
            raise UsageError(
                f"fake:{model} has no parameter '{key}'.{did_you_mean(key, parameters)}",
                f"known: {', '.join(parameters)}",
            )
        try:
            parameters[key] = float(text)
        except ValueError:
            parameters[key] = math.nan
        if not math.isfinite(parameters[key]):
            raise UsageError(f"fake:{model}: {key}={text!r} is not a number.", f"for example {key}=0.5")
        if key in SHARES and not 0 <= parameters[key] <= 1:
            raise UsageError(f"fake:{model}: {key}={text} is not a share of 1.", f"for example {key}=0.05")
        if key in ("latency", "query_sd") and parameters[key] < 0:
            raise UsageError(f"fake:{model}: {key}={text} is negative.", f"for example {key}=0.1")
    return Fake(model, parameters, options.seed)


class Fake:
    """A ranker that draws from planted preferences: Plackett–Luce for lists, logistic for pairs (`backends.md` 7).

    The oracle and the random model have no preference for a side: they rank a pair as a list of two.
    """

    max_workers = 64
    reads_about = True

    def __init__(self, model: str, parameters: Mapping[str, float], seed: int) -> None:
        self.parameters = parameters
        self.seed = seed
        self.capabilities = frozenset({"constrain", "seed", "system_role"})
        if "pairwise" in parameters:
            self.capabilities |= {"margins", "forced_margins"}
        # Parameters of pairs are named where they differ from the default: a run over lists is the same without.
        shown = ",".join(
            f"{key}={value:g}"
            for key, value in sorted(parameters.items())
            if key not in _TIMING and value != PAIR_PARAMETERS.get(key)
        )
        self.identity = f"fake {model} {shown} seed={seed}"
        self.model = f"fake:{model}"
        self._attempts: dict[str, int] = {}

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def complete(self, request: Request) -> Completion:
        rng = np.random.default_rng([self.seed, zlib.crc32(request.key.encode())])
        if self.parameters["latency"]:
            await asyncio.sleep(self.parameters["latency"])
        if self.parameters["rate_429"]:
            self._refuse(request.key)
        text, finish = self._answer(request.chat, request.sampling.constrain, rng)
        margins = self._margins(request.chat) if request.sampling.margins and finish is Finish.STOP else None
        return Completion(text, finish, logprobs=margins, model=self.model)

    def _answer(self, chat: Chat, constrain: bool, rng: np.random.Generator) -> tuple[str, Finish]:
        if isinstance(chat.expects, Text):
            raise UsageError(f"{self.model} answers ranking questions only.", "choose another model")
        pair = chat.about.get("task") == "pairwise"
        chooses = pair and "pairwise" in self.parameters
        order = self._choose(chat.about, rng) if chooses else self._rank(chat.about, rng)
        labels = chat.expects.labels if isinstance(chat.expects, Labels) else None
        if not constrain and rng.random() < self.parameters["malformed"]:
            return damage_pair(labels or ("[1]", "[2]"), rng) if pair else damage(order, rng)
        return labels[order[0]] if labels else _render(order), Finish.STOP

    def _refuse(self, key: str) -> None:
        attempt = self._attempts[key] = self._attempts.get(key, 0) + 1
        chance = np.random.default_rng([self.seed, zlib.crc32(key.encode()), attempt]).random()
        if chance < self.parameters["rate_429"]:
            raise RateLimited

    def _rank(self, about: Mapping[str, Any], rng: np.random.Generator) -> list[int]:
        """Slots 0..n−1, best first: falling log-weight + Gumbel noise, ties in input order."""
        sides, n = about["sides"], len(about["sides"])
        weights = self.parameters["relevance"] * np.array(about["relevance"], dtype=float)
        weights += self.parameters["listwise"] * np.array([side == "protected" for side in sides])
        if about["names"] is not None:
            weights += self.parameters["prompt"] * np.array([side == about["names"] for side in sides])
        if n > 1:
            weights += self.parameters["order"] * (n - 1 - 2 * np.arange(n)) / (2 * (n - 1))
        weights += self.parameters["noise"] * rng.gumbel(size=n)
        return [int(slot) for slot in np.argsort(-weights, kind="stable")]

    def _choose(self, about: Mapping[str, Any], rng: np.random.Generator) -> list[int]:
        """The two slots of a pair, the winner's first; calls are independent given the query (`pairwise.md` 12)."""
        protected_leads = about["sides"][0] == "protected"
        protected_wins = bool(rng.random() < self._chance(about))
        return [0, 1] if protected_wins == protected_leads else [1, 0]

    def _chance(self, about: Mapping[str, Any]) -> float:
        """How likely the protected item of a pair wins."""
        parameters, protected_leads = self.parameters, about["sides"][0] == "protected"
        log_odds = parameters["pairwise"] + parameters["position"] * (1 if protected_leads else -1)
        if parameters["query_sd"]:
            query = [self.seed, zlib.crc32(about["query_id"].encode()), _QUERY_STREAM]
            log_odds += parameters["query_sd"] * np.random.default_rng(query).normal()
        # The logistic function by tanh, which overflows for no log odds.
        return (1 + (1 - parameters["lapse"]) * math.tanh(log_odds / 2)) / 2

    def _margins(self, chat: Chat) -> Mapping[str, float]:
        """The log-probability of either label of a pair: what its answers are drawn from, without the draw."""
        labels = chat.expects.labels if isinstance(chat.expects, Labels) else ("1", "2")
        chance = self._chance(chat.about)
        first = chance if chat.about["sides"][0] == "protected" else 1 - chance
        pairs = zip(labels, (first, 1 - first), strict=True)
        return {label: math.log(share) for label, share in pairs if share > 0}


_TIMING = {"latency", "rate_429"}
_QUERY_STREAM = 48  # apart from the streams that draw lists, orders and pairs


def _render(order: list[int]) -> str:
    return " > ".join(f"[{slot + 1}]" for slot in order)


def damage(order: list[int], rng: np.random.Generator) -> tuple[str, Finish]:
    """The answer `order` as a careless model would give it, one of ten kinds."""
    n, whole = len(order), _render(order)
    kinds: list[tuple[str, Finish]] = [
        (_render(order[: max(1, n // 2)]), Finish.STOP),  # missing
        (_render([*order[:-1], order[0]]), Finish.STOP),  # duplicate
        (_render([*order[:-1], n + 4]), Finish.STOP),  # out of range
        (f"Here are the {n} passages, the best first: {whole}", Finish.STOP),
        ("I am not able to rank these passages.", Finish.STOP),
        (whole.translate(_SUPERSCRIPTS), Finish.STOP),
        (whole[: len(whole) // 2], Finish.LENGTH),
        ("", Finish.EMPTY),
        ("I'm sorry, I can't help with that.", Finish.REFUSED),
        (f"<think>Passage {n} could come first", Finish.UNFINISHED_THINKING),
    ]
    return kinds[int(rng.integers(len(kinds)))]


def damage_pair(labels: Sequence[str], rng: np.random.Generator) -> tuple[str, Finish]:
    """An answer about two items that names no winner, one of eight kinds."""
    one, other = labels
    kinds: list[tuple[str, Finish]] = [
        (f"{one} > {one}", Finish.STOP),  # duplicate
        (f"{one} > [0]", Finish.STOP),  # out of range
        (f"{one} > {other}, or perhaps {other} > {one}", Finish.STOP),  # contradictory
        ("I am not able to rank these passages.", Finish.STOP),
        (f"Passage {one[:1]}", Finish.LENGTH),
        ("", Finish.EMPTY),
        ("I'm sorry, I can't help with that.", Finish.REFUSED),
        ("<think>The second passage could come first", Finish.UNFINISHED_THINKING),
    ]
    return kinds[int(rng.integers(len(kinds)))]
