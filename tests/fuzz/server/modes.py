"""The table: every way of a server to be wrong, by its name, and how often it is."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from functools import cache
from typing import Any

from tests.fuzz.server.damages import (
    DEEP,
    ESCAPES,
    before,
    body,
    chunked,
    cut,
    document,
    drip,
    endless,
    field,
    first_line,
    headed,
    instead,
    raw,
    replied,
    reset,
    reset_after,
    rows,
    silent,
    status,
    thing,
    twice,
)
from tests.fuzz.server.front import Damage, Mode, Reply

# Bodies that are no completion, and completions whose fields are wrong


CONTENT = "choices.0.message.content"
ANSWERS = frozenset({"chat", "content"})
HTML = b"<!doctype html><html><head><title>Sign in</title></head><body>Welcome</body></html>"


def bodies() -> Iterator[Mode]:
    """Bodies that are no completion, or hold one in another way."""
    for name, content, kind in (
        ("HTML", HTML, "text/html"),
        ("HTML that says JSON", HTML, "application/json"),
        ("an empty body", b"", "application/json"),
        ("a text", b"hello", "text/plain"),
        ("a list", b"[]", "application/json"),
        ("null", b"null", "application/json"),
        ("a number", b"7", "application/json"),
        ("a string", b'"[1] > [2]"', "application/json"),
        ("an empty object", b"{}", "application/json"),
        (
            "an error with status 200",
            b'{"error": {"message": "overloaded", "code": 500}}',
            "application/json",
        ),
        (
            "events",
            b'data: {"choices": [{"delta": {"content": "[1]"}}]}\n\ndata: [DONE]\n\n',
            "text/event-stream",
        ),
        ("nested deep", b"[" * DEEP + b"]" * DEEP, "application/json"),
        ("objects nested deep", b'{"choices":' * DEEP + b"1" + b"}" * DEEP, "application/json"),
        ("a number of a million digits", b'{"choices": ' + b"9" * 900_000 + b"}", "application/json"),
        ("XML", b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "application/xml"),
        ("escapes", ESCAPES.encode(), "text/plain"),
        ("NUL bytes", bytes(1000), "application/octet-stream"),
        ("2 MB of JSON", b'{"choices": "' + b"x" * 2_000_000 + b'"}', "application/json"),
        ("20 MB of spaces", b" " * 20_000_000, "application/json"),
    ):
        yield Mode(f"body: {name}", instead(content, kind), f"{ODD}|{LONG}|no answer from")
    said: dict[str, Damage] = {
        "with a BOM": body(lambda content: b"\xef\xbb\xbf" + content),
        "in UTF-16": body(lambda content: content.decode().encode("utf-16")),
        "that says rubbish": headed(("Content-Type", "\xff/;;;charset=nothing")),
        "and more": body(lambda content: content + b'{"and": "more"}'),
        "with a bad byte": body(lambda content: content.replace(b"[", b"\xff[", 1)),
        "twice": body(lambda content: content * 2),
    }
    yield from (Mode(f"body {name}", damage, ODD, "either") for name, damage in said.items())
    latin = headed(("Content-Type", "application/json; charset=latin-1"))
    yield Mode("body that says Latin-1", latin, "", "well")
    yield Mode("body and spaces", body(lambda content: b"\r\n \r\n" + content + b"\n\n\n"), "", "well")
    yield Mode("body cut, length right", body(lambda content: content[: len(content) // 2]), ODD)


FIELDS = {
    **dict.fromkeys(("choices", "choices.0", "choices.0.message", "choices.0.message.refusal"), "either"),
    CONTENT: "either",
    **dict.fromkeys(("choices.0.finish_reason", "choices.0.logprobs", "choices.0.index", "usage"), "well"),
    **dict.fromkeys(
        ("usage.prompt_tokens", "usage.completion_tokens", "model", "system_fingerprint", "id"), "well"
    ),
}


def completions() -> Iterator[Mode]:
    """Fields of a completion."""

    def mode(name: str, damage: Damage, ends: str = "fails", says: str = f"{ODD}|{LONG}") -> Mode:
        return Mode(f"completion: {name}", damage, says, ends, stages=ANSWERS, each=True)

    other: tuple[tuple[str, dict[str, Any]], ...] = (
        ("absent", {}), ("null", {"value": None}), ("a number", {"value": 7}), ("a text", {"value": "word"}),
        ("a list", {"value": [[1]]}), ("an object", {"value": {"a": {"b": 1}}}), ("true", {"value": True}),
        ("NaN", {"dumped": "NaN"}), ("1e400", {"dumped": "1e400"}), ("-1e400", {"dumped": "-1e400"}),
        ("negative", {"value": -5}), ("huge", {"dumped": "1" + "0" * 400}), ("empty", {"value": ""}),
        ("deep", {"dumped": "[" * DEEP + "]" * DEEP}), ("escapes", {"value": ESCAPES}),
        ("surrogate", {"dumped": '"\\ud800"'}),
    )  # fmt: skip
    for number, (path, ends) in enumerate(FIELDS.items()):
        for name, value in other[number % 3 :: 3]:
            yield mode(f"{path} {name}", field(path, **value), "either" if name == "deep" else ends)
    parts = [{"type": "text", "text": "[1]"}, {"type": "text", "text": " > [2]"}, {"type": "image"}, 7, None]
    yield mode("content in parts", field(CONTENT, parts), "kept")
    yield mode("content with escapes", field(CONTENT, f"[1] {ESCAPES} > [2]"), "kept")
    yield mode("content of 900 kB", field(CONTENT, "[1] > " * 150_000), "kept")
    yield mode("content of NUL", field(CONTENT, "\0" * 100), "kept")
    yield mode("content that ends a line", field(CONTENT, "[1]\r\n\u2028\u2029\x85\x0b\x0c[2]"), "kept")
    yield mode("finish error", field("choices.0.finish_reason", "error"), "fails", "broke")
    yield mode("finish length", field("choices.0.finish_reason", "length"), "kept")
    yield mode("finish content_filter", field("choices.0.finish_reason", "content_filter"), "kept")
    yield mode("refusal", field("choices.0.message.refusal", "I cannot."), "kept")
    yield mode("no choice", field("choices", []))
    yield mode(
        "a choice too many", document(lambda found: found | {"choices": [*found["choices"], 7]}), "well"
    )
    yield mode("choices twice", document(lambda found: twice(found, "choices", "[]")), "well")
    yield mode("content twice", document(lambda found: twice(found, "content", '"[2]"')), "well")
    yield mode(
        "a thousand fields more", document(lambda found: found | {f"x{i}": i for i in range(1000)}), "well"
    )
    yield mode("open think", field(CONTENT, "<think> and so on"), "kept", "the model was thinking")
    for name, top in (("of another form", '7, "logprob": "x"'), ("beyond numbers", '"A", "logprob": 1e400')):
        dumped = f'{{"content": [{{"top_logprobs": [{{"token": {top}}}]}}]}}'
        yield mode(f"logprobs {name}", field("choices.0.logprobs", dumped=dumped), "either")


# Files and batches that are wrong, beside what any reply may be


SAID = "something else|no answer|batch|answers \\d+|asks for a key"


def batches() -> Iterator[Mode]:
    """Files and batches, beside what any reply may be."""

    def mode(name: str, stage: str, damage: Damage, ends: str = "fails", says: str = SAID) -> Mode:
        return Mode(f"{stage}: {name}", damage, says, ends, stages=frozenset({stage}))

    wrong: dict[str, Any] = {
        "absent": ..., "null": None, "a number": 7, "a list": ["x"], "an object": {"a": 1}, "empty": "",
        "with escapes": ESCAPES, "a path": "../../etc", "long": "x" * 100_000,
    }  # fmt: skip
    counts = {
        "in words": "none",
        "NaN": float("nan"),
        "negative": {"total": -1, "completed": -1, "failed": -5},
        "of texts": {"total": "x", "completed": None, "failed": []},
    }
    lists = {"of a list": {"data": [7, None, {"line": "x", "message": 7}]}, "data null": {"data": None}}
    done = {"unknown": "quantum"} | {name: name for name in ("failed", "expired", "cancelled")}
    for stage in ("upload", "create", "look"):
        for name, value in wrong.items():
            yield mode(f"id {name}", stage, thing(id=value), "either")
    for stage in ("create", "look"):
        for name, value in {**wrong, **done}.items():
            yield mode(f"status {name}", stage, thing(status=value), "either")
        for name, value in {**wrong, **counts}.items():
            yield mode(f"request_counts {name}", stage, thing(request_counts=value), "well")
        for name, value in {**wrong, **lists}.items():
            yield mode(f"errors {name}", stage, thing(errors=value), "well")
            failed = thing(status="failed", errors=value)
            yield mode(f"failed, errors {name}", stage, failed, "either", "refuses")
        without = thing(status="completed", output_file_id=None, error_file_id=None)
        yield mode("completed, without files", stage, without, "either")
        for name in ("absent", "null", "a number", "a list", "with escapes", "a path"):
            for begins, more in (("", {}), ("completed, ", {"status": "completed"})):
                file = thing(**more, output_file_id=wrong[name])
                yield mode(f"{begins}output_file_id {name}", stage, file, "either")
    yield mode("completed at once", "create", thing(status="completed"), "either")
    for name, change in ROWS.items():
        yield mode(name, "content", rows(change), "either")
    page = thing(has_more=True, data=[{"id": "x", "object": "batch"}])
    yield mode("pages without an end", "list", page, "either")
    yield mode("no data", "list", thing(data=None), "either")


Rows = list[dict[str, Any]]


def _each(**changed: Any) -> Callable[[Rows], Any]:
    return lambda rows: [row | changed for row in rows]


def _responses(**changed: Any) -> Callable[[Rows], Any]:
    return lambda rows: [row | {"response": row["response"] | changed} for row in rows]


def _ids(name: Callable[[int, str], Any]) -> Callable[[Rows], Any]:
    return lambda rows: [row | {"custom_id": name(n, row["custom_id"])} for n, row in enumerate(rows)]


def _without(field: str) -> Callable[[Rows], Any]:
    return lambda rows: [{name: value for name, value in row.items() if name != field} for row in rows]


def _joined(between: bytes, before: bytes = b"", lost: int = 0) -> Callable[[Rows], Any]:
    """The lines with something else between them, something before, and without so many bytes at the end."""
    return lambda rows: (before + between.join(json.dumps(row).encode() for row in rows))[: -lost or None]


ROWS: dict[str, Callable[[Rows], Any]] = {
    "wrong order": lambda rows: sorted(rows, key=lambda row: str(row["custom_id"])),
    "lines twice": lambda rows: [*rows, *rows],
    "half the lines": lambda rows: rows[::2],
    "no line": lambda rows: [],
    "a line cut": _joined(b"\n", lost=40),
    "all in one line": _joined(b" "),
    "one JSON list": lambda rows: json.dumps(rows).encode(),
    "lines with \\r\\n": _joined(b"\r\n"),
    "empty lines between": _joined(b"\n\n\n"),
    "a BOM": _joined(b"\n", b"\xef\xbb\xbf"),
    "UTF-16": lambda rows: "\n".join(json.dumps(row) for row in rows).encode("utf-16"),
    "HTML": lambda rows: HTML,
    "HTML that quotes custom_id": lambda rows: HTML + b'"custom_id"',
    "lines of other types": _joined(b"\n", b'7\nnull\n"custom_id"\n[]\n{"custom_id": null}\n'),
    "nested deep": lambda rows: b'{"custom_id": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "ids of nobody": _ids(lambda number, key: f"nobody-{number}"),
    "ids absent": _without("custom_id"),
    "ids of numbers": _ids(lambda number, key: number),
    "ids in capitals": _ids(lambda number, key: key.upper()),
    "one id for all": lambda rows: [row | {"custom_id": rows[0]["custom_id"]} for row in rows],
    "no response": _each(response=None),
    "response a text": _each(response="word"),
    "response a list": _each(response=[1]),
    "response absent": _without("response"),
    "error a text": _each(response=None, error="expired"),
    "error with escapes": _each(response=None, error={"code": ESCAPES, "message": ESCAPES}),
    "error code a list": _each(response=None, error={"code": ["x"]}),
    "status_code a text": _responses(status_code="200"),
    "status_code null": _responses(status_code=None),
    "status_code huge": _responses(status_code=10**30),
    "status_code 500": _responses(status_code=500),
    "status_code 429": _responses(status_code=429),
    "status_code 401": _responses(status_code=401),
    "status_code 302": _responses(status_code=302),
    "body a text": _responses(body="[1] > [2]"),
    "body null": _responses(body=None),
    "a body of 2 MB": _responses(body="x" * 2_000_000),
}


# Refusals and waits


BAD_GATEWAY = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
RESETS = {"far away": ("0", "24h"), "nowhere": ("NaN", "1e400"), "negative": ("-1", "-1s")}


def statuses() -> Iterator[Mode]:
    """Refusals and waits."""
    for code in (300, 301, 302, 303, 304, 307, 308):
        says = (
            f"answers 304|{LOST}" if code == 304 else "redirect"
        )  # no redirect, nor has it a body, and this one has
        yield Mode(f"{code} to another origin", status(code, {}, Location="http://127.0.0.1:9/v1"), says)
    for target in ("/v1/chat/completions", "/v1/files", "", "javascript:alert(1)", ESCAPES):
        yield Mode(f"307 to {target!a}", status(307, {}, Location=target), f"redirect|{LOST}")
    for code in (400, 402, 403, 404, 405, 406, 410, 413, 415, 418, 422, 431, 451):
        yield Mode(f"status {code}", status(code, {}), f"{code}|no longer has")
    yield Mode("status 401", status(401, {}), "asks for a key|refuses the key")
    for code in (408, 409, 425, 500, 501, 502, 503, 504, 507, 511, 520, 529, 599):
        yield Mode(f"status {code}", status(code, {}), f"{code}")
    yield Mode("429", status(429, {}), "rate")
    yield Mode("429 for a spent quota", status(429, {"code": "insufficient_quota"}), "429")
    forms = {
        "soon": "soon", "0": "0", "1": "1", "1e9": "1e9", "1e400": "1e400", "inf": "inf", "nan": "NaN", "-5": "-5",
        "0.05": "0.05", "of a year": formatdate(4e9, usegmt=True), "of 1970": formatdate(0, usegmt=True),
        "of no date": "Fri, 99 Foo 99999 99:99:99 GMT", "twice": "1, 2", "empty": "", "long": "9" * 5000,
    }  # fmt: skip
    for name, value in forms.items():
        yield Mode(
            f"429, Retry-After {name}", status(429, {}, Retry_After=value), f"rate|asks to wait|{LOST}"
        )
    yield Mode("503, Retry-After 1e9", status(503, {}, Retry_After="1e9"), "503|asks to wait")
    yield Mode("429, retry-after-ms 1e12", status(429, {}, Retry_After_Ms="1e12"), "asks to wait")
    yield Mode(
        "429, limits that reset far away", status(429, {}, X_RateLimit_Reset_Requests="24h"), "rate|asks"
    )
    for name, (left, reset_in) in RESETS.items():
        said = {
            "remaining-requests": left,
            "reset-requests": reset_in,
            "remaining-tokens": left,
            "reset-tokens": reset_in,
        }
        headers = ((f"x-ratelimit-{what}", value) for what, value in said.items())
        yield Mode(f"limits that reset {name}", headed(*headers), "", "well")
    for code in (201, 202, 203, 206, 226):
        yield Mode(f"status {code} with the answer", first_line(b"HTTP/1.1 %d X" % code, code), "", "well")
    yield Mode("status 204", raw(b"HTTP/1.1 204 No Content\r\n\r\n"), f"{ODD}|204")
    yield Mode("status 205", status(205, b""), f"{ODD}|205")
    errors: dict[str, tuple[int, object, str]] = {
        "error that is a text": (400, b'{"error": "no"}', "400: no"),
        "error that is a list": (400, b'{"error": ["no", {"a": 1}]}', "400"),
        "error that is a number": (500, b"7", "500"),
        "error that is null": (400, b'{"error": null}', "400"),
        "error nested deep": (400, b'{"error": ' + b"[" * DEEP + b"]" * DEEP + b"}", "400"),
        "error in HTML": (502, BAD_GATEWAY, "502"),
        "error in Latin-1": (500, '{"error": {"message": "caf\xe9"}}'.encode("latin-1"), "500"),
        "error with escapes": (400, {"message": ESCAPES}, "400"),
        "error with escapes, 500": (500, {"message": ESCAPES}, "500"),
        "error of 10 MB": (500, {"message": "x" * 10**7}, "500|more than .* MB|no answer from"),
        "error of 500 kB": (400, {"message": "x" * 500_000}, "400"),
        "error with half a surrogate": (400, b'{"error": {"message": "\\ud800 no"}}', "400"),
        "error whose code is a list": (429, {"code": ["insufficient_quota"]}, "429"),
        "error whose message is an object": (400, {"message": {"text": "no"}}, "400"),
        "context too long": (400, {"code": "context_length_exceeded"}, "context|400"),
    }
    yield from (Mode(name, status(code, error), says) for name, (code, error, says) in errors.items())
    limit = {"code": "unsupported_parameter", "param": "max_tokens"}
    yield Mode("unsupported limit, for ever", status(400, limit), "400", "refused")
    temperature = status(400, {"code": "unsupported_value", "param": "temperature"})
    yield Mode("temperature refused", temperature, "temperature|400", "either")
    yield Mode("content filter", status(400, {"code": "content_filter"}), "400", "either")


# Connections, status lines, headers, lengths and encodings that are wrong


LOST = "connection to .* lost|lost the connection|no connection|no answer from|no HTTP|breaks off"
ODD = "without a completion|something else|ended without"
LONG = "more than .* MB"
PACKED = "cannot be unpacked"


@cache
def bomb() -> bytes:
    """300 MB of zeros, packed."""
    return gzip.compress(b"0" * 300_000_000, 6)


NO_ANSWER = "no answer from .* within 1 s"
OK, CONTINUE = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"


def wires() -> Iterator[Mode]:
    """Connections, status lines, headers, lengths, encodings."""
    lost: dict[str, Damage] = {
        "connection reset": reset,
        "connection reset after the work is done": reset_after,
        "closed without a word": raw(b""),
        "closed after half a status line": raw(b"HTTP/1.1 2"),
        "closed after half a header": raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
        "not HTTP": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
        "noise": raw(bytes(range(256)) * 8),
        "TLS alert": raw(b"\x15\x03\x01\x00\x02\x02\x46"),
        "HTTP/2 preface": raw(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)),
        "HTTP/0.9": raw(b"<html>hello</html>"),
        "status of five digits": first_line(b"HTTP/1.1 20000 OK"),
        "status of letters": first_line(b"HTTP/1.1 abc OK"),
        "header of 100 kB": headed(("X-Long", "x" * 100_000)),
        "two lengths": headed(("Content-Length", "5"), ("Content-Length", "7")),
        "length too long": cut(1.0, lambda size: size + 10),
        "length negative": cut(1.0, lambda size: -5),
        "length no number": cut(1.0, lambda size: "many"),
        "cut in the middle of the body": cut(0.5),
        "chunks without an end": chunked(b"%"),
        "chunk of letters": chunked(b"zz\r\n", b"%"),
        "chunk negative": chunked(b"-5\r\n", b"%"),
    }
    long: dict[str, Damage] = {
        "endless headers": endless(b"X-More: yes\r\n" * 50, head=OK),
        "endless one header": endless(b"x" * 5000, head=OK + b"X: "),
        "100 for ever": endless(b"", 0.01, head=CONTINUE * 2, chunks=False),
        "endless 100": endless(CONTINUE, 0.001, head=b""),
        "length huge": cut(1.0, lambda size: 10**30),
        "chunk of 2^64": chunked(b"ffffffffffffffffff\r\n", b"%"),
    }
    named: dict[str, tuple[str, Damage]] = {
        "never answers": (NO_ANSWER, silent),
        "slow chunks for ever": (NO_ANSWER, endless(b" ", 0.2)),
        "slow drip": (NO_ANSWER, drip(0.05)),
        "chunks for ever": (LONG, endless(b" " * 65536)),
        "length for ever": (LONG, endless(b" " * 65536, chunks=False)),
        "status 0": (f"{LOST}|answers 0|HTTP", first_line(b"HTTP/1.1 000 OK")),
        "status 999": (f"999|{LOST}", first_line(b"HTTP/1.1 999 OK", 999)),
        "reason with escapes": (f"500|{LOST}", first_line(b"HTTP/1.1 500 \x1b[31mred")),
        "101": (f"101|{LOST}", raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")),
        "length too short": (f"{ODD}|{LOST}", cut(1.0, lambda size: size - 10)),
        "length 0": (f"{ODD}|{LOST}", cut(1.0, lambda size: 0)),
        "gzip bomb": (f"{LONG}|no answer from", replied(lambda reply: Reply(200, bomb()).with_headers(Content_Encoding="gzip"))),
        "gzip that is none": (PACKED, headed(("Content-Encoding", "gzip"))),
        "deflate, cut": (f"{PACKED}|{ODD}", body(lambda content: gzip.compress(content)[:-20], Content_Encoding="deflate")),
    }  # fmt: skip
    well: dict[str, Damage] = {
        "HTTP/1.0 that closes": replied(lambda reply: replace(reply, line=b"HTTP/1.0 200 OK"), stays=False),
        "no reason phrase": first_line(b"HTTP/1.1 200"),
        "header not in ASCII": headed(("X-Latin", "\xe9\xff")),
        "cookies": headed(("Set-Cookie", "session=1; Domain=.com; HttpOnly"), ("Set-Cookie", "x" * 4000)),
        "100 before the reply": before(CONTINUE * 3),
        "103 before the reply": before(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        "chunks": chunked(b"%", b"0\r\n\r\n"),
        "chunk with an extension": chunked(b"1;a=b\r\n \r\n", b"%", b"0\r\n\r\n"),
        "trailers": chunked(b"%", b"0\r\nX-Trailer: y\r\n\r\n"),
        "closing after every reply": replied(lambda reply: reply.with_headers(Connection="close"), stays=False),
        "closing without saying so": replied(lambda reply: reply, stays=False),
        "keep-alive of 0": headed(("Keep-Alive", "timeout=0, max=1")),
    }  # fmt: skip
    either: dict[str, Damage] = {
        "HTTP/9.9": first_line(b"HTTP/9.9 200 OK"),
        "bare line feeds": replied(lambda reply: replace(reply, line=b"HTTP/1.1 200 OK\nX: y")),
        "a thousand headers": headed(*((f"X-{number}", "y") for number in range(1000))),
        "header without colon": headed(("No colon here\r\nX", "y")),
        "header with escapes": headed(("X-Escapes", "\x1b[31m")),
        "header with NUL": headed(("X-Nul", "a\x00b")),
        "a second reply unasked": replied(_twice),
    }
    yield from (Mode(name, damage, LOST) for name, damage in lost.items())
    yield from (Mode(name, damage, f"{LOST}|{LONG}") for name, damage in long.items())
    yield from (Mode(name, damage, says) for name, (says, damage) in named.items())
    yield from (Mode(name, damage, "", "well") for name, damage in well.items())
    yield from (Mode(name, damage, LOST, "either") for name, damage in either.items())
    yield Mode("TLS asked of a plain server", raw(b""), "no secure connection", tls=True)
    yield Mode("quick drip", drip(0.0001), NO_ANSWER, "either")
    yield Mode("gzip", body(gzip.compress, Content_Encoding="gzip"), PACKED, "well")
    yield Mode("an unknown encoding", headed(("Content-Encoding", "rot13")), "", "either")


def _twice(reply: Reply) -> Reply:
    """A reply with another one behind it."""
    length = ("Content-Length", str(len(reply.body)))
    more = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    return replace(reply, body=reply.body + more, headers=[*reply.headers, length])


MODES = {mode.name: mode for mode in (*wires(), *statuses(), *bodies(), *completions(), *batches())}
FREQUENCIES: dict[str, Callable[[int], bool]] = {
    "always": lambda number: True,
    "every third": lambda number: number % 3 == 0,
    "the first five": lambda number: number <= 5,
    "from the 20th on": lambda number: number >= 20,
}
