"""A dataset as a collection that is searched: every document can be found, for every topic that there is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from llmfair.datasets.files import sides_of
from llmfair.errors import UsageError
from llmfair.io.files import encode
from llmfair.nouns import Attribute, Candidates, Document, ManyDocuments, Qrels, Query, Side, StoredIndex

LOOKED_AT = 100
"""Documents of a query that tell what the others are like, where there are too many."""


class Collection:
    """The topics of a dataset or source, its judgements, and all its documents; a Dataset itself.

    Raises UsageError for a source without any text.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.name, self.prompt = source.name, source.prompt
        self.documents: Mapping[str, Document] = source.documents
        self.too_many = isinstance(self.documents, ManyDocuments)
        if not self.too_many and not any(document.text.strip() for document in self.documents.values()):
            raise UsageError(
                f"{self.name} cannot be searched: none of its {len(self.documents):,} documents has a text.",
                'lines of docs.jsonl: {"doc_id": "…", "title": "…", "text": "…"}',
            )
        self.attributes: Sequence[Attribute] = source.attributes
        # All topics, whether they have lists to rank or not.
        self.queries: Sequence[Query] = getattr(source, "topics" if hasattr(source, "topics") else "queries")

    stand_ins: Mapping[str, Document] = {}
    """None: documents stand for themselves, or are found by the names that `relevant_counts` has."""

    @cached_property
    def relevant_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Of relevant documents that are too many to be looked at: how many each combination of groups has."""
        return dict(getattr(self.source, "relevant_counts", {}))

    @property
    def index(self) -> StoredIndex | None:
        """The index that it was fetched with; None where its documents are at hand to be indexed."""
        index: StoredIndex | None = self.source.index if self.too_many else None
        return index

    @cached_property
    def qrels(self) -> Qrels:
        """By document id, as files have them."""
        if self.too_many:
            return dict(self.source.judged)
        return {query_id: dict(sorted(judged.items())) for query_id, judged in self.source.qrels.items()}

    def document(self, doc_id: str) -> Document:
        """A document that an engine found. Raises UsageError for one that the collection does not have."""
        try:
            return self.documents[doc_id]
        except KeyError:
            raise UsageError(
                f"the index that is searched has a document '{doc_id}', and {self.name} has not.",
                "an index of this collection, whose ids are those of its documents",
            ) from None

    def sides(self, attribute: Attribute) -> Mapping[str, Side]:
        """The side of every document that has one; of too many, of those relevant to a topic."""
        if self.too_many:
            sides: Mapping[str, Side] = self.source.sides(attribute)
            return sides
        return sides_of(self.documents, attribute)

    def candidates(self, query: Query) -> Candidates:
        """The documents that were judged; of too many, the first."""
        judged = self.qrels.get(query.query_id, {})
        looked_at = islice(judged, LOOKED_AT if self.too_many else None)
        documents = (self.documents.get(doc_id) for doc_id in looked_at)
        return Candidates(query, tuple(document for document in documents if document is not None), judged)

    def describe(self) -> dict[str, Any]:
        return dict(self.source.describe_searched() if self.too_many else self.source.describe())

    def fingerprint(self, queries: Sequence[Query], attribute: str) -> str:
        """SHA-256 of all that can be found, of who is in which group, of topics and judgements."""
        digest = hashlib.sha256()
        if (fetched := getattr(self.source, "fingerprint", None)) is not None:
            digest.update(encode([fetched, [[query.query_id, query.text] for query in queries]]))
            return digest.hexdigest()
        for doc_id in sorted(self.documents):
            document = self.documents[doc_id]
            groups = list(document.groups.get(attribute, ()))
            digest.update(encode([doc_id, document.title, document.text, groups]))
        for query in queries:
            judged = [*self.qrels.get(query.query_id, {}).items()]
            digest.update(encode([query.query_id, query.text, judged]))
        return digest.hexdigest()
