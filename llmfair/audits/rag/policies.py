"""What lists a condition shows of a query, and how much exposure each item gets by it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.condition import Condition
from llmfair.errors import UsageError
from llmfair.rankers import plackett_luce
from llmfair.rankers.reader import Shown

Floats = NDArray[np.float64]
DETERMINISTIC, GOLD = "deterministic", "gold"
GOLD_ALPHA = 8.0


def conditions_of(retrievers: Sequence[str], alphas: Sequence[float | str]) -> list[Condition]:
    """For each retriever its one list by score and its draws by alpha; then draws by usefulness itself, `gold`."""
    found = []
    for retriever in retrievers:
        for alpha in (DETERMINISTIC, *alphas):
            told = alpha if isinstance(alpha, str) else f"{alpha:g}"
            found.append(Condition(f"{retriever}-{told}", {"retriever": retriever, "alpha": alpha}))
    return [*found, Condition(GOLD, {"retriever": GOLD, "alpha": GOLD_ALPHA})]


def names_of(retrievers: Sequence[str]) -> dict[str, str]:
    """Retrievers by what their conditions and files are called: the last part of a checkpoint's name.

    Raises UsageError where two are called alike.
    """
    found = {GOLD: GOLD}
    for spec in retrievers:
        ranker, _, checkpoint = spec.partition(":")
        last = checkpoint.rstrip("/").rpartition("/")[2].partition("@")[0]
        if Path(spec).is_file():
            ranker, last = "", Path(spec).stem
        name = re.sub(r"[^\w.-]+", "-", last) or ranker
        if name in found:
            raise UsageError(
                f"--retriever {spec} would be called {name}, as {found[name]} is.", "rename its folder"
            )
        found[name] = spec
    del found[GOLD]
    return found


@dataclass(frozen=True)
class Policies:
    """How the items of one query are drawn: `doc_ids` in the order that ties keep, `scores` of shape (n,) by retriever.

    Draws of all conditions share their noise, so that what differs between conditions is not chance alone, and none
    of them moves when another is added.
    """

    query_id: str
    doc_ids: Shown
    scores: Mapping[str, Floats]
    k: int
    samples: int
    seed: int

    def drawn(self, conditions: Sequence[Condition], useful: frozenset[str]) -> dict[str, Counter[Shown]]:
        """The lists that each condition shows, with how many of its draws came to them."""
        noise = plackett_luce.noise(self.seed, self.query_id, self.samples, len(self.doc_ids))
        found = {}
        for condition in conditions:
            weights = self._log_weights(condition, useful)
            if weights is None:
                lists = [plackett_luce.deterministic(self.scores[condition.factors["retriever"]], self.k)]
            else:
                lists = list(plackett_luce.draws(weights, self.k, noise))
            found[condition.name] = Counter(tuple(self.doc_ids[place] for place in one) for one in lists)
        return found

    def exposure(self, condition: Condition, useful: frozenset[str]) -> dict[str, float]:
        """The probability that each item is shown (Kim and Diaz 2025, Eq. 5)."""
        weights = self._log_weights(condition, useful)
        if weights is None:
            chances = np.zeros(len(self.doc_ids))
            chances[plackett_luce.deterministic(self.scores[condition.factors["retriever"]], self.k)] = 1.0
        else:
            chances = plackett_luce.inclusion(weights, self.k)
        return dict(zip(self.doc_ids, chances.tolist(), strict=True))

    def _log_weights(self, condition: Condition, useful: frozenset[str]) -> Floats | None:
        """None of a condition that draws nothing."""
        retriever, alpha = condition.factors["retriever"], condition.factors["alpha"]
        if alpha == DETERMINISTIC:
            return None
        if retriever == GOLD:
            scores = plackett_luce.gold_scores([doc_id in useful for doc_id in self.doc_ids])
        else:
            scores = self.scores[retriever]
        return plackett_luce.log_weights(scores, alpha)
