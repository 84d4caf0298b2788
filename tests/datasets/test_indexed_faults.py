"""A fetch with an index that is killed, or finds no room, a broken corpus or another one: it goes on, or says why not."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.lists import engine_of
from llmfair.datasets import pages
from llmfair.datasets.base import cache_folder, load_dataset
from llmfair.datasets.collection import Collection
from tests.cli.command import llmfair, ran, refusal
from tests.datasets.indexed_sources import NAME, made
from tests.datasets.trec_sources import FileServer, downloads, process_environment
from tests.disks import SmallDisk
from tests.folders import content
from tests.retrieval.test_build import held

META, DOCS = "2022/metadata", "2022/docs"
FILES = {META: "trec_2022_articles_discrete.json.gz", DOCS: "trec_corpus_20220301_plain.json.gz"}
PROGRAM = """
import sys, time
from llmfair.cli.app import run
from llmfair.retrieval import build
build.COMMIT_EVERY, entry = 150, build.entry
def slowly(document):
    time.sleep(float(sys.argv[1]))
    return entry(document)
build.entry = slowly
raise SystemExit(run(sys.argv[2:]))
"""
FETCH = (*"datasets fetch trec-fair/2022 --yes --index full --text-words 9 --no-progress".split(),)
QUERIES = [f"w{number} w{7 * number % 300} she w{3 * number}" for number in range(100)]


def answers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a fetched collection answers, and the pages as they were kept."""
    with monkeypatch.context() as patch:
        patch.setenv("LLMFAIR_CACHE_DIR", str(cache))
        found = Collection(load_dataset("trec-fair/2022/gender"))
        engine = engine_of(found)
        folder = cache / "datasets" / "trec-fair-2022-train"
        files = [folder / "index-full" / "pages.db", folder / "pages.db"]
        kept = [hashlib.sha256(content(path)).hexdigest() for path in files]
        return [engine.count(), engine.identity, kept, *(engine.search(query, 20) for query in QUERIES)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_twenty_times_it_answers_as_if_undisturbed_and_downloads_each_byte_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, moments, kills = made(3_000, seed), random.Random(seed), 20
    sources = given.sources()
    size = sum(len(sources[key]) for key in FILES)
    cache = cache_folder()
    parts = {key: cache / "downloads" / "trec-fair" / "2022" / f"{name}.part" for key, name in FILES.items()}
    index = cache / "datasets" / "trec-fair-2022-train" / "index-full" / "english"
    with FileServer(sources, pause=0.05).running() as server:
        environment = os.environ | process_environment(tmp_path / "pointer", downloads(server))

        def begin(more: dict[str, str], pause: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", PROGRAM, pause, *FETCH]
            return subprocess.Popen(command, env=environment | more, stderr=subprocess.PIPE, text=True)

        def through() -> float:
            return sum(server.sent(key) for key in FILES) / size + indexed() / len(given.texts)

        def indexed() -> int:
            return max(held(index), held(index.with_name("english.tmp")))

        def left() -> dict[str, int]:
            return {key: path.stat().st_size if path.is_file() else 0 for key, path in parts.items()}

        committed = list[int]()
        for threshold in sorted(moments.uniform(0.02, 1.9) for _ in range(kills)):
            before, seen = left(), len(server.requests)
            running = begin({}, "0.0007")
            while through() < threshold and running.poll() is None:
                time.sleep(0.003)
            time.sleep(moments.uniform(0, 0.4))
            running.kill()
            running.communicate()
            committed.append(indexed())
            assert running.returncode == -signal.SIGKILL, "it was through before it was killed"
            for request in server.requests[seen:]:
                if request.name in parts:  # it goes on after the last byte that was kept
                    assert request.start == before[request.name]
        for more in (
            {},
            {"LLMFAIR_CACHE_DIR": str(tmp_path / "calm"), "IR_DATASETS_HOME": str(tmp_path / "calm")},
        ):
            server.pause = 0
            running = begin(more, "0")
            assert running.communicate(timeout=120)[1] is not None and running.returncode == 0
    assert committed == sorted(committed) and len({*committed}) > 2, committed
    assert answers(cache, monkeypatch) == answers(tmp_path / "calm", monkeypatch)
    assert not any(path.is_file() for path in (cache / "downloads").rglob("*"))


def fetch(*flags: str) -> Any:
    return llmfair("datasets", "fetch", NAME, "--yes", "--index", "full", *flags)


def test_no_room_for_the_pages_is_said_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = made(60).copies(tmp_path)
    add = pages.PageWriter.add

    def full(self: pages.PageWriter, *page: Any, **groups: Any) -> bool:
        if len(self.ids) == 30:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return add(self, *page, **groups)

    with monkeypatch.context() as patch:
        patch.setattr(pages.PageWriter, "add", full)
        refusal(fetch(*flags), "the disk is full: no space left", 1)
    assert ran("datasets", "fetch", NAME, "--yes", "--json", "--index", "full", *flags).json["pages"]["pages"]


@pytest.mark.slow
def test_a_full_disk_is_said_wherever_it_fills(
    small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmfair.datasets import fetch as fetching

    monkeypatch.setenv("LLMFAIR_CACHE_DIR", str(small_disk.folder / "cache"))
    monkeypatch.setattr(fetching, "KEPT_BYTES", 0)
    monkeypatch.setattr(fetching, "INDEX_BYTES", {"pool": 0, "full": 0})
    flags = made(1_500, words=300).copies(tmp_path)
    failed = 0
    for size in (*range(200, 900, 100), 4_000):
        small_disk.resize(size * 1024)
        found = fetch(*flags)
        if found.code == 0:
            break
        refusal(found, "the disk is full", found.code)
        failed += 1
        if size % 100:  # begun anew, or gone on with
            shutil.rmtree(small_disk.folder / "cache")
    assert found.code == 0 and failed > 3
    assert engine_of(Collection(load_dataset(f"{NAME}/gender"))).count() == 1_500


@pytest.mark.whole
def test_a_broken_corpus_is_refused_and_the_index_is_not_there(tmp_path: Path) -> None:
    given = made(400)
    sources = given.sources()
    flags = given.copies(tmp_path)
    corpus = Path(flags[-1])
    corpus.write_bytes(sources[DOCS][:-9])
    refusal(fetch(*flags), "not a complete gzip file")
    corpus.write_bytes(gzip.compress(b'{"id": 12, "title": "A"}\n{"title": "B"}\n'))
    refusal(fetch(*flags), ":2: id: is not a page id")
    folder = cache_folder() / "datasets" / "trec-fair-2022-eval" / "index-full"
    assert not (folder / "english").exists() and not (folder / "pages.db").exists()
    corpus.write_bytes(sources[DOCS])
    assert fetch(*flags).code == 0
