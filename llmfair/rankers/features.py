"""What a learnt ranker knows of a query's candidates: a row of numbers for each."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llmfair.io.files import encode
from llmfair.nouns import NUMBERS, Attribute, Candidates, Document, Side
from llmfair.rankers.encoders import Encoder, Vectors
from llmfair.retrieval.bm25 import Bm25Index

PARTS, COSINE = ("title", "text"), "cosine(query, title and text)"
CALLED: Mapping[str, tuple[str, Callable[[float], float]]] = dict(
    zip(
        NUMBERS,
        (("predicted quality", float), ("ln sitelinks", math.log1p), ("relative page views", float)),
        strict=True,
    )
)
"""What the numbers that documents may come with are called as features, and what is made of them."""


class Features:
    """Whether a document is of the protected group (1 or 0), BM25 of the query with its title and with its text,
    ln(1 + words of both), what the metadata of documents say of their quality, sitelinks and page views, and with an
    encoder the cosine of the query and title with text.

    What no document has is left out: `names` are those of the columns, `missing` of the others. Where only some have a
    number, the others get the mean. Words are counted in `documents`; the indexes are kept in `folder`.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        attribute: Attribute,
        folder: Path,
        encoder: Encoder | None = None,
    ) -> None:
        self._attribute, self._encoder = attribute, encoder
        self._vectors = None if encoder is None else Vectors(encoder)
        self._indexes = {
            part: Bm25Index(folder, [Document(one.doc_id, getattr(one, part), "") for one in documents])
            for part in PARTS
            if any(getattr(document, part).strip() for document in documents)
        }
        self._numbers = dict(_numbers(documents))
        self.names = (
            "protected",
            *map(_bm25, self._indexes),
            "ln length",
            *self._numbers,
            *[COSINE] * (encoder is not None),
        )
        self.missing = (
            *(_bm25(part) for part in PARTS if part not in self._indexes),
            *(name for name, _ in CALLED.values() if name not in self._numbers),
        )

    @property
    def identity(self) -> str:
        """The columns in words, with the indexes and numbers that they are read from."""
        found = (f"{_bm25(part)} {index.identity}" for part, index in self._indexes.items())
        numbers = (f", {name} {number.sha256[:12]}" for name, number in self._numbers.items())
        return f"{self._attribute.name} protected, {', '.join(found)}, ln length{''.join(numbers)}{self._encoded}"

    @property
    def _encoded(self) -> str:
        return "" if self._encoder is None else f", {COSINE} {self._encoder.identity}"

    def __call__(self, candidates: Candidates) -> NDArray[np.float64]:
        """A row for each candidate, in their order: (candidates, columns). Raises UsageError (`Bm25Index`)."""
        documents = candidates.documents
        scores = [index.scores(candidates.query.text, candidates.doc_ids) for index in self._indexes.values()]
        columns = [
            [float(self._attribute.side(document) is Side.PROTECTED) for document in documents],
            *([found[doc_id] for doc_id in candidates.doc_ids] for found in scores),
            [np.log1p(len(f"{document.title} {document.text}".split())) for document in documents],
            *([number.of(document) for document in documents] for number in self._numbers.values()),
            *([] if self._vectors is None else [self._vectors(candidates)[:, -1]]),
        ]
        return np.array(columns, dtype=float).T


class _Number:
    """A number that documents come with, some of `documents` at least."""

    def __init__(self, name: str, made: Callable[[float], float], documents: Sequence[Document]) -> None:
        self._name, self._made = name, made
        known = sorted((one.doc_id, one.numbers[name]) for one in documents if name in one.numbers)
        self._mean = float(np.mean([made(value) for _, value in known]))
        self.sha256 = hashlib.sha256(encode(known)).hexdigest()

    def of(self, document: Document) -> float:
        value = document.numbers.get(self._name)
        return self._mean if value is None else float(self._made(value))


def _numbers(documents: Sequence[Document]) -> Iterator[tuple[str, _Number]]:
    """Those that any document has, by what they are called as features."""
    for name, (called, made) in CALLED.items():
        if any(name in one.numbers for one in documents):
            yield called, _Number(name, made, documents)


def _bm25(part: str) -> str:
    return f"BM25(query, {part})"
