"""The central ranking of several orders of one list: the one with the least sum of Kendall distances to them.

Permutation self-consistency [Tang et al. 2024, Found in the Middle, arXiv 2310.07712]: a model asked with the list in
several random orders answers with errors that differ from order to order, and these cancel. To find the very least sum
is NP-hard from four orders on, so Borda's order (by mean rank) and each of the orders are improved by moving single
items until no move helps, and the best of these is taken: of lists of up to seven items it is the very least.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmfair.nouns import Ranking

Places = NDArray[np.intp]


def consensus(rankings: Sequence[Ranking]) -> Ranking:
    """The central ranking of orders of the same documents. Raises ValueError for none, and for other documents."""
    first, *others = rankings
    place = {doc_id: rank for rank, doc_id in enumerate(first.doc_ids)}
    if any(place.keys() != {*one.doc_ids} or len(place) != len(one.doc_ids) for one in others):
        raise ValueError(f"the orders of {first.query_id} are of different documents")
    ranks = np.empty((len(rankings), len(place)), dtype=np.intp)
    for row, ranking in zip(ranks, rankings, strict=True):
        row[[place[doc_id] for doc_id in ranking.doc_ids]] = np.arange(len(place))
    return Ranking(first.query_id, tuple(first.doc_ids[item] for item in central(ranks)))


def central(ranks: ArrayLike) -> Places:
    """The items of the central ranking, best first: `ranks` of shape (orders, n) has each item's rank in each order.

    Items of equal mean rank begin as the first order has them, so what items are called makes no difference.
    """
    of = np.asarray(ranks, dtype=np.intp)
    first = np.argsort(of[0])
    if len(of) == 1:
        return first
    relabelled = of[:, first]  # item k is the one of rank k in the first order
    before = _before(relabelled)
    borda = np.argsort(relabelled.sum(axis=0), kind="stable")
    improved = [_improved(start, before - before.T) for start in (borda, *np.argsort(relabelled))]
    found: Places = first[min(improved, key=lambda order: int(np.tril(before[np.ix_(order, order)]).sum()))]
    return found


def kendall_distance(order: ArrayLike, ranks: ArrayLike) -> int:
    """In how many pairs an order of items differs from the orders of these ranks, summed; shapes (n,), (orders, n)."""
    before = _before(np.asarray(ranks, dtype=np.intp)[:, np.asarray(order, dtype=np.intp)])
    return int(np.tril(before).sum())


def _before(ranks: Places) -> Places:
    """In how many orders the one item is ahead of the other; shape (n, n)."""
    counts = np.zeros((ranks.shape[1],) * 2, dtype=np.intp)
    for row in ranks:
        counts += row[:, None] < row[None, :]
    return counts


def _improved(order: Places, lead: Places) -> Places:
    """The order after every move of a single item that lessens the sum.

    `lead[i, j]`: in how many more orders i is ahead of j than behind it. An item that passes those between its place
    and another adds what it leads them by (backwards), or what they lead it by (forwards).
    """
    order, moved = order.copy(), True
    while moved:
        moved = False
        for item in order.copy():
            place = int(np.flatnonzero(order == item)[0])
            leads = lead[item, order]
            backwards = np.cumsum(leads[place + 1 :])
            forwards = np.cumsum(-leads[:place][::-1])
            costs = np.concatenate([forwards[::-1], [0], backwards])
            best = int(costs.argmin())
            if costs[best] < 0:
                rest = np.delete(order, place)
                order, moved = np.insert(rest, best, item), True
    return order
