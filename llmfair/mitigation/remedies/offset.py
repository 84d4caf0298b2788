"""A logit offset: the strengths behind the rankings, with one number added to those of the protected group.

The score of an item is its strength on the scale of log odds (`stats/strengths.py`), from all orders of its list. The
offset is what brings the preference odds of the rankings to 1: the weighted median, over pairs of equally relevant
items of both groups, of how far the unprotected one is ahead, every query weighing 1. It is estimated on other queries
than those that it is applied to (five folds), so that no query's judgements order its own list; to apply it the
groups alone have to be known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import UsageError
from llmfair.mitigation.remedy import Merger, Merging, ranks_of
from llmfair.mitigation.unmitigated import Unmitigated
from llmfair.nouns import Ranking, Side
from llmfair.rankers.crossfit import folds
from llmfair.registry import register
from llmfair.stats.strengths import bradley_terry, offset_to_parity

Floats = NDArray[np.float64]


@register("remedy", "offset")
class Offset(Merging):
    title = "logit offset"
    does = (
        "One number is added to the strengths of protected items: Bradley–Terry strengths of the run's orders of each "
        "list, and the offset that brings the odds of equally relevant items to 1, cross-fitted by query (never on "
        "the query it is applied to)."
    )

    def merger(self, run: Unmitigated) -> tuple[Merger, Sequence[str]]:
        offsets, sides = offsets_of(run), run.found.against.sides

        def merged(rankings: Sequence[Ranking]) -> Ranking:
            doc_ids, ranks = ranks_of(rankings)
            query_id = rankings[0].query_id
            protected = np.array([sides.get(doc_id) is Side.PROTECTED for doc_id in doc_ids])
            scores = bradley_terry(ranks) + offsets[query_id] * protected
            return Ranking(
                query_id, tuple(doc_ids[place] for place in np.lexsort((ranks.sum(axis=0), -scores)))
            )

        low, high = min(offsets.values()), max(offsets.values())
        return merged, [f"{low:+.2f} to {high:+.2f} added to the log odds of protected items, by fold"]


def offsets_of(run: Unmitigated) -> Mapping[str, float]:
    """The offset of each query, from those of the other folds. Raises UsageError for fewer than two comparable ones."""
    margins = {
        query_id: found
        for query_id, orders in run.orders.items()
        if (found := _margins(run, query_id, orders)).size
    }
    if len(margins) < 2:
        raise UsageError(
            f"an offset is fitted on other queries, and {len(margins)} of {len(run.orders)} have two equally relevant "
            "items of both groups.",
            "more queries, or judgements",
        )
    fold = folds(margins, seed=run.settings.seed)
    by_fold = {
        without: offset_to_parity([of for query_id, of in margins.items() if fold[query_id] != without])
        for without in {None, *(fold.get(query_id) for query_id in run.orders)}
    }
    return {query_id: by_fold[fold.get(query_id)] for query_id in run.orders}


def _margins(run: Unmitigated, query_id: str, orders: Sequence[Ranking]) -> Floats:
    """How far the unprotected item of each two equally relevant ones is ahead of the protected one."""
    judged = run.judged(query_id, orders)
    doc_ids, ranks = ranks_of(orders)
    strengths = dict(zip(doc_ids, bradley_terry(ranks), strict=True))
    scores = np.array([strengths[doc_id] for doc_id in judged.doc_ids])
    protected, unprotected = (judged.on_side(side) for side in (Side.PROTECTED, Side.UNPROTECTED))
    found = [
        (scores[unprotected & (judged.grades == grade)][None, :] - scores[of_grade][:, None]).ravel()
        for grade in np.unique(judged.grades)
        if (of_grade := protected & (judged.grades == grade)).any()
    ]
    return np.concatenate(found) if found else np.zeros(0)
