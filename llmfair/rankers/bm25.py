"""BM25: ranks by the words that query and document share, without any model. The baseline to beat."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Document
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.registry import register
from llmfair.retrieval.bm25 import Bm25Index, identity
from llmfair.retrieval.engine import ENGLISH


@register("ranker", "bm25")
def bm25(options: RankerOptions) -> Bm25:
    """Over titles and texts of all the dataset's documents, or of each list's. Raises UsageError for a checkpoint."""
    _refuse_checkpoint("bm25", options)
    if options.each_list:
        return Bm25()
    return Bm25(Bm25Index(options.cache / "indexes", options.documents))


def _refuse_checkpoint(name: str, options: RankerOptions) -> None:
    if options.checkpoint:
        raise UsageError(f"{name} has no checkpoints, so it cannot be '{options.checkpoint}'.", f"-m {name}")


class Bm25(ScoringRanker):
    """Candidates by falling BM25 score, equal ones as they came; words are counted in the index, or in each list."""

    def __init__(self, index: Bm25Index | None = None) -> None:
        self.identity = index.identity if index else identity(ENGLISH, "each list")
        self._index = index
        self._last: tuple[tuple[Document, ...], Bm25Index] | None = None

    def scores(self, candidates: Candidates) -> list[float]:
        """The BM25 score of each candidate, 0 without a common word. Raises UsageError (`Bm25Index`)."""
        index, documents = self._index, candidates.documents
        if index is None:  # queries of one corpus that follow each other share it
            if self._last is None or self._last[0] is not documents:
                self._last = documents, Bm25Index(None, documents)
            index = self._last[1]
        scores = index.scores(candidates.query.text, candidates.doc_ids)
        return [scores[doc_id] for doc_id in candidates.doc_ids]


# BM25 as Fair-RAG and LaMP rank with it: words as white space parts them, counted among a list's items alone.
# score(q, d) = Σ over the words t of q (repeats count) of idf(t) · f (k1 + 1) / (f + k1 (1 − b + b · L / avgL)),
# idf(t) = ln((N − n + ½) / (n + ½)), f how often t stands in d, n of the list's N items hold t, L words of d. A
# negative idf becomes ¼ of the mean idf of the list's words, negative ones included [rank_bm25, Trotman et al. 2014].


K1, B, EPSILON = 1.5, 0.75, 0.25


@register("ranker", "bm25-okapi")
def okapi(options: RankerOptions) -> Okapi:
    """Over each list's own items. Raises UsageError for a checkpoint."""
    _refuse_checkpoint("bm25-okapi", options)
    return Okapi()


class Okapi(ScoringRanker):
    """Candidates by falling score. Letter case and punctuation are part of a word."""

    identity = f"bm25-okapi k1={K1} b={B} epsilon={EPSILON} words=white space"

    def scores(self, candidates: Candidates) -> list[float]:
        """The score of each candidate, 0 without a common word; it can be negative in lists of a few items."""
        counts = [Counter(f"{item.title} {item.text}".split()) for item in candidates.documents]
        lengths = np.array([count.total() for count in counts], dtype=float)
        total = np.zeros(len(counts))
        if not lengths.any():
            return total.tolist()
        holding, n = Counter(word for count in counts for word in count), len(counts)
        idf = {word: math.log(n - held + 0.5) - math.log(held + 0.5) for word, held in holding.items()}
        least = EPSILON * sum(idf.values()) / len(idf)
        idf = {word: value if value >= 0 else least for word, value in idf.items()}
        norm = K1 * (1 - B + B * lengths / lengths.mean())
        for word in candidates.query.text.split():
            if word in idf:
                often = np.array([count[word] for count in counts])
                total += idf[word] * (often * (K1 + 1) / (often + norm))
        return total.tolist()
