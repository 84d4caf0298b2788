"""BM25 over documents at hand: their index is made once for what they say, when it is first searched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from threading import Lock

from llmfair.errors import UsageError
from llmfair.nouns import Document, Fill
from llmfair.registry import register
from llmfair.retrieval.analysis import ENGLISH, Analyzer
from llmfair.retrieval.build import filled, identity, opened, stored
from llmfair.retrieval.engine import Engine, EngineOptions, Hit
from llmfair.retrieval.tantivy import TantivyEngine, content, new_index

SMALL_WRITER_BYTES = 15_000_000  # tantivy's least: enough for what is indexed in memory


@register("engine", "tantivy")
class Tantivy:
    """Searches on this machine."""

    @staticmethod
    def open(options: EngineOptions) -> Engine:
        """Over the documents at hand, or an index that was made of them. Raises UsageError, RunConflict."""
        _of_no_server(options.index, options.url or options.fields)
        if (made := options.made) is None:
            return Bm25Index(options.cache / "indexes", options.documents.values(), options.analyzer)
        if made.engine != "tantivy":
            raise UsageError(
                f"{options.collection} was indexed by {made.engine}, and not on this machine.",
                f"--engine {made.engine} --engine-url URL",
            )
        return opened(made, options.analyzer)

    @staticmethod
    def filler(index: str, url: str | None, analyzer: Analyzer) -> Fill:
        """Makes the index on this disk, in place of another one. Raises UsageError for what is of a server."""
        _of_no_server(index, url)

        def fill(folder: Path, documents: Iterable[Document], *, source: str) -> None:
            stored(folder / analyzer.name, documents, source, analyzer, replaces=True)

        return fill


def _of_no_server(*given: object) -> None:
    if any(given):
        raise UsageError(
            "tantivy searches on this machine: no index, address or fields of a server are its own.",
            "--engine elasticsearch:INDEX or opensearch:INDEX with --engine-url URL",
        )


class Bm25Index:
    """The engine of these documents' index in `folder`, or in memory without one (None).

    `key` is the SHA-256 of the documents and of all that shapes an index; an index of the same key is used
    again, one that is damaged is made anew. Several processes may share a folder. Searching raises UsageError
    when the index cannot be made.
    """

    def __init__(
        self, folder: Path | None, documents: Iterable[Document], analyzer: Analyzer = ENGLISH
    ) -> None:
        self._documents = sorted(documents, key=lambda document: document.doc_id)
        self._folder, self._analyzer = folder, analyzer
        self._made: TantivyEngine | None = None
        self._making = Lock()

    @cached_property
    def key(self) -> str:
        shape = {"schema": 1, "tokenizer": self._analyzer.tokenizer, "tantivy": version("tantivy")}
        digest = hashlib.sha256(json.dumps(shape).encode())
        for document in self._documents:
            digest.update(json.dumps([document.doc_id, content(document)]).encode())
        return digest.hexdigest()

    @property
    def identity(self) -> str:
        return identity(self.key, self._analyzer)

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> list[Hit]:
        return self._engine().search(text, k, added, weight)

    def scores(self, text: str, doc_ids: Collection[str]) -> dict[str, float]:
        return self._engine().scores(text, doc_ids)

    def count(self) -> int:
        return len(self._documents)

    def _engine(self) -> TantivyEngine:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> TantivyEngine:
        if self._folder is not None:
            return stored(self._folder / self.key, self._documents, self.key, self._analyzer)
        index = new_index(None, self._analyzer)
        filled(index, self._documents, len(self._documents) + 1, SMALL_WRITER_BYTES)
        return TantivyEngine(index, self._analyzer, self.identity)
