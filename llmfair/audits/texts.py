"""What was asked about in words: `texts.jsonl` of a run folder, so that a report needs no dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmfair.io.files import read_lines
from llmfair.nouns import Document, Query

TEXTS = "texts.jsonl"


@dataclass(frozen=True)
class Texts:
    """Queries by query_id, titles by doc_id."""

    queries: Mapping[str, str]
    titles: Mapping[str, str]


@dataclass(frozen=True)
class _Line:
    """A query's text, or a document's title."""

    query_id: str | None = None
    text: str | None = None
    doc_id: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        held = [part is not None for part in (self.query_id, self.text, self.doc_id, self.title)]
        if held not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError("Object has to have `query_id` and `text`, or `doc_id` and `title`")


def texts_lines(queries: Iterable[Query], documents: Iterable[Document]) -> Iterator[str]:
    """A line a query, then one a document, each once and in the order of ids."""
    texts = {query.query_id: query.text for query in queries}
    titles = {document.doc_id: document.title for document in documents}
    for query_id, text in sorted(texts.items()):
        yield json.dumps({"query_id": query_id, "text": text}, ensure_ascii=False) + "\n"
    for doc_id, title in sorted(titles.items()):
        yield json.dumps({"doc_id": doc_id, "title": title}, ensure_ascii=False) + "\n"


def read_texts(folder: Path) -> Texts:
    """The texts of a run folder. Raises UsageError naming file, line and field."""
    lines = [*read_lines(folder / TEXTS, _Line)]
    return Texts(
        {line.query_id: line.text for line in lines if line.query_id is not None and line.text is not None},
        {line.doc_id: line.title for line in lines if line.doc_id is not None and line.title is not None},
    )
