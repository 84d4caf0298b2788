"""BM25 on this machine: an index of titles and texts, on disk or in memory, which is made once for what they say.

score(q, d) = Σ over the terms t of q (repeats count) of idf(t) · f (k1 + 1) / (f + k1 (1 − b + b · L / avgL)),
idf(t) = ln(1 + (N − n + ½) / (n + ½)) [Robertson and Zaragoza 2009, eq. 3.15, with Lucene's idf], f how often t
stands in d, n of N documents hold t, and L the terms of d: exact below 40, above rounded down as in Lucene.
Other engines leave out the factor k1 + 1, which changes no order. k1 and b are tantivy's and cannot be set.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING, Any, cast

import msgspec

from llmfair.errors import UsageError, line_of
from llmfair.io import files
from llmfair.io.files import write_whole
from llmfair.nouns import Document, Fill
from llmfair.registry import register
from llmfair.retrieval.engine import ENGLISH, Analyzer, Engine, EngineOptions, Hit, best, plain, refuse_other

if TYPE_CHECKING:
    import tantivy

K1, B = 1.2, 0.75


class TantivyEngine:
    """An index that does not change while it is searched; `make` makes or opens it, when it is first needed."""

    def __init__(self, make: Callable[[], tantivy.Index], analyzer: Analyzer, source: str) -> None:
        self.identity = identity(analyzer, source[:12])
        self._make, self._analyzer = make, analyzer
        # as many as there are cores: more would all end late, since they only take each other's time
        self._turns = Semaphore(os.cpu_count() or 1)

    @cached_property
    def _index(self) -> tantivy.Index:
        index = self._make()
        index.config_reader("manual")  # no thread that watches the folder
        index.reload()
        return index

    @cached_property
    def _searcher(self) -> tantivy.Searcher:
        return self._index.searcher()

    def count(self) -> int:
        return self._searcher.num_docs

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> list[Hit]:
        from tantivy import Occur, Query

        terms = self._terms(text) + [
            word if weight == 1 else Query.boost_query(word, weight) for word in self._terms(added)
        ]
        k = min(k, self.count())
        if not terms or k < 1:
            return []
        query = Query.boolean_query([(Occur.Should, term) for term in terms])
        return best(k, self.count(), lambda n: self._hits(query, n), self._doc_id)

    def scores(self, text: str, doc_ids: Collection[str]) -> dict[str, float]:
        from tantivy import Occur, Query

        if not doc_ids:
            return {}
        among = Query.term_set_query(self._index.schema, "doc_id", list(doc_ids))
        wanted = Query.const_score_query(among, 0.0)
        terms = [(Occur.Should, term) for term in self._terms(text)]
        hits = self._hits(Query.boolean_query([(Occur.Must, wanted), *terms]), len(doc_ids))
        scores = {self._doc_id(address): score for score, address in hits}
        return {doc_id: scores[doc_id] for doc_id in doc_ids}

    def _terms(self, text: str) -> list[tantivy.Query]:
        from tantivy import Query

        schema, terms = self._index.schema, self._analyzer.terms(text)
        return [Query.term_query(schema, "text", term, "freq") for term in terms]

    def _hits(self, query: tantivy.Query, limit: int) -> list[tuple[float, tantivy.DocAddress]]:
        with self._turns:
            return self._searcher.search(query, limit=limit, count=False).hits

    def _doc_id(self, address: tantivy.DocAddress) -> str:
        return cast(str, self._searcher.doc(address).get_first("doc_id"))


def identity(analyzer: Analyzer, index: str) -> str:
    """All that can change a score, in words: formula, tokenizer, engine and index."""
    return f"bm25 k1={K1} b={B} tokenizer={analyzer.tokenizer} tantivy={version('tantivy')} index={index}"


def new_index(path: str | None, analyzer: Analyzer) -> tantivy.Index:
    """An index at this path, or in memory; one of the same fields that stands there is kept."""
    from tantivy import Index, SchemaBuilder

    builder = SchemaBuilder()
    builder.add_text_field("doc_id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", tokenizer_name=analyzer.tokenizer, index_option="freq")
    index = Index(builder.build(), path=path)
    index.register_tokenizer(analyzer.tokenizer, analyzer.built())
    return index


def content(document: Document) -> str:
    """What is searched: title and text."""
    return plain(f"{document.title}\n{document.text}")


# An index on disk, made from a stream of documents in bounded memory; a build that was killed goes on. Beside its files
# an index has a manifest: what it was made of, by which analyzer and engine; and files.json, by which each is known
# again (`io/files.py`). While one is made it stands under another name, so that a part of an index is never read.


SCHEMA = 3
MANIFEST = "manifest.json"
WRITER_BYTES, SMALL_WRITER_BYTES = 64_000_000, 15_000_000  # the smaller is tantivy's least
COMMIT_EVERY = 250_000
"""Documents: what a killed build has to do again at most."""


def stored(path: Path, documents: Iterable[Document], source: str, analyzer: Analyzer) -> TantivyEngine:
    """The engine of the index at this path, which is made when there is none, or a damaged one.

    `source` is the SHA-256 of what the documents are; they themselves, whose ids are distinct, are looked at only where
    an index is to be made, and come in the same order each time. Several processes may share a path. An index of
    something else is replaced when the new one is whole. Raises UsageError when none can be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.held(path.with_name(path.name + ".lock"), path, "wait for it", wait=True):
            try:
                return _engine(path, source, analyzer)
            except (OSError, ValueError):
                build(path, documents, _plan(source, analyzer), analyzer)
            return _engine(path, source, analyzer)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the index {path} cannot be made: {line_of(error)}.",
            "free its place, or name another cache folder with LLMFAIR_CACHE_DIR",
        ) from None


def _engine(path: Path, source: str, analyzer: Analyzer) -> TantivyEngine:
    """The engine of an index that was made of this source. Raises OSError or ValueError for any other, and damage."""
    import tantivy

    files.check(path)
    if _manifest(path) != _plan(source, analyzer):
        raise ValueError("it was made of something else")
    engine = TantivyEngine(partial(tantivy.Index.open, str(path)), analyzer, source)
    engine.count()  # opened now, since another index may come in its place
    return engine


def _plan(source: str, analyzer: Analyzer) -> dict[str, Any]:
    """What an index is made of, as its manifest has it."""
    tokenizer = analyzer.tokenizer
    return {"schema": SCHEMA, "source": source, "tokenizer": tokenizer, "tantivy": version("tantivy")}


def filled(index: tantivy.Index, documents: Iterable[Document], writer_bytes: int) -> None:
    """Writes the documents that the index does not hold yet."""
    from tantivy import Document as Entry

    index.reload()
    held = index.searcher().num_docs
    writer = index.writer(heap_size=writer_bytes, num_threads=1)
    try:
        for number, document in enumerate(islice(documents, held, None), held + 1):
            writer.add_document(Entry(doc_id=document.doc_id, text=content(document)))
            if number % COMMIT_EVERY == 0:
                writer.commit()
        writer.commit()
    finally:
        writer.wait_merging_threads()  # lets go of the folder, too


def build(path: Path, documents: Iterable[Document], plan: Mapping[str, Any], analyzer: Analyzer) -> None:
    """Makes the index beside its place, on what a killed build of the same plan committed, and moves it there whole."""
    unfinished, damaged = (path.with_name(path.name + end) for end in (".tmp", ".old"))
    shutil.rmtree(damaged, ignore_errors=True)
    try:
        if _manifest(unfinished) != plan:
            raise ValueError("it was begun of something else")
        index = new_index(str(unfinished), analyzer)
    except ValueError:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        write_whole(unfinished / MANIFEST, [json.dumps(plan)])
        index = new_index(str(unfinished), analyzer)
    filled(index, documents, WRITER_BYTES)
    # without tantivy's locks, which come and go
    files.note(unfinished, (file.name for file in unfinished.iterdir() if file.suffix != ".lock"))
    if path.exists():  # moved, since it may not be emptied while a thread of tantivy still locks it
        path.rename(damaged)
    unfinished.rename(path)
    shutil.rmtree(damaged, ignore_errors=True)


def _manifest(path: Path) -> dict[str, Any]:
    """What the manifest says; nothing without one."""
    try:
        return msgspec.json.decode(files.content(path / MANIFEST, files.MOST_RECORDED), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return {}


# Documents at hand, and the engine of this machine


@register("engine", "tantivy")
class Tantivy:
    """Searches on this machine."""

    @staticmethod
    def open(options: EngineOptions) -> Engine:
        """Over the documents at hand, or an index that was made of them. Raises UsageError, RunConflict."""
        _of_no_server(options.index, options.url or options.fields)
        if (stored_index := options.made) is None:
            return Bm25Index(options.cache / "indexes", options.documents.values(), options.analyzer)
        if stored_index.engine != "tantivy":
            raise UsageError(
                f"{options.collection} was indexed by {stored_index.engine}, and not on this machine.",
                f"--engine {stored_index.engine} --engine-url URL",
            )
        path, hint = stored_index.path, f"remove it, then {stored_index.command}"
        if (manifest := _manifest(path)).get("schema") == SCHEMA:
            refuse_other(path, manifest, _plan(stored_index.source, options.analyzer), hint)
        try:
            return _engine(path, stored_index.source, options.analyzer)
        except (OSError, ValueError):
            raise UsageError(f"the index {path} is gone or damaged.", hint) from None

    @staticmethod
    def filler(index: str, url: str | None, analyzer: Analyzer) -> Fill:
        """Makes the index on this disk, in place of another one. Raises UsageError for what is of a server."""
        _of_no_server(index, url)

        def fill(folder: Path, documents: Iterable[Document], *, source: str) -> None:
            stored(folder / analyzer.name, documents, source, analyzer)

        return fill


def _of_no_server(*settings: object) -> None:
    if any(settings):
        raise UsageError(
            "tantivy searches on this machine: no index, address or fields of a server are its own.",
            "--engine elasticsearch:INDEX or opensearch:INDEX with --engine-url URL",
        )


class Bm25Index(TantivyEngine):
    """These documents' index in `folder`, or in memory without one (None), made when it is searched.

    It is called by the SHA-256 of the documents and of all that shapes an index. Searching raises UsageError when the
    index cannot be made.
    """

    def __init__(
        self, folder: Path | None, documents: Iterable[Document], analyzer: Analyzer = ENGLISH
    ) -> None:
        ordered = sorted(documents, key=lambda document: document.doc_id)
        shape = {"schema": 1, "tokenizer": analyzer.tokenizer, "tantivy": version("tantivy")}
        digest = hashlib.sha256(json.dumps(shape).encode())
        for document in ordered:
            digest.update(json.dumps([document.doc_id, content(document)]).encode())
        key = digest.hexdigest()

        def make() -> tantivy.Index:
            if folder is not None:
                return stored(folder / key, ordered, key, analyzer)._index
            index = new_index(None, analyzer)
            filled(index, ordered, SMALL_WRITER_BYTES)
            return index

        super().__init__(make, analyzer, key)
