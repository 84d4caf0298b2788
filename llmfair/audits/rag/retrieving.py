"""Scores of every item of a query, by a retriever that asks nobody."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from llmfair import registry
from llmfair.audits.rag.policies import Floats
from llmfair.datasets.answers import AnswerDataset, questions_sha256
from llmfair.datasets.base import cache_folder
from llmfair.datasets.released import read_retrieval
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.files import write_whole
from llmfair.nouns import Candidates, Query
from llmfair.rankers.base import RankerOptions, ScoringRanker, scoring
from llmfair.rankers.on_ray import OnRay
from llmfair.rankers.plackett_luce import deterministic
from llmfair.settings.asking import Asking


class Retrieved(ScoringRanker):
    """What a retriever found once: a TREC run, or JSON as Fair-RAG released it. Items it did not find come last."""

    def __init__(self, path: Path, dataset: AnswerDataset, queries: Sequence[Query]) -> None:
        self.identity = f"file {files.sha256(path)}"
        lists = {query.query_id: dataset.candidates(query).doc_ids for query in dataset.queries}
        needed = [query.query_id for query in queries]
        self._scores = read_retrieval(path, lists, needed, whole=not dataset.shared)

    def scores(self, candidates: Candidates) -> list[float]:
        found = self._scores[candidates.query.query_id]
        least = min(found.values(), default=0.0) - 1
        return [found.get(doc_id, least) for doc_id in candidates.doc_ids]


def retriever_of(
    name: str, dataset: AnswerDataset, queries: Sequence[Query], settings: Asking
) -> ScoringRanker:
    """A retriever of a query's own items, among which words are counted where it counts any; or what one found.

    One that takes a model scores where models answer: here, or in processes of a Ray cluster. Raises UsageError for an
    unknown name, for a ranker without scores, and what its model raises.
    """
    if Path(name).is_file():
        return Retrieved(Path(name), dataset, queries)
    here = _named(name)
    if settings.on_ray and here.costly:
        return OnRay(partial(_named, name), here, settings.ray_workers or 1, settings.ray_address)
    return here


def _named(name: str) -> ScoringRanker:
    """A ranker that scores, as `dense:CHECKPOINT` names it. Raises UsageError, and what its model raises."""
    kind, _, checkpoint = name.partition(":")
    options = RankerOptions((), cache_folder(), checkpoint=checkpoint, each_list=True)
    return scoring(kind, registry.lookup("ranker", kind)(options))


def scores_of(
    retriever: ScoringRanker, dataset: AnswerDataset, queries: Sequence[Query]
) -> dict[str, Floats]:
    """The scores of each query's items, in their order; shape (items,). Raises UsageError if one is not finite.

    Those that take a model are kept on this machine: whatever asks for the same ones again loads none.
    """
    from msgspec import MsgspecError
    from msgspec.json import decode

    if not retriever.costly:
        return _scored(retriever, dataset, queries)
    of_what = f"{retriever.identity} {questions_sha256(dataset, queries)}"
    path = cache_folder() / "scores" / f"{sha256(of_what.encode()).hexdigest()[:32]}.json"
    sizes = {query.query_id: len(dataset.candidates(query).documents) for query in queries}
    with suppress(OSError, ValueError, MsgspecError):  # none are kept, or they are damaged
        kept = decode(files.document(path), type=dict[str, list[float]])  # of which none is infinite
        if {query_id: len(of) for query_id, of in kept.items()} == sizes:
            return {query_id: np.array(of) for query_id, of in kept.items()}
    found = _scored(retriever, dataset, queries)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [json.dumps({query_id: of.tolist() for query_id, of in found.items()})])
    return found


def pooled(
    retrievers: Mapping[str, ScoringRanker], dataset: AnswerDataset, queries: Sequence[Query], pool: int
) -> tuple[AnswerDataset, dict[str, dict[str, Floats]]]:
    """The dataset with the items that are drawn from, and each retriever's scores of them.

    Of a corpus those are the first retriever's best `pool` of each query, with their scores in the whole corpus; the
    other retrievers score these alone.
    """
    scores: dict[str, dict[str, Floats]] = {}
    if dataset.shared:
        first = next(iter(retrievers))
        whole, items = scores_of(retrievers[first], dataset, queries), {}
        for query in queries:
            best, documents = deterministic(whole[query.query_id], pool), dataset.candidates(query).documents
            items[query.query_id] = tuple(documents[place] for place in best)
            whole[query.query_id] = whole[query.query_id][best]
        dataset, scores[first] = dataset.with_items(items), whole
    others = {
        name: scores_of(one, dataset, queries) for name, one in retrievers.items() if name not in scores
    }
    return dataset, {name: (scores | others)[name] for name in retrievers}


def _scored(retriever: ScoringRanker, dataset: AnswerDataset, queries: Sequence[Query]) -> dict[str, Floats]:
    found = {}
    lists = {query.query_id: dataset.candidates(query) for query in queries}
    searched = (
        replace(lists[query.query_id], query=replace(query, text=dataset.searched(query)))
        for query in queries
    )
    for (query_id, candidates), scored in zip(lists.items(), retriever.scores_of_each(searched), strict=True):
        scores = np.asarray(scored, dtype=np.float64)
        if not np.isfinite(scores).all():
            item = candidates.documents[int(np.argmin(np.isfinite(scores)))].doc_id
            raise UsageError(
                f"{retriever.identity.split()[0]} has no finite score for item '{item}' of query '{query_id}'.",
                "another --retriever",
            )
        found[query_id] = scores
    return found
