"""Connections, status lines, headers, lengths and encodings that are wrong."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.fuzz.server.damages import (
    before,
    body,
    chunked,
    cut,
    drip,
    endless,
    first_line,
    headed,
    raw,
    replied,
    reset,
    reset_after,
    silent,
)  # fmt: skip
from tests.fuzz.server.front import Damage, Mode, Reply

LOST = "connection to .* lost|lost the connection|no connection|no answer from|no HTTP|breaks off"
ODD = "without a completion|something else|ended without"
LONG = "more than .* MB"
PACKED = "cannot be unpacked"
BOMB = gzip.compress(b"0" * 300_000_000, 6)


def wires() -> Iterator[Mode]:
    """Connections, status lines, headers, lengths, encodings."""

    def mode(name: str, damage: Damage, says: str = LOST, ends: str = "fails", **more: Any) -> Mode:
        return Mode(name, damage, says, ends, **more)

    yield mode("connection reset", reset)
    yield mode("connection reset after the work is done", reset_after)
    yield mode("closed without a word", raw(b""))
    yield mode("closed after half a status line", raw(b"HTTP/1.1 2"))
    yield mode("closed after half a header", raw(b"HTTP/1.1 200 OK\r\nContent-Le"))
    yield mode("never answers", silent, "no answer from .* within 1 s")
    yield mode("not HTTP", raw(b"SSH-2.0-OpenSSH_9.6\r\n"))
    yield mode("noise", raw(bytes(range(256)) * 8))
    yield mode("TLS alert", raw(b"\x15\x03\x01\x00\x02\x02\x46"))
    yield mode("TLS asked of a plain server", raw(b""), "no secure connection", tls=True)
    yield mode("HTTP/2 preface", raw(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)))
    yield mode("HTTP/0.9", raw(b"<html>hello</html>"))
    yield mode(
        "HTTP/1.0 that closes",
        replied(lambda reply: replace(reply, line=b"HTTP/1.0 200 OK"), stays=False),
        "",
        "well",
    )
    yield mode("HTTP/9.9", first_line(b"HTTP/9.9 200 OK"), ends="either")
    yield mode("status of five digits", first_line(b"HTTP/1.1 20000 OK"))
    yield mode("status of letters", first_line(b"HTTP/1.1 abc OK"))
    yield mode("status 0", first_line(b"HTTP/1.1 000 OK"), f"{LOST}|answers 0|HTTP")
    yield mode("status 999", first_line(b"HTTP/1.1 999 OK", 999), f"999|{LOST}")
    yield mode("no reason phrase", first_line(b"HTTP/1.1 200"), "", "well")
    yield mode("reason with escapes", first_line(b"HTTP/1.1 500 \x1b[31mred"), f"500|{LOST}")
    yield mode(
        "bare line feeds", replied(lambda reply: replace(reply, line=b"HTTP/1.1 200 OK\nX: y")), ends="either"
    )
    yield mode("header of 100 kB", headed(("X-Long", "x" * 100_000)))
    yield mode("a thousand headers", headed(*((f"X-{number}", "y") for number in range(1000))), ends="either")
    yield mode(
        "endless headers", endless(b"X-More: yes\r\n" * 50, head=b"HTTP/1.1 200 OK\r\n"), f"{LOST}|{LONG}"
    )
    yield mode("endless one header", endless(b"x" * 5000, head=b"HTTP/1.1 200 OK\r\nX: "), f"{LOST}|{LONG}")
    yield mode("header without colon", headed(("No colon here\r\nX", "y")), ends="either")
    yield mode("header with escapes", headed(("X-Escapes", "\x1b[31m")), ends="either")
    yield mode("header with NUL", headed(("X-Nul", "a\x00b")), ends="either")
    yield mode("header not in ASCII", headed(("X-Latin", "\xe9\xff")), "", "well")
    yield mode(
        "cookies",
        headed(("Set-Cookie", "session=1; Domain=.com; HttpOnly"), ("Set-Cookie", "x" * 4000)),
        "",
        "well",
    )
    yield mode("100 before the reply", before(b"HTTP/1.1 100 Continue\r\n\r\n" * 3), "", "well")
    yield mode("103 before the reply", before(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), "", "well")
    yield mode(
        "100 for ever",
        endless(b"", 0.01, head=b"HTTP/1.1 100 Continue\r\n\r\n" * 2, chunks=False),
        f"{LOST}|{LONG}",
    )
    yield mode("endless 100", endless(b"HTTP/1.1 100 Continue\r\n\r\n", 0.001, head=b""), f"{LOST}|{LONG}")
    yield mode("101", raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"), f"101|{LOST}")
    yield mode("two lengths", headed(("Content-Length", "5"), ("Content-Length", "7")))
    yield mode("length too long", cut(1.0, lambda size: size + 10))
    yield mode("length too short", cut(1.0, lambda size: size - 10), f"{ODD}|{LOST}")
    yield mode("length negative", cut(1.0, lambda size: -5))
    yield mode("length huge", cut(1.0, lambda size: 10**30), f"{LOST}|{LONG}")
    yield mode("length no number", cut(1.0, lambda size: "many"))
    yield mode("length 0", cut(1.0, lambda size: 0), f"{ODD}|{LOST}")
    yield mode("cut in the middle of the body", cut(0.5))
    yield mode("chunks", chunked(b"%", b"0\r\n\r\n"), "", "well")
    yield mode("chunks without an end", chunked(b"%"))
    yield mode("chunk of letters", chunked(b"zz\r\n", b"%"))
    yield mode("chunk of 2^64", chunked(b"ffffffffffffffffff\r\n", b"%"), f"{LOST}|{LONG}")
    yield mode("chunk negative", chunked(b"-5\r\n", b"%"))
    yield mode("chunk with an extension", chunked(b"1;a=b\r\n \r\n", b"%", b"0\r\n\r\n"), "", "well")
    yield mode("trailers", chunked(b"%", b"0\r\nX-Trailer: y\r\n\r\n"), "", "well")
    yield mode("chunks for ever", endless(b" " * 65536), LONG)
    yield mode("length for ever", endless(b" " * 65536, chunks=False), LONG)
    yield mode("slow chunks for ever", endless(b" ", 0.2), "no answer from .* within 1 s")
    yield mode("slow drip", drip(0.05), "no answer from .* within 1 s")
    yield mode("quick drip", drip(0.0001), "no answer from .* within 1 s", "either")
    yield mode(
        "closing after every reply",
        replied(lambda reply: reply.with_headers(Connection="close"), stays=False),
        "",
        "well",
    )
    yield mode("closing without saying so", replied(lambda reply: reply, stays=False), "", "well")
    yield mode(
        "a second reply unasked",
        replied(
            lambda reply: replace(
                reply,
                body=reply.body + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                headers=[*reply.headers, ("Content-Length", str(len(reply.body)))],
            )
        ),
        ends="either",
    )
    yield mode("gzip", body(gzip.compress, Content_Encoding="gzip"), PACKED, "well")
    yield mode(
        "gzip bomb",
        replied(lambda reply: Reply(200, BOMB).with_headers(Content_Encoding="gzip")),
        f"{LONG}|no answer from",
    )
    yield mode("gzip that is none", headed(("Content-Encoding", "gzip")), PACKED)
    yield mode("an unknown encoding", headed(("Content-Encoding", "rot13")), "", "either")
    yield mode(
        "deflate, cut",
        body(lambda content: gzip.compress(content)[:-20], Content_Encoding="deflate"),
        f"{PACKED}|{ODD}",
    )
    yield mode("keep-alive of 0", headed(("Keep-Alive", "timeout=0, max=1")), "", "well")
