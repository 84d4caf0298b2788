"""What can happen to a reply: bytes lost and added, other statuses, headers and lengths, JSON of another form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fuzz.server.front import Damage, Exchange, Reply

REPLY = Reply(200, b"")
DEEP = 100_000
ESCAPES = "\x1b[31mred\x1b[0m\x07\x1b]0;title\x07\u202e\x9b2J"

# Connections and bytes


def raw(data: bytes, reads: bool = False) -> Damage:
    """These bytes, and the end."""

    async def damage(exchange: Exchange) -> bool:
        if reads:
            await exchange.forward()
        await exchange.write(data)
        return False

    return damage


async def reset(exchange: Exchange) -> bool:
    exchange.reset()
    return False


async def reset_after(exchange: Exchange) -> bool:
    await exchange.forward()
    exchange.reset()
    return False


async def silent(exchange: Exchange) -> bool:
    await asyncio.sleep(60)
    return False


def cut(share: float, length: Callable[[int], object] | None = None) -> Damage:
    """So much of the body, and the end; `length` says what its Content-Length is."""

    async def damage(exchange: Exchange) -> bool:
        reply = await exchange.forward()
        says = len(reply.body) if length is None else length(len(reply.body))
        await exchange.write(reply.with_headers(Content_Length=str(says)).head())
        await exchange.write(reply.body[: int(len(reply.body) * share)])
        return False

    return damage


def chunked(*parts: bytes) -> Damage:
    """A chunked body, byte by byte as it is on the wire, `%` for the right one."""

    async def damage(exchange: Exchange) -> bool:
        reply = (await exchange.forward()).with_headers(Transfer_Encoding="chunked")
        body = b"%x\r\n%b\r\n" % (len(reply.body), reply.body)
        await exchange.write(reply.head() + b"".join(body if part == b"%" else part for part in parts))
        return False

    return damage


def endless(chunk: bytes, pause: float = 0.0, head: bytes | None = None, chunks: bool = True) -> Damage:
    """The same again and again, for as long as somebody listens."""

    async def damage(exchange: Exchange) -> bool:
        first = REPLY.with_headers(
            **({"Transfer_Encoding": "chunked"} if chunks else {"Content_Length": "999999999999"})
        )
        await exchange.write(first.head() if head is None else head)
        piece = b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunks and head is None else chunk
        while True:
            await exchange.write(piece)
            await asyncio.sleep(pause)

    return damage


def drip(seconds: float, head: bool = True) -> Damage:
    """The right answer, a byte at a time, also of its head."""

    async def damage(exchange: Exchange) -> bool:
        reply = await exchange.forward()
        await exchange.write(b"" if head else reply.head())
        for byte in (reply.head() if head else b"") + reply.body:
            await exchange.write(bytes([byte]))
            await asyncio.sleep(seconds)
        return True

    return damage


# Replies


def replied(change: Callable[[Reply], Reply], stays: bool = True) -> Damage:
    """The right reply, changed."""

    async def damage(exchange: Exchange) -> bool:
        await exchange.send(change(await exchange.forward()))
        return stays

    return damage


def status(code: int, error: object = None, done: bool = False, **headers: str) -> Damage:
    """A refusal, of what is done all the same or not."""

    async def damage(exchange: Exchange) -> bool:
        if done:
            await exchange.forward()
        document = (
            {"error": {"message": "a sentence of the server", **error}} if isinstance(error, dict) else error
        )
        body = error if isinstance(error, bytes) else json.dumps(document).encode()
        await exchange.send(Reply(code, body).with_headers(**headers))
        return True

    return damage


def body(change: Callable[[bytes], bytes], **headers: str) -> Damage:
    return replied(lambda reply: replace(reply, body=change(reply.body)).with_headers(**headers))


def instead(content: bytes, kind: str = "application/json") -> Damage:
    """Another body with status 200."""
    return replied(lambda reply: Reply(200, content, [("Content-Type", kind)]))


def headed(*headers: tuple[str, str]) -> Damage:
    return replied(lambda reply: replace(reply, headers=[*reply.headers, *headers]))


def first_line(line: bytes, code: int = 200) -> Damage:
    return replied(lambda reply: replace(reply, line=line, status=code))


def before(data: bytes) -> Damage:
    """These bytes, then the right reply."""

    async def damage(exchange: Exchange) -> bool:
        reply = await exchange.forward()
        await exchange.write(data + reply.head() + reply.body)
        return True

    return damage


# Completions: the body of a chat, or of each line of a file of answers


def document(change: Callable[[dict[str, Any]], Any]) -> Damage:
    async def damage(exchange: Exchange) -> bool:
        reply = await exchange.forward()
        if exchange.stage == "chat":
            changed = (
                change(json.loads(reply.body)) if exchange.when(exchange.number) else json.loads(reply.body)
            )
            content = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        else:
            lines = [line for line in reply.body.split(b"\n") if line]
            content = b"".join(_line(line, n, change, exchange) + b"\n" for n, line in enumerate(lines, 1))
        await exchange.send(replace(reply, body=content))
        return True

    return damage


def _line(line: bytes, number: int, change: Callable[[dict[str, Any]], Any], exchange: Exchange) -> bytes:
    if not exchange.when(number):
        return line
    row = json.loads(line)
    changed = change(row["response"]["body"])
    if not isinstance(changed, bytes):
        return json.dumps(row | {"response": row["response"] | {"body": changed}}).encode()
    mark = json.dumps(row | {"response": row["response"] | {"body": "MARK"}}).encode()
    return mark.replace(b'"MARK"', changed.replace(b"\n", b" "))


def field(path: str, value: Any = ..., dumped: str = "") -> Damage:
    """A field of the completion with another value, or absent; `dumped` is JSON that Python would not write."""

    def change(found: dict[str, Any]) -> Any:
        *parents, name = path.split(".")
        place: Any = found
        for parent in parents:
            place = place[int(parent) if parent.isdigit() else parent]
        key = int(name) if name.isdigit() else name
        if value is ... and not dumped:
            del place[key]
            return found
        place[key] = "DUMPED" if dumped else value
        whole = json.dumps(found)
        return whole.replace('"DUMPED"', dumped).encode() if dumped else found

    return document(change)


def twice(found: dict[str, Any], name: str, first: str) -> bytes:
    """A field twice, with another value before the right one."""
    return json.dumps(found).replace(f'"{name}":', f'"{name}": {first}, "{name}":', 1).encode()


# Files and batches


def rows(change: Callable[[list[dict[str, Any]]], Any]) -> Damage:
    """The lines of a file of answers, changed together."""

    async def damage(exchange: Exchange) -> bool:
        reply = await exchange.forward()
        changed = change([json.loads(line) for line in reply.body.split(b"\n") if line])
        content = (
            changed
            if isinstance(changed, bytes)
            else b"".join(json.dumps(row).encode() + b"\n" for row in changed)
        )
        await exchange.send(replace(reply, body=content))
        return True

    return damage


def thing(**changed: Any) -> Damage:
    """Fields of what a server tells of a file or a batch; `...` for absent."""

    def change(content: bytes) -> bytes:
        found = {**json.loads(content), **changed}
        return json.dumps({name: value for name, value in found.items() if value is not ...}).encode()

    return body(change)
