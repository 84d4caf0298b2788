"""Elasticsearch and OpenSearch: an index past one machine, that llmfair filled or that was there before.

An index of ours has one field of terms, cut by our own analyzer and joined by spaces, so that all engines see the same
ones; one shard, since idf is a shard's; BM25 with k1 = 1.2 and b = 0.75. Any other index is searched as it is, its
fields by their own analyzers. Elasticsearch, and OpenSearch before 3.0, multiply scores by k1 + 1 as tantivy does;
OpenSearch from 3.0 on does not: no order differs.
"""

from __future__ import annotations

import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

import llmfair
from llmfair.errors import LlmfairError, MissingKey, Rejected, UsageError
from llmfair.io import secrets
from llmfair.io.files import decode, encode, field_of
from llmfair.io.net import Client, RateLimited, ReplyTooLong, Retries, Transient, retry_after, server_of, wait
from llmfair.nouns import Document, Fill
from llmfair.registry import register
from llmfair.retrieval.bm25 import K1, SPARE, B, content
from llmfair.retrieval.engine import Analyzer, Engine, EngineOptions, Hit, Patience, refuse_other

# One server over HTTP, asked by the thread that waits for the answer. Its key stands in the environment alone
# (`LLMFAIR_SEARCH_API_KEY`, or `LLMFAIR_SEARCH_USER` with `LLMFAIR_SEARCH_PASSWORD`) and in no message. What may pass
# is tried again, as models' servers are asked again.


API_KEY, USER, PASSWORD = "LLMFAIR_SEARCH_API_KEY", "LLMFAIR_SEARCH_USER", "LLMFAIR_SEARCH_PASSWORD"
LONGEST_REPLY, LONGEST_QUOTE, LONGEST_WORD = 64 << 20, 300, 60
PASSING = {408, 425, *range(500, 600)}
JSON, LINES = "application/json", "application/x-ndjson"


class SearchServer:
    """The server at an address; `name` is what it is called in messages. Threads may share it.

    What it says is told without the keys that it may repeat. Raises UsageError for what is no address, MissingKey for
    half a login.
    """

    def __init__(self, url: str | None, engine: str, patience: Patience) -> None:
        if not (url := (url or "").strip()):
            raise UsageError(
                f"--engine {engine}:INDEX needs the address of its server.",
                "--engine-url https://search.example:9200",
            )
        self.name = server_of(url, "--engine-url", API_KEY)
        login, hidden = _login()
        headers = {"user-agent": f"llmfair/{llmfair.__version__}", "accept": JSON, **login}
        self._url = url.rstrip("/")
        self._client = Client(self.name, url, headers, patience.timeout, LONGEST_REPLY)
        self._has_key, self._hide_quoted = bool(login), secrets.quoted(hidden)
        self._hide = secrets.without([*secrets.known(), *hidden])
        self._patience = patience
        self._retries = Retries(patience.retries, patience.max_wait, patience.outage)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        read: Callable[[Any], Any] = lambda answer: answer,
    ) -> Any:
        """What `read` makes of what the server answers, from JSON; None for what it does not have (404). Bytes are
        lines of JSON.

        `read` raises RateLimited or Transient for an answer that has to be asked for again. Raises UsageError for
        what is no search server, MissingKey, Rejected for a request that it does not take, and Unavailable when it
        answered nobody.
        """
        content = body if isinstance(body, bytes | None) else encode(body)
        kind = {} if body is None else {"content-type": LINES if isinstance(body, bytes) else JSON}

        def attempt(number: int) -> Any:
            try:
                reply = wait(self._client.ask(method, self._url + path, content, kind))
            except ReplyTooLong:
                raise Rejected(
                    f"{self.name} sends more than {LONGEST_REPLY >> 20} MB in one reply."
                ) from None
            headers = {name.lower(): self._hide(value) for name, value in reply.headers.items()}
            answer = self._read(reply.status, headers, reply.body)
            return None if answer is None else read(answer)

        return self._retries.persist(attempt, self._patience.waits)

    def _read(self, status: int, headers: Mapping[str, str], reply: bytes) -> Any:
        if status == 429:
            limited = RateLimited(retry_after(headers, time.time()))
            limited.cause = f"{self.name} limits the rate (429)"
            raise limited
        try:
            decoded = self._hidden(decode(reply))
        except (ValueError, RecursionError):
            decoded = None
        answer = decoded if isinstance(decoded, dict) else None
        says = f"{self.name} answers {status}{self.quote(answer and answer.get('error'))}"
        if status in PASSING:
            raise Transient(says, retry_after(headers, time.time()))
        if 300 <= status < 400:
            raise UsageError(
                f"{self.name} redirects, which is not followed: the key would go there, too.",
                "--engine-url with the address itself",
            )
        if status == 401:  # not quoted: it may repeat parts of the key
            word = "refuses the key" if self._has_key else "asks for a key"
            raise MissingKey(f"{self.name} {word}.", f"set {API_KEY}, or {USER} and {PASSWORD}")
        if status == 403:
            raise MissingKey(f"{says}.", f"check what the key in {API_KEY} or the login of {USER} may do")
        if answer is None:
            kind = headers.get("content-type", "no type").partition(";")[0][:LONGEST_WORD]
            raise UsageError(
                f"{self.name} answers {status} with what is no JSON ({kind}), as no search server does.",
                "check --engine-url",
            )
        if status == 404:
            return None
        if status >= 400:
            raise Rejected(f"{says}.")
        return answer

    def _hidden(self, answer: Any) -> Any:
        """An answer without what it repeats of keys."""
        if isinstance(answer, dict):
            return {self._hide(name): self._hidden(value) for name, value in answer.items()}
        if isinstance(answer, list):
            return [self._hidden(value) for value in answer]
        return self._hide(answer) if isinstance(answer, str) else answer

    def quote(self, error: Any) -> str:
        """The server's words about what went wrong, as a clause after a colon; nothing where it has none."""
        if isinstance(error, dict):
            causes = error.get("root_cause")
            first = causes[0] if isinstance(causes, list) and causes else error
            error = (first if isinstance(first, dict) else error).get("reason")
        words = self._hide_quoted(" ".join(str(error or "").split()))
        return f": {words[:LONGEST_QUOTE].rstrip('.')}" if words else ""


def _login() -> tuple[dict[str, str], list[str]]:
    """The header of the key, if there is one, and what of it no message repeats."""
    key, user, password = (os.environ.get(name, "").strip() for name in (API_KEY, USER, PASSWORD))
    if not f"{key}{user}{password}".isprintable():
        raise MissingKey(
            "the key of the search server holds a control character.", f"set {API_KEY} or {PASSWORD} again"
        )
    if key:
        return {"authorization": f"ApiKey {key}"}, [key]
    if not (user and password):
        if user or password:
            raise MissingKey(f"{PASSWORD if user else USER} is not set.", "set both, or neither")
        return {}, []
    both = b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {both}"}, [password, both]


# An index

FIELD = "text"
WINDOW = 10_000
"""Documents that one search can find: `index.max_result_window`, unless somebody changed it."""
BATCH, BATCH_BYTES = 1_000, 5_000_000
LONGEST_ID = 512
"""Bytes of a document's id, in Elasticsearch as in OpenSearch."""
_NAME = re.compile(r"[^A-Z\\/*?\"<>| ,#:_.+-][^A-Z\\/*?\"<>| ,#:]*")
EXISTS = 409
MOST_SHOWN = 20

# What is read of answers

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Word = Annotated[str, Meta(max_length=100, pattern=r"^[ -~]+$")]
"""What is written down of a server or an index."""
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]


class Version(Struct):
    number: Word
    distribution: Word = "elasticsearch"


class ServerReply(Struct):
    """What the server says of itself."""

    version: Version


class Shape(Struct):
    uuid: Word | UnsetType = UNSET
    number_of_shards: Annotated[str, Meta(pattern=r"^[0-9]{1,6}$")] | Count = 1


class Settings(Struct):
    index: Shape = msgspec.field(default_factory=Shape)


class IndexSource(Struct):
    """What llmfair wrote of an index that it filled; `documents`, when it was whole."""

    source: Word
    tokenizer: Word
    documents: Count | UnsetType = UNSET


class Remarks(Struct):
    llmfair: IndexSource | None = None


class Property(Struct):
    """A field, those below it, and those that hold the same in another form."""

    type: str | UnsetType = UNSET
    properties: dict[str, Property] = {}
    fields: dict[str, Property] = {}


class Mappings(Property, rename={"meta": "_meta"}):
    meta: Remarks = msgspec.field(default_factory=Remarks)

    def types(self) -> dict[str, str]:
        """The types of all fields by their full names."""
        types: dict[str, str] = {}
        left: list[tuple[str, Property]] = [("", self)]
        for prefix, of in left:
            for name, below in (*of.properties.items(), *of.fields.items()):
                if below.type is not UNSET:
                    types[prefix + name] = below.type
                left.append((f"{prefix}{name}.", below))
        return types


class IndexFacts(Struct):
    """What the server says of an index."""

    settings: Settings = msgspec.field(default_factory=Settings)
    mappings: Mappings = msgspec.field(default_factory=Mappings)


class CountReply(Struct):
    count: Count


class RowState(Struct, rename={"doc_id": "_id"}):
    status: Count
    doc_id: str = ""
    error: Any = None


class BulkRow(Struct):
    create: RowState


class BulkReply(Struct):
    """What became of documents that were sent together."""

    errors: bool = False
    items: list[BulkRow] = []


class Shards(Struct):
    failed: Count = 0


class Score(Struct, rename={"doc_id": "_id", "score": "_score"}):
    doc_id: Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
    score: Finite | None = None


class Hits(Struct):
    hits: list[Score]


class SearchReply(Struct, rename={"shards": "_shards"}):
    """What a search answers."""

    hits: Hits
    timed_out: bool = False
    shards: Shards = msgspec.field(default_factory=Shards)


T = TypeVar("T")


def read(server: SearchServer, answer: Any, of: type[T]) -> T:
    """An answer as this type; what is beside it is passed over. Raises UsageError."""
    try:
        return msgspec.convert(answer, of)
    except (ValueError, RecursionError) as error:
        field, what = field_of(error)
        raise odd(server, f"{field}: {what}" if field else what) from None


def odd(server: SearchServer, what: str) -> UsageError:
    """Of an answer of another form than search servers give."""
    return UsageError(
        f"an answer of {server.name} is odd: {what}.", "check --engine-url: search servers answer otherwise"
    )


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
        described = _described(server, index)
        if described is None:
            raise UsageError(f"there is no index '{index}' on {server.name}.", f"{command}    fills one")
        shape, documents = described.settings.index, _counted(server, index)
        identity = f"{self.name}={version} index={index} uuid={shape.uuid or ''} documents={documents}"
        fields, analyzer = options.fields, None
        if fields:
            there = described.mappings.types()
            # a field that is not there finds nothing, and the server says nothing of it
            if missing := next((field for field in fields if field not in there), None):
                named = ", ".join([*there][:MOST_SHOWN]) or "none"
                raise UsageError(f"{where} has no field '{missing}'.", f"its fields: {named}")
            identity += f" fields={','.join(fields)}"
        else:
            made_of = described.mappings.meta.llmfair
            if made_of is None:
                texts = [name for name, kind in described.mappings.types().items() if kind == "text"]
                raise UsageError(
                    f"{where} was not filled by llmfair: which of its fields are searched?",
                    f"--engine-fields {','.join(texts[:MOST_SHOWN]) or 'title,text'}",
                )
            _refuse_other(where, made_of, options.made.source if options.made else None, options.analyzer)
            if made_of.documents is UNSET:
                raise UsageError(f"{where} is not filled to its end.", f"{command}    continues")
            fields, analyzer = (FIELD,), options.analyzer
            origin = f"tokenizer={made_of.tokenizer} {identity} source={made_of.source[:12]}"
            identity = f"bm25 k1={K1} b={B} {origin}"
        several = int(shape.number_of_shards) > 1
        return RestEngine(server, index, fields, analyzer, documents, identity, several)

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
        described, held = _described(server, index), 0
        if described is None:
            bm25 = {"type": "BM25", "k1": K1, "b": B}
            field = {"type": "text", "analyzer": "whitespace", "index_options": "freqs"}
            server.ask(
                "PUT",
                f"/{index}",
                {
                    "settings": {"index": {"number_of_shards": 1, "similarity": {"default": bm25}}},
                    "mappings": {"_meta": {"llmfair": meta}, "dynamic": False, "properties": {FIELD: field}},
                },
            )
        else:
            there = described.mappings.meta.llmfair
            if there is None:
                raise UsageError(
                    f"{where} is there already, and was not filled by llmfair.", "the name of a new index"
                )
            _refuse_other(where, there, source, analyzer)
            if there.documents is not UNSET:
                return
            held = _count(server, index)
        # all but the last batch that was begun is whole
        sent = start = max(0, held - BATCH)
        for lines in _batches(islice(documents, start, None), analyzer):
            server.ask("POST", f"/{index}/_bulk", b"".join(lines), partial(_taken, server, where))
            sent += len(lines)
        if (count := _count(server, index)) != sent:
            raise LlmfairError(
                f"{where} holds {count:,} of {sent:,} documents.", "delete the index and fetch again"
            )
        server.ask("PUT", f"/{index}/_mapping", {"_meta": {"llmfair": {**meta, "documents": sent}}})

    def _server(
        self, url: str | None, index: str, patience: Patience | None = None
    ) -> tuple[SearchServer, str]:
        """The server and its version. Raises UsageError for one of another kind, and for no name of an index."""
        if not _NAME.fullmatch(index):
            raise UsageError(
                f"--engine {self.name}{f':{index}' if index else ''} names no index.",
                f"--engine {self.name}:pages    in lower case",
            )
        server = SearchServer(url, self.name, patience or Patience())
        answer = server.ask("GET", "/")
        if "version" not in (answer or {}):
            raise UsageError(f"{server.name} does not say which search server it is.", "check --engine-url")
        version = read(server, answer, ServerReply).version
        if (kind := version.distribution) != self.name:
            raise UsageError(f"{server.name} is {kind}, and not {self.name}.", f"--engine {kind}:{index}")
        return server, version.number


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
        scores: dict[str, float] = {}
        left = iter(doc_ids)
        while some := list(islice(left, WINDOW)):
            among = {"filter": [{"ids": {"values": some}}], "should": self._words(text)}
            scores.update(self._hits({"bool": among}, len(some)))
        if missing := next((doc_id for doc_id in doc_ids if doc_id not in scores), None):
            raise Missing(f"the index on {self._server.name} has no document '{missing}'.", "fill it again")
        return {doc_id: scores[doc_id] for doc_id in doc_ids}

    def _words(self, text: str, weight: float = 1.0) -> list[dict[str, Any]]:
        """What each field is searched for."""
        words = text if self._analyzer is None else " ".join(self._analyzer.terms(text))
        if not words.strip():
            return []
        heavier = {} if weight == 1 else {"boost": weight}
        return [{"match": {field: {"query": words, **heavier}}} for field in self._fields]

    def _hits(self, query: Mapping[str, Any], size: int) -> list[Hit]:
        body = {"size": size, "_source": False, "track_total_hits": False, "query": query}
        hits = self._server.ask("POST", self._path, body, partial(self._complete, size))
        if hits is None:
            raise UsageError(f"the index was removed from {self._server.name}.", "fill it again")
        return [Hit(hit.doc_id, hit.score or 0.0) for hit in hits]

    def _complete(self, size: int, answer: Any) -> Sequence[Score]:
        """The hits of an answer. Raises Transient for those of a part of the index only."""
        answered = read(self._server, answer, SearchReply)
        if answered.timed_out or answered.shards.failed:
            raise Transient(f"{self._server.name} searched a part of the index only")
        hits = answered.hits.hits
        if len(hits) > size or len({hit.doc_id for hit in hits}) < len(hits):
            raise odd(self._server, f"it has more than {size:,} hits, or one twice")
        return hits


class Missing(UsageError, KeyError):
    """A document that was found before, or is the user's, and is not in the index."""


def _refuse_other(where: str, there: IndexSource, source: str | None, analyzer: Analyzer) -> None:
    """Raises RunConflict for an index of other documents, or of another analyzer."""
    facts = (
        ("source", there.source, source or there.source),
        ("tokenizer", there.tokenizer, analyzer.tokenizer),
    )
    refuse_other(where, facts, "the name of a new index")


def _described(server: SearchServer, index: str) -> IndexFacts | None:
    """What an index is; None where there is none. Raises UsageError for a name of several."""
    answer = server.ask("GET", f"/{index}")
    if answer is None:
        return None
    if len(answer) > 1:
        raise UsageError(
            f"'{index}' on {server.name} is several indexes, which count words apart.", "name one of them"
        )
    return read(server, next(iter(answer.values()), None), IndexFacts)


def _counted(server: SearchServer, index: str) -> int:
    answer = server.ask("GET", f"/{index}/_count")
    if answer is None:
        raise UsageError(f"the index was removed from {server.name}.", "fill it again")
    return read(server, answer, CountReply).count


def _count(server: SearchServer, index: str) -> int:
    """How many documents an index holds, once all that were sent can be found."""
    server.ask("POST", f"/{index}/_refresh")
    return _counted(server, index)


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


def _taken(server: SearchServer, where: str, answer: Any) -> None:
    """Raises RateLimited where some documents have to be sent again, LlmfairError where one is refused."""
    bulk = read(server, answer, BulkReply)
    for item in bulk.items if bulk.errors else ():
        document = item.create
        if document.status == 429 or document.status in PASSING:
            raise RateLimited(None)
        if document.status >= 400 and document.status != EXISTS:
            raise LlmfairError(
                f"{where} does not take document '{document.doc_id[:LONGEST_ID]}'{server.quote(document.error)}.",
                "check the index and what the key may do; the same command continues",
            )
