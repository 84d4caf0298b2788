"""How long and how much memory a large run takes: `python -m benchmarks.score`, from the repository's root.

1,000 queries × 1,000 documents, no document in two queries (the most memory such a run can take), all of them
with a group, 100 judged per query. Beside it, a plain loop that splits every line of the run.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from benchmarks.commands import spent

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


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        loop = spent([sys.executable, "-c", LOOP], cwd=folder)
        command = ["score", "run.txt", "--qrels", "qrels.txt", "--groups", "groups.tsv", "--no-progress"]
        score = spent([sys.executable, "-m", "llmfair", *command], cwd=folder)
    print(f"{QUERIES:,} queries × {DOCUMENTS:,} documents")
    print(f"llmfair score   {score.wall:6.1f} s, {score.cpu:6.1f} s of CPU  {score.peak:6.0f} MB")
    print(f"split loop      {loop.wall:6.1f} s  ratio {score.wall / loop.wall:.1f}")


if __name__ == "__main__":
    main()
