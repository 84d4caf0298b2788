"""Does bm25 beat chance? `python -m benchmarks.baseline [DATASET …]`: nDCG@20 of bm25 minus that of a random order.

Both are means over 200 seeds: what bm25 cannot tell apart keeps the order it came in, so a single one would be luck.
Paired t interval over queries.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

import numpy as np

from llmfair.audits.listwise import LISTWISE
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.subject import Subject
from llmfair.stats.intervals import mean
from tests.finished import audit

SEEDS = 200


def ndcg(dataset: str, folder: Path, seed: int) -> dict[str, dict[str, float]]:
    """nDCG@20 by condition and query of one bm25 audit: the ranking, and the random order it was given."""
    output = folder / str(seed)
    settings = ListwiseSettings.make(dataset=dataset, measures="nDCG@20", seed=seed, output=output)
    audit(LISTWISE.design(settings, Subject("bm25")))
    with (output / "per_query.csv").open(newline="") as file:
        found: dict[str, dict[str, float]] = {}
        for row in csv.DictReader(file):
            found.setdefault(row["condition"], {})[row["query_id"]] = float(row["value"])
    return found


def main() -> None:
    for dataset in sys.argv[1:] or ["sample"]:
        with tempfile.TemporaryDirectory() as folder:
            audits = [ndcg(dataset, Path(folder), seed) for seed in range(SEEDS)]
        ranked, chance = (
            {q: float(np.mean([audit[condition][q] for audit in audits])) for q in audits[0][condition]}
            for condition in ("neutral", "initial")
        )
        gain = mean([ranked[query_id] - chance[query_id] for query_id in ranked])
        interval = "no interval" if gain.low is None else f"[{gain.low:+.3f}, {gain.high:+.3f}]"
        average = float(np.mean(list(ranked.values())))
        print(f"{dataset}: bm25 {average:.3f}, {gain.value:+.3f} {interval} beside chance, {gain.n} queries")


if __name__ == "__main__":
    main()
