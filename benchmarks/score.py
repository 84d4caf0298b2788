"""How long and how much memory a large run takes: `python -m benchmarks.score`, from the repository's root.

1,000 queries × 1,000 documents, no document in two queries (the most memory such a run can take), all of them
with a group, 100 judged per query. Beside it, a plain loop that splits every line of the run.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

QUERIES, DOCUMENTS, JUDGED = 1_000, 1_000, 100


def write_files(folder: Path) -> None:
    """run.txt, qrels.txt and groups.tsv."""
    draw = random.Random(0)
    with (
        (folder / "run.txt").open("w") as run,
        (folder / "qrels.txt").open("w") as qrels,
        (folder / "groups.tsv").open("w") as groups,
    ):
        for query in range(QUERIES):
            for place in range(DOCUMENTS):
                doc_id = f"doc{query * DOCUMENTS + place:07d}"
                run.write(f"q{query} Q0 {doc_id} {place + 1} {100 - place / 10 + draw.random()} ranker\n")
                groups.write(f"{doc_id}\tgender\t{draw.choice(('female', 'male'))}\n")
                if place < JUDGED:
                    qrels.write(f"q{query} 0 {doc_id} {draw.randrange(2)}\n")


LOOP = "for line in open('run.txt', encoding='utf-8'): line.split()"
CHILD = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
assert code == 0, code
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds and peak memory in MB of a command."""
    started = time.perf_counter()
    out = subprocess.run(
        [sys.executable, "-c", CHILD, *command], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    kilobytes = int(out) / (1024 if sys.platform == "darwin" else 1)
    return time.perf_counter() - started, kilobytes * 1024 / 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        loop, _ = measured([sys.executable, "-c", LOOP], folder)
        command = ["score", "run.txt", "--qrels", "qrels.txt", "--groups", "groups.tsv", "--no-progress"]
        seconds, memory = measured([sys.executable, "-m", "llmfair", *command], folder)
    print(f"{QUERIES:,} queries × {DOCUMENTS:,} documents")
    print(f"llmfair score   {seconds:6.1f} s  {memory:6.0f} MB")
    print(f"split loop      {loop:6.1f} s  ratio {seconds / loop:.1f}")


if __name__ == "__main__":
    main()
