"""What a round of `llmfair refine` costs beside its model and its searches: `python -m benchmarks.refine`.

A folder of 200,000 documents of 130 words and 94 topics of 150 words, whose pages are skewed. First all loops one after
the other, answered at once: what a round takes beside tantivy's own search. Then all at a time, with a model that
answers after 50 ms and after a second, and with tantivy and an engine that answers after 40 ms and takes no CPU. Wall
time stands beside the critical path, the longest chain of answers and searches, and beside that of plain threads which
search and sleep as often and do nothing else: what the machine allows in that minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.retrieval import DOCUMENTS, queries, tantivy_alone, texts
from llmfair.asking.dispatch import dispatch
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits
from llmfair.audits.refine.design import RefineDesign, make_refine_design
from llmfair.audits.refine.settings import RefineSettings
from llmfair.nouns import Chat, Completion, Finish, Request, Sampling
from llmfair.rankers.fair_qr import Refined, refined_text
from llmfair.retrieval.engine import Engine, Hit

TOPICS, WORDS, LATENCY, SLOW, USUAL = 94, 150, 0.05, 0.04, 1.0
SAID = {"female": "she", "male": "he"}


def write(folder: Path, documents: int) -> None:
    """One document in five is about a woman, and half of what is relevant; each has one of five words of its group."""
    rng = np.random.default_rng(22)
    groups = np.where(rng.random(documents) < 0.2, "female", "male")
    marks = rng.integers(1, 6, documents)
    with (folder / "docs.jsonl").open("w") as docs, (folder / "groups.tsv").open("w") as rows:
        for number, text in enumerate(texts(documents)):
            said = f"{text} {SAID[groups[number]]}{marks[number]}"
            docs.write(json.dumps({"doc_id": f"d{number}", "title": f"Title {number}", "text": said}) + "\n")
            rows.write(f"d{number}\tgender\t{groups[number]}\n")
    with (folder / "queries.tsv").open("w") as topics, (folder / "qrels.txt").open("w") as qrels:
        for topic, text in enumerate(queries(TOPICS, WORDS)):
            topics.write(f"q{topic}\t{text}\n")
            for group in SAID:
                for number in rng.choice(np.flatnonzero(groups == group), 10, replace=False):
                    qrels.write(f"q{topic} 0 d{number} 1\n")


def answered(chat: Chat) -> Completion:
    """Another word of the group in each round."""
    word = f"{SAID[chat.about['subgroup']]}{chat.about['iteration']}"
    return Completion(json.dumps({"keywords": [word]}), Finish.STOP)


@dataclass(frozen=True)
class Model:
    """A backend that answers after so many seconds."""

    latency: float

    identity = "benchmark"
    capabilities = frozenset[str]()
    max_workers = TOPICS
    reads_about = False

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(self.latency)
        return answered(request.chat)


@dataclass
class Watched:
    """An engine whose answers are kept; each search is followed by tantivy's own of the same words."""

    engine: Engine
    bare: Callable[[str], Any]
    hits: dict[tuple[str, str], Sequence[Hit]] = field(default_factory=dict)
    scored: dict[str, Mapping[str, float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    bare_seconds: list[float] = field(default_factory=list)

    @property
    def identity(self) -> str:
        return self.engine.identity

    def count(self) -> int:
        return self.engine.count()

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> Sequence[Hit]:
        started = time.perf_counter()
        hits = self.hits[text, added] = self.engine.search(text, k, added, weight)
        ended = time.perf_counter()
        self.bare(f"{text} {added}")
        self.seconds.append(ended - started)
        self.bare_seconds.append(time.perf_counter() - ended)
        return hits

    def scores(self, text: str, doc_ids: Collection[str]) -> Mapping[str, float]:
        self.scored[text] = self.engine.scores(text, doc_ids)
        return self.scored[text]


@dataclass(frozen=True)
class Slow:
    """What another engine answered, after 40 ms."""

    known: Watched

    @property
    def identity(self) -> str:
        return self.known.identity

    def count(self) -> int:
        return self.known.count()

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> Sequence[Hit]:
        time.sleep(SLOW)
        return self.known.hits[text, added]

    def scores(self, text: str, doc_ids: Collection[str]) -> Mapping[str, float]:
        time.sleep(SLOW)
        return self.known.scored[text]


def one_by_one(design: RefineDesign, watched: Watched) -> tuple[list[Refined], list[float]]:
    """All loops, and the seconds that each round takes beside tantivy's own search."""
    loops, rounds = list[Refined](), list[float]()
    for program in design.programs():
        steps, answers = program.start(), None
        while True:
            started, known = time.perf_counter(), len(watched.bare_seconds)
            try:
                chats = next(steps) if answers is None else steps.send(answers)
            except StopIteration as end:
                loops.append(end.value)
                break
            took = time.perf_counter() - started
            rounds.append(took - 2 * sum(watched.bare_seconds[known:]))  # once beside it, once within it
            answers = [answered(chat) for chat in chats]
    return loops, rounds


def at_once(design: RefineDesign, latency: float = LATENCY, threaded: bool = True) -> tuple[float, float]:
    """Seconds by the clock and of CPU until all loops have ended."""
    design.targets, design.program  # noqa: B018  known before the first question, as they are to a command
    programs = [replace(program, threaded=threaded) for program in design.programs()]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl", "benchmark", Model.identity)
        wall, cpu = time.perf_counter(), time.process_time()
        found = dict(dispatch(programs, Model(latency), journal, Sampling(), Limits(TOPICS)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        journal.close()
    assert all(isinstance(one, Refined) for one in found.values()), found
    return wall, cpu


def plainly(loops: Sequence[Refined], search: Callable[[str], Any], latency: float) -> float:
    """Seconds by the clock of a thread for each loop that searches and sleeps as it did."""

    def chain(loop: Refined) -> None:
        for one in loop.rounds:
            time.sleep(latency * len(one.replies))
            search(refined_text(loop.query, one.added))
        search(loop.query.text)

    started = time.perf_counter()
    with ThreadPoolExecutor(len(loops)) as pool:
        list(pool.map(chain, loops))
    return time.perf_counter() - started


def longest(loops: Sequence[Refined], search: float, latency: float = LATENCY) -> float:
    """The longest chain of answers and searches, seconds; one more search orders the page that is kept."""
    return max(len([*loop.replies]) * latency + (len(loop.rounds) + 1) * search for loop in loops)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--tries", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["LLMFAIR_CACHE_DIR"] = str(folder / "cache")
        write(folder, given.documents)
        settings = RefineSettings(dataset=name, attribute=("gender",), analyzer="standard")
        design = make_refine_design(settings)
        design.engine.search("he1", 1)
        (path,) = (path for path in (folder / "cache" / "indexes").iterdir() if path.is_dir())
        watched = Watched(design.engine, tantivy_alone(path, design.k))
        loops, rounds = one_by_one(replace(design, engine=watched), watched)

        lengths = sorted(len(loop.rounds) - 1 for loop in loops)
        search, alone = (statistics.median(of) for of in (watched.seconds, watched.bare_seconds))
        print(
            f"{len(loops)} loops of {statistics.mean(lengths):.1f} rounds, {lengths[-1]} at most; "
            f"a search {search * 1000:.2f} ms, by tantivy alone {alone * 1000:.2f} ms"
        )
        print(f"a round beside tantivy's search: {statistics.median(rounds) * 1000:.2f} ms (bar 5)")
        for words, engine, plain, took, latency, bar in (
            ("tantivy", design.engine, watched.bare, search, LATENCY, "bar 1.10"),
            ("tantivy", design.engine, watched.bare, search, USUAL, "bar 1.10"),
            ("an engine of 40 ms", Slow(watched), lambda text: time.sleep(SLOW), SLOW, LATENCY, "bar 1.25"),
            ("an engine of 40 ms", Slow(watched), lambda text: time.sleep(SLOW), SLOW, USUAL, "bar 1.25"),
        ):
            walls, used, plains = list[float](), list[float](), list[float]()
            for _ in range(given.tries):
                wall, cpu = at_once(replace(design, engine=engine), latency)
                walls.append(wall)
                used.append(cpu)
                plains.append(plainly(loops, plain, latency))
            wall, cpu, least = (statistics.median(of) for of in (walls, used, plains))
            path_taken = longest(loops, took, latency)
            print(
                f"{len(loops)} chains at {latency * 1000:.0f} ms, {words}: {wall:.2f} s (fastest {min(walls):.2f}), "
                f"{wall / path_taken:.2f} times the critical path of {path_taken:.2f} s ({bar}), "
                f"{wall / least:.2f} times plain threads; {cpu:.2f} s of CPU"
            )
        wall, _ = at_once(replace(design, engine=Slow(watched)), threaded=False)
        print(f"at 50 ms, the engine of 40 ms on the event loop: {wall / longest(loops, SLOW):.0f} times")


if __name__ == "__main__":
    main()
