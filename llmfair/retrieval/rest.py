"""Elasticsearch and OpenSearch: an index past one machine, that llmfair filled or that was there before.

An index of ours has one field of terms, cut by our own analyzer and joined by spaces, so that all engines see the same
ones; one shard, since idf is a shard's; BM25 with k1 = 1.2 and b = 0.75. Any other index is searched as it is, its
fields by their own analyzers. Elasticsearch, and OpenSearch before 3.0, multiply scores by k1 + 1 as tantivy does;
OpenSearch from 3.0 on does not: no order differs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from llmfair.backends.base import RateLimited, Transient
from llmfair.errors import LlmfairError, RunConflict, UsageError
from llmfair.jsonbytes import encode
from llmfair.many import Fill
from llmfair.records import Document
from llmfair.registry import register
from llmfair.retrieval.analysis import Analyzer
from llmfair.retrieval.engine import Engine, EngineOptions, Hit
from llmfair.retrieval.search_server import PASSING, SearchServer
from llmfair.retrieval.tantivy import K1, SPARE, B, content

FIELD = "text"
WINDOW = 10_000
"""Documents that one search can find: `index.max_result_window`, unless somebody changed it."""
BATCH, BATCH_BYTES = 1_000, 5_000_000
_NAME = re.compile(r"[^A-Z\\/*?\"<>| ,#:_.+-][^A-Z\\/*?\"<>| ,#:]*")
EXISTS = 409


class SearchEngines:
    """The servers of one kind, as they say themselves which they are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, options: EngineOptions) -> Engine:
        """Over an index that exists: of ours, or by its `fields` of anybody's.

        Raises UsageError for an index that is gone, not whole, or lacks a field, RunConflict for another one of ours.
        """
        server, version = self._server(options.url, options.index)
        index, where = options.index, f"{self.name}:{options.index}"
        command = options.made.command if options.made else "llmfair datasets fetch"
        described = server.ask("GET", f"/{index}")
        if described is None:
            raise UsageError(f"there is no index '{index}' on {server.name}.", f"{command}    fills one")
        if len(described) != 1:
            raise UsageError(f"{where} is several indexes, which count words apart.", "name one of them")
        settings, mappings = _told(described)
        documents = server.ask("GET", f"/{index}/_count")["count"]
        identity = (
            f"{self.name}={version} index={index} uuid={settings.get('uuid', '')} documents={documents}"
        )
        fields, analyzer = options.fields, None
        if fields:
            _check_fields(where, fields, mappings)
            identity += f" fields={','.join(fields)}"
        else:
            meta = _ours(mappings)
            if meta is None:
                texts = [name for name, kind in _fields(mappings).items() if kind == "text"]
                raise UsageError(
                    f"{where} was not filled by llmfair: which of its fields are searched?",
                    f"--engine-fields {','.join(texts) or 'title,text'}",
                )
            _refuse_other(where, meta, options.made.source if options.made else None, options.analyzer)
            if "documents" not in meta:
                raise UsageError(f"{where} is not filled to its end.", f"{command}    continues")
            fields, analyzer = (FIELD,), options.analyzer
            identity = (
                f"bm25 k1={K1} b={B} tokenizer={meta['tokenizer']} {identity} source={meta['source'][:12]}"
            )
        return RestEngine(
            server, index, fields, analyzer, documents, identity, int(settings.get("number_of_shards", 1)) > 1
        )

    def filler(self, index: str, url: str | None, analyzer: Analyzer) -> Fill:
        """Fills the index on its server. Raises UsageError, MissingKey or Unavailable where that cannot be asked."""
        self._server(url, index)

        def fill(folder: Path, documents: Iterable[Document], *, source: str) -> None:
            server, _ = self._server(url, index)  # again: a download of hours may lie between
            self._fill(server, index, documents, source, analyzer)

        return fill

    def _fill(
        self, server: SearchServer, index: str, documents: Iterable[Document], source: str, analyzer: Analyzer
    ) -> None:
        """Goes on with an index that was begun; one that is whole is left as it is.

        Raises UsageError for an index that is not ours, RunConflict for one of other documents or another analyzer,
        LlmfairError for a document that the server does not take.
        """
        where, meta = f"{self.name}:{index}", {"source": source, "tokenizer": analyzer.tokenizer}
        described, held = server.ask("GET", f"/{index}"), 0
        if described is None:
            server.ask("PUT", f"/{index}", _created(meta))
        else:
            there = _ours(_told(described)[1])
            if there is None:
                raise UsageError(
                    f"{where} is there already, and was not filled by llmfair.", "the name of a new index"
                )
            _refuse_other(where, there, source, analyzer)
            if "documents" in there:
                return
            held = _count(server, index)
        # all but the last batch that was begun is whole
        sent = start = max(0, held - BATCH)
        for lines in _batches(islice(documents, start, None), analyzer):
            server.ask("POST", f"/{index}/_bulk", b"".join(lines), partial(_check_bulk, server, where))
            sent += len(lines)
        if (found := _count(server, index)) != sent:
            raise LlmfairError(
                f"{where} holds {found:,} of {sent:,} documents.", "delete the index and fetch again"
            )
        server.ask("PUT", f"/{index}/_mapping", {"_meta": {"llmfair": {**meta, "documents": sent}}})

    def _server(self, url: str | None, index: str) -> tuple[SearchServer, str]:
        """The server and its version. Raises UsageError for one of another kind, and for no name of an index."""
        if not _NAME.fullmatch(index):
            raise UsageError(
                f"--engine {self.name}{f':{index}' if index else ''} names no index.",
                f"--engine {self.name}:pages    in lower case",
            )
        server = SearchServer(url, self.name)
        version = (server.ask("GET", "/") or {}).get("version", {})
        if not isinstance(version, dict) or "number" not in version:
            raise UsageError(f"{server.name} does not say which search server it is.", "check --engine-url")
        kind = version.get("distribution", "elasticsearch")
        if kind != self.name:
            raise UsageError(f"{server.name} is {kind}, and not {self.name}.", f"--engine {kind}:{index}")
        return server, version["number"]


for _kind in ("elasticsearch", "opensearch"):
    register("engine", _kind)(SearchEngines(_kind))


class RestEngine:
    """BM25 by a server. Without an analyzer of ours, text is the server's to cut into terms."""

    def __init__(
        self,
        server: SearchServer,
        index: str,
        fields: Sequence[str],
        analyzer: Analyzer | None,
        documents: int,
        identity: str,
        several_shards: bool,
    ) -> None:
        self.identity = identity
        self._server, self._fields, self._analyzer, self._documents = server, fields, analyzer, documents
        counted = (
            "?search_type=dfs_query_then_fetch" if several_shards else ""
        )  # words of all shards together
        self._path = f"/{index}/_search{counted}"

    def count(self) -> int:
        return self._documents

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> list[Hit]:
        wanted = [*self._words(text), *self._words(added, weight)]
        k = min(k, self._documents)
        if not wanted or k < 1:
            return []
        if k > WINDOW:
            raise UsageError(f"a server finds {WINDOW:,} documents at most, not {k:,}.", f"--depth {WINDOW}")
        fetched = min(k + SPARE, WINDOW)
        while True:
            hits = self._hits({"bool": {"should": wanted}}, fetched)
            if len(hits) < fetched or fetched == WINDOW or hits[-1].score < hits[k - 1].score:
                return sorted(hits, key=lambda hit: (-hit.score, hit.doc_id))[:k]
            fetched = min(4 * fetched, WINDOW)  # a server has ties in the order of its segments

    def scores(self, text: str, doc_ids: Collection[str]) -> dict[str, float]:
        found: dict[str, float] = {}
        left = iter(doc_ids)
        while some := list(islice(left, WINDOW)):
            among = {"filter": [{"ids": {"values": some}}], "should": self._words(text)}
            found.update(self._hits({"bool": among}, len(some)))
        return {doc_id: found[doc_id] for doc_id in doc_ids}

    def _words(self, text: str, weight: float = 1.0) -> list[dict[str, Any]]:
        """What each field is searched for."""
        words = text if self._analyzer is None else " ".join(self._analyzer.terms(text))
        if not words.strip():
            return []
        heavier = {} if weight == 1 else {"boost": weight}
        return [{"match": {field: {"query": words, **heavier}}} for field in self._fields]

    def _hits(self, query: Mapping[str, Any], size: int) -> list[Hit]:
        body = {"size": size, "_source": False, "track_total_hits": False, "query": query}
        answer = self._server.ask("POST", self._path, body, self._check_search)
        if answer is None:
            raise UsageError(f"the index was removed from {self._server.name}.", "fill it again")
        return [Hit(str(hit["_id"]), float(hit["_score"] or 0)) for hit in answer["hits"]["hits"]]

    def _check_search(self, answer: Mapping[str, Any]) -> None:
        """Raises Transient for what was found in a part of the index only."""
        if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
            raise Transient(f"{self._server.name} searched a part of the index only")


def _created(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an index of ours, which says what it is made of."""
    bm25 = {"type": "BM25", "k1": K1, "b": B}
    return {
        "settings": {"index": {"number_of_shards": 1, "similarity": {"default": bm25}}},
        "mappings": {
            "_meta": {"llmfair": meta},
            "dynamic": False,
            "properties": {FIELD: {"type": "text", "analyzer": "whitespace", "index_options": "freqs"}},
        },
    }


def _refuse_other(where: str, there: Mapping[str, Any], source: str | None, analyzer: Analyzer) -> None:
    """Raises RunConflict for an index of other documents, or of another analyzer."""
    made_of = {"source": source or there.get("source"), "tokenizer": analyzer.tokenizer}
    said = [
        f"{name} is {str(there.get(name))[:12]}, not {str(value)[:12]}"
        for name, value in made_of.items()
        if there.get(name) != value
    ]
    if said:
        raise RunConflict(f"the index {where} is another one: {', '.join(said)}.", "the name of a new index")


def _count(server: SearchServer, index: str) -> int:
    """How many documents an index holds, once all that were sent can be found."""
    server.ask("POST", f"/{index}/_refresh")
    count: int = server.ask("GET", f"/{index}/_count")["count"]
    return count


def _batches(documents: Iterable[Document], analyzer: Analyzer) -> Iterator[list[bytes]]:
    """What is sent of documents, two lines each, as much at a time as a server takes."""
    batch, size = list[bytes](), 0
    built = analyzer.built()
    for document in documents:
        head = {"create": {"_id": document.doc_id}}  # a document that is there stays: it was sent before
        lines = b"%b\n%b\n" % (encode(head), encode({FIELD: " ".join(built.analyze(content(document)))}))
        if batch and (len(batch) == BATCH or size + len(lines) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(lines)
        size += len(lines)
    if batch:
        yield batch


def _check_bulk(server: SearchServer, where: str, answer: Mapping[str, Any]) -> None:
    """Raises RateLimited where some documents have to be sent again, LlmfairError where one is refused."""
    for item in answer["items"] if answer.get("errors") else ():
        found = item["create"]
        if (status := found["status"]) == 429 or status in PASSING:
            raise RateLimited(None)
        if status >= 400 and status != EXISTS:
            raise LlmfairError(
                f"{where} does not take document '{found['_id']}'{server.failure(found.get('error'))}.",
                "check the index and what the key may do; the same command continues",
            )


def _told(described: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Settings and mappings of an index, as its server tells them."""
    ((_, told),) = described.items()
    return told.get("settings", {}).get("index", {}), told.get("mappings", {})


def _ours(mappings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What llmfair wrote of an index that it filled; None of any other."""
    meta: Mapping[str, Any] | None = mappings.get("_meta", {}).get("llmfair")
    return meta


def _check_fields(where: str, fields: Sequence[str], mappings: Mapping[str, Any]) -> None:
    """A field that is not there finds nothing, and the server says nothing of it. Raises UsageError."""
    there = _fields(mappings)
    for field in fields:
        if field not in there:
            raise UsageError(f"{where} has no field '{field}'.", f"its fields: {', '.join(there) or 'none'}")


def _fields(mappings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The fields of mappings by their full names, with their types."""
    found: dict[str, str] = {}
    for below in ("properties", "fields"):
        for name, of in mappings.get(below, {}).items():
            if "type" in of:
                found[prefix + name] = of["type"]
            found |= _fields(of, f"{prefix}{name}.")
    return found
