"""Scores of every item of a query, by a retriever that asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from llmfair import registry
from llmfair.audits.rag.policies import Floats
from llmfair.datasets.answers import AnswerDataset
from llmfair.datasets.base import cache_folder
from llmfair.errors import UsageError
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.records import Query


def retriever_of(name: str) -> ScoringRanker:
    """A retriever that counts words among a query's own items. Raises UsageError for an unknown name."""
    kind, _, checkpoint = name.partition(":")
    ranker: ScoringRanker = registry.lookup("ranker", kind)(
        RankerOptions((), cache_folder(), checkpoint=checkpoint, each_list=True)
    )
    return ranker


def scores_of(
    retriever: ScoringRanker, dataset: AnswerDataset, queries: Sequence[Query]
) -> dict[str, Floats]:
    """The scores of each query's items, in their order; shape (items,). Raises UsageError if one is not finite."""
    found = {}
    for query in queries:
        candidates = dataset.candidates(query)
        searched = replace(candidates, query=replace(query, text=dataset.searched(query)))
        scores = np.asarray(retriever.scores(searched), dtype=np.float64)
        if not np.isfinite(scores).all():
            item = candidates.documents[int(np.argmin(np.isfinite(scores)))].doc_id
            raise UsageError(
                f"{retriever.identity.split()[0]} has no finite score for item '{item}' of query '{query.query_id}'.",
                "another --retriever",
            )
        found[query.query_id] = scores
    return found
