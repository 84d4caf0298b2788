"""Refusals and waits: statuses, what stands in an error, and when to come again."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate

from tests.fuzz.server.damages import DEEP, ESCAPES, first_line, headed, raw, status
from tests.fuzz.server.front import Mode
from tests.fuzz.server.wires import LOST, ODD

HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
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
    yield Mode("error that is a text", status(400, b'{"error": "no"}'), "400: no")
    yield Mode("error that is a list", status(400, b'{"error": ["no", {"a": 1}]}'), "400")
    yield Mode("error that is a number", status(500, b"7"), "500")
    yield Mode("error that is null", status(400, b'{"error": null}'), "400")
    yield Mode("error nested deep", status(400, b'{"error": ' + b"[" * DEEP + b"]" * DEEP + b"}"), "400")
    yield Mode("error in HTML", status(502, HTML), "502")
    yield Mode("error in Latin-1", status(500, '{"error": {"message": "caf\xe9"}}'.encode("latin-1")), "500")
    yield Mode("error with escapes", status(400, {"message": ESCAPES}), "400")
    yield Mode("error with escapes, 500", status(500, {"message": ESCAPES}), "500")
    yield Mode("error of 10 MB", status(500, {"message": "x" * 10**7}), "500|more than .* MB|no answer from")
    yield Mode("error of 500 kB", status(400, {"message": "x" * 500_000}), "400")
    yield Mode("error with half a surrogate", status(400, b'{"error": {"message": "\\ud800 no"}}'), "400")
    yield Mode("error whose code is a list", status(429, {"code": ["insufficient_quota"]}), "429")
    yield Mode("error whose message is an object", status(400, {"message": {"text": "no"}}), "400")
    yield Mode(
        "unsupported limit, for ever",
        status(400, {"code": "unsupported_parameter", "param": "max_tokens"}),
        "400",
    )
    yield Mode(
        "temperature refused",
        status(400, {"code": "unsupported_value", "param": "temperature"}),
        "temperature|400",
        "either",
    )
    yield Mode("context too long", status(400, {"code": "context_length_exceeded"}), "context|400")
    yield Mode("content filter", status(400, {"code": "content_filter"}), "400", "either")
