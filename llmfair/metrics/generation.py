"""What a generator makes of what it is shown: the utility of its answers (EU), on how many of the shown items they rest
(EAR), and how unequally (EAE-D).

ε^a_d is the share of samples in which item d is shown and the answer is credited to it; Σ ε^a = k EAR. That an item has
to be shown is our reading of Eq. 10, since Eq. 8 sums over the items of a list.
Source: Kim & Diaz, "Towards Fair RAG", ICTIR 2025, 3.1 and Eq. 7-11.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from llmfair.metrics.base import Convention, Flags, Floats, Free, Undefined, Value, Values, measure
from llmfair.metrics.expected import (
    OF_GROUPS,
    OF_ITEMS,
    ListSample,
    Retrieved,
    mean_of_samples,
    of_useful,
    squares_of,
)
from llmfair.nouns import LEAST_GAIN

LABEL_OUTPUT = "label_output"
"""Why nothing is credited for labels that are held against items as they stand."""
FEWEST_USEFUL = 2
"""With fewer useful items a query has nothing to treat alike, and is left out [Fair-RAG, 3.1]."""


def gains(without: float, utilities: ArrayLike) -> Floats:
    """δ_j = u_j − u: what each item alone adds to the utility of an answer `without` any; shape (n,)."""
    return np.asarray(utilities, dtype=np.float64) - without


def useful(gains: ArrayLike) -> Flags:
    """Which items help: those of a positive gain; shape (n,)."""
    return np.asarray(gains, dtype=np.float64) > LEAST_GAIN


def expected_utility(retrieved: Retrieved) -> float | Undefined:
    """The mean over the samples whose answer is known [Eq. 7]."""
    utilities = [(drawn.count, drawn.utility) for drawn in retrieved.lists if drawn.utility is not None]
    return mean_of_samples(utilities, "no_output")


_OF_ANSWERS = {
    **OF_ITEMS,
    "undefined": {
        **OF_ITEMS["undefined"],
        "no_output": "no answer is there",
        "no_ceiling": "no best utility is known",
        "zero_ceiling": "no list of the query has any utility",
        "no_baseline": "the deterministic list has no answer",
        "no_attribution": "no answer was attributed",
        LABEL_OUTPUT: "an answer that is a label claims nothing by itself",
        "no_useful_items": "no query has two useful items",
        "rare_losses": "rare large losses are not ruled out",
        "larger_alpha": "a larger alpha is not shown to keep it",
        "beyond_worst_loss": "a query lost more than --worst-loss",
    },
}


@measure(
    "EU", label="expected utility", params={"norm": ("raw", "ceiling"), "zero": ("one", "drop")},
    better="higher", cite="Kim & Diaz 2025, Eq. 7", **_OF_ANSWERS,
)  # fmt: skip
def eu(retrieved: Retrieved, cutoff: None, norm: str, zero: str) -> Values:
    """Mean utility of the answers over the lists that a policy draws."""
    utility, ceiling = expected_utility(retrieved), retrieved.ceiling
    if norm == "raw" or isinstance(utility, Undefined):
        return utility
    if ceiling is None:
        return Undefined("no_ceiling")
    if ceiling:
        return utility / ceiling
    perfect = Convention(1.0, "zero_ceiling", counts=True)  # where nothing has any utility
    return perfect if zero == "one" else Undefined("zero_ceiling")


@measure(
    "EU-change", label="change of utility", parity=0.0, better="higher", headline=True,
    cite="EU − EU of the deterministic list", **_OF_ANSWERS,
)  # fmt: skip
def eu_change(retrieved: Retrieved, cutoff: None) -> Values:
    """Mean utility less that of the same retriever's deterministic list."""
    utility, baseline = expected_utility(retrieved), retrieved.baseline
    if isinstance(utility, Undefined):
        return utility
    return Undefined("no_baseline") if baseline is None else utility - baseline


def _a_word(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


BY = Free(None, _a_word, "a word for how answers are attributed, such as overlap, cited or nli")
"""Tells apart what several attributions found."""


def credited(retrieved: Retrieved) -> list[tuple[ListSample, tuple[str, ...]]]:
    """The lists whose answers were attributed, each with the shown items that its answer is credited to."""
    return [
        (drawn, tuple(doc_id for doc_id in retrieved.shown(drawn) if doc_id in drawn.attributed))
        for drawn in retrieved.lists
        if drawn.attributed is not None
    ]


def attributed_exposure(retrieved: Retrieved) -> tuple[Floats, int] | Undefined:
    """ε^a of every item, shape (n,), and of how many samples [Eq. 10]."""
    lists = credited(retrieved)
    samples = sum(drawn.count for drawn, _ in lists)
    if not samples:
        return Undefined(retrieved.uncredited)
    return retrieved.shares((drawn.count, doc_ids) for drawn, doc_ids in lists), samples


@measure(
    "EAR", label="attributed share", params={"over": ("k", "shown"), "by": BY}, bounds=(0.0, 1.0),
    better="higher", cite="Kim & Diaz 2025, Eq. 8-9", **_OF_ANSWERS,
)  # fmt: skip
def ear(retrieved: Retrieved, cutoff: None, over: str, by: str | None) -> Values:
    """Share of k, or of what was shown where that is less, that answers rest on; mean over samples."""
    lists = credited(retrieved)
    samples = sum(drawn.count for drawn, _ in lists)

    def items(drawn: ListSample) -> int:
        return retrieved.k if over == "k" else max(len(retrieved.shown(drawn)), 1)

    if not samples:
        return Undefined(retrieved.uncredited)
    return math.fsum(drawn.count * len(doc_ids) / items(drawn) for drawn, doc_ids in lists) / samples


@measure(
    "EAE-D", label="attributed exposure disparity",
    params={"norm": ("exact", "fair-rag", "raw"), "of": ("policy", "samples"), "by": BY},
    bounds=(0.0, math.inf), cite="Kim & Diaz 2025, Eq. 10-11", **_OF_ANSWERS,
)  # fmt: skip
def eae_d(retrieved: Retrieved, cutoff: None, norm: str, of: str, by: str | None) -> Values:
    """How unequally items are credited, between 0 and k' items always credited alike; it grows with EAR, too."""
    exposure = attributed_exposure(retrieved)
    if isinstance(exposure, Undefined):
        return exposure
    squares = squares_of(retrieved, *exposure, of)
    if isinstance(squares, Undefined) or norm == "raw":
        return squares
    return squares / (retrieved.k if norm == "fair-rag" else min(retrieved.k, len(retrieved.doc_ids)))


@measure(
    "EffectiveSources", label="effective number of credited items", params={"by": BY}, bounds=(0.0, math.inf),
    cite="(Σ ε^a)²/Σ (ε^a)²", **_OF_ANSWERS,
)  # fmt: skip
def effective_sources(retrieved: Retrieved, cutoff: None, by: str | None) -> Values:
    """How many items, credited alike, would be as unequal: 1 where one takes all the credit."""
    attributed = attributed_exposure(retrieved)
    if isinstance(attributed, Undefined):
        return attributed
    exposure, _ = attributed
    if not exposure.any():
        return Undefined("nothing_attributed")
    return float(exposure.sum() ** 2 / (exposure @ exposure))


@measure(
    "Credit(group)", label="credit of a group", params={"by": BY}, parity=1.0, better="parity",
    cite="Σ ε^a of the group / Σ ε^a, over its share of useful items", **OF_GROUPS,
)  # fmt: skip
def credit_by_group(retrieved: Retrieved, cutoff: None, by: str | None) -> Values:
    """A group's share of attributed exposure over its share of useful items: 1 is parity."""
    attributed = attributed_exposure(retrieved)
    if isinstance(attributed, Undefined):
        return dict.fromkeys(retrieved.members, attributed)
    return of_useful(retrieved, attributed[0], "nothing_attributed")


@measure(
    "AttributionAt", label="attributed share by slot", params={"by": BY}, bounds=(0.0, 1.0),
    cite="tests the equal attention that Eq. 4 assumes", **_OF_ANSWERS,
)  # fmt: skip
def attribution_at(retrieved: Retrieved, cutoff: None, by: str | None) -> Values:
    """Share of the items shown in each slot that answers rest on: alike where the generator attends to all alike."""
    lists = [(drawn.count, retrieved.shown(drawn), doc_ids) for drawn, doc_ids in credited(retrieved)]
    values = dict[str, Value]()
    for slot in range(min(retrieved.k, len(retrieved.doc_ids))):
        hits = [
            (count, float(items[slot] in doc_ids)) for count, items, doc_ids in lists if slot < len(items)
        ]
        values[str(slot + 1)] = mean_of_samples(hits, retrieved.uncredited)
    return values
