"""What a learnt ranker knows of a query's candidates: a row of numbers for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llmfair.records import Attribute, Candidates, Document, Side
from llmfair.retrieval.bm25 import Bm25Index

PARTS = ("title", "text")


class Features:
    """Whether a document is of the protected group (1 or 0), BM25 of the query with its title and with its text, and
    ln(1 + words of both).

    What no document has is left out: `names` are those of the columns, `missing` of the others. Words are counted in
    `documents`; the indexes are kept in `folder`.
    """

    def __init__(self, documents: Sequence[Document], attribute: Attribute, folder: Path) -> None:
        self._attribute = attribute
        self._indexes = {
            part: Bm25Index(folder, [Document(one.doc_id, getattr(one, part), "") for one in documents])
            for part in PARTS
            if any(getattr(document, part).strip() for document in documents)
        }
        self.names = ("protected", *map(_bm25, self._indexes), "ln length")
        self.missing = tuple(_bm25(part) for part in PARTS if part not in self._indexes)

    @property
    def identity(self) -> str:
        """The columns in words, with the indexes that they are read from."""
        found = (f"{_bm25(part)} {index.identity}" for part, index in self._indexes.items())
        return f"{self._attribute.name} protected, {', '.join(found)}, ln length"

    def __call__(self, candidates: Candidates) -> NDArray[np.float64]:
        """A row for each candidate, in their order: (candidates, columns). Raises UsageError (`Bm25Index`)."""
        documents = candidates.documents
        scores = [index.scores(candidates.query.text, candidates.doc_ids) for index in self._indexes.values()]
        columns = [
            [float(self._attribute.side(document) is Side.PROTECTED) for document in documents],
            *([found[doc_id] for doc_id in candidates.doc_ids] for found in scores),
            [np.log1p(len(f"{document.title} {document.text}".split())) for document in documents],
        ]
        return np.array(columns, dtype=float).T


def _bm25(part: str) -> str:
    return f"BM25(query, {part})"
