"""Files and batches beside the chat completions of `tests.servers`, as OpenAI's Batch API has them.

Answers are those of the chat endpoint, in reversed order, refusals and expired questions in a file of their own.
Nothing takes time: a batch ends when it was looked at often enough.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.servers import Respond, Server, completion, rank

PAGE = 2
"""Batches in one page of the list."""
EVENTS = {"_upload": "upload", "_create": "create", "_look": "look", "_content": "content"}
NOTHING: Mapping[str, Sequence[bytes]] = {}


@dataclass
class Made:
    """A batch: its lines, how often it was looked at, and what it ends as."""

    batch_id: str
    input_file_id: str
    lines: list[dict[str, Any]]
    ends: str = "completed"
    errors: list[dict[str, Any]] = field(default_factory=list)
    looks: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None


def never(row: int, times: int) -> bool:
    return False


def as_json(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


class BatchServer(Server):
    """`expire(row, times)`: whether the question in a row of its batch expires, when it was submitted so many times;
    rows from 0, times from 1. (Not by its key: that holds the port, another one each time.)

    A batch is in progress for `looks` looks. `refuse(lines)` gives the error of a batch that fails as a whole.
    `on(event)` hears of `upload`, `create`, `created`, `look` and `content`, each before its reply; where it returns
    False the connection is cut, and what was asked for is not done. `spoil`: bodies to be sent in the place of an
    event's first replies, to what was done all the same. `write(row)` makes a line of an output or error file.
    `expired_as`: how a batch ends in which something expired.
    """

    expired_as = "expired"
    elsewhere: tuple[int, str] | None = None
    """Where all are redirected to, and by which status."""

    def __init__(
        self,
        respond: Respond = rank,
        *,
        expire: Callable[[int, int], bool] = never,
        refuse: Callable[[list[dict[str, Any]]], dict[str, Any] | None] = lambda lines: None,
        on: Callable[[str], bool | None] = lambda event: None,
        spoil: Mapping[str, Sequence[bytes]] = NOTHING,
        write: Callable[[dict[str, Any]], bytes] = as_json,
        looks: int = 2,
        log: Path | None = None,
    ) -> None:
        super().__init__(respond, log=log)
        self.middlewares = [self._cut]
        self.expire, self.refuse, self.on, self.looks = expire, refuse, on, looks
        self.write = write
        self.spoil = {event: list(bodies) for event, bodies in spoil.items()}
        self.files: dict[str, bytes] = {}
        self.batches: list[Made] = []
        self.submitted: Counter[str] = Counter()
        self.authorized: set[str] = set()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/files", self._upload)
        router.add_get("/v1/files/{file_id}/content", self._content)
        router.add_post("/v1/batches", self._create)
        router.add_get("/v1/batches", self._list)
        router.add_get("/v1/batches/{batch_id}", self._look)

    @web.middleware
    async def _cut(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.elsewhere is not None:
            status, origin = self.elsewhere
            return web.Response(status=status, headers={"Location": f"{origin}{request.path[3:]}"})
        self.authorized.add(request.headers.get("Authorization", ""))
        try:
            response: web.StreamResponse = await handler(request)
            if spoiled := self.spoil.get(EVENTS.get(request.match_info.handler.__name__, "")):
                return web.Response(body=spoiled.pop(0), content_type="application/json")
            return response
        except ConnectionResetError:
            if request.transport is not None:
                request.transport.close()
            return web.Response(status=500)

    def _hears(self, event: str) -> None:
        if self.on(event) is False:
            raise ConnectionResetError(event)

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        part = form["file"]
        assert isinstance(part, web.FileField) and form["purpose"] == "batch"
        self._hears("upload")
        file_id = self._store(part.file.read())
        document = {"id": file_id, "object": "file", "filename": part.filename, "purpose": "batch"}
        return web.json_response(document | {"bytes": 0, "created_at": 0, "status": "processed"})

    def _store(self, content: bytes) -> str:
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = content
        return file_id

    async def _content(self, request: web.Request) -> web.Response:
        self._hears("content")
        return web.Response(body=self.files[request.match_info["file_id"]])

    async def _create(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        assert (wanted["endpoint"], wanted["completion_window"]) == ("/v1/chat/completions", "24h")
        self._hears("create")
        content = self.files[wanted["input_file_id"]]
        lines = [json.loads(line) for line in content.split(b"\n") if line]
        batch = Made(f"batch_{len(self.batches) + 1}", wanted["input_file_id"], lines)
        self.batches.append(batch)
        if error := self.refuse(lines):
            batch.ends, batch.errors = "failed", [error]
        else:
            self.submitted.update(line["custom_id"] for line in lines)
            self._answer(batch)
        self._hears("created")
        return web.json_response(self._document(batch))

    def _answer(self, batch: Made) -> None:
        assert len({line["custom_id"] for line in batch.lines}) == len(batch.lines)
        answers, errors = list[dict[str, Any]](), list[dict[str, Any]]()
        for number, line in enumerate(batch.lines):
            assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
            key = line["custom_id"]
            row: dict[str, Any] = {
                "id": f"batch_req_{key}", "custom_id": key, "response": None, "error": None,
            }  # fmt: skip
            if self.expire(number, self.submitted[key]):
                message = "This request could not be executed before the completion window expired."
                errors.append(row | {"error": {"code": "batch_expired", "message": message}})
                batch.ends = self.expired_as
                continue
            reply = self.respond(line["body"], self.submitted[key])
            body = completion(reply, line["body"]["model"])
            row |= {"response": {"status_code": reply.status, "request_id": "req", "body": body}}
            (answers if reply.status == 200 else errors).append(row)
        for rows, name in ((answers, "output_file_id"), (errors, "error_file_id")):
            if rows:
                setattr(batch, name, self._store(b"".join(self.write(row) + b"\n" for row in reversed(rows))))

    async def _look(self, request: web.Request) -> web.Response:
        self._hears("look")
        batch = next((b for b in self.batches if b.batch_id == request.match_info["batch_id"]), None)
        if batch is None:
            return web.json_response({"error": {"message": "no such batch"}}, status=404)
        batch.looks += 1
        return web.json_response(self._document(batch))

    async def _list(self, request: web.Request) -> web.Response:
        newest = list(reversed(self.batches))
        after = request.query.get("after")
        start = 1 + next((i for i, b in enumerate(newest) if b.batch_id == after), -1)
        page = [self._document(batch) for batch in newest[start : start + PAGE]]
        return web.json_response(
            {"object": "list", "data": page, "has_more": start + PAGE < len(newest)}
            | ({"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {})
        )

    def _document(self, batch: Made) -> dict[str, Any]:
        status = "validating" if not batch.looks else "in_progress"
        over = batch.looks >= self.looks
        return {
            "id": batch.batch_id,
            "object": "batch",
            "input_file_id": batch.input_file_id,
            "status": batch.ends if over else status,
            "output_file_id": batch.output_file_id if over else None,
            "error_file_id": batch.error_file_id if over else None,
            "errors": {"object": "list", "data": batch.errors} if batch.errors and over else None,
            "request_counts": {"total": len(batch.lines), "completed": 0, "failed": 0},
        }


@pytest.fixture(autouse=True)
def unwaiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a module that imports it: batches are looked at again at once."""
    monkeypatch.setattr("llmfair.asking.batch.FIRST_POLL", 0.01)
    monkeypatch.setattr("llmfair.asking.batch.LONGEST_POLL", 0.01)
    monkeypatch.setattr("llmfair.io.net.FIRST_WAIT", 0.01)
    monkeypatch.setattr("llmfair.asking.batch.SETTLE_SECONDS", 0.01)
