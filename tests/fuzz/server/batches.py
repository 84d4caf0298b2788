"""Files and batches that are wrong, beside what any reply may be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.server.damages import DEEP, ESCAPES, rows, thing
from tests.fuzz.server.front import Damage, Mode

HTML = b"<!doctype html><html><head><title>Sign in</title></head><body>Welcome</body></html>"

SAID = "something else|no answer|batch|answers \\d+|asks for a key"


def batches() -> Iterator[Mode]:
    """Files and batches, beside what any reply may be."""

    def mode(name: str, stage: str, damage: Damage, ends: str = "fails", says: str = SAID) -> Mode:
        return Mode(f"{stage}: {name}", damage, says, ends, stages=frozenset({stage}))

    wrong: dict[str, Any] = {
        "absent": ...,
        "null": None,
        "a number": 7,
        "a list": ["x"],
        "an object": {"a": 1},
        "empty": "",
        "with escapes": ESCAPES,
        "a path": "../../etc",
        "long": "x" * 100_000,
    }
    for stage in ("upload", "create", "look"):
        for name, value in wrong.items():
            yield mode(f"id {name}", stage, thing(id=value), "either")
    for stage in ("create", "look"):
        for name, value in {
            **wrong,
            "unknown": "quantum",
            "failed": "failed",
            "expired": "expired",
            "cancelled": "cancelled",
        }.items():
            yield mode(f"status {name}", stage, thing(status=value), "either")
        for name, value in {
            **wrong,
            "in words": "none",
            "NaN": float("nan"),
            "negative": {"total": -1, "completed": -1, "failed": -5},
            "of texts": {"total": "x", "completed": None, "failed": []},
        }.items():
            yield mode(f"request_counts {name}", stage, thing(request_counts=value), "well")
        for name, value in {
            **wrong,
            "of a list": {"data": [7, None, {"line": "x", "message": 7}]},
            "data null": {"data": None},
        }.items():
            yield mode(f"errors {name}", stage, thing(errors=value), "well")
            yield mode(
                f"failed, errors {name}", stage, thing(status="failed", errors=value), "either", "refuses"
            )
        yield mode(
            "completed, without files",
            stage,
            thing(status="completed", output_file_id=None, error_file_id=None),
            "either",
        )
        for name in ("absent", "null", "a number", "a list", "with escapes", "a path"):
            yield mode(f"output_file_id {name}", stage, thing(output_file_id=wrong[name]), "either")
            yield mode(
                f"completed, output_file_id {name}",
                stage,
                thing(status="completed", output_file_id=wrong[name]),
                "either",
            )
    yield mode("completed at once", "create", thing(status="completed"), "either")
    for name, change in ROWS.items():
        yield mode(name, "content", rows(change), "either")
    yield mode(
        "pages without an end", "list", thing(has_more=True, data=[{"id": "x", "object": "batch"}]), "either"
    )
    yield mode("no data", "list", thing(data=None), "either")


Rows = list[dict[str, Any]]


def _each(**changed: Any) -> Callable[[Rows], Any]:
    return lambda rows: [row | changed for row in rows]


def _responses(**changed: Any) -> Callable[[Rows], Any]:
    return lambda rows: [row | {"response": row["response"] | changed} for row in rows]


def _ids(name: Callable[[int, str], Any]) -> Callable[[Rows], Any]:
    return lambda rows: [
        row | {"custom_id": name(number, row["custom_id"])} for number, row in enumerate(rows)
    ]


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
