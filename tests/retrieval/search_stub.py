"""A search server in this process: the endpoints that we use, over the exact formula, as unhelpful as a test needs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

from llmfair.nouns import Document
from llmfair.retrieval.analysis import Analyzer
from tests.ports import serving
from tests.retrieval.exact import Exact

HTML = b"<html><body>Welcome to nginx</body></html>"


class WhiteSpace:
    """The analyzer of that name."""

    @staticmethod
    def terms(text: str) -> list[str]:
        return text.split()


@dataclass
class Fault:
    """What is answered instead, to the next requests whose path holds `at`: status, body and headers, or a `wire`.

    Of a wire each part follows the one before after `pause` seconds, and then the connection ends. `behind`: bytes that
    nobody asked for, after the reply.
    """

    at: str
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    wire: Iterable[bytes] = ()
    pause: float = 0.0
    behind: bytes = b""


@dataclass
class Stub:
    """`factor`: what scores are multiplied by, k1 + 1 or nothing. `refused`: what becomes of a document, by its id."""

    distribution: str = "opensearch"
    version: str = "3.8.0"
    factor: float = 1.0
    shards: int = 1
    faults: list[Fault] = field(default_factory=list)
    refused: dict[str, list[int]] = field(default_factory=dict)
    indexes: dict[str, dict[str, Any]] = field(default_factory=dict)
    documents: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    _made: dict[tuple[int, int, str], Exact] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, method: str, end: str) -> int:
        return sum(one == method and path.endswith(end) for one, path, _, _ in self.requests)

    @contextmanager
    def running(self) -> Iterator[Stub]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append((self.command, self.path, headers, body))
                fault = outer.fault(self.path)
                if fault is not None and fault.wire:
                    self.close_connection = True
                    with suppress(OSError):
                        for part in fault.wire:
                            self.wfile.write(part)
                            time.sleep(fault.pause)
                    return
                status, reply, more = outer.answered(self.command, self.path, body, fault)
                self.send_response(status)
                kind = "text/html" if reply == HTML else "application/json"
                for name, value in ({"Content-Type": kind, "Content-Length": str(len(reply))} | more).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply + (fault.behind if fault is not None else b""))

            do_GET = do_PUT = do_POST = answer  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None: ...

        with serving(Handler) as self.port:
            yield self

    def fault(self, path: str) -> Fault | None:
        """What goes wrong with this request."""
        for fault in self.faults:
            if fault.times and fault.at in path:
                fault.times -= 1
                return fault
        return None

    def answered(
        self, method: str, path: str, body: bytes, fault: Fault | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        if fault is not None and not fault.behind:
            return fault.status, fault.body, fault.headers
        status, found = self._answer(method, path.partition("?")[0], body)
        return status, json.dumps(found).encode(), {}

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        _, name, *rest = path.split("/")
        if not name:
            kind = {} if self.distribution == "elasticsearch" else {"distribution": self.distribution}
            return 200, {"version": {"number": self.version, **kind}}
        if method == "PUT" and not rest:
            self.indexes[name], self.documents[name] = json.loads(body), {}
            return 200, {"acknowledged": True}
        if name not in self.indexes:
            return 404, {
                "error": {"type": "index_not_found_exception", "reason": f"no such index [{name}]"},
                "status": 404,
            }
        index, documents = self.indexes[name], self.documents[name]
        match rest:
            case []:
                settings = {"uuid": f"u-{name}", "number_of_shards": str(self.shards)}
                return 200, {name: {"settings": {"index": settings}, "mappings": index["mappings"]}}
            case ["_mapping"]:
                index["mappings"] |= json.loads(body)
                return 200, {"acknowledged": True}
            case ["_bulk"]:
                return 200, self._bulk(documents, body)
            case ["_refresh"]:
                return 200, {"_shards": {"failed": 0}}
            case ["_count"]:
                return 200, {"count": len(documents)}
            case ["_search"]:
                return 200, self._search(documents, json.loads(body))
        return 400, {"error": {"reason": f"no handler for {path}"}}

    def _bulk(self, documents: dict[str, dict[str, str]], body: bytes) -> Any:
        lines = [json.loads(line) for line in body.splitlines()]
        items = []
        for head, content in zip(lines[::2], lines[1::2], strict=True):
            doc_id = head["create"]["_id"]
            status = 409 if doc_id in documents else 201
            if self.refused.get(doc_id):
                status = self.refused[doc_id].pop(0)
            if status == 201:
                documents[doc_id] = content
            error = {"error": {"type": "t", "reason": f"document {doc_id} is too much"}}
            items.append({"create": {"_id": doc_id, "status": status, **(error if status >= 400 else {})}})
        return {"errors": any(item["create"]["status"] >= 400 for item in items), "items": items}

    def _search(self, documents: dict[str, dict[str, str]], asked: Any) -> Any:
        among = asked["query"]["bool"].get("filter")
        found = dict.fromkeys(among[0]["ids"]["values"] if among else (), 0.0)
        found = {doc_id: 0.0 for doc_id in found if doc_id in documents}
        for clause in asked["query"]["bool"]["should"]:
            ((name, match),) = clause["match"].items()
            scores = self._exact(documents, name).scores(match["query"])
            for doc_id, score in scores.items():
                if score > 0 and (not among or doc_id in found):
                    found[doc_id] = found.get(doc_id, 0.0) + score * match.get("boost", 1.0) * self.factor
        # ties in the order of arrival, as segments have them
        best = sorted(found.items(), key=lambda hit: -round(hit[1], 9))[: asked["size"]]
        hits = [{"_id": doc_id, "_score": score} for doc_id, score in best]
        return {"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": hits}}

    def _exact(self, documents: dict[str, dict[str, str]], field_name: str) -> Exact:
        """The formula over one field, made again when there are more documents."""
        key = (id(documents), len(documents), field_name)
        if key not in self._made:
            held = [Document(doc_id, "", of.get(field_name, "")) for doc_id, of in documents.items()]
            self._made[key] = Exact(held, cast(Analyzer, WhiteSpace))
        return self._made[key]
