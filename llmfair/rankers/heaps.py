"""Heapsort by whatever says which of a few items is best: the top of a list, without sorting all of it.

Every parent has so many children; an item sinks while one of its children is better. As setwise and pairwise ranking
use it (Zhuang et al. 2024; Qin et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llmfair.nouns import Document, Steps

Best = Callable[[Sequence[Document]], Steps[int]]
"""Asks which of a parent and its children, in this order, is best: its place."""


def top_of(documents: Sequence[Document], k: int, children: int, best: Best) -> Steps[list[Document]]:
    """The best k, best first, then the others in the order they came in."""
    heap = list(documents)
    for parent in reversed(range(_parents(len(heap), children))):
        yield from _sink(heap, parent, children, best)
    top: list[Document] = []
    while heap and len(top) < k:
        top.append(heap[0])
        last = heap.pop()
        if heap and len(top) < k:
            heap[0] = last
            yield from _sink(heap, 0, children, best)
    taken = {document.doc_id for document in top}
    return top + [document for document in documents if document.doc_id not in taken]


def most_asked(n: int, k: int, children: int) -> list[int]:
    """How many items are compared in each comparison, of as many comparisons as there can be."""
    found = [size for parent in range(_parents(n, children)) for size in _longest(n, parent, children)]
    for left in range(n - 1, max(1, n - k), -1):
        found += _longest(left, 0, children)
    return found


def _parents(n: int, children: int) -> int:
    return 0 if n < 2 else (n - 2) // children + 1


def _children(n: int, parent: int, children: int) -> range:
    first = parent * children + 1
    return range(first, min(first + children, n))


def _longest(n: int, parent: int, children: int) -> list[int]:
    """The sizes of the comparisons that take an item from here to the bottom, on the longest way."""
    sizes = []
    while below := _children(n, parent, children):
        sizes.append(1 + len(below))
        parent = below[0]
    return sizes


def _sink(heap: list[Document], parent: int, children: int, best: Best) -> Steps[None]:
    while below := _children(len(heap), parent, children):
        places = [parent, *below]
        chosen = places[(yield from best([heap[place] for place in places]))]
        if chosen == parent:
            return
        heap[parent], heap[chosen] = heap[chosen], heap[parent]
        parent = chosen
