"""How often `llmfair rag` is right about utility: `python -m benchmarks.kept`, 200 whole audits a row.

Questions of 12 labelled items of which a third are useful, shown 3 at a time; `fake:reader` answers with the commonest
label. Without an effect its answers are read from the items in a given share only and every item bears the right label,
so that no list is better than another: the 95 % interval of EU-change has to hold 0, and a conclusion that utility is
lost is false. With one, lists drawn uniformly are compared with lists by score that show more useful items: how often
that is found, and never called kept.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

from llmfair.audits.kind import kind_of
from llmfair.audits.runs.run import perform
from llmfair.audits.subject import Subject
from llmfair.rundir import RunDir

ITEMS, SHOWN, SAMPLES = 12, 3, 10
ROWS = {
    "no effect, half of the answers read, alpha 2": (True, 0.5, 2.0),
    "no effect, nine in ten read, alpha 0": (True, 0.9, 0.0),
    "uniform lists, useful items score higher": (False, 1.0, 0.0),
}


def write_questions(path: Path, queries: int, alike: bool, seed: int) -> None:
    """Questions whose useful items share words with them; with `alike` all items bear the right label."""
    random = Random(seed)
    lines = []
    for query in range(queries):
        labels = ["a"] * 4 + ["b", "c", "d", "e"] * 2
        items = [
            {
                "id": f"q{query}d{place}",
                "text": " ".join(
                    random.choices(["river", "stone"] if label == "a" else ["cloud", "lamp"], k=3)
                    + random.choices(["river", "cloud", "glass", "field"], k=3)
                ),
                "label": "a" if alike else label,
            }
            for place, label in enumerate(labels)
        ]
        random.shuffle(items)
        lines.append(json.dumps({"id": f"q{query}", "input": "river or stone?", "gold": "a", "items": items}))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def one(seed: int, queries: int, alike: bool, follow: float, alpha: float) -> tuple[str, bool]:
    """What is concluded of one audit, and whether the interval of the change holds 0."""
    kind = kind_of("rag")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_questions(folder / "questions.jsonl", queries, alike, seed)
        settings = kind.settings.make(
            dataset=str(folder / "questions.jsonl"),
            output=folder / "run",
            k=SHOWN,
            samples=SAMPLES,
            alpha=f"{alpha:g}",
            seed=seed,
            no_cache=True,
        )
        perform(kind.design(settings, Subject(f"fake:reader,follow={follow}")))
        results = RunDir(folder / "run").read_results()
    (row,) = [
        row
        for row in results["rows"]
        if row["measure"] == "EU-change" and row["condition"] == f"bm25-{alpha:g}"
    ]
    said = {"within": "kept", "outside": "lost"}.get(str(row["conclusion"]), str(row["conclusion"]))
    return said, row["low"] is not None and row["low"] <= 0 <= row["high"]


def rows(runs: int, queries: int) -> Iterator[tuple[str, Counter[str], int]]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, (alike, follow, alpha) in ROWS.items():
            of_seed = partial(one, queries=queries, alike=alike, follow=follow, alpha=alpha)
            found = list(pool.map(of_seed, range(runs)))
            yield name, Counter(said for said, _ in found), sum(holds for _, holds in found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--queries", type=int, default=30)
    given = options.parse_args()
    print("| model | interval holds 0 | kept | inconclusive | lost |\n| --- | --- | --- | --- | --- |")
    for name, said, holds in rows(given.runs, given.queries):
        shares = " | ".join(
            f"{100 * said[status] / given.runs:.1f} %" for status in ("kept", "inconclusive", "lost")
        )
        print(f"| {name} | {100 * holds / given.runs:.1f} % | {shares} |", flush=True)


if __name__ == "__main__":
    main()
