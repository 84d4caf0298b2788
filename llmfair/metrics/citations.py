"""How far answers rest on the items that they cite: of the items cited, those that support the answer (precision), and
the answers that a cited item supports (recall).

After ALCE (Gao et al. 2023, "Enabling Large Language Models to Generate Text with Citations"), where an answer's
statements are held against their citations. Here an answer is one statement, and every item cited is judged by itself:
that two items support an answer only together counts for neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llmfair.metrics.base import measure
from llmfair.metrics.retrieved import Retrieved
from llmfair.metrics.values import Undefined, Value

_OF_CITATIONS: dict[str, Any] = {
    "reads": Retrieved,
    "cutoff": "none",
    "bounds": (0.0, 1.0),
    "better": "higher",
    "undefined": {
        "not_judged": "nobody judged what was cited",
        "nothing_cited": "no answer cites an item",
    },
}
Cited = list[tuple[int, frozenset[str], frozenset[str]]]


@measure(
    "CitationPrecision",
    label="citations that support the answer",
    cite="after ALCE [Gao et al. 2023]",
    **_OF_CITATIONS,
)
def citation_precision(retrieved: Retrieved, cutoff: None) -> Mapping[str, Value]:
    """Share of the items cited that support the answer, each by itself; mean over the answers that cite any."""
    found = [
        (count, len(supporting) / len(cited)) for count, cited, supporting in _judged(retrieved) if cited
    ]
    return {"": _mean(found, "nothing_cited" if _judged(retrieved) else "not_judged")}


@measure(
    "CitationRecall",
    label="answers that a citation supports",
    cite="after ALCE [Gao et al. 2023]",
    **_OF_CITATIONS,
)
def citation_recall(retrieved: Retrieved, cutoff: None) -> Mapping[str, Value]:
    """Share of answers that an item which they cite supports; an answer without citation is none of them."""
    return {"": _mean([(count, float(bool(found))) for count, _, found in _judged(retrieved)], "not_judged")}


def _judged(retrieved: Retrieved) -> Cited:
    """How many samples drew each list, what its answer cites, and which of that supports it."""
    return [
        (one.count, one.attributed, one.supported)
        for one in retrieved.lists
        if one.attributed is not None and one.supported is not None
    ]


def _mean(counted: list[tuple[int, float]], otherwise: str) -> float | Undefined:
    samples = sum(count for count, _ in counted)
    if not samples:
        return Undefined(otherwise)
    return math.fsum(count * value for count, value in counted) / samples
