"""Rankers that order anew what a first stage found, by its scores and by what else they weigh."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from llmfair.metrics.base import Free
from llmfair.nouns import Candidates
from llmfair.rankers.base import Ranker, RankerOptions
from llmfair.rankers.bm25 import Bm25, bm25
from llmfair.rankers.parameters import Declared, number, read_parameters, spelled, whole

Floats = NDArray[np.float64]

ROUNDING = 1e-12
TRADE: dict[str, Free | tuple[str, ...]] = {"lambda": number(0.5, 0, 1), "pool": whole(100, 2000)}
"""Of a trade between relevance and something else: the weight of relevance, and how many of the best are ordered."""


class Reranker(Ranker):
    """Orders candidates by the scores that they come with, or else by BM25's, and then anew.

    `declared`: the parameters that may stand behind its name. Equal scores keep the order they came in.
    """

    name: ClassVar[str]
    declared: ClassVar[Declared]

    def __init__(self, options: RankerOptions) -> None:
        self.parameters: dict[str, Any] = read_parameters(self.name, options.checkpoint, self.declared)
        self.options = replace(options, checkpoint="")

    @cached_property
    def identity(self) -> str:  # type: ignore[override]  # known when it is asked for: BM25 reads all documents
        return f"{self.name} {spelled(self.parameters)} over {' and '.join(self.identities())}"

    def identities(self) -> list[str]:
        """Those of the rankers that it goes by."""
        return [self.first_stage.identity]

    @cached_property
    def first_stage(self) -> Bm25:
        return bm25(self.options)

    @abstractmethod
    def order(self, candidates: Candidates, scores: Floats) -> Sequence[int]:
        """The places of the first candidates in their new order; those it leaves out follow as they are.

        Candidates come by falling score; `scores` has shape (n,).
        """

    def ordered(self, candidates: Candidates) -> tuple[Candidates, None]:
        """The candidates in the new order, which no score explains. Raises UsageError (`Bm25Index`)."""
        scores = candidates.scores
        if scores is None:
            scores = tuple(self.first_stage.scores(candidates))
        by_score = sorted(range(len(scores)), key=lambda place: -scores[place])
        found = replace(candidates, scores=scores).at(by_score)
        first = [*self.order(found, np.array(found.scores, dtype=float))]
        return found.at([*dict.fromkeys([*first, *range(len(by_score))])]), None


def first_best(worth: Floats) -> int:
    """The place of the largest, of equals the first; shape (n,). What differs by rounding is equal."""
    return int(np.argmax(worth >= worth.max() - ROUNDING))


def min_max(scores: Floats) -> Floats:
    """Scores moved to [0, 1], all 0 where they are equal; shape (n,). Infinite ones count as the largest number."""
    found = np.clip(scores, -1e308, 1e308) / 4  # so that no difference overflows
    if not found.size or found.min() == found.max():
        return np.zeros_like(found)
    moved: Floats = (found - found.min()) / (found.max() - found.min())
    return moved
