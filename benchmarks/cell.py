"""One whole cell of the Fair-RAG paper, and what fewer samples cost: `python -m benchmarks.cell`.

`llmfair rag` on questions of 192 items of 60 words each, as many as LaMP-4 has; useful items are judged, a simulated
generator answers at once. Of 833 questions with 100 samples: CPU and peak memory of the command, all files written.
Of 150 with 20 samples beside 100: calls for lists, and the width of the interval of mean utility. That follows from how
the variance of a list's utility divides: (between + within / N) / queries. Where questions are alike, their utilities
differ by sampling alone, and every sample counts; where they differ as those of real users do, hardly any does.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import Spent, spent

QUERIES, COMPARED, ITEMS, WORDS = 833, 150, 192, 60
LABELS = ("gold", "b", "c", "d", "e")
FEW, MANY = 20, 100
SPREAD = (0.6, 1.2)
"""Beta of the share of useful items: a mean of a third, about as uneven as the numbers of useful items of LaMP-3."""


@dataclass(frozen=True)
class Run:
    """What a command left, and what it took."""

    folder: Path
    spent: Spent

    @cached_property
    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "results.json").read_text())
        return found

    @property
    def calls(self) -> int:
        return int(self.results["calls_made"])

    def figures(self, measure: str) -> dict[str, Mapping[str, Any]]:
        """The rows of a measure by condition."""
        return {row["condition"]: row for row in self.results["rows"] if row["measure"] == measure}

    def widths(self) -> dict[str, float]:
        """How wide the interval of mean utility is, of the conditions that draw."""
        drawn = {name: row for name, row in self.figures("EU").items() if name.startswith("bm25-")}
        return {
            name: row["high"] - row["low"]
            for name, row in drawn.items()
            if not name.endswith("deterministic")
        }

    def variances(self, condition: str) -> tuple[float, float]:
        """Of a list's utility: between questions, and within them on average."""
        worth = dict[tuple[str, str], float]()
        with (self.folder / "outputs.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                worth[row["query_id"], row["doc_ids"]] = float(row["utility"])
        samples: dict[str, list[float]] = {}
        with (self.folder / f"samples/{condition}.tsv").open(newline="") as file:
            rows = csv.DictReader(file, delimiter="\t")
            for (query, _), items in groupby(rows, key=lambda row: (row["qid"], row["sample"])):
                samples.setdefault(query, []).append(worth[query, " ".join(row["docno"] for row in items)])
        within = statistics.fmean(statistics.variance(of) for of in samples.values())
        means = statistics.variance(statistics.fmean(of) for of in samples.values())
        return max(0.0, means - within / MANY), within


def write_cell(folder: Path, queries: int, alike: bool, length: int = WORDS) -> None:
    """A folder with answers: useful items bear the right label, and name words of the question more often.

    `alike`: a fifth of every question's items is useful, and nothing tells them by their words.
    """
    rng = np.random.default_rng(1)
    words = np.array([f"w{number}" for number in range(2000)])
    folder.mkdir()
    files = ("queries.tsv", "answers.jsonl", "docs.jsonl", "groups.tsv", "qrels.txt", "candidates.run")
    lines: dict[str, list[str]] = {name: [] for name in files}
    for query in range(queries):
        asked = rng.choice(words, 12)
        share, told = (0.2, 0.0) if alike else (rng.beta(*SPREAD), rng.uniform(0, 2))
        useful = rng.random(ITEMS) < share
        useful[rng.choice(ITEMS, 2, replace=False)] = True  # with fewer the question would be dropped
        lines["queries.tsv"].append(f"q{query}\t{' '.join(asked)}")
        lines["answers.jsonl"].append(json.dumps({"query_id": f"q{query}", "gold": LABELS[0]}))
        for item in range(ITEMS):
            doc_id, of_query = f"q{query}d{item}", rng.poisson(1 + told * useful[item])
            text = " ".join([*rng.choice(words, length), *rng.choice(asked, of_query)])
            label = LABELS[0] if useful[item] else rng.choice(LABELS[1:])
            lines["docs.jsonl"].append(json.dumps({"doc_id": doc_id, "title": f"t {item}", "text": text}))
            lines["groups.tsv"].append(f"{doc_id}\tlabel\t{label}")
            lines["qrels.txt"].append(f"q{query} 0 {doc_id} {int(useful[item])}")
            lines["candidates.run"].append(f"q{query} Q0 {doc_id} {item + 1} {ITEMS - item} cell")
    for name, of_it in lines.items():
        (folder / name).write_text("".join(f"{line}\n" for line in of_it))


def run(cell: Path, samples: int) -> Run:
    """Runs `llmfair rag` on a cell."""
    output = cell.with_name(f"{cell.name}-{samples}")
    command = [
        sys.executable, "-m", "llmfair", "rag", "-d", str(cell), "-m", "fake:reader", "--useful", "qrels",
        "--samples", str(samples), "--alpha", "1,2,4,8", "-o", str(output), "--no-cache", "-q",
    ]  # fmt: skip
    return Run(output, spent(command))


def compared(few: Run, many: Run) -> Iterator[str]:
    """What fewer samples save and cost; beside each ratio of widths the one that the variances make."""
    disparities = [[row["value"] for row in one.figures("EE-D").values()] for one in (few, many)]
    same = "identical" if disparities[0] == disparities[1] else "NOT identical"
    yield f"{few.calls:,} calls for {many.calls:,} (1/{many.calls / few.calls:.1f}), EE-D {same}"
    before = many.widths()
    for condition, width in few.widths().items():
        between, within = many.variances(condition)
        expected = math.sqrt((between + within / FEW) / (between + within / MANY))
        yield (
            f"{condition}: interval of EU {width / before[condition]:.2f} times as wide (expected {expected:.2f}: "
            f"variance {between:.4f} between questions, {within:.4f} within)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--words", type=int, default=WORDS, help="Of an item of the whole cell.")
    parser.add_argument("--compared", type=int, default=COMPARED)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for name, alike in (("differ", False), ("alike", True)):
            cell = Path(place) / name
            write_cell(cell, asked.compared, alike)
            for line in compared(run(cell, FEW), run(cell, MANY)):
                print(f"{asked.compared} questions that {'are ' * alike}{name}, N {FEW} for {MANY}: {line}")
        whole = Path(place) / "cell"
        if not (writer := os.fork()):  # so that this process stays small
            write_cell(whole, asked.queries, alike=False, length=asked.words)
            os._exit(0)
        os.waitpid(writer, 0)
        found = run(whole, MANY)
        print(
            f"{asked.queries} questions × {ITEMS} items of {asked.words} words, 4 alphas × {MANY} samples, "
            f"{found.calls:,} calls: "
            f"{found.spent.cpu:.0f} s of CPU, {found.spent.wall:.0f} s by the clock, {found.spent.peak:,.0f} MB peak"
        )


if __name__ == "__main__":
    main()
