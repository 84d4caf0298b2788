"""What parity must not be bought with: a model that always names the first item has it too, and ranks nothing.

A checkpoint is the best only if it keeps every safeguard (a gate, to users), and gains something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llmfair.tuning.effects import CONSISTENCY, PAIR_STRATA, RELEVANT_FIRST, SMOOTHED, Figures
from llmfair.tuning.results import Safeguard, Validation

REJECTED = 1e6
"""The objective of a checkpoint that fails a gate; added to what it is, so that the nearest of these is known, too."""
CONSISTENCY_LOST, RELEVANCE_LOST, SLOT_ALLOWED = 0.05, 0.01, 0.05

SAFEGUARDS: Mapping[str, tuple[str, str]] = {
    "consistency": ("same answer in both orders", "≥"),
    "relevance": ("relevant item preferred", "≥"),
    "first_slot": ("first slot's distance from one half", "≤"),
    "gain": ("distance from parity", "<"),
}
"""What each of them is of, and on which side of its limit it has to be."""


def with_text(gates: Mapping[str, Safeguard]) -> dict[str, Safeguard]:
    """Safeguards as results have them, each with a `text` that says it whole."""
    return {name: replace(gate, text=_text(name, gate)) for name, gate in gates.items()}


def missed(gates: Mapping[str, Safeguard]) -> str:
    """The gates that are not kept, in words."""
    return ", ".join(_text(name, gate) for name, gate in gates.items() if not gate.met)


def _text(name: str, gate: Safeguard) -> str:
    """`same answer in both orders 0.412 (not ≥ 0.450)`: the figure of a gate beside its limit."""
    words, sign = SAFEGUARDS[name]
    value = "no value" if gate.value is None else f"{gate.value:.3f}"
    limit = "no limit" if gate.limit is None else f"{'' if gate.met else 'not '}{sign} {gate.limit:.3f}"
    return f"{words} {value} ({limit})"


def safeguards_of(base: Figures, after: Figures) -> dict[str, Safeguard]:
    """Consistency ≥ base − 0.05, relevant-beats-irrelevant ≥ base − 0.01, |P(first) − ½| ≤ max(base's, 0.05).

    A gate whose figure the base does not have holds; one whose figure was lost does not.
    """
    consistency = [figures.mean_over_strata(CONSISTENCY) for figures in (base, after)]
    relevance = [figures.value(RELEVANT_FIRST, "mixed") for figures in (base, after)]
    off = [figures.first_slot_distance() for figures in (base, after)]
    return {
        "consistency": _at_least(consistency[0], consistency[1], CONSISTENCY_LOST),
        "relevance": _at_least(relevance[0], relevance[1], RELEVANCE_LOST),
        "first_slot": _at_most(off[0], off[1]),
    }


def _at_least(before: float | None, after: float | None, lost: float) -> Safeguard:
    if before is None:
        return Safeguard(after, None, True)
    limit = before - lost
    return Safeguard(after, limit, after is not None and after >= limit - 1e-12)


def _at_most(before: float | None, after: float | None) -> Safeguard:
    limit = max(before or 0.0, SLOT_ALLOWED)
    return Safeguard(after, limit, after is not None and after <= limit + 1e-12)


def validate(base: Figures, after: Figures) -> Validation:
    """A checkpoint as its validation pairs show it; one that fails a gate, or gains nothing, is never the best."""
    objective = REJECTED if after.objective is None else after.objective
    gains = base.objective is None or objective < base.objective
    gates = safeguards_of(base, after) | {"gain": Safeguard(after.objective, base.objective, gains)}
    figures = {
        "objective": objective,
        **{f"{SMOOTHED}/{kind}": after.value(SMOOTHED, kind) for kind in PAIR_STRATA},
    }
    met = all(gate.met for gate in gates.values())
    return Validation(objective if met else REJECTED, gates, figures)
