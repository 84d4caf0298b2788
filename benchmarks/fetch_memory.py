"""Memory and speed of distilling a corpus: `python -m benchmarks.fetch_memory [ARTICLES]`, from the repository's root.

Generates a corpus in the format of TREC Fair 2022 (1,000,000 articles of 2 kB by default, a quarter relevant, about
0.8 GB of disk) and one of a tenth of that in a temporary folder, and runs on each, as processes of their own, a pass
that only unzips and the fetch that distils. The bars are 500 MB of resident memory and 60 MB/s of uncompressed JSON.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ARTICLES = 1_000_000
TEXT = 1_950  # characters, so that a line has about 2 kB
REGIONS = ("Western Europe", "Eastern Asia", "Caribbean", "Northern America", "Western Africa")


def make(folder: Path, articles: int) -> None:
    """Topics, metadata and corpus, ids ascending as in the real files."""
    chance = random.Random(0)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(3000)]
    pool = " ".join(chance.choices(words, k=200_000))
    relevant: list[list[int]] = [[] for _ in range(50)]
    size = 0
    with (
        gzip.open(folder / "corpus.json.gz", "wb", 1) as corpus,
        gzip.open(folder / "metadata.json.gz", "wb", 1) as metadata,
    ):
        for page_id in range(12, 12 + 11 * articles, 11):
            if chance.random() < 0.25:
                relevant[chance.randrange(50)].append(page_id)
            start = chance.randrange(len(pool) - TEXT)
            url = f"https://en.wikipedia.org/wiki?curid={page_id}"
            article = {
                "id": page_id,
                "title": f"Page {page_id}",
                "url": url,
                "plain": pool[start : start + TEXT],
            }
            size += corpus.write(json.dumps(article).encode() + b"\n")
            gender = chance.choice(([], [], ["male"], ["female"]))
            row = {"page_id": page_id, "gender": gender, "page_subcont_regions": chance.sample(REGIONS, k=2)}
            metadata.write(json.dumps(row).encode() + b"\n")
    topics = [{"id": i, "title": f"Topic {i}", "rel_docs": pages} for i, pages in enumerate(relevant)]
    (folder / "topics.jsonl").write_text("".join(json.dumps(topic) + "\n" for topic in topics))
    (folder / "size").write_text(str(size))


def unzip(folder: Path) -> float:
    started = time.perf_counter()
    with gzip.open(folder / "corpus.json.gz", "rb") as file:
        while file.read(1 << 20):
            pass
    return time.perf_counter() - started


def distil(folder: Path) -> float:
    """A whole fetch from files; returns the seconds of its pass over the corpus."""
    import ir_datasets  # noqa: F401  # a fetch from the published addresses has it in memory

    from llmfair.datasets.fetch import FetchOptions, collection_of, fetch, plan_fetch

    class Clock:
        started = 0.0

        def step(self, name: str, total: int | None, done: int = 0) -> None:
            self.started = time.perf_counter()

        def advance(self, count: int) -> None: ...

    os.environ["LLMFAIR_CACHE_DIR"] = str(folder / "cache")
    topics, metadata, corpus = (
        str(folder / name) for name in ("topics.jsonl", "metadata.json.gz", "corpus.json.gz")
    )
    clock = Clock()
    fetch(plan_fetch(collection_of("trec-fair/2022"), FetchOptions(topics, metadata, corpus)), clock)
    return time.perf_counter() - clock.started


def load(folder: Path) -> float:
    """Sides of all pages and a thousand documents, from the distilled files."""
    os.environ["LLMFAIR_CACHE_DIR"] = str(folder / "cache")
    from llmfair.datasets.base import load_dataset

    started = time.perf_counter()
    source: Any = load_dataset("trec-fair/2022/gender")
    sides = source.sides(source.attributes[0])
    source.load(list(sides)[:1000])
    return time.perf_counter() - started


PASSES = {"unzip": unzip, "distil": distil, "load": load}


def child(*arguments: object) -> str:
    """Another interpreter, so that its peak memory is its own; this one stays small, since a child starts with it."""
    command = [sys.executable, "-m", "benchmarks.fetch_memory", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    if sys.argv[1:2] == ["make"]:
        make(Path(sys.argv[2]), int(sys.argv[3]))
        return
    if sys.argv[1:] and sys.argv[1] in PASSES:
        seconds = PASSES[sys.argv[1]](Path(sys.argv[2]))
        print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    articles = int(sys.argv[1]) if sys.argv[1:] else ARTICLES
    print(f"{'articles':>10} {'MB of JSON':>11} {'pass':8} {'seconds':>8} {'MB/s':>7} {'peak MB':>8}")
    for count in (articles // 10, articles):
        with tempfile.TemporaryDirectory() as name:
            child("make", name, count)
            size = int((Path(name) / "size").read_text()) / 1e6
            for what in PASSES:
                seconds, peak = map(float, child(what, name).split())
                rate = f"{size / seconds:7,.0f}" if what != "load" else " " * 7
                print(f"{count:10,} {size:11,.0f} {what:8} {seconds:8.1f} {rate} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    main()
