"""Files and batches of a server that misbehaves: every call ends by itself, and says why."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from typing import Any

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.batch import Batch, Batches
from llmfair.backends.openai import OpenAI
from llmfair.errors import BackendError
from tests.batch_server import BatchServer, Made
from tests.batch_server import unwaiting as unwaiting
from tests.fuzz.server.damages import body, cut, endless, instead, reset, silent, status, thing
from tests.fuzz.server.front import Damage, Front, Mode

LINE = b'{"custom_id": "a", "response": null}\n'


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
    return batches.answers(Batch("batch_1", "completed", "file_1"), 1)


def test_a_wait_that_a_server_asks_for_is_kept_and_told() -> None:
    waits: list[tuple[str, float]] = []
    with BatchServer() as server, Front(server) as front:
        server.batches.append(Made("batch_1", "file_0", []))
        front.turn(Mode("", status(503, {}, Retry_After="0.3"), when=lambda number: number == 1))
        backend = OpenAI("m", BackendOptions(base_url=front.base_url, server_name="test"))
        batches = Batches(backend, 1, 1.0, lambda *wait: waits.append(wait))
        began = time.monotonic()
        assert batches.state("batch_1").status == "in_progress"
        assert time.monotonic() - began >= 0.3
        batches.close()
    ((cause, seconds),) = waits
    assert "answers 503" in cause and seconds == 0.3


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (endless(b" " * 9_000), "sends more than 0.1 MB in one reply"),
        (silent, "no answer from 127.0.0.1:.* within 0.4 s"),
        (reset, "connection to 127.0.0.1:.* lost"),
        (cut(0.5), "the reply of 127.0.0.1:.* breaks off"),
        (instead(b"<html>sign in</html>", "text/html"), r"something else \(HTML or XML, not JSON\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_reading_a_file_ends_by_itself_and_says_why(damage: Damage, says: str) -> None:
    began = time.monotonic()
    with pytest.raises(BackendError, match=says):
        looked(damage, content)
    assert time.monotonic() - began < 15


def test_a_packed_reply_is_read() -> None:
    packed = body(gzip.compress, Content_Encoding="gzip")
    assert looked(packed, content) == {"a": LINE.rstrip()}


@pytest.mark.parametrize(
    "told", [{"status": "quantum"}, {"status": None}, {"id": "../files"}, {"output_file_id": "\x1b[2J"}]
)
def test_what_is_no_batch_is_not_believed(told: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match=r"something else \(JSON of another form\)"):
        looked(thing(**told), state)


def test_a_line_that_is_too_long_costs_its_question_only() -> None:
    long = b'{"custom_id": "long", "response": "%b"}\n' % (b"x" * 250_000)
    with BatchServer() as server:
        server.files["file_1"] = LINE.replace(b'"a"', b'"b"') + long + LINE.rstrip()
        batches = Batches(OpenAI("m", BackendOptions(base_url=server.base_url, max_reply=100_000)), 0, 1.0)
        answers = batches.answers(Batch("batch_1", "completed", "file_1"), 3)
        assert [*answers] == ["b", "long", "a"] and answers["a"] == LINE.rstrip()
        batches.close()
