"""What is known of pages, by their ids: arrays that are looked up as a mapping."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V")


def place_of(numbers: Sequence[int] | memoryview, doc_id: str) -> int:
    """Where a page stands among ids that ascend. Raises KeyError."""
    if not (doc_id.isascii() and doc_id.isdigit() and (doc_id[0] != "0" or doc_id == "0")):
        raise KeyError(doc_id)
    page_id = int(doc_id)
    place = bisect_left(numbers, page_id)
    if place == len(numbers) or numbers[place] != page_id:
        raise KeyError(doc_id)
    return place


class PageValues(Mapping[str, V]):
    """A value of each page: ids ascending (int64), the number of each one's among `values`."""

    def __init__(
        self, page_ids: NDArray[np.int64], codes: NDArray[np.unsignedinteger], values: Sequence[V]
    ) -> None:
        self.page_ids, self.codes = page_ids, codes
        self._numbers, self._values = page_ids.data, values

    __hash__ = object.__hash__  # it never changes: what is made of it can be found again

    def __getitem__(self, doc_id: str) -> V:
        return self._values[int(self.codes[place_of(self._numbers, doc_id)])]

    def __iter__(self) -> Iterator[str]:
        return (str(page_id) for page_id in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def items(self) -> ItemsView[str, V]:
        """All at once: one by one each would be looked for."""
        return dict(zip(self, self._each(), strict=True)).items()

    def values(self) -> ValuesView[V]:
        return dict(enumerate(self._each())).values()

    def _each(self) -> list[V]:
        return list(map(self._values.__getitem__, self.codes.tolist()))


class JudgedPages(PageValues[int]):
    """Pages that are relevant to a topic, all with grade 1; ids ascending."""

    def __init__(self, page_ids: NDArray[np.int64]) -> None:
        super().__init__(page_ids, np.zeros(len(page_ids), dtype=np.uint8), (1,))
