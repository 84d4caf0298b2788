"""BM25: ranks by the words that query and document share, without any model. The baseline to beat."""

from __future__ import annotations

from llmfair.errors import UsageError
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.records import Candidates
from llmfair.registry import register
from llmfair.retrieval.tantivy import Bm25Index


@register("ranker", "bm25")
def bm25(options: RankerOptions) -> Bm25:
    """BM25 over the titles and texts of all the dataset's documents. Raises UsageError for a checkpoint."""
    if options.checkpoint:
        raise UsageError(f"bm25 has no checkpoints, so it cannot be '{options.checkpoint}'.", "-m bm25")
    return Bm25(Bm25Index(options.cache / "indexes", options.documents))


class Bm25(ScoringRanker):
    """Candidates by falling BM25 score; those without a word of the query come last, in their input order."""

    def __init__(self, index: Bm25Index) -> None:
        self.index = index
        self.identity = index.identity

    def scores(self, candidates: Candidates) -> list[float]:
        """The BM25 score of each candidate, 0 without a common word. Raises UsageError (`Bm25Index`)."""
        found = self.index.scores(candidates.query.text, candidates.doc_ids)
        return [found[doc_id] for doc_id in candidates.doc_ids]
