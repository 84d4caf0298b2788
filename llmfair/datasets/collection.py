"""A dataset as a collection that is searched: every document can be found, for every topic that there is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from llmfair.datasets.base import Dataset, DocumentSource
from llmfair.errors import UsageError
from llmfair.jsonbytes import encode
from llmfair.records import Attribute, Candidates, Document, Qrels, Query, Side


class Collection:
    """The topics of a dataset or source, its judgements, and all its documents; a Dataset itself.

    Raises UsageError for a source whose documents are not at hand, and for one without any text.
    """

    def __init__(self, source: Dataset | DocumentSource) -> None:
        if not hasattr(source, "documents"):
            raise UsageError(
                f"{source.name} cannot be searched: it has the documents that were judged, and not their texts.",
                "a folder with docs.jsonl, queries.tsv, qrels.txt and groups.tsv, or -d refine-sample",
            )
        self.source: Any = source
        self.name, self.prompt = source.name, source.prompt
        self.documents: Mapping[str, Document] = source.documents
        if not any(document.text.strip() for document in self.documents.values()):
            raise UsageError(
                f"{self.name} cannot be searched: none of its {len(self.documents):,} documents has a text.",
                'lines of docs.jsonl: {"doc_id": "…", "title": "…", "text": "…"}',
            )

    # All its documents are at hand, and stand for themselves.
    stand_ins: Mapping[str, Document] = {}
    relevant_counts: Mapping[str, Mapping[str, int]] = {}

    @property
    def queries(self) -> Sequence[Query]:
        """All topics, whether they have lists to rank or not."""
        topics: Sequence[Query] = getattr(self.source, "topics", self.source.queries)
        return topics

    @cached_property
    def qrels(self) -> Qrels:
        """By document id, as files have them."""
        return {query_id: dict(sorted(judged.items())) for query_id, judged in self.source.qrels.items()}

    @property
    def attributes(self) -> Sequence[Attribute]:
        attributes: Sequence[Attribute] = self.source.attributes
        return attributes

    def sides(self, attribute: Attribute) -> Mapping[str, Side]:
        """The side of every document that has one."""
        found = {doc_id: attribute.side(document) for doc_id, document in self.documents.items()}
        return {doc_id: side for doc_id, side in found.items() if side is not None}

    def candidates(self, query: Query) -> Candidates:
        """The documents that were judged."""
        judged = self.qrels.get(query.query_id, {})
        found = (self.documents.get(doc_id) for doc_id in judged)
        return Candidates(query, tuple(document for document in found if document is not None), judged)

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = self.source.describe()
        return described

    def fingerprint(self, queries: Sequence[Query], attribute: str) -> str:
        """SHA-256 of all that can be found, of who is in which group, of topics and judgements."""
        digest = hashlib.sha256()
        for doc_id in sorted(self.documents):
            document = self.documents[doc_id]
            groups = list(document.groups.get(attribute, ()))
            digest.update(encode([doc_id, document.title, document.text, groups]))
        for query in queries:
            judged = [*self.qrels.get(query.query_id, {}).items()]
            digest.update(encode([query.query_id, query.text, judged]))
        return digest.hexdigest()
