"""A search server in this process: the endpoints that we use, over the exact formula, as unhelpful as a test needs."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

import numpy as np

from llmfair.nouns import Document
from llmfair.retrieval.engine import Analyzer, Hit
from tests.servers import serving

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
            missing = {"type": "index_not_found_exception", "reason": f"no such index [{name}]"}
            return 404, {"error": missing, "status": 404}
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


# The exact formula


K1, B = 1.2, 0.75


class Exact:
    """score(q, d) = Σ over query terms (repeats count) of idf · f / (f + k1 (1 − b + b · L / avgL)), without k1 + 1.

    idf = ln(1 + (N − n + ½) / (n + ½)); L is the document's length as Lucene keeps it in one byte, avgL the mean of
    lengths as they are.
    """

    def __init__(self, documents: Sequence[Document], analyzer: Analyzer) -> None:
        self.doc_ids = [document.doc_id for document in documents]
        self._analyzer = analyzer
        texts = [analyzer.terms(f"{document.title}\n{document.text}") for document in documents]
        lengths = np.array([len(text) for text in texts], dtype=float)
        kept = np.array([decoded(encoded(len(text))) for text in texts], dtype=float)
        self._norms = K1 * (1 - B + B * kept / lengths.mean())
        self._often: dict[str, dict[int, int]] = {}
        for place, text in enumerate(texts):
            for term, often in Counter(text).items():
                self._often.setdefault(term, {})[place] = often

    def scores(self, text: str, added: str = "", weight: float = 1.0) -> dict[str, float]:
        """The score of every document."""
        found = np.zeros(len(self.doc_ids))
        counts: dict[str, float] = {}
        for part, times in ((text, 1.0), (added, weight)):
            for term in self._analyzer.terms(part):
                counts[term] = counts.get(term, 0.0) + times
        for term, times in counts.items():
            holding = self._often.get(term, {})
            places = np.fromiter(holding, dtype=int, count=len(holding))
            often = np.fromiter(holding.values(), dtype=float, count=len(holding))
            idf = math.log(1 + (len(found) - len(holding) + 0.5) / (len(holding) + 0.5))
            found[places] += times * idf * often / (often + self._norms[places])
        return dict(zip(self.doc_ids, found.tolist(), strict=True))

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> list[Hit]:
        """The best k documents with a word of the query, ties by doc id."""
        hits = [Hit(doc_id, score) for doc_id, score in self.scores(text, added, weight).items() if score > 0]
        return sorted(hits, key=lambda hit: (-round(hit.score, 9), hit.doc_id))[:k]


def encoded(length: int) -> int:
    """A length as Lucene's SmallFloat.intToByte4 keeps it: exact below 40, then with four bits."""
    return length if length < 24 else 24 + _int4(length - 24)


def decoded(byte: int) -> int:
    """The length that stands for those of one byte: the least of them."""
    if byte < 24:
        return byte
    exponent, bits = ((byte - 24) >> 3) - 1, (byte - 24) & 7
    return 24 + (bits if exponent == -1 else (bits | 8) << exponent)


def _int4(number: int) -> int:
    width = number.bit_length()
    return number if width < 4 else ((number >> (width - 4)) & 7) | ((width - 3) << 3)
