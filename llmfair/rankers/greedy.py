"""Greedy re-ranking towards a target: what a method that knows the target gets without any model.

next = argmax λ · relevance(i) − (1 − λ) · KL(shares of the page with i ‖ target), over BM25's best 100 with their
scores moved to [0, 1]; of equals the first comes first. A control of query refinement, whose loop aims at the same.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from llmfair.metrics.base import Judged
from llmfair.metrics.targets import IMPLIES, SPREAD_TO_TARGET, Cells, cells, target_shares
from llmfair.metrics.values import Undefined
from llmfair.nouns import Candidates
from llmfair.rankers.parameters import Declared
from llmfair.rankers.reranking import TRADE, Floats, Reranker, first_best, min_max
from llmfair.registry import register

EPS = 1e-6
"""Smoothing, as `KL` has it by default."""
MEMBERSHIP = "split"
NO_TARGET = "no relevant document says which groups to aim at, so the order is the first stage's"


def greedy(relevance: Floats, rows: Floats, target: Floats, trade: float = 0.5) -> list[int]:
    """All n places, as they are chosen: relevance of shape (n,), memberships (n, groups), target (groups,).

    A page without any mass is as far from the target as any page can be.
    """
    smooth = (target + EPS) / (1 + target.size * EPS)
    furthest = _divergence(np.eye(target.size), smooth).max()
    mass, worth, found = np.zeros(target.size), trade * relevance, list[int]()
    for _ in range(relevance.size):
        pages = mass + rows
        totals = pages.sum(axis=1, keepdims=True)
        shares = np.divide(pages, totals, out=np.zeros_like(pages), where=totals > 0)
        distance = np.where(totals[:, 0] > 0, _divergence(shares, smooth), furthest)
        place = first_best(worth - (1 - trade) * distance)
        found.append(place)
        worth[place], mass = -np.inf, pages[place]
    return found


def _divergence(shares: Floats, smooth: Floats) -> Floats:
    """KL of each page's shares and the target, both smoothed; shapes (n, groups) and (groups,) to (n,)."""
    smoothed = (shares + EPS) / (1 + smooth.size * EPS)
    found: Floats = (smoothed * (np.log(smoothed) - np.log(smooth))).sum(axis=1)
    return found


@register("ranker", "greedy")
class Greedy(Reranker):
    """The best of the first stage, in the order that keeps every page near the target."""

    name = "greedy"
    weighs_scores = True
    declared: ClassVar[Declared] = {**TRADE, "target": SPREAD_TO_TARGET["target"]}
    reads_texts, reads_groups = False, True
    target_known = "yes"

    @cached_property
    def _spread(self) -> Cells:
        """The groups that shares are of, with the unknown as one where the target has it."""
        _, unknown = IMPLIES.get(("target", self.parameters["target"]), ("unknown", "keep"))
        return cells(self.options.groups, None, unknown)

    def order(self, candidates: Candidates, scores: Floats) -> list[int]:
        target = self._target(candidates)
        if target is None:
            return []
        pool = self.parameters["pool"]
        rows = self._spread.rows(candidates.doc_ids[:pool], MEMBERSHIP)[:, self._spread.kept]
        return greedy(min_max(scores[:pool]), rows, target, self.parameters["lambda"])

    def remark(self, ordered: Candidates) -> str:
        return NO_TARGET if self._target(ordered) is None else ""

    def _target(self, candidates: Candidates) -> Floats | None:
        """The shares to aim at; None without a relevant document to have them of. Raises UsageError."""
        judged = Judged(candidates, (), {}, groups=self.options.groups)
        found = target_shares(judged, self._spread, self.parameters["target"], MEMBERSHIP)
        return None if isinstance(found, Undefined) else found
