"""What a large collection and its runs cost: `python -m benchmarks.large`, through the installed command.

A set of TREC Fair Ranking's shape is made up and fetched from files: 50 topics, 866,000 judgements of 800,000 pages.
Lists of 200 are drawn from it and audited by a simulated model: 34,200 answers of lists, 220,000 of pairs (`--tasks`).
Then each command that reads them is timed: CPU, clock and peak of memory; with `--beside COMMAND`, of
another version's `llmfair` too, on copies of the same files, in the same minute.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.commands import spent
from benchmarks.dispatch import WORDS
from llmfair.datasets.pages import REGIONS

TOPICS, JUDGED, PAGES = 50, 866_000, 800_000
DATASET = "trec-fair/2022/eval"
AUDITED = ["-d", f"{DATASET}/location", "-m", "fake:biased", "--no-cache", "-q"]
SIZE: dict[str, list[str]] = {"listwise": [], "pairwise": ["--pairs", "1000"]}
FETCH = [
    "--topics",
    "topics.jsonl",
    "--metadata",
    "metadata.jsonl.gz",
    "--titles",
    "titles.tsv",
    "--yes",
    "-q",
]


def write_sources(folder: Path, share: float) -> None:
    """Files as the track publishes them; ids are spread over those of Wikipedia, a fifth of pages has no place."""
    rng = np.random.default_rng(1)
    pages = np.sort(rng.choice(70_000_000, int(PAGES * share), replace=False))
    weights = rng.dirichlet(np.full(TOPICS, 2.0))
    judged = rng.multinomial(int(JUDGED * share), weights)
    regions = np.array(sorted(set(REGIONS.values())))
    with (folder / "topics.jsonl").open("w") as file:
        for number, count in enumerate(judged):
            found = rng.choice(pages, min(count, len(pages)), replace=False).tolist()
            title = " ".join(rng.choice(WORDS, 2))
            file.write(json.dumps({"id": number, "title": title, "rel_docs": found}) + "\n")
    of_each = rng.choice([0, 1, 2], len(pages), p=[0.2, 0.7, 0.1])
    with gzip.open(folder / "metadata.jsonl.gz", "wt", compresslevel=1) as file:
        for page, count in zip(pages.tolist(), of_each.tolist(), strict=True):
            found = rng.choice(regions, count).tolist()
            row = {
                "page_id": page,
                "quality": 0.3,
                "page_subcont_regions": found,
                "gender": [],
                "years": [1968],
            }
            file.write(json.dumps(row) + "\n")
    with (folder / "titles.tsv").open("w") as file:
        words = rng.choice(WORDS, (len(pages), 3)).tolist()
        file.writelines(f"{page}\t{' '.join(of)}\n" for page, of in zip(pages.tolist(), words, strict=True))


class Version:
    """An installed `llmfair`, with a folder and a cache of its own."""

    def __init__(self, command: str, folder: Path) -> None:
        self.command, self.folder = command, folder
        elsewhere = {name: value for name, value in os.environ.items() if name != "LLMFAIR_CACHE_DIR"}
        self.environment = {**elsewhere, "XDG_CACHE_HOME": str(folder / "cache")}
        folder.mkdir(exist_ok=True)

    def spent(self, words: Sequence[str]) -> str:
        """Seconds of CPU and by the clock, and the peak of memory in MB, that a command takes."""
        took = spent([self.command, *words], cwd=self.folder, env=self.environment)
        return f"{took.cpu:.2f} {took.wall:9.2f} {took.peak:6.0f}"


SHOWN = ["datasets", "show", f"{DATASET}/location"]
DRAWN = ["listwise", "--dry-run", "--seed", "7", *AUDITED]
OF_COLLECTION = {"datasets show": SHOWN, "lists drawn": DRAWN}


def asking(task: str) -> list[str]:
    return [task, "-o", task, "--no-report", *AUDITED, *SIZE[task]]


def of_run(task: str) -> dict[str, list[str]]:
    """What is timed of a run that is complete."""
    again = [*asking(task), "--label", "again"]
    return {
        f"{task}, repeated under another label": again,
        f"{task}, repeated": again,
        f"runs check, {task}": ["runs", "check", task],
        f"runs show, {task}": ["runs", "show", task],
        f"report, {task}": ["report", task],
    }


def row(what: str, *columns: str) -> None:
    print(f"{what:40}" + "".join(f"{column:>26}" for column in columns), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--beside", metavar="COMMAND", help="Another version's llmfair.")
    parser.add_argument("--share", type=float, default=1.0, help="Of the judgements and pages.")
    parser.add_argument("--tasks", nargs="+", default=["listwise"], choices=[*SIZE])
    asked = parser.parse_args()
    ours = shutil.which("llmfair")
    assert ours is not None
    with tempfile.TemporaryDirectory() as name:
        # in a process of its own: what this one holds would be the least peak of every command
        writing = get_context("spawn").Process(target=write_sources, args=(Path(name), asked.share))
        writing.start()
        writing.join()
        if writing.exitcode:
            parser.exit(writing.exitcode, "the source files could not be written\n")
        version = Version(ours, Path(name, "ours"))
        versions = [version]
        row("CPU s, clock s, peak MB", "this version", *["beside it"] * bool(asked.beside))
        fetch = [str(Path(name, word)) if "." in word else word for word in FETCH]
        row("datasets fetch, from files", version.spent(["datasets", "fetch", DATASET, *fetch]))
        if asked.beside:
            versions.append(Version(asked.beside, Path(name, "beside")))
            shutil.copytree(version.folder / "cache", versions[1].folder / "cache")
        for what, words in OF_COLLECTION.items():
            row(what, *(one.spent(words) for one in versions))
        for task in asked.tasks:
            row(f"{task}, simulated, no report", version.spent(asking(task)))
            journal = version.folder / task / "journal.jsonl"
            with journal.open("rb") as file:
                answers = sum(1 for _ in file) - 1
            row(f"{task}: answers, MB of journal", f"{answers:,} {journal.stat().st_size / 1e6:6.0f}")
            for other in versions[1:]:
                shutil.copytree(version.folder / task, other.folder / task)
            for what, words in of_run(task).items():
                row(what, *(one.spent(words) for one in versions))
    print(f"load over the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
