"""What was asked about in words: `texts.jsonl` of a run folder, so that a report needs no dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmfair.errors import UsageError
from llmfair.jsonfiles import AGAIN, typed
from llmfair.records import Document, Query

TEXTS = "texts.jsonl"


@dataclass(frozen=True)
class Texts:
    """Queries by query_id, titles by doc_id; empty of folders that older versions wrote, where ids have to do."""

    queries: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _QueryLine:
    query_id: str
    text: str


@dataclass(frozen=True)
class _TitleLine:
    doc_id: str
    title: str


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
    path, queries, titles = folder / TEXTS, {}, {}
    if not path.is_file():
        return Texts()
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", AGAIN) from None
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}:{number}: cannot be read: {error}", AGAIN) from None
        if isinstance(row, dict) and "query_id" in row:
            query = typed(row, _QueryLine, f"{path}:{number}")
            queries[query.query_id] = query.text
        else:
            document = typed(row, _TitleLine, f"{path}:{number}")
            titles[document.doc_id] = document.title
    return Texts(queries, titles)
