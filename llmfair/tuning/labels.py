"""What an adapter is to answer: a target for every pair, made from the model's own preferences.

A prompt shows two items; its margin is z = logit(the answer naming the first) − logit(the one naming the second).
z1: item `a` of the pair shown first; z2: `a` shown second. g = (z1 − z2)/2 is the preference for `a`,
s = (z1 + z2)/2 the slot bias; the answers on a pair agree iff |g| > |s|.

`shifted` moves each query's preferences by their median and keeps their order: the offset along the group direction
is what an adapter of rank 1 can express, and what carries over to other queries. `random` labels, one reading of
Wang et al. 2024, section 5, ask it to forget the order of items as well; `equal-answers` is another.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import UsageError
from llmfair.nouns import Attribute, Side
from llmfair.tuning.pairs import STRATA, ByStratum, Stratum, TrainingPair, combination

Floats = NDArray[np.float64]
Labels = Literal["shifted", "random", "soft", "equal-answers"]
Anchor = Literal["relevance", "base", "none"]
RELEVANT_WINS = 0.9
"""The target of a mixed pair anchored in relevance."""
LABEL_STREAM = 48
"""Of a query's seed, with the stratum's number; lower ones draw lists, orders and pairs (`probes.py`)."""
UNUSED = {"target": 0.5, "weight": 0.0}


def preference(margins: Floats) -> Floats:
    """g of margins of shape (pairs, 2)."""
    return (margins[:, 0] - margins[:, 1]) / 2


def slot_bias(margins: Floats) -> Floats:
    """s of margins of shape (pairs, 2)."""
    return (margins[:, 0] + margins[:, 1]) / 2


def sigmoid(x: Floats) -> Floats:
    found: Floats = np.exp(-np.logaddexp(0.0, -x))
    return found


def label(
    train: Mapping[str, ByStratum],
    margins: Mapping[str, tuple[float, float]],
    attribute: Attribute,
    labels: Labels = "shifted",
    anchor: Anchor = "relevance",
    seed: int = 0,
    soft: bool = False,
) -> dict[str, TrainingPair]:
    """Every training pair with its target and weight, by pair id; `margins` are the base model's, by pair id.

    `soft`: targets of `shifted` labels are probabilities instead of 0 and 1.
    """
    labelled = {}
    for query_id, strata in train.items():
        asked: dict[str, Floats] = {
            stratum: np.array([margins[pair.pair_id] for pair in pairs]).reshape(-1, 2)
            for stratum, pairs in strata.items()
        }
        for stratum in STRATA[:2]:
            number = LABEL_STREAM + STRATA.index(stratum)
            rng = np.random.default_rng([seed, zlib.crc32(query_id.encode()), number])
            pairs = strata.get(stratum, ())
            for pair in _labelled(pairs, asked.get(stratum, np.empty((0, 2))), labels, soft, rng):
                labelled[pair.pair_id] = pair
        for pair in _anchored(strata.get("mixed", ()), asked, attribute, anchor):
            labelled[pair.pair_id] = pair
    return labelled


def counting(labelled: Mapping[str, TrainingPair]) -> dict[Stratum, int]:
    """Pairs of each stratum that count in the loss: those whose weight is not 0."""
    return {
        stratum: sum(pair.stratum == stratum and pair.weight > 0 for pair in labelled.values())
        for stratum in STRATA
    }


def require_some(labelled: Mapping[str, TrainingPair]) -> None:
    """Raises UsageError unless relevant pairs and irrelevant ones count."""
    counts = counting(labelled)
    for stratum in STRATA[:2]:
        if not counts[stratum]:
            there = sum(pair.stratum == stratum for pair in labelled.values())
            raise UsageError(
                f"none of {there:,} {stratum} pairs to train on counts: their labels come in halves, for either group.",
                "choose --labels soft, or shifted with more than one pair of a query",
            )


def _labelled(
    pairs: Sequence[TrainingPair], margins: Floats, labels: Labels, soft: bool, rng: np.random.Generator
) -> list[TrainingPair]:
    """The pairs of one query and stratum."""
    g = preference(margins)
    if labels == "soft":
        return [replace(pair, target=0.5) for pair in pairs]
    if labels == "shifted" and soft:
        targets = sigmoid(g - np.median(g)) if len(g) else g
        return [replace(pair, target=target) for pair, target in zip(pairs, targets.tolist(), strict=True)]
    if labels == "shifted":
        ranked = sorted(range(len(pairs)), key=lambda place: (g[place], pairs[place].pair_id))
        return _halved([pairs[place] for place in ranked])
    if labels == "random":
        return _halved([pairs[place] for place in rng.permutation(len(pairs))])
    agreed = np.abs(g) > np.abs(slot_bias(margins))
    for_a, for_b = (rng.permutation(np.flatnonzero(agreed & side)) for side in (g > 0, g < 0))
    each = min(len(for_a), len(for_b))
    wins, losses = set(for_a[:each].tolist()), set(for_b[:each].tolist())
    return [
        replace(pair, target=float(place in wins)) if place in wins | losses else replace(pair, **UNUSED)  # type: ignore[arg-type]
        for place, pair in enumerate(pairs)
    ]


def _halved(ranked: Sequence[TrainingPair]) -> list[TrainingPair]:
    """The first half of the pairs is lost, the second won; one in the middle does not count."""
    half, middle = divmod(len(ranked), 2)
    return [
        *(replace(pair, target=0.0) for pair in ranked[:half]),
        *(replace(pair, **UNUSED) for pair in ranked[half : half + middle]),  # type: ignore[arg-type]
        *(replace(pair, target=1.0) for pair in ranked[half + middle :]),
    ]


def _anchored(
    pairs: Sequence[TrainingPair], asked: Mapping[str, Floats], attribute: Attribute, anchor: Anchor
) -> list[TrainingPair]:
    """The mixed pairs of one query: the relevant item is to win, or to be preferred as it was without the bias."""
    if anchor == "relevance":
        return [replace(pair, target=RELEVANT_WINS) for pair in pairs]
    medians = [np.median(preference(asked[s])) for s in STRATA[:2] if s in asked and len(asked[s])]
    offset = float(np.mean(medians)) if medians else 0.0
    shifts = np.array([group_sign(pair, attribute) * offset for pair in pairs])
    targets = sigmoid(preference(asked["mixed"]) - shifts) if pairs else shifts
    return [replace(pair, target=target) for pair, target in zip(pairs, targets.tolist(), strict=True)]


def group_sign(pair: TrainingPair, attribute: Attribute) -> int:
    """1 where `a` alone is protected, −1 where `b` alone is, 0 where both are alike."""
    a, b = combination(pair, attribute)
    return (a is Side.PROTECTED) - (b is Side.PROTECTED)
