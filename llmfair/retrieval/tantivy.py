"""BM25 with tantivy: an index of titles and texts, on disk made once for what the documents say, or in memory.

score(q, d) = Σ over the terms t of q (repeats count) of idf(t) · f (k1 + 1) / (f + k1 (1 − b + b · L / avgL)),
idf(t) = ln(1 + (N − n + ½) / (n + ½)) [Robertson and Zaragoza 2009, eq. 3.15, with Lucene's idf], f how often t
stands in d, n of N documents hold t, and L the terms of d: exact below 40, above rounded down as in Lucene.
Other engines leave out the factor k1 + 1, which changes no order. k1 and b are tantivy's and cannot be set.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from llmfair.errors import UsageError
from llmfair.records import Document

if TYPE_CHECKING:
    import tantivy

K1, B = 1.2, 0.75
TOKENIZER = "en_stem"
"""Letters and digits in lower case, English endings cut (Snowball), words over 40 bytes left out."""
SCHEMA = 1
WRITER_BYTES = 64_000_000
SMALL_WRITER_BYTES = 15_000_000  # tantivy's least: enough for what is indexed in memory


class Bm25Index:
    """The documents' BM25 index in `folder`, or in memory without one (None); made when it is first searched.

    `key` is the SHA-256 of the documents and of all that shapes an index; an index of the same key is used
    again, one that is damaged is made anew. Several processes may share a folder. Scoring raises UsageError
    when the index cannot be made.
    """

    def __init__(self, folder: Path | None, documents: Iterable[Document]) -> None:
        self._documents = sorted(documents, key=lambda document: document.doc_id)
        self._numbers = {document.doc_id: number for number, document in enumerate(self._documents)}
        self._folder = folder

    @cached_property
    def key(self) -> str:
        return _key(self._documents)

    @property
    def identity(self) -> str:
        """All that can change a score, in words."""
        return f"{described()} index={self.key[:12]}"

    def scores(self, text: str, doc_ids: Collection[str]) -> dict[str, float]:
        """The score of each of these documents, with the statistics of all; 0 where no word of `text` stands.

        `text` is words and never query syntax. Raises KeyError for an unknown document.
        """
        from tantivy import Occur, Query

        numbers = {self._numbers[doc_id]: doc_id for doc_id in doc_ids}
        found = dict.fromkeys(doc_ids, 0.0)
        terms = _analyzer().analyze(_plain(text))
        if not terms or not numbers:
            return found
        schema = _schema()
        wanted = Query.const_score_query(Query.term_set_query(schema, "number", list(numbers)), 0.0)
        matching = [(Occur.Should, Query.term_query(schema, "text", term, "freq")) for term in terms]
        query = Query.boolean_query([(Occur.Must, wanted), *matching])
        hits = self._searcher.search(query, limit=len(numbers), count=False).hits
        values = self._searcher.fast_field_values("number", [address for _, address in hits])
        for (score, _), number in zip(hits, values, strict=True):
            assert isinstance(number, int) and isinstance(score, float)
            found[numbers[number]] = score
        return found

    @cached_property
    def _searcher(self) -> tantivy.Searcher:
        if self._folder is None:
            return _searcher_of(self._filled(None, SMALL_WRITER_BYTES))
        path = self._folder / self.key
        try:
            with _locked(path):
                if not _is_whole(path):
                    self._build(path)
                return _searcher_of(_opened(path))
        except (OSError, ValueError) as error:  # tantivy tells a full disk by a ValueError
            raise UsageError(
                f"the index {path} cannot be made: {error}.",
                "free its place, or name another cache folder with LLMFAIR_CACHE_DIR",
            ) from None

    def _build(self, path: Path) -> None:
        """Makes the index beside its place and moves it there whole, so that a part of one is never read."""
        beside, damaged = (path.with_name(path.name + end) for end in (".tmp", ".old"))
        for leftover in (beside, damaged):
            shutil.rmtree(leftover, ignore_errors=True)
        beside.mkdir()
        self._filled(str(beside), WRITER_BYTES)
        (beside / _WHOLE).write_text(json.dumps(_digests(beside)), "utf-8")
        if path.exists():  # moved, since it may not be emptied while a thread of tantivy still locks it
            path.rename(damaged)
        beside.rename(path)
        shutil.rmtree(damaged, ignore_errors=True)

    def _filled(self, path: str | None, writer_bytes: int) -> tantivy.Index:
        """An index of the documents at this path, or in memory."""
        import tantivy

        index = tantivy.Index(_schema(), path=path)
        index.register_tokenizer(TOKENIZER, _analyzer())
        writer = index.writer(heap_size=writer_bytes, num_threads=1)
        for number, document in enumerate(self._documents):
            entry = tantivy.Document()
            entry.add_integer("number", number)
            entry.add_text("text", _content(document))
            writer.add_document(entry)
        writer.commit()
        writer.wait_merging_threads()
        return index


def described() -> str:
    """Formula, tokenizer and engine, in words."""
    return f"bm25 k1={K1} b={B} tokenizer={TOKENIZER} tantivy={version('tantivy')}"


def _opened(path: Path) -> tantivy.Index:
    import tantivy

    return tantivy.Index.open(str(path))


def _searcher_of(index: tantivy.Index) -> tantivy.Searcher:
    index.config_reader("manual")  # no thread that watches the folder: it does not change
    index.reload()
    return index.searcher()


_WHOLE = "files.json"


def _schema() -> tantivy.Schema:
    from tantivy import SchemaBuilder

    builder = SchemaBuilder()
    builder.add_integer_field("number", indexed=True, fast=True)
    builder.add_text_field("text", tokenizer_name=TOKENIZER, index_option="freq")
    return builder.build()


def _analyzer() -> tantivy.TextAnalyzer:
    """The tokenizer of documents and queries; tantivy's own `en_stem` cannot be applied from Python."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(40))
    return builder.filter(Filter.lowercase()).filter(Filter.stemmer("english")).build()


def _content(document: Document) -> str:
    return _plain(f"{document.title}\n{document.text}")


def _plain(text: str) -> str:
    """Composed characters, since a combining accent would end a word; half a surrogate pair becomes `?`."""
    return unicodedata.normalize("NFC", text).encode("utf-8", "replace").decode("utf-8")


def _key(documents: Iterable[Document]) -> str:
    shape = {"schema": SCHEMA, "tokenizer": TOKENIZER, "tantivy": version("tantivy")}
    digest = hashlib.sha256(json.dumps(shape).encode())
    for document in documents:
        digest.update(json.dumps([document.doc_id, _content(document)]).encode())
    return digest.hexdigest()


def _is_whole(path: Path) -> bool:
    """Whether an index stands there, every file as it was written."""
    try:
        expected = json.loads((path / _WHOLE).read_text("utf-8"))
        return bool(expected == _digests(path))
    except (OSError, ValueError):
        return False


def _digests(path: Path) -> dict[str, str]:
    """The index's files by name, without tantivy's locks, which come and go."""
    found = {}
    for file in sorted(path.iterdir()):
        if file.suffix != ".lock" and file.name != _WHOLE:
            with file.open("rb") as content:
                found[file.name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an index against other processes; the kernel lets go of it when this one dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
