"""Bodies that are no completion, and completions whose fields are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fuzz.server.damages import DEEP, ESCAPES, body, document, field, headed, instead, twice
from tests.fuzz.server.front import Damage, Mode
from tests.fuzz.server.wires import LONG, ODD

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
    yield Mode("body with a BOM", body(lambda content: b"\xef\xbb\xbf" + content), ODD, "either")
    yield Mode("body in UTF-16", body(lambda content: content.decode().encode("utf-16")), ODD, "either")
    yield Mode(
        "body that says Latin-1", headed(("Content-Type", "application/json; charset=latin-1")), "", "well"
    )
    yield Mode("body that says rubbish", headed(("Content-Type", "\xff/;;;charset=nothing")), ODD, "either")
    yield Mode("body and more", body(lambda content: content + b'{"and": "more"}'), ODD, "either")
    yield Mode("body and spaces", body(lambda content: b"\r\n \r\n" + content + b"\n\n\n"), "", "well")
    yield Mode(
        "body with a bad byte", body(lambda content: content.replace(b"[", b"\xff[", 1)), ODD, "either"
    )
    yield Mode("body cut, length right", body(lambda content: content[: len(content) // 2]), ODD)
    yield Mode("body twice", body(lambda content: content * 2), ODD, "either")


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
    yield mode(
        "logprobs of another form",
        field("choices.0.logprobs", {"content": [{"top_logprobs": [{"token": 7, "logprob": "x"}]}]}),
        "either",
    )
    yield mode(
        "logprobs beyond numbers",
        field(
            "choices.0.logprobs",
            dumped='{"content": [{"top_logprobs": [{"token": "A", "logprob": 1e400}]}]}',
        ),
        "either",
    )
