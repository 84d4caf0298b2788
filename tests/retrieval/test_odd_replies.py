"""Search servers that answer oddly: every exchange ends, and every answer of another form is refused in a sentence."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from copy import deepcopy
from itertools import repeat
from typing import Any

import pytest

from llmfair.asking.limits import Progress
from llmfair.audits.refine.design import make_refine_design
from llmfair.audits.refine.settings import RefineSettings
from llmfair.errors import BackendError, LlmfairError, Unavailable, UsageError
from llmfair.retrieval import search_server
from llmfair.retrieval.engine import Engine, Patience
from llmfair.retrieval.rest import SearchEngines
from tests.cli.command import refuses
from tests.retrieval.search_stub import Fault, Stub
from tests.retrieval.test_rest import KEY, options

CALM = Patience(20.0, retries=0, max_wait=0.5, outage=0.0)
SHORT = Patience(0.3, retries=0, max_wait=0.5, outage=0.0)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ROOT = {"version": {"number": "3.8.0", "distribution": "opensearch"}}
INDEX = {
    "pages": {
        "settings": {"index": {"uuid": "u", "number_of_shards": "1"}},
        "mappings": {
            "_meta": {},
            "properties": {"title": {"type": "text", "fields": {"raw": {"type": "keyword"}}}},
        },
    }
}
COUNT = {"count": 2}
FOUND = {
    "timed_out": False,
    "_shards": {"failed": 0},
    "hits": {"hits": [{"_id": "a", "_score": 1.5}, {"_id": "b", "_score": 1.0}]},
}
ANSWERS: dict[str, dict[str, Any]] = {"/": ROOT, "/pages": INDEX, "/_count": COUNT, "/_search": FOUND}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """One index of two documents."""
    for name in (search_server.API_KEY, search_server.USER, search_server.PASSWORD):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:
        found = stack.enter_context(Stub().running())
        found.indexes["pages"] = {"mappings": {"properties": {"title": {"type": "text"}}}}
        found.documents["pages"] = {"a": {"title": "red fish"}, "b": {"title": "red"}}
        yield found


def opened(server: Stub, patience: Patience | None = None) -> Engine:
    given = options(server.url, fields=("title",), patience=patience or CALM)
    return SearchEngines("opensearch").open(given)


def searched(server: Stub, patience: Patience | None = None) -> Any:
    return opened(server, patience).search("red fish", 2)


def answers(at: str, answer: Any) -> Fault:
    """The answer at the end of a path, or of the whole server."""
    return Fault(at, body=json.dumps(answer).encode(), times=99)


def turned(server: Stub, at: str, answer: Any) -> None:
    """All other answers are as they should be."""
    server.faults = [answers(one, answer if one == at else right) for one, right in reversed(ANSWERS.items())]
    if at == "/":  # which every path begins with
        return
    server.faults = [fault for fault in server.faults if fault.at != "/"]


# Forms


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


ODD: list[Any] = [
    None,
    True,
    -5,
    1e400,
    float("nan"),
    10**30,
    "abc",
    "",
    "\ud800",
    "x" * 10_000,
    [],
    [5],
    {},
    {"x": {}},
    ...,
]


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


def nested(depth: int) -> Any:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    ("at", "path", "new", "says"),
    [
        ("/pages", ("settings", "index", "number_of_shards"), "abc", "settings.index.number_of_shards"),
        ("/pages", ("mappings",), "x", "mappings: expected `object`, got `str`"),
        ("/_count", ("count",), -3, "count: expected `int` >= 0"),
        ("/_count", ("count",), ..., "count: is missing"),
        ("/_search", ("hits", "hits", 1, "_id"), "a", "more than .* hits, or one twice"),
        ("/_search", ("hits", "hits", 1, "_id"), "x" * 513, r"hits.hits\[1\]._id"),
        ("/_search", ("hits", "hits", 1, "_score"), float("nan"), r"hits.hits\[1\]._score"),
        ("/_search", ("hits", "hits"), [{"_id": f"{n}"} for n in range(2_000)], "more than .* hits"),
        ("/", ("version", "number"), ["8"], "version.number: expected `str`, got `array`"),
    ],
)
def test_the_field_is_named(server: Stub, at: str, path: tuple[Any, ...], new: Any, says: str) -> None:
    where = ("pages", *path) if at == "/pages" else path
    turned(server, at, with_odd(ANSWERS[at], where, new))
    with pytest.raises(UsageError, match=rf"^an answer of 127\.0\.0\.1:{server.port} is odd: .*{says}"):
        searched(server)


@pytest.mark.parametrize("at", [*ANSWERS])
@pytest.mark.parametrize("body", [nested(200_000), b"[" * 200_000, nested(900)])
def test_deep_answers_are_refused(server: Stub, at: str, body: bytes) -> None:
    server.faults = [Fault(at, body=body, times=9)]
    with suppress(UsageError):
        searched(server)
    if at == "/_search" and body[:1] == b"{":
        with pytest.raises(UsageError, match=r"127\.0\.0\.1"):
            searched(server)


def test_a_document_that_is_not_there_is_named(server: Stub) -> None:
    engine = opened(server)
    with pytest.raises(UsageError, match=r"the index on 127\.0\.0\.1:\d+ has no document 'c'"):
        engine.scores("red", ["a", "c"])


# Keys


@pytest.mark.parametrize(
    ("at", "answer"),
    [
        ("/", {"version": {"number": f"8.1-{KEY}", "distribution": "opensearch"}}),
        ("/pages", {"pages": {**INDEX["pages"], "settings": {"index": {"uuid": KEY}}}}),
        ("/_count", {"count": [KEY]}),
    ],
)
def test_an_engine_is_never_called_by_the_key(
    server: Stub, monkeypatch: pytest.MonkeyPatch, at: str, answer: Any
) -> None:
    monkeypatch.setenv(search_server.API_KEY, KEY)
    turned(server, at, answer)
    try:
        said = opened(server).identity
        assert "***" in said
    except UsageError as error:
        said = error.message
    assert KEY not in said


# Time and bytes


@pytest.mark.parametrize(
    ("wire", "pause", "says"),
    [
        (repeat(b"HTTP/1.1 100 Continue\r\n\r\n"), 0.005, r"no answer from 127.* within 0\.3 s"),
        ([OK, b"\r\n", *[b" "] * 500], 0.05, r"no answer from 127.* within 0\.3 s"),
        ([OK, *[b"X-More: y\r\n"] * 60], 0.05, r"no answer from 127.* within 0\.3 s"),
        ([OK + b"Content-Length: 500\r\n\r\n{}", *[b""] * 500], 0.05, r"no answer from 127.* within 0\.3 s"),
        ([OK + b"Content-Length: 500\r\n\r\n{}"], 0, r"the reply of 127.* breaks off"),
        ([OK + b"Content-Length: 99999999999\r\n\r\n{}"], 0, "more than 64 MB in one reply"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("at", ["/", "/_search"])
def test_every_exchange_ends(server: Stub, at: str, wire: Any, pause: float, says: str) -> None:
    engine = opened(server, SHORT)
    server.faults = [Fault(at, wire=wire, pause=pause, times=9)]
    began = time.monotonic()
    with pytest.raises(BackendError, match=says):
        opened(server, SHORT) if at == "/" else engine.search("red", 2)
    assert time.monotonic() - began < 5


# Limits


def test_a_wait_that_does_not_fit_ends_at_once_and_one_that_does_is_told(server: Stub) -> None:
    told: list[tuple[str, float]] = []
    patience = Patience(1.0, max_wait=3.0, waits=lambda *wait: told.append(wait))
    server.faults = [Fault("/_search", 429, headers={"Retry-After": "1000"}, times=9)]
    began = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"127\.0\.0\.1:\d+ limits the rate \(429\); .* wait 1,000 s"
    ) as found:
        searched(server, patience)
    assert time.monotonic() - began < 2 and told == [] and "--max-wait" in found.value.hint
    server.faults = [Fault("/_search", 503, headers={"Retry-After": "0.2"})]
    assert len(searched(server, patience)) == 2
    ((cause, seconds),) = told
    assert "answers 503" in cause and seconds == pytest.approx(0.2)


@pytest.mark.whole
def test_refine_waits_for_a_search_server_as_long_as_it_says(server: Stub) -> None:
    server.faults = [Fault("/", wire=[OK, *[b"X-More: y\r\n"] * 400], pause=0.05, times=99)]
    flags = ("--engine", "opensearch:pages", "--engine-url", server.url, "--engine-fields", "title")
    began = time.monotonic()
    fast = ("--timeout", "0.3", "--retries", "0", "--outage", "0s")
    refuses("within 0.3 s", "refine", *flags, *fast, code=1)
    assert time.monotonic() - began < 10
    server.faults = [Fault("/", 429, headers={"Retry-After": "1000"}, times=99)]
    refuses("--max-wait leaves 3 s", "refine", *flags, "--max-wait", "3s", code=1)


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
