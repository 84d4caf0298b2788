"""Downloads from servers that answer oddly: each ends, in a sentence, and nothing that was not asked for is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from llmfair.datasets import download
from llmfair.datasets.download import blocks
from llmfair.errors import LlmfairError
from tests.ports import serving

ELSEWHERE = "another copy"
CONTENT = bytes(range(256)) * 400
Answer = Callable[[int], bytes]


@pytest.fixture(autouse=True)
def unwaiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSES", (0.0,) * 5)


@contextmanager
def answering(answer: Answer, asked: list[int]) -> Iterator[str]:
    """The address of a server that sends these bytes to a request from some byte on, and ends the connection."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            asked.append(start)
            assert len(asked) < 200
            self.wfile.write(answer(start))

        def log_message(self, format: str, *args: Any) -> None: ...

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}/file"


def reply(*headers: str, body: bytes = b"", status: int = 200) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status} X", *headers))
    return head.encode() + b"\r\n" + body


def part(start: int, count: int, told: str = "") -> bytes:
    """So many bytes of the content from `start` on, with a length that says that all of them come."""
    said = told or f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
    headers = (f"Content-Length: {len(CONTENT) - start}", *((f"Content-Range: {said}",) if start else ()))
    return reply(*headers, body=CONTENT[start : start + count], status=206 if start else 200)


def got(answer: Answer, start: int = 0) -> tuple[bytes, list[int]]:
    """What is downloaded, and from which bytes on it was asked for."""
    asked: list[int] = []
    with answering(answer, asked) as url:
        return b"".join(blocks(url, start, ELSEWHERE)), asked


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (reply("Content-Length: abc", body=b"hello"), "sends is no HTTP reply"),
        (reply("Content-Length: -5", body=b"hello"), "sends is no HTTP reply"),
        (reply("Location: http://[::1/", status=302), "leads to what is no address"),
        (reply(f"Location: http://{'a' * 70}.test/", status=302), "leads to what is no address"),
        (reply("Location: http://127.0.0.1:99999/", status=302), "."),
        (reply("Location: http://127.0.0.1:x/", status=302), "leads to what is no address"),
        (reply("Location: file:///etc/passwd", status=302), "leads to what is no address"),
        (reply("Transfer-Encoding: chunked", body=b"-5\r\nabc\r\n"), "sends is no HTTP reply"),
    ],
)
def test_what_no_server_says_ends_in_a_sentence(sent: bytes, says: str) -> None:
    with pytest.raises(LlmfairError, match=rf"^http://127\.0\.0\.1:\d+/file: .*{says}"):
        got(lambda start: sent)


@pytest.mark.parametrize("told", ["bytes 0-9/102400", "bytes 1000-1/2", "bytes */102400", "pages 100-", " "])
def test_another_part_than_the_one_asked_for_is_not_joined_to_the_file(told: str) -> None:
    with pytest.raises(LlmfairError, match="sends another part than was asked for"):
        got(lambda start: part(start, 50, told), start=100)
    assert got(lambda start: part(start, len(CONTENT)), start=100)[0] == CONTENT[100:]


def test_a_server_that_gives_a_byte_at_a_time_does_not_keep_the_command_for_ever() -> None:
    asked: list[int] = []
    with (
        answering(lambda start: part(start, 1), asked) as url,
        pytest.raises(LlmfairError, match="the reply of the server breaks off"),
    ):
        list(blocks(url, 0, ELSEWHERE))
    assert asked == [0, 1, 2, 3, 4, 5]
    found, asked = got(lambda start: part(start, download.LEAST))
    assert found == CONTENT and len(asked) == 11, "enough at a time"
