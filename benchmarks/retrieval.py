"""What an index and a search cost beside bare tantivy: `python -m benchmarks.retrieval`, from the repository's root.

Documents of 130 words, drawn as in a natural text (the n-th word 1/n as often as the first), are indexed by `stored`
and by a plain loop over tantivy's own calls, in turns, each a process of its own: time, CPU and peak memory. Then a
million of them by `stored`, for the memory. Searches of 150 words and of 5 for the best 20, in turns with tantivy's.
What opening an index takes, small and large; and the memory of the ids and groups of 6.5 million pages, all of them
touched, with what it takes to look up 20.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from llmfair.datasets.pages import PageStore, written
from llmfair.nouns import Document, StoredIndex, of_each_kind
from llmfair.retrieval.bm25 import WRITER_BYTES, Tantivy, stored
from llmfair.retrieval.engine import STANDARD, Engine, EngineOptions

DOCUMENTS, MANY, WORDS, K = 200_000, 1_000_000, 130, 20
VOCABULARY, POOL = 200_000, 2_000_000
SOURCE = "0" * 64
PAGES, LOOKED_UP = 6_500_000, 20
COMBINATIONS = 4_000


@cache
def pool() -> list[str]:
    """One long text; a word that is repeated is kept once."""
    rng = np.random.default_rng(0)
    often = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    names = [f"{number:x}n" for number in range(VOCABULARY)]
    return [names[number] for number in np.searchsorted(often, rng.random(POOL) * often[-1])]


def texts(count: int) -> Iterator[str]:
    """Pieces of the long text."""
    for start in np.random.default_rng(0).integers(0, POOL - WORDS, count):
        yield " ".join(pool()[start : start + WORDS])


def documents(count: int) -> Iterator[Document]:
    return (Document(f"d{number}", "", text) for number, text in enumerate(texts(count)))


def queries(count: int, words: int) -> list[str]:
    """Different words of the collection, without its 100 most frequent ones, as keywords are."""
    frequent = {f"{number:x}n" for number in range(100)}
    left = [word for word in pool() if word not in frequent]
    rng = np.random.default_rng(1)
    drawn = (
        dict.fromkeys(left[place] for place in rng.integers(0, len(left), 2 * words)) for _ in range(count)
    )
    return [" ".join([*different][:words]) for different in drawn]


def ours(path: Path, count: int) -> None:
    stored(path, documents(count), SOURCE, STANDARD)


def bare(path: Path, count: int) -> None:
    """The same collection by tantivy's own calls alone."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("doc_id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", tokenizer_name="standard", index_option="freq")
    path.mkdir()
    index = tantivy.Index(builder.build(), path=str(path))
    index.register_tokenizer("standard", STANDARD.built())
    writer = index.writer(heap_size=WRITER_BYTES, num_threads=1)
    for number, text in enumerate(texts(count)):
        entry = tantivy.Document()
        entry.add_text("doc_id", f"d{number}")
        entry.add_text("text", text)
        writer.add_document(entry)
    writer.commit()
    writer.wait_merging_threads()


def nothing(path: Path, count: int) -> None:
    """Only makes the texts."""
    for _ in texts(count):
        pass


def pages_written(path: Path, count: int) -> None:
    """Pages with ids like Wikipedia's, as a fetch leaves them."""
    rng = np.random.default_rng(2)
    ids = np.cumsum(rng.integers(1, 20, count))
    codes = rng.integers(0, COMBINATIONS, count).astype(np.int32)
    names = [f"group {number}" for number in range(60)]
    combinations = [
        {"location": [names[n % 60], names[n * 7 % 60]], "gender": [names[n % 3]]}
        for n in range(COMBINATIONS)
    ]
    with written(path) as pages:
        for page_id, code in zip(ids.tolist(), codes.tolist(), strict=True):
            pages.add(page_id, f"Page {page_id}", "", combinations[code])


def resident() -> float:
    """MB of this process, mapped files that were read among them."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000


def pages_looked_up(path: Path, count: int) -> None:
    """Prints the memory of ids and groups, all touched, and the time of looking up a page of them."""
    before = resident()
    store = PageStore(path)
    groups = sum(1 for _ in of_each_kind(store))
    for values in (store.ids, store.codes):
        np.asarray(values).sum(dtype=np.int64)
    held = resident() - before
    rng = np.random.default_rng(3)
    wanted = np.asarray(store.ids)[rng.integers(0, count, (500, LOOKED_UP))].astype(str).tolist()
    for of_page in wanted[:250]:  # what is read from disk for the first time is the disk's
        [store[doc_id].groups for doc_id in of_page]
    took = []
    for of_page in wanted[:250]:
        started = time.perf_counter()
        [store[doc_id].groups for doc_id in of_page]
        took.append((time.perf_counter() - started) * 1000)
    print(json.dumps({"held": held, "groups": groups, "took": statistics.median(took)}))


ROLES: dict[str, Callable[[Path, int], None]] = {"ours": ours, "bare": bare, "nothing": nothing}


def measured(role: str, path: Path, count: int) -> dict[str, float]:
    """Seconds by the clock and of CPU, and memory (MB) at its peak, of a role in a process of its own.

    `peak` is all that is resident, `held` that without the pages of mapped files, which the system takes back at need.
    """
    command = [sys.executable, "-m", "benchmarks.retrieval", "--role", role, str(path), str(count)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def play(role: str, path: Path, count: int) -> None:
    held, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            held.append(int(status["RssAnon"].split()[0]) // 1024)

    watching = threading.Thread(target=watch)
    watching.start()
    wall, cpu = time.perf_counter(), time.process_time()
    ROLES[role](path, count)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    ended.set()
    watching.join()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"wall": wall, "cpu": cpu, "peak": peak, "held": max(held)}))


def index(folder: Path, count: int, many: int, tries: int) -> None:
    """Prints what indexing takes, less what making the texts takes."""
    found: dict[str, list[dict[str, float]]] = {role: [] for role in ROLES}
    for number in range(tries):
        for role in ROLES:
            found[role].append(measured(role, folder / f"{role}{number}", count))
    middle = {
        role: {name: statistics.median(one[name] for one in runs) for name in runs[0]}
        for role, runs in found.items()
    }
    for name in ("wall", "cpu"):
        taken = {role: middle[role][name] - middle["nothing"][name] for role in ("ours", "bare")}
        unit = "by the clock" if name == "wall" else "of CPU"
        print(
            f"{count:,} × {WORDS} words: {taken['ours']:.1f} s {unit}, bare {taken['bare']:.1f} s: "
            f"{taken['ours'] / taken['bare']:.2f} times (bar 1.3), {count * WORDS / taken['ours'] / 1e6:.1f} M words/s"
        )
    peak, held = middle["ours"]["peak"], middle["ours"]["held"]
    print(
        f"peak memory: {peak:.0f} MB (bar 600), {held:.0f} MB without mapped files, "
        f"bare {middle['bare']['peak']:.0f} and {middle['bare']['held']:.0f}"
    )
    if many:
        more = measured("ours", folder / "many", many)
        print(
            f"of {many:,}: {more['peak']:.0f} MB, {more['held']:.0f} MB without mapped files, "
            f"{more['held'] / held - 1:+.0%} (bar +20%)"
        )


def tantivy_alone(path: Path, k: int) -> Callable[[str], Any]:
    """A search by tantivy's own calls."""
    import tantivy

    index = tantivy.Index.open(str(path))
    searcher, schema = index.searcher(), index.schema

    def search(text: str) -> Any:
        terms = [
            (tantivy.Occur.Should, tantivy.Query.term_query(schema, "text", term, "freq"))
            for term in text.split()
        ]
        return searcher.search(tantivy.Query.boolean_query(terms), limit=k, count=False).hits

    return search


def search(path: Path, words: int, tries: int) -> None:
    """Prints what a search takes, in turns with tantivy's own call for as many documents."""
    engine: Engine = stored(path, (), SOURCE, STANDARD)
    plain = tantivy_alone(path, K)
    took: dict[str, list[float]] = {"ours": [], "bare": [], "scores": []}
    for query, _ in zip(cycle(queries(50, words)), range(tries), strict=False):
        started = time.perf_counter()
        hits = engine.search(query, K)
        took["ours"].append(time.perf_counter() - started)
        started = time.perf_counter()
        expected = plain(query)
        took["bare"].append(time.perf_counter() - started)
        started = time.perf_counter()
        engine.scores(query, [hit.doc_id for hit in hits])
        took["scores"].append(time.perf_counter() - started)
        assert [hit.score for hit in hits] == [score for score, _ in expected]
    middle = {name: statistics.median(times) * 1000 for name, times in took.items()}
    late = {name: float(np.quantile(times, 0.95)) * 1000 for name, times in took.items()}
    print(
        f"search of {words} words for {K} of {engine.count():,}: {middle['ours']:.2f} ms (p95 {late['ours']:.2f}), "
        f"bare {middle['bare']:.2f} ({late['bare']:.2f}): {middle['ours'] / middle['bare']:.2f} times (bar 1.5); "
        f"scores of those {K}: {middle['scores']:.2f} ms"
    )


def opening(path: Path, count: int) -> None:
    """Prints what opening an index takes."""
    options = EngineOptions(
        collection="made", documents={}, analyzer=STANDARD, cache=path,
        made=StoredIndex("tantivy", path, SOURCE, ""),
    )  # fmt: skip
    took = list[float]()
    for _ in range(20):
        started = time.perf_counter()
        Tantivy.open(options)
        took.append((time.perf_counter() - started) * 1000)
    print(
        f"opening an index of {count:,}: {statistics.median(took):.1f} ms, at most {max(took):.1f} (bar 50)"
    )


def pages(folder: Path, count: int) -> None:
    """Prints the memory of many pages, and the time of looking some up."""
    for role in (pages_written, pages_looked_up):
        command = [
            sys.executable,
            "-m",
            "benchmarks.retrieval",
            "--role",
            role.__name__,
            str(folder),
            str(count),
        ]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found = json.loads(said)
    print(
        f"ids and groups of {count:,} pages, {found['groups']:,} combinations: {found['held']:.0f} MB (bar 150), "
        f"{LOOKED_UP} looked up in {found['took']:.3f} ms (bar 0.2)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", nargs=3, metavar=("ROLE", "PATH", "COUNT"))
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--many", type=int, default=MANY, help="0: no such run")
    parser.add_argument("--pages", type=int, default=PAGES, help="0: none")
    parser.add_argument("--tries", type=int, default=3)
    given = parser.parse_args()
    if given.role:
        role, path, count = given.role
        alone = {one.__name__: one for one in (pages_written, pages_looked_up)}
        if role in alone:
            alone[role](Path(path), int(count))
        else:
            play(role, Path(path), int(count))
        return
    with tempfile.TemporaryDirectory() as folder:
        index(Path(folder), given.documents, given.many, given.tries)
        for words in (150, 5):
            search(Path(folder) / "ours0", words, 300)
        opening(Path(folder) / "ours0", given.documents)
        if given.many:
            opening(Path(folder) / "many", given.many)
        if given.pages:
            pages(Path(folder) / "pages", given.pages)


if __name__ == "__main__":
    main()
