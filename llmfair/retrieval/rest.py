"""Elasticsearch and OpenSearch: an index past one machine, that llmfair filled or that was there before.

An index of ours has one field of terms, cut by our own analyzer and joined by spaces, so that all engines see the same
ones; one shard, since idf is a shard's; BM25 with k1 = 1.2 and b = 0.75. Any other index is searched as it is, its
fields by their own analyzers. Elasticsearch, and OpenSearch before 3.0, multiply scores by k1 + 1 as tantivy does;
OpenSearch from 3.0 on does not: no order differs.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

import llmfair
from llmfair.errors import LlmfairError, MissingKey, Rejected, UsageError
from llmfair.io import secrets
from llmfair.io.files import decode, encode, field_of
from llmfair.io.net import Client, RateLimited, ReplyTooLong, Retries, Transient, retry_after, server_of, wait
from llmfair.nouns import Document, Fill
from llmfair.registry import register
from llmfair.retrieval.bm25 import K1, B, content
from llmfair.retrieval.engine import Analyzer, Engine, EngineOptions, Hit, Patience, best, refuse_other

T = TypeVar("T")
API_KEY, USER, PASSWORD = "LLMFAIR_SEARCH_API_KEY", "LLMFAIR_SEARCH_USER", "LLMFAIR_SEARCH_PASSWORD"
LONGEST_REPLY, LONGEST_QUOTE = 64 << 20, 300
PASSING = {408, 425, *range(500, 600)}
FIELD = "text"
WINDOW = 10_000
"""Documents that one search can find: `index.max_result_window`, unless somebody changed it."""
BATCH, BATCH_BYTES = 1_000, 5_000_000
MOST_FIELDS = 20
NEW = "the name of a new index"
_NAME = re.compile(r"[^A-Z\\/*?\"<>| ,#:_.+-][^A-Z\\/*?\"<>| ,#:]*")

# What is read of answers

Count = Annotated[int, Meta(ge=0)]
Word = Annotated[str, Meta(max_length=100, pattern=r"^[ -~]+$")]
"""What is written down of a server or an index."""


class Version(Struct):
    number: Word
    distribution: Word = "elasticsearch"


class ServerReply(Struct):
    version: Version


class Shape(Struct):
    uuid: Word | None = None
    number_of_shards: str = "1"


class IndexSource(Struct):
    """What llmfair wrote of an index that it filled; `documents`, when it was whole."""

    source: Word
    tokenizer: Word
    documents: Count | None = None


class Remarks(Struct):
    llmfair: IndexSource | None = None


class Property(Struct):
    """A field, those below it, and those that hold the same in another form."""

    type: str = ""
    properties: dict[str, Property] = {}
    fields: dict[str, Property] = {}

    def types(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """The full names and types of all fields below."""
        for name, below in (*self.properties.items(), *self.fields.items()):
            if below.type:
                yield prefix + name, below.type
            yield from below.types(f"{prefix}{name}.")


class Mappings(Property, rename={"meta": "_meta"}):
    meta: Remarks = msgspec.field(default_factory=Remarks)


class IndexFacts(Struct):
    settings: dict[str, Shape] = {}
    mappings: Mappings = msgspec.field(default_factory=Mappings)


class CountReply(Struct):
    count: Count


class RowState(Struct, rename={"doc_id": "_id"}):
    status: Count
    doc_id: str = ""
    error: Any = None


class BulkReply(Struct):
    items: list[dict[str, RowState]] = []


class Shards(Struct):
    failed: Count = 0


class Score(Struct, rename={"doc_id": "_id", "score": "_score"}):
    doc_id: Annotated[str, Meta(min_length=1, max_length=512)]
    score: Annotated[float, Meta(ge=-1e300, le=1e300)] | None = None


class Hits(Struct):
    hits: list[Score]


class SearchReply(Struct, rename={"shards": "_shards"}):
    hits: Hits
    timed_out: bool = False
    shards: Shards = msgspec.field(default_factory=Shards)


class SearchServer:
    """One server over HTTP, asked by the thread that waits for the answer; threads may share it.

    `name` is what it is called in messages. Its key stands in the environment alone (`LLMFAIR_SEARCH_API_KEY`, or
    `LLMFAIR_SEARCH_USER` with `LLMFAIR_SEARCH_PASSWORD`), and is taken out of all that the server says. Raises
    UsageError for what is no address, MissingKey for half a login.
    """

    def __init__(self, url: str | None, engine: str, patience: Patience) -> None:
        if not (url := (url or "").strip()):
            raise UsageError(
                f"--engine {engine}:INDEX needs the address of its server.",
                "--engine-url https://search.example:9200",
            )
        self.name = server_of(url, "--engine-url", API_KEY)
        key, user, password = (os.environ.get(name, "").strip() for name in (API_KEY, USER, PASSWORD))
        if not f"{key}{user}{password}".isprintable() or (not key and bool(user) != bool(password)):
            raise MissingKey(
                f"{API_KEY}, or {USER} with {PASSWORD}, is cut short or holds a control character.",
                "set the key, or both of the login, again; or none",
            )
        both = b64encode(f"{user}:{password}".encode()).decode()
        headers = {"user-agent": f"llmfair/{llmfair.__version__}", "accept": "application/json"}
        if key or user:
            headers["authorization"] = f"ApiKey {key}" if key else f"Basic {both}"
        self._url, self._patience = url.rstrip("/"), patience
        self._client = Client(self.name, url, headers, patience.timeout, LONGEST_REPLY)
        login = [key, password, *[both] * bool(user)]
        every = {*secrets.known(), *login}
        every |= {json.dumps(secret, ensure_ascii=False)[1:-1] for secret in every}  # as it stands in JSON
        self._hide, self._hide_quoted = secrets.without(every), secrets.quoted(login)
        self._retries = Retries(patience.retries, patience.max_wait, patience.outage)

    def ask(
        self,
        method: str,
        path: str,
        of: type[T],
        body: Mapping[str, Any] | bytes | None = None,
        check: Callable[[T], None] = lambda answer: None,
        absent: T | None = None,
    ) -> T:
        """The server's answer, of JSON this type; `absent` for what it does not have (404). Bytes are lines of JSON.

        `check` raises RateLimited or Transient for an answer that has to be asked for again. Raises UsageError for
        what is no search server, answers in another form or does not have that, MissingKey, Rejected for a request
        that it does not take, and Unavailable when it answered nobody.
        """
        sent = body if isinstance(body, bytes | None) else encode(body)
        kind = {"content-type": "application/x-ndjson" if isinstance(body, bytes) else "application/json"}

        def attempt(number: int) -> T:
            try:
                reply = wait(self._client.ask(method, self._url + path, sent, {} if sent is None else kind))
            except ReplyTooLong:
                raise Rejected(
                    f"{self.name} sends more than {LONGEST_REPLY >> 20} MB in one reply."
                ) from None
            headers = {name.lower(): value for name, value in reply.headers.items()}
            answer = self._read(reply.status, headers, reply.body)
            if answer is None and absent is not None:
                return absent
            if answer is None:
                raise UsageError(
                    f"{self.name} has no {path.partition('?')[0]}.",
                    "fill the index again, or check --engine-url",
                )
            try:
                typed = msgspec.convert(answer, of)
            except (ValueError, RecursionError) as error:
                field, what = field_of(error)
                raise self.odd(f"{field}: {what}" if field else what) from None
            check(typed)
            return typed

        return self._retries.persist(attempt, self._patience.waits)

    def _read(self, status: int, headers: Mapping[str, str], reply: bytes) -> dict[str, Any] | None:
        """The object that a reply holds, without secrets; None of what the server does not have."""
        if status == 429:
            limited = RateLimited(retry_after(headers))
            limited.cause = f"{self.name} limits the rate (429)"
            raise limited
        answer: Any = None
        with suppress(ValueError, RecursionError):
            answer = decode(self._hide(reply.decode("utf-8-sig", "surrogatepass")))
        answer = answer if isinstance(answer, dict) else None
        says = f"{self.name} answers {status}{self.quote(answer and answer.get('error'))}"
        if status in PASSING:
            raise Transient(says, retry_after(headers))
        if 300 <= status < 400:
            raise UsageError(
                f"{self.name} redirects, which is not followed: the key would go there, too.",
                "--engine-url with the address itself",
            )
        if status in (401, 403):  # not quoted: it may repeat parts of the key
            raise MissingKey(
                f"{self.name} does not accept the key, or asks for one ({status}).",
                f"set {API_KEY}, or {USER} and {PASSWORD}, and check what they may do",
            )
        if answer is None:
            raise self.odd(f"{status} with what is no JSON object")
        if status >= 400 and status != 404:
            raise Rejected(f"{says}.")
        return None if status == 404 else answer

    def odd(self, what: str) -> UsageError:
        """Of an answer of another form than search servers give."""
        return UsageError(
            f"an answer of {self.name} is odd: {what}.", "check --engine-url: search servers answer otherwise"
        )

    def quote(self, error: Any) -> str:
        """The server's words about what went wrong, as a clause after a colon; nothing where it has none."""
        if isinstance(error, dict):
            causes = error.get("root_cause")
            first = causes[0] if isinstance(causes, list) and causes else error
            error = (first if isinstance(first, dict) else error).get("reason")
        words = self._hide_quoted(" ".join(str(error or "").split()))
        return f": {words[:LONGEST_QUOTE].rstrip('.')}" if words else ""

    def count(self, index: str) -> int:
        """How many documents of an index can be found."""
        return self.ask("GET", f"/{index}/_count", CountReply).count

    def describe(self, index: str) -> IndexFacts | None:
        """What an index is; None where there is none. Raises UsageError for a name of several."""
        answer = self.ask("GET", f"/{index}", dict[str, IndexFacts], absent={})
        if len(answer) > 1:
            raise UsageError(
                f"'{index}' on {self.name} is several indexes, which count words apart.", "name one of them"
            )
        return next(iter(answer.values()), None)


class SearchEngines:
    """The servers of one kind, as they say themselves which they are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, options: EngineOptions) -> Engine:
        """Over an index that exists: of ours, or by its `fields` of anybody's.

        Raises UsageError for an index that is gone, not whole, or lacks a field, RunConflict for another one of ours.
        """
        server, version = self._server(options.url, options.index, options.patience)
        index, where = options.index, f"{self.name}:{options.index}"
        command = options.made.command if options.made else "llmfair datasets fetch"
        if (facts := server.describe(index)) is None:
            raise UsageError(f"there is no index '{index}' on {server.name}.", f"{command}    fills one")
        shape, documents = facts.settings.get("index", Shape()), server.count(index)
        identity = f"{self.name}={version} index={index} uuid={shape.uuid or ''} documents={documents}"
        # words are counted in all shards
        path = f"/{index}/_search{'?search_type=dfs_query_then_fetch' * (shape.number_of_shards != '1')}"
        there = dict(facts.mappings.types())
        if options.fields:
            # a field that is not there finds nothing, and the server says nothing of it
            if missing := [field for field in options.fields if field not in there]:
                named = ", ".join([*there][:MOST_FIELDS])
                raise UsageError(f"{where} has no field '{missing[0]}'.", f"its fields: {named or 'none'}")
            identity += f" fields={','.join(options.fields)}"
            return RestEngine(identity, server, path, options.fields, None, documents)
        if (origin := facts.mappings.meta.llmfair) is None:
            texts = [name for name, kind in there.items() if kind == "text"]
            raise UsageError(
                f"{where} was not filled by llmfair: which of its fields are searched?",
                f"--engine-fields {','.join(texts[:MOST_FIELDS]) or 'title,text'}",
            )
        wanted = {"source": options.made.source} if options.made else {}
        wanted["tokenizer"] = options.analyzer.tokenizer
        refuse_other(where, msgspec.structs.asdict(origin), wanted, NEW)
        if origin.documents is None:
            raise UsageError(f"{where} is not filled to its end.", f"{command}    continues")
        identity = f"bm25 k1={K1} b={B} tokenizer={origin.tokenizer} {identity} source={origin.source[:12]}"
        return RestEngine(identity, server, path, (FIELD,), options.analyzer, documents)

    def filler(self, index: str, url: str | None, analyzer: Analyzer) -> Fill:
        """Fills the index on its server. Raises UsageError, MissingKey or Unavailable where that cannot be asked."""
        server, _ = self._server(url, index, Patience())

        def fill(folder: Path, documents: Iterable[Document], *, source: str) -> None:
            """Goes on with an index that was begun; one that is whole is left as it is."""
            where, meta = f"{self.name}:{index}", {"source": source, "tokenizer": analyzer.tokenizer}

            def check(bulk: BulkReply) -> None:
                for row in (row for item in bulk.items for row in item.values()):
                    if row.status == 429 or row.status in PASSING:
                        raise RateLimited(None)
                    if row.status >= 400 and row.status != 409:  # 409: it was sent before, and is there
                        raise LlmfairError(
                            f"{where} does not take document '{row.doc_id[:LONGEST_QUOTE]}'{server.quote(row.error)}.",
                            "check the index and what the key may do; the same command continues",
                        )

            if (facts := server.describe(index)) is None:
                bm25 = {"type": "BM25", "k1": K1, "b": B}
                field = {"type": "text", "analyzer": "whitespace", "index_options": "freqs"}
                body = {
                    "settings": {"index": {"number_of_shards": 1, "similarity": {"default": bm25}}},
                    "mappings": {"_meta": {"llmfair": meta}, "dynamic": False, "properties": {FIELD: field}},
                }
                server.ask("PUT", f"/{index}", dict, body)
                held = 0
            else:
                if (origin := facts.mappings.meta.llmfair) is None:
                    raise UsageError(f"{where} is there already, and was not filled by llmfair.", NEW)
                refuse_other(where, msgspec.structs.asdict(origin), meta, NEW)
                if origin.documents is not None:
                    return
                server.ask("POST", f"/{index}/_refresh", dict)
                held = server.count(index)
            sent = start = max(0, held - BATCH)  # all but the last batch that was begun is whole
            for lines in _batches(islice(documents, start, None), analyzer):
                server.ask("POST", f"/{index}/_bulk", BulkReply, b"".join(lines), check)
                sent += len(lines)
            server.ask("POST", f"/{index}/_refresh", dict)
            if (count := server.count(index)) != sent:
                raise LlmfairError(
                    f"{where} holds {count:,} of {sent:,} documents.", "delete the index and fetch again"
                )
            server.ask("PUT", f"/{index}/_mapping", dict, {"_meta": {"llmfair": {**meta, "documents": sent}}})

        return fill

    def _server(self, url: str | None, index: str, patience: Patience) -> tuple[SearchServer, str]:
        """The server and its version. Raises UsageError for one of another kind, and for no name of an index."""
        if not _NAME.fullmatch(index):
            raise UsageError(
                f"--engine {self.name}{f':{index}' if index else ''} names no index.",
                f"--engine {self.name}:pages    in lower case",
            )
        server = SearchServer(url, self.name, patience)
        version = server.ask("GET", "/", ServerReply).version
        if (kind := version.distribution) != self.name:
            raise UsageError(f"{server.name} is {kind}, and not {self.name}.", f"--engine {kind}:{index}")
        return server, version.number


for _kind in ("elasticsearch", "opensearch"):
    register("engine", _kind)(SearchEngines(_kind))


@dataclass(frozen=True)
class RestEngine:
    """BM25 by a server at the `path` of an index. Without an analyzer of ours, it cuts text into terms itself."""

    identity: str
    server: SearchServer
    path: str
    fields: Sequence[str]
    analyzer: Analyzer | None
    documents: int

    def count(self) -> int:
        return self.documents

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> list[Hit]:
        wanted = [*self._words(text), *self._words(added, weight)]
        k = min(k, self.documents)
        if not wanted or k < 1:
            return []
        if k > WINDOW:
            raise UsageError(f"a server finds {WINDOW:,} documents at most, not {k:,}.", f"--depth {WINDOW}")
        return best(k, WINDOW, lambda n: self._hits({"bool": {"should": wanted}}, n), str)

    def scores(self, text: str, doc_ids: Collection[str]) -> dict[str, float]:
        scores, left = dict[str, float](), iter(doc_ids)
        while some := list(islice(left, WINDOW)):
            among = {"filter": [{"ids": {"values": some}}], "should": self._words(text)}
            scores |= {doc_id: score for score, doc_id in self._hits({"bool": among}, len(some))}
        if missing := next((doc_id for doc_id in doc_ids if doc_id not in scores), None):
            raise UsageError(f"the index on {self.server.name} has no document '{missing}'.", "fill it again")
        return {doc_id: scores[doc_id] for doc_id in doc_ids}

    def _words(self, text: str, weight: float = 1.0) -> list[dict[str, Any]]:
        """What each field is searched for."""
        words = text if self.analyzer is None else " ".join(self.analyzer.terms(text))
        fields = self.fields if words.strip() else ()
        return [{"match": {field: {"query": words, "boost": weight}}} for field in fields]

    def _hits(self, query: Mapping[str, Any], size: int) -> list[tuple[float, str]]:
        def check(answer: SearchReply) -> None:
            if answer.timed_out or answer.shards.failed:
                raise Transient(f"{self.server.name} searched a part of the index only")
            hits = answer.hits.hits
            if len(hits) > size or len({hit.doc_id for hit in hits}) < len(hits):
                raise self.server.odd(f"it has more than {size:,} hits, or one twice")

        body = {"size": size, "_source": False, "track_total_hits": False, "query": query}
        answer = self.server.ask("POST", self.path, SearchReply, body, check)
        return [(hit.score or 0.0, hit.doc_id) for hit in answer.hits.hits]


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
