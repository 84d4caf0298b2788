"""Search servers: the protocol as one speaks it, scores and order by the exact formula, and everything that goes wrong."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest

from llmfair.asking.limits import Progress
from llmfair.audits.lists import engine_of, filling
from llmfair.audits.refine.design import make_refine_design
from llmfair.audits.refine.settings import RefineSettings
from llmfair.datasets.base import Collection, load_dataset
from llmfair.errors import (
    BackendError,
    LlmfairError,
    MissingKey,
    Rejected,
    RunConflict,
    Unavailable,
    UsageError,
)
from llmfair.io.net import Retries
from llmfair.nouns import Document, StoredIndex
from llmfair.retrieval import rest
from llmfair.retrieval.bm25 import K1, Bm25Index
from llmfair.retrieval.engine import ENGLISH, STANDARD, Engine, EngineOptions, Patience
from llmfair.retrieval.rest import SearchEngines
from tests.cli.command import ran, refuses
from tests.datasets.trec_sources import NAME, made
from tests.retrieval.search_stub import HTML, Exact, Fault, Stub

SOURCE = "a" * 64
KEY = "search-key-7f3a9b2c5d"
Start = Callable[..., Stub]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts stubs; nobody waits for them between attempts."""
    monkeypatch.setattr("llmfair.io.net.time.sleep", lambda seconds: None)
    for name in (rest.API_KEY, rest.USER, rest.PASSWORD):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:
        yield lambda **switches: stack.enter_context(Stub(**switches).running())


def documents(count: int, seed: int = 1) -> list[Document]:
    """Of 1 to 80 words; the first ones are all alike, so that they tie."""
    chance = random.Random(seed)

    def text(number: int) -> str:
        if number < 120:
            return "alike fishes"
        return " ".join(f"w{int(chance.paretovariate(0.6)) % 90}" for _ in range(chance.randint(1, 80)))

    return [Document(f"d{number:03}", "", text(number)) for number in range(count)]


def fill(url: str, given: Iterable[Document], engine: str = "opensearch:pages", source: str = SOURCE) -> None:
    filling(engine, "english", url)(Path(), given, source=source)


def options(url: str, **given: Any) -> EngineOptions:
    asked: dict[str, Any] = {"collection": "c", "documents": {}, "analyzer": ENGLISH, "cache": Path()}
    return EngineOptions(**asked | {"index": "pages", "url": url} | given)


def opened(url: str, kind: str = "opensearch", **given: Any) -> Engine:
    return rest.SearchEngines(kind).open(options(url, **given))


QUERIES = [" ".join(f"w{(5 * s + 3 * step) % 90}" for step in range(1 + s)) for s in range(0, 40, 3)]


@pytest.mark.whole
def test_a_server_of_the_protocol_creates_takes_counts_and_finds() -> None:
    """Its scores are not BM25 (shorter pages than ours lose half), so order is the stub's to tell."""
    osmem = pytest.importorskip("osmem_server", reason="osmem-server (extra `test`) has no build here")
    given = documents(2_500)
    with osmem.OsmemServer.start(japanese=False) as server:
        fill(server.url, given)
        engine = opened(server.url)
        assert engine.count() == 2_500 and "opensearch=3." in engine.identity
        alike = engine.search("fish", 10)
        assert [hit.doc_id for hit in alike] == [f"d{number:03}" for number in range(10)]
        ids = ["d000", "d500", "d2499"]
        scores = engine.scores("w1 w2 fish", ids)
        assert [*scores] == ids and scores["d000"] > 0
        assert engine.scores("nobody says this", ids) == dict.fromkeys(ids, 0.0)
        assert engine.search("nobody says this", 5) == [] and engine.search(" ?! ", 5) == []
        found = {hit.doc_id for hit in engine.search("w7", 2_500)}
        assert found == {one.doc_id for one in given if "w7" in one.text.split()}
        once, twice = (engine.search("w7", 1, "w8", weight)[0].score for weight in (1.0, 5.0))
        assert twice > once
        with pytest.raises(UsageError, match="no-such-document"):
            engine.scores("w1", ["d000", "no-such-document"])
        fill(server.url, given)  # which is whole
        with pytest.raises(RunConflict, match="source is aaaaaaaaaaaa, not bbbb"):
            fill(server.url, given, source="b" * 64)
        with pytest.raises(UsageError, match="is opensearch, and not elasticsearch"):
            opened(server.url, "elasticsearch")
        with pytest.raises(UsageError, match="there is no index 'others'"):
            opened(server.url, index="others")
    server.process.stdout.close()


@pytest.mark.parametrize(
    ("distribution", "version", "factor"),
    [("opensearch", "3.8.0", 1.0), ("opensearch", "2.19.1", K1 + 1), ("elasticsearch", "9.1.0", K1 + 1)],
)
def test_scores_and_order_are_those_of_the_formula(
    start: Start, distribution: str, version: str, factor: float
) -> None:
    given = documents(500)
    server = start(distribution=distribution, version=version, factor=factor)
    fill(server.url, reversed(given), f"{distribution}:pages")
    engine, exact = opened(server.url, distribution), Exact(given, ENGLISH)
    here = Bm25Index(None, given)
    for query in (*QUERIES, "alike", "w1 w1 fish", '(alike OR w1) AND "w2": ~fish\''):
        for added, weight in (("", 1.0), ("w3 fishes", 2.5)):
            hits, expected = (one.search(query, 20, added, weight) for one in (engine, exact))
            assert [hit.doc_id for hit in hits] == [hit.doc_id for hit in expected]
            divided = [hit.score / factor for hit in hits]
            assert divided == pytest.approx([hit.score for hit in expected], rel=1e-9)
        ids = [one.doc_id for one in given[::50]]
        scores = exact.scores(query)
        assert {d: score / factor for d, score in engine.scores(query, ids).items()} == pytest.approx(
            {doc_id: scores[doc_id] for doc_id in ids}
        )
        assert [h.doc_id for h in here.search(query, 20)] == [hit.doc_id for hit in engine.search(query, 20)]


def test_filling_goes_on_where_it_stopped(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "BATCH", 50)
    server, given = start(), documents(430)

    def broken() -> Iterator[Document]:
        yield from given[:333]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(server.url, broken())
    assert len(server.documents["pages"]) == 300
    with pytest.raises(UsageError, match="not filled to its end"):
        opened(server.url)
    sent = server.asked("POST", "_bulk")
    fill(server.url, given)
    assert server.asked("POST", "_bulk") - sent == 4  # from 250 on: the last batch may have been cut
    assert opened(server.url).count() == 430
    with pytest.raises(RunConflict, match="tokenizer is en_stem, not standard"):
        opened(server.url, analyzer=STANDARD)
    with pytest.raises(RunConflict, match="source is aaaaaaaaaaaa, not c"):
        opened(server.url, made=StoredIndex("opensearch:pages", Path(), "c" * 64, "make it"))


def test_an_index_that_somebody_else_made_is_searched_by_its_own_fields(start: Start) -> None:
    server = start()
    properties = {
        "title": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
        "body": {"properties": {"plain": {"type": "text"}}},
    }
    server.indexes["pages"] = {"mappings": {"properties": properties}}
    server.documents["pages"] = {
        "a": {"title": "red Fishes", "body.plain": "red"},
        "b": {"title": "Fishes", "body.plain": "a red boat"},
    }
    with pytest.raises(UsageError, match="was not filled by llmfair") as told:
        opened(server.url)
    assert told.value.hint == "--engine-fields title,body.plain"
    with pytest.raises(UsageError, match="has no field 'text'") as told:
        opened(server.url, fields=("title", "text"))
    assert "title, title.raw, body.plain" in told.value.hint
    engine = opened(server.url, fields=("title", "body.plain"))
    assert [hit.doc_id for hit in engine.search("red", 5)] == ["a", "b"]
    # its own analyzer: ours cuts endings
    assert [hit.doc_id for hit in engine.search("Fishes", 5)] == ["b", "a"]
    before = len(server.documents["pages"]), server.asked("PUT", "")
    with pytest.raises(UsageError, match="was not filled by llmfair"):
        fill(server.url, documents(3))
    assert (len(server.documents["pages"]), server.asked("PUT", "")) == before
    server.shards = 5
    opened(server.url, fields=("title",)).search("red", 5)
    assert server.requests[-1][1].endswith("?search_type=dfs_query_then_fetch")


CLAUSES = b'{"error": {"root_cause": [{"reason": "too many\\n clauses."}]}}'


def test_what_passes_is_asked_again(start: Start) -> None:
    server = start(refused={"d007": [429, 503]})
    slow = {"Retry-After": "0.01"}
    server.faults = [
        Fault("/pages/_bulk", 429, b"{}", slow, times=2),
        Fault("/pages/_bulk", 503, HTML, slow),
        Fault("/pages/_count", 502, HTML, times=2),
    ]
    fill(server.url, documents(30))
    engine = opened(server.url)
    assert engine.count() == 30 and server.asked("POST", "_bulk") == 6
    part = b'{"timed_out": false, "_shards": {"failed": 1}, "hits": {"hits": []}}'
    late = b'{"timed_out": true, "hits": {"hits": []}}'
    server.faults = [Fault("_search", 200, part), Fault("_search", 200, late), Fault("_search", 429)]
    assert len(engine.search("alike", 20)) == 20


def test_what_does_not_pass_is_said(start: Start) -> None:
    server = start(refused={"d007": [400]})
    with pytest.raises(LlmfairError, match=r"does not take document 'd007': document d007 is too much\."):
        fill(server.url, documents(30))
    fill(server.url, documents(30))  # goes on, over those that are there
    engine = cast(rest.RestEngine, opened(server.url))
    engine.server._retries = Retries(2, 5.0, 0.0)
    for fault, error, says in (
        (Fault("", 503, HTML, times=9), Unavailable, "no answer after .* answers 503"),
        (Fault("", 200, HTML), UsageError, "odd: 200 with what is no JSON object"),
        (Fault("", 404), UsageError, "has no /pages/_search"),
        (Fault("", 403), MissingKey, r"does not accept the key, or asks for one \(403\)"),
        (Fault("", 400, CLAUSES), Rejected, "answers 400: too many clauses"),
        (Fault("", 301, b"", {"Location": f"http://user:{KEY}@plain.example:80/?q"}), UsageError, "redirects, which is"),
    ):  # fmt: skip
        server.faults = [fault]
        with pytest.raises(error, match=says) as told:
            engine.search("alike", 5)
        assert KEY not in f"{told.value}{told.value.hint}"
    server.faults = []
    assert len(engine.search("alike", 5)) == 5
    with pytest.raises(UsageError, match="finds 10,000 documents at most"):
        rest.RestEngine("", engine.server, "/pages/_search", ("text",), ENGLISH, 20_000).search("a", 10_001)


def test_a_redirect_is_not_followed_with_the_key(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rest.API_KEY, KEY)
    server, other = start(), start()
    server.faults = [Fault("/", 307, b"", {"Location": f"{other.url}/"}, times=99)]
    with pytest.raises(UsageError, match="is not followed"):
        opened(server.url)
    assert other.requests == []
    assert {headers["authorization"] for _, _, headers, _ in server.requests} == {f"ApiKey {KEY}"}


def test_impossible_addresses_and_logins_are_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start()
    for url, says in (
        (None, "needs the address of its server"),
        (f"http://me:{KEY}@127.0.0.1:9", "is not the address of a server"),
        ("ftp://x", "is not the address of a server"),
        ("http://127.0.0.1:1", "connection refused by 127.0.0.1:1"),
    ):
        with pytest.raises(LlmfairError, match=says) as told:
            opened(str(url) if url else "")
        assert KEY not in f"{told.value}{told.value.hint}"
    for index in ("", "Pages", "a,b", "p*", "_all", "../x", "a b"):
        with pytest.raises(UsageError, match="names no index"):
            opened(server.url, index=index)
    monkeypatch.setenv(rest.USER, "me")
    with pytest.raises(MissingKey, match="is cut short"):
        opened(server.url)
    monkeypatch.setenv(rest.PASSWORD, "a\x07b")
    with pytest.raises(MissingKey, match="control character"):
        opened(server.url)
    server.faults = [Fault("", 200, b'{"hello": "world"}')]
    monkeypatch.setenv(rest.PASSWORD, "pass")
    with pytest.raises(UsageError, match="is odd: version: is missing"):
        opened(server.url)
    assert server.requests[-1][2]["authorization"] == "Basic bWU6cGFzcw=="


@pytest.mark.whole
def test_a_key_is_in_no_file_or_word(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A whole run over a server that repeats the key in whatever it says."""
    given = made(120)
    monkeypatch.setenv(rest.API_KEY, KEY)
    server = start()
    served = ("--engine", "opensearch:pages", "--engine-url", server.url)
    flags = ("datasets", "fetch", NAME, "--yes", *given.copies(tmp_path), "--index", "full", *served)
    said = [ran(*flags)]
    collection = Collection(load_dataset(f"{NAME}/gender"))
    assert engine_of(collection, ENGLISH, served[1], server.url).count() == 120
    said += [ran(*REFINE, *served, "-o", "run"), ran("runs", "check", "run")]
    echo = f'{{"error": "who is ApiKey {KEY}?"}}'.encode()
    for status, code in ((400, 1), (401, 1), (403, 1), (503, 1)):
        server.faults = [Fault("", status, echo, times=9)]
        said.append(refuses("127.0.0.1", "runs", "check", "run", code=code))
    server.faults = []
    del server.indexes["pages"]
    said.append(refuses("there is no index 'pages'", "runs", "check", "run"))
    assert all(KEY not in one.out + one.err and "is no setting" not in one.err for one in said)
    written = [path for path in Path().rglob("*") if path.is_file()] + [
        path for path in Path(os.environ["LLMFAIR_CACHE_DIR"]).rglob("*") if path.is_file()
    ]
    assert any(path.name == "manifest.json" for path in written)
    assert any(path.name == "journal.jsonl" for path in written)
    for path in written:
        assert KEY.encode() not in path.read_bytes(), path
    engine = '"engine": "bm25 k1=1.2 b=0.75 tokenizer=en_stem opensearch=3.8.0'
    assert engine in Path("run/manifest.json").read_text()


REFINE = ("refine", "-d", f"{NAME}/gender", "--max-iterations", "1", "-q", "--no-report")


# Servers that answer oddly: every exchange ends, and every answer of another form is refused in a sentence


CALM = Patience(20.0, retries=0, max_wait=0.5, outage=0.0)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ROOT = {"version": {"number": "3.8.0", "distribution": "opensearch"}}
PROPERTIES = {"title": {"type": "text", "fields": {"raw": {"type": "keyword"}}}}
SETTINGS = {"index": {"uuid": "u", "number_of_shards": "1"}}
INDEX = {"pages": {"settings": SETTINGS, "mappings": {"_meta": {}, "properties": PROPERTIES}}}
COUNT = {"count": 2}
HITS = [{"_id": "a", "_score": 1.5}, {"_id": "b", "_score": 1.0}]
FOUND = {"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": HITS}}
ANSWERS: dict[str, dict[str, Any]] = {"/": ROOT, "/pages": INDEX, "/_count": COUNT, "/_search": FOUND}


@pytest.fixture
def server(start: Start) -> Stub:
    """One index of two documents."""
    found = start()
    found.indexes["pages"] = {"mappings": {"properties": {"title": {"type": "text"}}}}
    found.documents["pages"] = {"a": {"title": "red fish"}, "b": {"title": "red"}}
    return found


def opening(server: Stub, patience: Patience | None = None) -> Engine:
    given = options(server.url, fields=("title",), patience=patience or CALM)
    return SearchEngines("opensearch").open(given)


def searched(server: Stub, patience: Patience | None = None) -> Any:
    return opening(server, patience).search("red fish", 2)


def answers(at: str, answer: Any) -> Fault:
    """The answer at the end of a path, or of the whole server."""
    return Fault(at, body=json.dumps(answer).encode(), times=99)


def turned(server: Stub, at: str, answer: Any) -> None:
    """All other answers are as they should be."""
    server.faults = [answers(one, answer if one == at else right) for one, right in reversed(ANSWERS.items())]
    if at == "/":  # which every path begins with
        return
    server.faults = [fault for fault in server.faults if fault.at != "/"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value within a value."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def with_odd(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """The value with another one at a place, or nothing there (`...`)."""
    if not path:
        return odd
    value = deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if odd is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = odd
    return value


ODD: list[Any] = [None, True, -5, 1e400, float("nan"), 10**30, "abc", "", "\ud800", "x" * 10_000, [], [5], {}, {"x": {}}, ...]  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("at", [*ANSWERS])
def test_whatever_is_odd_in_an_answer_it_is_read_or_refused_in_a_sentence(server: Stub, at: str) -> None:
    refused = 0
    for path in places(ANSWERS[at]):
        for odd in ODD:
            if path or odd is not ...:
                turned(server, at, with_odd(ANSWERS[at], path, odd))
                try:
                    searched(server)
                except LlmfairError as error:
                    refused += 1
                    assert isinstance(error, UsageError | BackendError), (path, odd)
                    assert "127.0.0.1" in error.message or "pages" in error.message, (path, odd)
                    assert len(f"{error.message}{error.hint}") < 600 and "\n" not in error.message
    assert refused > 20


@pytest.mark.parametrize(
    ("at", "path", "new", "says"),
    [
        ("/_search", ("hits", "hits", 1, "_id"), "a", "more than .* hits, or one twice"),
        ("/_search", ("hits", "hits", 1, "_id"), "x" * 513, r"hits.hits\[1\]._id"),
        ("/_search", ("hits", "hits"), [{"_id": f"{n}"} for n in range(2_000)], "more than .* hits"),
        ("/", ("version", "number"), ["8"], "version.number: expected `str`, got `array`"),
    ],
)
def test_the_field_is_named(server: Stub, at: str, path: tuple[Any, ...], new: Any, says: str) -> None:
    where = ("pages", *path) if at == "/pages" else path
    turned(server, at, with_odd(ANSWERS[at], where, new))
    with pytest.raises(UsageError, match=rf"^an answer of 127\.0\.0\.1:{server.port} is odd: .*{says}"):
        searched(server)


def test_a_document_that_is_not_there_is_named(server: Stub) -> None:
    engine = opening(server)
    with pytest.raises(UsageError, match=r"the index on 127\.0\.0\.1:\d+ has no document 'c'"):
        engine.scores("red", ["a", "c"])


@pytest.mark.parametrize(
    ("at", "answer", "key"),
    [
        ("/", {"version": {"number": f"8.1-{KEY}", "distribution": "opensearch"}}, KEY),
        ("/pages", {"pages": {**INDEX["pages"], "settings": {"index": {"uuid": KEY}}}}, KEY),
        ("/_count", {"count": [KEY]}, KEY),
        ("/", {"version": {"number": f'8.1-"{KEY}\\', "distribution": "opensearch"}}, f'"{KEY}\\'),
    ],
)
def test_an_engine_is_never_called_by_the_key(
    server: Stub, monkeypatch: pytest.MonkeyPatch, at: str, answer: Any, key: str
) -> None:
    monkeypatch.setenv(rest.API_KEY, key)
    turned(server, at, answer)
    try:
        said = opening(server).identity
        assert "***" in said
    except UsageError as error:
        said = error.message
    assert KEY not in said


def test_a_run_shows_what_is_waited_for(
    server: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, until there is a progress to be shown."""
    slept: list[float] = []
    monkeypatch.setattr("llmfair.io.net.time.sleep", slept.append)
    flags = {"engine": "opensearch:pages", "engine_url": server.url, "engine_fields": "title"}
    server.faults = [Fault("/_count", 429, headers={"Retry-After": "30"})]
    design, progress = make_refine_design(RefineSettings(**flags)), Progress()  # type: ignore[arg-type]
    assert f"127.0.0.1:{server.port} limits the rate (429), waiting 30 s" in capsys.readouterr().err
    design.watched_by(progress)
    server.faults = [Fault("/_search", 429, headers={"Retry-After": "40"})]
    design.engine.search("red", 2)
    assert "limits the rate" in progress.waiting_for and capsys.readouterr().err == ""
    assert [seconds for seconds in slept if seconds > 1] == [30.0, 40.0]
