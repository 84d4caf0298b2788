"""TREC Fair in small: source files in the published formats, and a server on loopback that ir_datasets is pointed at."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pkgutil
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.servers import serving

DOWNLOADS = ("ir_datasets", "etc/downloads.json")
POINTER = """\
import os, pkgutil
own = pkgutil.get_data
def get_data(package, resource):
    if (package, resource) == ("ir_datasets", "etc/downloads.json"):
        with open(os.environ["TEST_DOWNLOADS"], "rb") as file:
            return file.read()
    return own(package, resource)
pkgutil.get_data = get_data
"""


# Source files


def lines(rows: Iterable[Any], pack: bool = True) -> bytes:
    raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return gzip.compress(raw, mtime=0) if pack else raw


def numbers_of(page_id: int) -> dict[str, float]:
    """What the metadata of 2022 say of a page in numbers."""
    views = {"relative_pageviews": 0.2} if page_id % 5 else {}
    return {"pred_qual": 0.30334318, "num_sitelinks": page_id % 7, **views}


def metadata_2022(page_id: int, gender: Any = (), regions: Any = ()) -> dict[str, Any]:
    """What is read of a record of 2022, among what is not; the two fields of groups are given."""
    unread = {"page_id": page_id, "quality": 0.3, "page_countries": [], "relative_pageviews": None}
    return unread | {"page_subcont_regions": regions, "gender": gender, **numbers_of(page_id)}


def metadata_2021(page_id: int, regions: Any = ()) -> dict[str, Any]:
    return {"page_id": page_id, "quality_score": 0.909, "geographic_locations": regions}


def article_2022(page_id: int, title: str, plain: str = "Some plain text of it.") -> dict[str, Any]:
    return {"id": page_id, "title": title, "url": "https://en.wikipedia.org", "plain": plain}


def article_2021(page_id: int, title: str, text: str = "'''It''' is [[wikitext|text]].") -> dict[str, Any]:
    return {"id": page_id, "title": title, "url": "https://en.wikipedia.org", "text": text}


def topic_2022(query_id: int, title: str, rel_docs: list[int]) -> dict[str, Any]:
    return {"id": query_id, "title": title, "url": "https://en.wikipedia.org", "rel_docs": rel_docs}


def topic_2021(query_id: int, title: str, rel_docs: list[int]) -> dict[str, Any]:
    unread = {"keywords": ["k"], "scope": "s", "homepage": "h"}
    return {"id": query_id, "title": title, **unread, "rel_docs": rel_docs}


WITHOUT_TITLE, UNWANTED = 506, 505
ODD_TITLE = 'A "quoted" title,\nBéla\tBartók 名'
Sources = dict[str, bytes]
"""Name in ir_datasets' list of downloads -> the file's bytes."""


def sources_2022() -> Sources:
    """Every trap of the real files once; see the comments."""
    return {
        "2022/train/topics": lines(
            [
                topic_2022(
                    84, "Agriculture", [12, 307, 339, 500, 501, 339, WITHOUT_TITLE]
                ),  # 339 judged twice
                topic_2022(187, "Women", [502, 503, 504, 507, 307]),
            ],
            pack=False,
        ),
        "2022/metadata": lines(
            [
                metadata_2022(307, ["male"], ["Northern America"]),
                metadata_2022(307, ["female"], ["Western Europe"]),  # a repeated line
                metadata_2022(339, ["female"], ["Eastern Europe", "Northern America"]),  # mixed
                metadata_2022(500, ["transgender female"], ["Western Europe", "Southern Europe"]),
                metadata_2022(501, ["cisgender male"], ["Polynesia", "Melanesia"]),
                metadata_2022(502, ["non-binary"], ["Australia and New Zealand"]),
                metadata_2022(503, [], None),
                metadata_2022(504, ["female", "male", "female"], ["Atlantis", "Eastern Asia"]),
                metadata_2022(UNWANTED, ["female"], ["Eastern Asia"]),
                metadata_2022(WITHOUT_TITLE, ["male"], ["Eastern Asia"]),
            ]
        ),
        "2022/docs": lines(
            [
                article_2022(12, "Anarchism"),  # the first page has no metadata
                article_2022(307, "Abraham Lincoln", "one two  three\nfour five"),
                article_2022(339, "Ayn Rand"),
                article_2022(339, "Ayn Rand, again"),  # an id twice, with two titles
                article_2022(507, ODD_TITLE),  # no metadata either, between two that have some
                *(article_2022(n, f"Page {n}") for n in (500, 501, 502, UNWANTED, 503, 504)),
            ]
        ),
    }


def sources_2021() -> Sources:
    return {
        "2021/train/topics": lines([topic_2021(1, "Agriculture", [12, 316, 67277921])]),
        "2021/metadata": lines([metadata_2021(316, ["Northern America"])]),
        "2021/docs": lines(
            [
                article_2021(12, "Anarchism"),
                article_2021(316, "Academy Award for Best Production Design"),
                article_2021(67277921, "Oldřich I of Rosenberg", "plain <!-- never closed"),
            ]
        ),
    }


def large_2022(pages: int, seed: int) -> Sources:
    """Pages whose labels follow from their ids, a third of them without metadata, in texts that hardly compress."""
    chance = random.Random(seed)
    ids = sorted(chance.sample(range(1, 1_000_000), pages))
    relevant = [page_id for page_id in ids if chance.random() < 0.5]
    return {
        "2022/train/topics": lines(
            [topic_2022(84, "A", relevant), topic_2022(85, "B", relevant[::3])], pack=False
        ),
        "2022/metadata": lines(metadata_2022(page_id, *labels_of(page_id)) for page_id in ids if page_id % 3),
        "2022/docs": lines(article_2022(p, f"Page {p}", chance.randbytes(1000).hex()) for p in ids),
    }


def alike(folder: Path, name: str, topics: Sequence[int], pages: int = 480) -> list[str]:
    """Flags of `datasets fetch` that name sources of a collection from which lists of 200 can be drawn for every topic.

    Half of the pages are relevant to each, alike in groups: of four in a row two are women and two in Europe.
    """
    ids = range(1, pages + 1)
    genders, regions = (["female"], ["male"]), (["Europe", "Western Europe"], ["Asia", "Eastern Asia"])
    of_2021 = name.startswith("trec-fair/2021")
    topic, page = (topic_2021, article_2021) if of_2021 else (topic_2022, article_2022)
    sources = {
        "topics": (topic(k, f"Topic {k}", [n for n in ids if (n // 4 + k) % 2]) for k in topics),
        "metadata": (
            metadata_2021(n, [regions[n // 2 % 2][0]])
            if of_2021
            else metadata_2022(n, genders[n % 2], [regions[n // 2 % 2][1]])
            for n in ids
        ),
        "corpus": (page(n, f"Page {n}") for n in ids),
    }
    flags = []
    for flag, rows in sources.items():
        path = folder / f"{name.replace('/', '-')}-{flag}.gz"
        path.write_bytes(lines(rows))
        flags += [f"--{flag}", str(path)]
    return flags


def labels_of(page_id: int) -> tuple[list[str], list[str]]:
    """The labels `large_2022` gives a page that has metadata."""
    return (
        [[], ["female"], ["male"]][page_id % 7 % 3],
        [[], ["Western Europe"], ["Eastern Asia"], ["Caribbean"]][page_id % 11 % 4],
    )


# A collection whose pages have words to search: files beside, ready for `datasets fetch --index`

NAME = "trec-fair/2022/eval"
FETCH = (
    f"llmfair datasets fetch {NAME} --topics https://trec.nist.gov/data/fair/trec_2022_eval_reldocs.jsonl.gz"
)
"""What advice names: NIST alone publishes the topics."""


@dataclass(frozen=True)
class Made:
    """Pages by id, and the topics' relevant ones."""

    texts: dict[int, str]
    relevant: list[list[int]]

    @property
    def topics(self) -> list[dict[str, Any]]:
        return [
            topic_2022(100 + k, f"w{k} w{k + 1}", pages) | {"keywords": [f"w{k}", f"w{k + 3}", f"w{2 * k}"]}
            for k, pages in enumerate(self.relevant)
        ]

    def articles(self) -> Iterator[dict[str, Any]]:
        for page_id, text in self.texts.items():
            yield article_2022(page_id, f"Page {page_id}", text)
        first = next(iter(self.texts))
        yield article_2022(first, "Page again", "another text of an id that was there")

    def sources(self) -> Sources:
        """As ir_datasets' list of downloads names them."""
        labelled = (page_id for page_id in self.texts if page_id % 3)
        return {
            "2022/train/topics": lines(self.topics, pack=False),
            "2022/metadata": lines(metadata_2022(page_id, *labels_of(page_id)) for page_id in labelled),
            "2022/docs": lines(self.articles()),
        }

    def copies(self, folder: Path) -> list[str]:
        """The sources as files, and the flags that name them."""
        flags = []
        for flag, (key, content) in zip(
            ("--topics", "--metadata", "--corpus"), self.sources().items(), strict=True
        ):
            path = folder / key.replace("/", "-")
            path.write_bytes(content)
            flags += [flag, str(path)]
        return flags


def made(pages: int, seed: int = 0, words: int = 40) -> Made:
    """Pages that say `he` or `she` as their labels do, beside words that differ from page to page."""
    chance = random.Random(seed)
    ids = sorted(chance.sample(range(1, 1_000_000), pages))
    pronouns = {"female": "she her ", "male": "he his "}

    def text(page_id: int) -> str:
        gender = labels_of(page_id)[0]
        said = pronouns[gender[0]] if gender and page_id % 3 else ""
        return said + " ".join(f"w{chance.randrange(20 + page_id % 300)}" for _ in range(words))

    relevant = [[page_id for page_id in ids if chance.random() < 0.2] for _ in range(6)]
    return Made({page_id: text(page_id) for page_id in ids}, relevant)


# The server


@dataclass
class Request:
    """One request: where it began, and how many bytes of the body were sent."""

    name: str
    start: int
    sent: int = 0


@dataclass
class FileServer:
    """Files on loopback; the switches make it as unhelpful as a test needs."""

    files: Mapping[str, bytes]
    ranges: bool = True
    block: int = 1 << 14
    pause: float = 0.0
    cuts: list[int] = field(default_factory=list)
    """Bodies are cut after so many bytes, one entry a request, until none is left."""
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    @contextmanager
    def running(self) -> Iterator[FileServer]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: Any) -> None: ...

        with serving(Handler) as self.port:
            yield self

    def answer(self, http: BaseHTTPRequestHandler) -> None:
        name = http.path.lstrip("/")
        body = self.files.get(name)
        if body is None:
            http.send_error(404)
            return
        asked = http.headers.get("Range", "").removeprefix("bytes=").rstrip("-")
        start = int(asked) if asked and self.ranges else 0
        request = Request(name, start)
        self.requests.append(request)
        if start >= len(body) and start:
            http.send_response(416)
            http.send_header("Content-Range", f"bytes */{len(body)}")
            http.end_headers()
            return
        http.send_response(206 if start else 200)
        if start:
            http.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        http.send_header("Content-Length", str(len(body) - start))
        http.end_headers()
        end = start + self.cuts.pop(0) if self.cuts else len(body)
        try:
            for place in range(start, min(end, len(body)), self.block):
                request.sent = min(place + self.block, end, len(body)) - start
                http.wfile.write(body[place : min(place + self.block, end)])
                time.sleep(self.pause)
        except OSError:
            pass  # the client was killed

    def sent(self, name: str) -> int:
        return sum(request.sent for request in self.requests if request.name == name)


def downloads(server: FileServer, md5: Mapping[str, str] | None = None) -> bytes:
    """ir_datasets' list of downloads, with the addresses, sizes and sums of the server's files."""
    content = json.loads(pkgutil.get_data(*DOWNLOADS) or b"")
    for key, entry in content["trec-fair"].items():
        body = server.files.get(key, b"")
        expected = (md5 or {}).get(key, hashlib.md5(body).hexdigest())
        entry.update(url=server.url(key), size_hint=len(body), expected_md5=expected)
    return json.dumps(content).encode()


@contextmanager
def pointed_at(content: bytes, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """ir_datasets, loaded anew, with this list of downloads and an empty home of its own."""
    own = pkgutil.get_data

    def get_data(package: str, resource: str) -> bytes | None:
        return content if (package, resource) == DOWNLOADS else own(package, resource)

    def forget() -> dict[str, Any]:
        names = [name for name in sys.modules if name.split(".")[0] == "ir_datasets"]
        return {name: sys.modules.pop(name) for name in names}

    monkeypatch.setattr(pkgutil, "get_data", get_data)
    monkeypatch.setenv("IR_DATASETS_HOME", str(home))
    before = forget()
    try:
        yield
    finally:
        forget()
        sys.modules.update(before)


def process_environment(folder: Path, content: bytes) -> dict[str, str]:
    """Variables that point ir_datasets of another process at this list of downloads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(POINTER)
    (folder / "downloads.json").write_bytes(content)
    return {
        "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "TEST_DOWNLOADS": str(folder / "downloads.json"),
        "IR_DATASETS_HOME": str(folder / "ir_datasets"),
    }
