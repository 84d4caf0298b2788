"""The documents that lists are drawn from: relevant ones and others of a topic, by side, in the order of their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.nouns import Attribute, Document, Side

Places = NDArray[np.intp]
"""Of documents in the order of their ids, ascending."""


class Pools:
    """The pools of all topics.

    `ids`: of documents, in their order, an array or list. `on`: by side, which of them may be drawn. `relevant`: by
    topic, the places of its relevant ones, ascending.
    """

    def __init__(
        self, ids: Any, on: Mapping[Side, NDArray[np.bool_]], relevant: Mapping[str, Places]
    ) -> None:
        self.ids, self.protected, self._relevant = ids, on[Side.PROTECTED], relevant
        self._sides = on[Side.UNPROTECTED], self.protected, on[Side.UNPROTECTED] | self.protected

    def of(self, query_id: str) -> tuple[Places, ...]:
        """Unprotected relevant ones, protected relevant ones, unprotected others, protected others; all of either.

        Others are relevant to another topic.
        """
        relevant = self._relevant[query_id]
        others = np.ones(len(self.ids), dtype=bool)
        others[relevant] = False
        first, second, either = (
            (relevant[side[relevant]], np.flatnonzero(side & others)) for side in self._sides
        )
        return first[0], second[0], first[1], second[1], *either


def sides_of(documents: Mapping[str, Document], attribute: Attribute) -> dict[str, Side]:
    """The side of every document that has one, by id."""
    alike: dict[int, Side | None] = {}  # documents of equal groups share them: millions, but few kinds
    sides = {}
    for doc_id, document in documents.items():
        kind = id(document.groups)
        if kind not in alike:
            alike[kind] = attribute.side(document)
        if (side := alike[kind]) is not None:
            sides[doc_id] = side
    return sides


def pools_of(sides: Mapping[str, Side], relevant: Mapping[str, Sequence[str]]) -> Pools:
    """The pools of documents with these sides and, by topic, of these relevant ones."""
    doc_ids_of_sides = {doc_id for doc_ids in relevant.values() for doc_id in doc_ids if doc_id in sides}
    ids = sorted(doc_ids_of_sides, key=_by_number)
    place = {doc_id: index for index, doc_id in enumerate(ids)}
    return Pools(
        ids,
        {side: np.array([sides[doc_id] is side for doc_id in ids], dtype=bool) for side in Side},
        {
            query_id: np.array(sorted({place[d] for d in doc_ids if d in place}), dtype=np.intp)
            for query_id, doc_ids in relevant.items()
        },
    )


def _by_number(doc_id: str) -> tuple[bool, int, str]:
    """Numbers by value, then other ids as text: an order that no other document can change."""
    number = doc_id.isascii() and doc_id.isdigit()
    return not number, int(doc_id) if number else 0, doc_id
