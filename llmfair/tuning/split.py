"""Which queries are trained on, which decide when to stop, and which measure what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmfair.errors import UsageError
from llmfair.nouns import Attribute, Candidates, Side

FEWEST_QUERIES = 10
FEWEST_VALIDATION = 3
VALIDATION_SHARE = 0.1
"""Of the training queries."""


@dataclass(frozen=True, slots=True)
class Split:
    """Query ids, each in one part, in the dataset's order; `unused` queries lack items of a side."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    unused: tuple[str, ...] = ()


def split_queries(lists: Sequence[Candidates], attribute: Attribute, train_share: float, seed: int) -> Split:
    """Splits the queries that have items of both sides, alike in how many of their relevant items are protected.

    Queries are sorted into terciles of that share, shuffled in each, and every part takes them at even distances.
    A tenth of the training queries, at least three, validate. Raises UsageError for fewer than ten queries, and
    for a share that leaves nothing to train or to test on.
    """
    balance = {listed.query.query_id: _balance(listed, attribute) for listed in lists}
    usable = [query_id for query_id, share in balance.items() if share is not None]
    if len(usable) < FEWEST_QUERIES:
        raise UsageError(
            f"training and testing need {FEWEST_QUERIES} queries with items of both groups, but there "
            f"{'is' if len(usable) == 1 else 'are'} {len(usable)}.",
            "choose a larger dataset: llmfair datasets    lists them",
        )
    shares = np.array([balance[query_id] for query_id in usable])
    terciles = np.searchsorted(np.quantile(shares, [1 / 3, 2 / 3]), shares)
    rng = np.random.default_rng(seed)
    order = [usable[place] for place in np.lexsort((rng.random(len(usable)), terciles))]
    testing = round(len(order) * (1 - train_share))
    test = _at_even_distances(order, testing, rng.random())
    rest = [query_id for query_id in order if query_id not in test]
    validating = max(FEWEST_VALIDATION, round(VALIDATION_SHARE * len(rest)))
    if not test or len(rest) <= validating:
        raise UsageError(
            f"--train-share {train_share} of {len(usable)} queries leaves {len(rest)} to train on, {validating} of "
            f"them for validation, and {len(test)} to test on.",
            "for example --train-share 0.8",
        )
    validation = _at_even_distances(rest, validating, rng.random())
    return Split(
        tuple(query_id for query_id in usable if query_id not in test | validation),
        tuple(query_id for query_id in usable if query_id in validation),
        tuple(query_id for query_id in usable if query_id in test),
        tuple(query_id for query_id, share in balance.items() if share is None),
    )


def _balance(candidates: Candidates, attribute: Attribute) -> float | None:
    """The share of protected items among relevant ones (among all, without these); None without both sides."""
    sides = {document.doc_id: attribute.side(document) for document in candidates.documents}
    known = {doc_id: side for doc_id, side in sides.items() if side is not None}
    if len(set(known.values())) < 2:
        return None
    relevant = [side for doc_id, side in known.items() if candidates.relevance.get(doc_id, 0) >= 1]
    counted = relevant or [*known.values()]
    return sum(side is Side.PROTECTED for side in counted) / len(counted)


def _at_even_distances(order: Sequence[str], count: int, start: float) -> set[str]:
    """`count` ids at even distances, the first one `start` (0 to 1) of a distance from the beginning."""
    return {order[int((number + start) * len(order) / count)] for number in range(count)}
