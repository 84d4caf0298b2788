"""How long measuring takes: `python -m benchmarks.measures`, one core, best of three.

The listwise measures for 50 queries × 200 documents × 4 conditions, and AWRF over 21 groups for 1,000 lists,
beside a plain Python loop over the same lists that only sums exposures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import log

import numpy as np

from llmfair.metrics.base import Groups, Judged, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Attribute, Candidates, Document, Query, Ranking, Side

REGIONS = [f"region {number}" for number in range(20)]
ATTRIBUTE = Attribute("location", ("*",), (REGIONS[0],), {Side.PROTECTED: "other", Side.UNPROTECTED: "first"})


def judged(queries: int, documents: int, seed: int) -> list[Judged]:
    """Queries with one random ranking each; a twentieth of the documents has no known region."""
    rng = np.random.default_rng(seed)
    found = []
    for q in range(queries):
        listed = []
        for d in range(documents):
            region = int(rng.integers(21))
            groups = {"location": (REGIONS[region],)} if region < 20 else {}
            listed.append(Document(f"q{q}d{d}", f"Title {d}", groups=groups))
        doc_ids = [document.doc_id for document in listed]
        candidates = Candidates(
            Query(f"q{q}", "Topic"), tuple(listed), {doc_id: int(rng.random() < 0.5) for doc_id in doc_ids}
        )
        ranking = Ranking(f"q{q}", tuple(doc_ids[i] for i in rng.permutation(documents)))
        sides = {document.doc_id: ATTRIBUTE.side(document) for document in listed}
        groups_of = Groups("location", {"location": ATTRIBUTE}, {d.doc_id: d for d in listed})
        found.append(Judged(candidates, (ranking,), sides, groups=groups_of))
    return found


def best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def plain(lists: list[Judged]) -> float:
    return sum(1 / log(1 + rank) for one in lists for rank, _ in enumerate(one.rankings[0].doc_ids, start=1))


def main() -> None:
    conditions = {condition: judged(50, 200, seed) for seed, condition in enumerate(("a", "b", "c", "d"))}
    lists = [one for found in conditions.values() for one in found]
    seconds = best(lambda: measure_all(parse_measures("P@20,overlap@20,nDCG@20,ExpRatio"), conditions))
    print(
        f"listwise measures, 50 × 200 × 4: {seconds:.2f} s, {seconds / best(lambda: plain(lists)):.0f} × a plain loop"
    )
    thousand = judged(1000, 200, 9)
    seconds = best(lambda: measure_all(parse_measures("AWRF@20"), {"a": thousand}))
    print(
        f"AWRF, 21 groups, 1,000 lists: {seconds:.2f} s, {seconds / best(lambda: plain(thousand)):.0f} × a plain loop"
    )


if __name__ == "__main__":
    main()
