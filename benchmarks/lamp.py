"""What reading a task of LaMP costs: `python -m benchmarks.lamp`, a made-up file of LaMP-4's size.

833 users with 190 items of 150 words are written to a temporary folder, parsed, searched with BM25 and
made into prompts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from llmfair.datasets.answers import QuestionSet, load_answers
from llmfair.prompts import load_prompt
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.rankers.reader import Fitting, by_words
from llmfair.registry import lookup

ITEMS, WORDS, SHOWN, LISTS = 190, 150, 5, 60


def write(folder: Path, users: int) -> None:
    """Writes inputs and outputs in the released layout."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(3000)])

    def text(length: int) -> str:
        return " ".join(rng.choice(words, length))

    entries = [
        {
            "id": f"{user:04d}",
            "input": f"Generate a headline for the following article: {text(WORDS)}",
            "profile": [
                {"id": f"{user:04d}{item}", "title": text(8), "text": text(WORDS)} for item in range(ITEMS)
            ],
        }
        for user in range(users)
    ]
    golds = [{"id": entry["id"], "output": text(8)} for entry in entries]
    (folder / "4_user_dev_inputs.json").write_text(json.dumps(entries))
    (folder / "4_user_dev_outputs.json").write_text(json.dumps({"task": "LaMP_4", "golds": golds}))


@contextmanager
def timed(what: str, count: int) -> Iterator[None]:
    """Prints the CPU and the time by the clock that its block takes, and what one of its things takes."""
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{what}: {cpu:.1f} s of CPU, {wall:.1f} s by the clock, {cpu / count * 1000:.2f} ms each")


def search(dataset: QuestionSet, retriever: ScoringRanker, count: int) -> None:
    """Scores all items of as many queries, from the first again after the last."""
    queries = dataset.queries
    for number in range(count):
        query = queries[number % len(queries)]
        text = dataset.searched(query)
        retriever.scores(replace(dataset.candidates(query), query=replace(query, text=text)))


def prompts(dataset: QuestionSet) -> int:
    """Makes the prompts of labels and of some lists for every query; how many there were."""
    rng, prompt, ruler, made = np.random.default_rng(1), load_prompt(dataset.prompt), by_words(512), 0
    for query in dataset.queries:
        items = dataset.candidates(query).documents
        fitting = Fitting(prompt, ruler, dataset.questions[query.query_id].parts, items)
        lists = [rng.permutation(len(items))[:SHOWN] for _ in range(LISTS)]
        shown = [[], *([item.doc_id] for item in items), *([items[i].doc_id for i in one] for one in lists)]
        for doc_ids in shown:
            fitting.messages(doc_ids)
        made += len(shown)
    return made


def peak() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB peak"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=833)
    parser.add_argument("--profiles", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if not (written := os.fork()):  # so that what it takes to write is not in the peak
            write(folder, asked.users)
            os._exit(0)
        os.waitpid(written, 0)
        size = (folder / "4_user_dev_inputs.json").stat().st_size
        with timed(f"parsed {size / 1e6:.0f} MB, {asked.users} users of {ITEMS} items", 1):
            dataset = load_answers("lamp/4", folder)
            _ = dataset.queries
        print(peak())
        for name in ("bm25", "bm25-okapi"):
            retriever = lookup("ranker", name)(RankerOptions((), folder, each_list=True))
            with timed(f"{name} of {asked.profiles:,} profiles", asked.profiles):
                search(dataset, retriever, asked.profiles)
        count = asked.users * (1 + ITEMS + LISTS)
        with timed(f"{count:,} prompts of labels and of {LISTS} lists of {SHOWN} a user, in words", count):
            made = prompts(dataset)
        assert made == count
        print(peak())


if __name__ == "__main__":
    main()
