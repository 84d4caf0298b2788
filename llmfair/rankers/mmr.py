"""Maximal marginal relevance: each next document is relevant, and unlike those before it (Carbonell & Goldstein 1998).

next = argmax λ · relevance(i) − (1 − λ) · max over the chosen j of similarity(i, j); nothing is redundant to the first,
and of equals the first comes first. As a ranker: λ = 0.5 [Chen & Fang 2025, FAIR-QR], over BM25's best 100, relevance
is their score moved to [0, 1], since raw BM25 beside a cosine would leave the second term no weight, and similarity
the cosine of TF-IDF vectors or of an encoder's; the paper says neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from llmfair.metrics.base import Free
from llmfair.nouns import Candidates
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.encoders import KINDS, Encoder, unit
from llmfair.rankers.parameters import Declared
from llmfair.rankers.reranking import TRADE, Floats, Reranker, first_best, min_max
from llmfair.registry import register
from llmfair.retrieval.analysis import ENGLISH, plain

TF_IDF = "tf-idf"


def mmr(relevance: ArrayLike, similarity: ArrayLike, trade: float = 0.5, k: int | None = None) -> list[int]:
    """The places of the first k of n documents (all where k is None or more), as they are chosen.

    `relevance` of shape (n,), `similarity` of shape (n, n); `trade` is λ, the weight of relevance.
    """
    relevant, alike = np.asarray(relevance, dtype=float), np.asarray(similarity, dtype=float)
    return _chosen(relevant, alike, trade, k, None)


def mmr_of_vectors(
    query: ArrayLike, documents: ArrayLike, trade: float = 0.5, k: int | None = None
) -> list[int]:
    """The same of embeddings, by their cosines: shapes (d,) and (n, d); a vector of zeros is like none.

    The most relevant document is first whatever λ is: at λ = 0 the formula alone would not say which.
    """
    towards = unit(np.atleast_2d(np.asarray(query, dtype=float)))[0]
    vectors = unit(np.asarray(documents, dtype=float).reshape(-1, towards.size))
    relevance = vectors @ towards
    first = int(np.argmax(relevance)) if relevance.size else None
    return _chosen(relevance, vectors @ vectors.T, trade, k, first)


def _chosen(
    relevance: Floats, similarity: Floats, trade: float, k: int | None, first: int | None
) -> list[int]:
    n = relevance.size
    worth, redundancy = trade * relevance, np.zeros(n)
    found: list[int] = []
    for _ in range(n if k is None else min(k, n)):
        place = first_best(worth - (1 - trade) * redundancy) if found or first is None else first
        redundancy = np.maximum(redundancy, similarity[:, place]) if found else similarity[:, place].copy()
        found.append(place)
        worth[place] = -np.inf
    return found


def cosines(vectors: ArrayLike) -> Floats:
    """Of vectors with each other; shapes (n, d) to (n, n)."""
    units = unit(np.asarray(vectors, dtype=float))
    found: Floats = units @ units.T
    return found


def tf_idf(texts: Sequence[str]) -> Floats:
    """Vectors of n texts, shape (n, terms): how often a text has a term, times 1 + ln((1 + n)/(1 + texts with it))."""
    analyzer = ENGLISH.built()
    counts = [Counter(analyzer.analyze(plain(text))) for text in texts]
    held = Counter(term for count in counts for term in count)
    column = {term: place for place, term in enumerate(held)}
    vectors = np.zeros((len(texts), len(held)))
    for row, count in enumerate(counts):
        vectors[row, [column[term] for term in count]] = [*count.values()]
    found: Floats = vectors * (1 + np.log((1 + len(texts)) / (1 + np.array([*held.values()], dtype=float))))
    return found


def _measure(text: str) -> str:
    if text != TF_IDF and text.partition(":")[0] not in KINDS:
        raise ValueError(text)
    return text


@register("ranker", "mmr")
class Mmr(Reranker):
    """The best of the first stage, each unlike those before it."""

    name = "mmr"
    weighs_scores = True
    declared: ClassVar[Declared] = {
        **TRADE,
        "similarity": Free(TF_IDF, _measure, f"{TF_IDF}, or an encoder: sbert, dense:NAME", (TF_IDF, *KINDS)),
    }

    def __init__(self, options: RankerOptions) -> None:
        super().__init__(options)
        kind, _, checkpoint = self.parameters["similarity"].partition(":")
        self._encoder = None if kind == TF_IDF else Encoder(kind, replace(options, checkpoint=checkpoint))

    def identities(self) -> list[str]:
        return [*super().identities(), *([self._encoder.identity] if self._encoder else [])]

    def order(self, candidates: Candidates, scores: Floats) -> list[int]:
        pool = self.parameters["pool"]
        texts = [f"{item.title} {item.text}" for item in candidates.documents[:pool]]
        vectors = tf_idf(texts) if self._encoder is None else self._encoder.vectors("document", texts)
        return mmr(min_max(scores[:pool]), cosines(vectors), self.parameters["lambda"])
