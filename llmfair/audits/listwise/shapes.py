"""The shape of a list: how many documents of which group and grade it has. What a design can find hangs on it alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from llmfair.nouns import Candidates, Side

Cells = tuple[tuple[int, int, int], ...]
"""A list's documents as (group, grade, how many), sorted; group 0 is protected, 1 the reference, 2 neither."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How many documents a list has of each side, relevant ones and others; and whether anything is judged."""

    cells: Cells
    judged: bool

    @property
    def n(self) -> int:
        return sum(count for _, _, count in self.cells)

    @property
    def protected(self) -> int:
        return sum(count for side, _, count in self.cells if side == 0)

    @property
    def unprotected(self) -> int:
        return sum(count for side, _, count in self.cells if side == 1)

    @property
    def comparable(self) -> bool:
        """Whether items of both sides share a grade."""
        graded = ({grade for of, grade, count in self.cells if of == side and count} for side in (0, 1))
        return bool(set.intersection(*graded))

    @property
    def relevant(self) -> int:
        return sum(count for _, grade, count in self.cells if grade >= 1)


def shape_of(candidates: Candidates, sides: Mapping[str, Side | None]) -> Shape:
    """The shape of one list, by the side of each of its documents."""
    places = {Side.PROTECTED: 0, Side.UNPROTECTED: 1, None: 2}
    kinds = Counter(
        (places[sides[doc_id]], candidates.relevance.get(doc_id, 0)) for doc_id in candidates.doc_ids
    )
    return Shape(tuple((*kind, kinds[kind]) for kind in sorted(kinds)), bool(candidates.relevance))
