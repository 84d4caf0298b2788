"""BM25 with tantivy, an engine in this process: an index of titles and texts, on disk or in memory.

score(q, d) = Σ over the terms t of q (repeats count) of idf(t) · f (k1 + 1) / (f + k1 (1 − b + b · L / avgL)),
idf(t) = ln(1 + (N − n + ½) / (n + ½)) [Robertson and Zaragoza 2009, eq. 3.15, with Lucene's idf], f how often t
stands in d, n of N documents hold t, and L the terms of d: exact below 40, above rounded down as in Lucene.
Other engines leave out the factor k1 + 1, which changes no order. k1 and b are tantivy's and cannot be set.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib.metadata import version
from threading import Semaphore
from typing import TYPE_CHECKING, cast

from llmfair.nouns import Document
from llmfair.retrieval.analysis import Analyzer, plain
from llmfair.retrieval.engine import Hit

if TYPE_CHECKING:
    import tantivy

K1, B = 1.2, 0.75
SPARE = 50
"""Documents fetched past the k-th, so that most ties are whole at once."""


class TantivyEngine:
    """An index that does not change while it is searched."""

    def __init__(self, index: tantivy.Index, analyzer: Analyzer, identity: str) -> None:
        index.config_reader("manual")  # no thread that watches the folder
        index.reload()
        self.identity = identity
        self._schema, self._searcher, self._analyzer = index.schema, index.searcher(), analyzer
        # as many as there are cores: more would all end late, since they only take each other's time
        self._turns = Semaphore(os.cpu_count() or 1)

    def count(self) -> int:
        return self._searcher.num_docs

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> list[Hit]:
        from tantivy import Occur, Query

        terms = self._terms(text) + [
            one if weight == 1 else Query.boost_query(one, weight) for one in self._terms(added)
        ]
        k = min(k, self.count())
        if not terms or k < 1:
            return []
        query = Query.boolean_query([(Occur.Should, term) for term in terms])
        fetched = k + SPARE
        while True:
            hits = self._hits(query, fetched)
            if len(hits) < fetched or hits[-1][0] < hits[k - 1][0]:
                break
            # short documents tie by the hundred, and tantivy has ties in the order of its segments
            fetched *= 4
        least = hits[:k][-1][0] if hits else 0.0
        found = sorted((-score, self._doc_id(address)) for score, address in hits if score >= least)
        return [Hit(doc_id, -score) for score, doc_id in found[:k]]

    def scores(self, text: str, doc_ids: Collection[str]) -> dict[str, float]:
        from tantivy import Occur, Query

        if not doc_ids:
            return {}
        wanted = Query.const_score_query(Query.term_set_query(self._schema, "doc_id", list(doc_ids)), 0.0)
        terms = [(Occur.Should, term) for term in self._terms(text)]
        hits = self._hits(Query.boolean_query([(Occur.Must, wanted), *terms]), len(doc_ids))
        found = {self._doc_id(address): score for score, address in hits}
        return {doc_id: found[doc_id] for doc_id in doc_ids}

    def _terms(self, text: str) -> list[tantivy.Query]:
        from tantivy import Query

        return [Query.term_query(self._schema, "text", term, "freq") for term in self._analyzer.terms(text)]

    def _hits(self, query: tantivy.Query, limit: int) -> list[tuple[float, tantivy.DocAddress]]:
        with self._turns:
            return self._searcher.search(query, limit=limit, count=False).hits

    def _doc_id(self, address: tantivy.DocAddress) -> str:
        return cast(str, self._searcher.doc(address).get_first("doc_id"))


def described(analyzer: Analyzer) -> str:
    """Formula, tokenizer and engine, in words."""
    return f"bm25 k1={K1} b={B} tokenizer={analyzer.tokenizer} tantivy={version('tantivy')}"


def new_index(path: str | None, analyzer: Analyzer) -> tantivy.Index:
    """An index at this path, or in memory; one of the same fields that stands there is kept."""
    from tantivy import Index, SchemaBuilder

    builder = SchemaBuilder()
    builder.add_text_field("doc_id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", tokenizer_name=analyzer.tokenizer, index_option="freq")
    index = Index(builder.build(), path=path)
    index.register_tokenizer(analyzer.tokenizer, analyzer.built())
    return index


def entry(document: Document) -> tantivy.Document:
    """A document as it is written into an index."""
    import tantivy

    written = tantivy.Document()
    written.add_text("doc_id", document.doc_id)
    written.add_text("text", content(document))
    return written


def content(document: Document) -> str:
    """What is searched: title and text."""
    return plain(f"{document.title}\n{document.text}")
