"""Files and batches of a server that misbehaves: every call ends by itself, and says why."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.batch import Batches
from llmfair.backends.openai import OpenAI
from llmfair.errors import BackendError, LlmfairError
from tests.batch_server import BatchServer, Made
from tests.batch_server import unwaiting as unwaiting
from tests.fresh import printed_by
from tests.fuzz.server.damages import (
    body,
    cut,
    drip,
    endless,
    headed,
    instead,
    raw,
    reset,
    rows,
    silent,
    status,
    thing,
)
from tests.fuzz.server.front import Damage, Front, Mode

LINE = b'{"custom_id": "a", "response": null}\n'
BOMB = gzip.compress(b" " * 30_000_000)


def looked(damage: Damage, call: Callable[[Batches], object], **options: Any) -> object:
    """What `call` gives, of a server that has one batch and a file, and answers with the damage."""
    with BatchServer() as server, Front(server) as front:
        server.batches.append(Made("batch_1", "file_0", []))
        server.files["file_1"] = LINE
        front.turn(Mode("", damage))
        given = BackendOptions(base_url=front.base_url, **{"timeout": 0.4, "max_reply": 100_000, **options})
        batches = Batches(OpenAI("m", given), retries=1, max_wait=0.1)
        try:
            return call(batches)
        finally:
            batches.close()


def state(batches: Batches) -> object:
    return batches.state("batch_1").status


def content(batches: Batches) -> object:
    return dict(batches._lines("file_1", "batch_1", 1))


@pytest.mark.whole
def test_a_wait_that_a_server_asks_for_is_kept_and_told() -> None:
    waits: list[tuple[str, float]] = []
    with BatchServer() as server, Front(server) as front:
        server.batches.append(Made("batch_1", "file_0", []))
        front.turn(Mode("", status(503, {}, Retry_After="0.6"), when=lambda number: number == 1))
        backend = OpenAI("m", BackendOptions(base_url=front.base_url, server_name="test"))
        batches = Batches(backend, 1, 1.0, lambda *wait: waits.append(wait))
        began = time.monotonic()
        assert batches.state("batch_1").status == "in_progress"
        assert time.monotonic() - began >= 0.6
        batches.close()
    ((cause, seconds),) = waits
    assert "answers 503" in cause and seconds == 0.6


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (endless(b" " * 9_000), "sends more than 0.1 MB in one reply"),
        (endless(b" ", 0.01), "sends its answers too slowly"),
        (
            endless(b"X-More: y\r\n", 0.01, head=b"HTTP/1.1 200 OK\r\n"),
            "no answer from 127.0.0.1:.* within 0.4 s",
        ),
        (silent, "no answer from 127.0.0.1:.* within 0.4 s"),
        (reset, "connection to 127.0.0.1:.* lost"),
        (cut(0.5), "the reply of 127.0.0.1:.* breaks off"),
        (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), "is no HTTP reply"),
        (body(lambda plain: BOMB, Content_Encoding="gzip"), "sends more than 0.1 MB in one reply"),
        (headed(("Content-Encoding", "gzip")), "cannot be unpacked"),
        (instead(b"<html>sign in</html>", "text/html"), r"something else \(HTML or XML, not JSON\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_reading_a_file_ends_by_itself_and_says_why(damage: Damage, says: str) -> None:
    began = time.monotonic()
    with pytest.raises(BackendError, match=says):
        looked(damage, content)
    assert time.monotonic() - began < 15


def test_a_packed_reply_is_read_and_no_cookie_is_sent_back() -> None:
    packed = body(gzip.compress, Content_Encoding="gzip", Set_Cookie="session=1")
    assert looked(packed, state) == "in_progress"
    assert looked(packed, content) == {"a": LINE.rstrip()}


@pytest.mark.whole
def test_a_long_file_takes_as_long_as_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than --timeout, at a rate that is enough."""
    monkeypatch.setattr("llmfair.backends.batch.SLOWEST", 10)
    assert looked(drip(0.03, head=False), content) == {"a": LINE.rstrip()}


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"status": "quantum"}, "gives batch_1 the status 'quantum', which batches do not have"),
        ({"status": None}, "gives batch_1 no status"),
        ({"status": ["completed"]}, "JSON of another form"),
        ({"id": "batch_2"}, "tells of another batch than batch_1"),
        ({"id": "../files"}, "JSON of another form"),
        ({"id": "\x1b[2J"}, "JSON of another form"),
    ],
)
def test_what_is_no_batch_is_not_believed(told: dict[str, Any], says: str) -> None:
    with pytest.raises(BackendError, match=says):
        looked(thing(**told), state)


def test_counts_and_errors_of_any_type_are_no_matter() -> None:
    oddities: tuple[Any, ...] = (
        "x",
        7,
        [1],
        {"total": "x", "completed": [], "failed": None},
        {"data": [7, {"line": "x", "message": 7}]},
    )
    for odd in oddities:
        told = thing(status="failed", request_counts=odd, errors=odd)
        assert looked(told, lambda batches: batches.state("batch_1").words) == "failed"
        why = looked(told, lambda batches: batches.refusal(batches.state("batch_1")).message)
        assert "refuses batch_1" in str(why)


def test_a_key_with_two_answers_has_none() -> None:
    twice = rows(
        lambda lines: [{"custom_id": "a", "error": number} for number in (1, 2)] + [{"custom_id": "b"}] * 2
    )
    assert looked(twice, content) == {"b": b'{"custom_id": "b"}'}


MEMORY = r"""
import json, re, sys
from pathlib import Path
from llmfair.backends.base import BackendOptions
from llmfair.backends.batch import Batch, Batches
from llmfair.backends.openai import OpenAI

def peak():  # of this program, which getrusage would add its parent's to
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

batches = Batches(OpenAI("m", BackendOptions(base_url=sys.argv[1], max_reply=2_000_000)), 0, 1.0)
batches.state("batch_1")  # what the package itself takes
before, lines = peak(), int(sys.argv[2])
answers = batches.answers(Batch("batch_1", "completed", ("file_1",), {}, []), lines)
assert all(len(json.loads(answers[f"k{number}"])["response"]) > 250_000 for number in range(lines))
print(peak() - before)
batches.close()
"""
"""Reads a file of so many long answers; prints by how many megabytes the process has grown."""


@pytest.mark.whole
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_of_answers_is_never_held_whole() -> None:
    answers, lines = 'é"\U0001f600 ' * 70_000, 60
    with BatchServer() as server:
        server.batches.append(Made("batch_1", "file_0", []))
        rows = ({"custom_id": f"k{number}", "response": answers} for number in range(lines))
        server.files["file_1"] = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
        size = len(server.files["file_1"]) / 2**20
        grown = float(printed_by(MEMORY, server.base_url, str(lines)))
    assert grown < size / 2


@pytest.mark.parametrize("last", [b"\n", b""])
def test_a_line_that_is_too_long_costs_its_question_only(last: bytes) -> None:
    """And of its memory there is no more than what tells that."""
    long = b'{"custom_id": "long", "response": "%b"}\n' % (b"x" * 250_000)
    with BatchServer() as server:
        server.files["file_1"] = LINE.replace(b'"a"', b'"b"') + long + LINE.rstrip() + last
        batches = Batches(OpenAI("m", BackendOptions(base_url=server.base_url, max_reply=100_000)), 0, 1.0)
        found = batches._lines("file_1", "batch_1", 3)
        assert [*found] == ["b", "long", "a"] and len(found["long"]) == 100_002
        assert found["a"] == LINE.rstrip() and found["b"] == LINE.rstrip().replace(b'"a"', b'"b"')
        batches.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_not_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.backends.batch.tempfile.TemporaryFile", partial(open, "/dev/full", "wb"))
    with pytest.raises(LlmfairError, match=r"^the disk of .* is full"):
        looked(drip(0.0), content)
