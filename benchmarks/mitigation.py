"""Remedies for a simulated ranker with a known preference: `python -m benchmarks.mitigation`, 50 seeds.

`fake:biased` ranks lists of 20 women and 20 men, half of each relevant, with log odds of −0.5 against women, and fresh
noise. What each remedy has to do is known: the logit offset and an adapter restore odds of 1 at no loss of nDCG, FA*IR
at a share of 0.3 hardly moves the first 20, the consensus of the orders lowers the noise and not the preference. No
adapter is trained here: the row `stand-in` is the simulator asked without its preference, as one that took it away
whole would answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import numpy as np

import llmfair
from llmfair.audits.subject import Subject
from llmfair.io.trec import read_run
from llmfair.mitigation.remedies import Audit, Remedy, Unmitigated
from llmfair.registry import register

SEEDS, QUERIES, EACH = 50, 24, 20
MODEL, WITHOUT = "fake:biased,malformed=0", "fake:biased,malformed=0,listwise=0"
ODDS, UTILITY, CONSISTENCY = "PreferenceOdds(of=ranking)", "nDCG@20", "Consistency"
REMEDIES = ("consensus", "offset", "fair-star", "greedy", "stand-in")
FIRST = 20


class StandIn(Remedy):
    """The simulator without its preference, in the place of an adapter."""

    title = "stand-in for an adapter: the simulator without its preference"
    asks = True
    does = (
        "The simulator is asked without its preference, as an adapter that took it away whole would answer."
    )

    def apply(self, run: Unmitigated) -> Audit:
        return run.again(Subject(WITHOUT))


@dataclass(frozen=True)
class Shown:
    """One remedy of one seed: its odds, changes of nDCG and of consistency, and its share of the first 20 before it.

    `nearer`: whether it is nearer to parity beyond chance.
    """

    odds: float
    utility: float
    consistency: float
    kept: float
    nearer: float


def folder(path: Path, queries: int = QUERIES, each: int = EACH) -> Path:
    """A dataset: for every query so many women and men, half of each relevant."""
    path.mkdir(parents=True, exist_ok=True)
    items = [
        (f"q{q}", f"q{q}{group[0]}{i}", group, int(i < each // 2))
        for q in range(queries)
        for group in ("female", "male")
        for i in range(each)
    ]
    texts = {
        "docs.jsonl": [json.dumps({"doc_id": doc_id, "title": f"Title {doc_id}"}) for _, doc_id, *_ in items],
        "queries.tsv": [f"q{q}\tTopic {q}" for q in range(queries)],
        "qrels.txt": [f"{query} 0 {doc_id} {grade}" for query, doc_id, _, grade in items],
        "groups.tsv": [f"{doc_id}\tgender\t{group}" for _, doc_id, group, _ in items],
    }
    for name, lines in texts.items():
        (path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def simulated(seed: int, data: Path, below: Path, remedies: Sequence[str] = REMEDIES) -> dict[str, Shown]:
    """One run and its remedies, by name; `none` are the unmitigated rankings."""
    run = below / f"run-{seed}"
    once: dict[str, Any] = {"conditions": "neutral", "repeat": False, "passes": 1, "permutations": 0}
    llmfair.audit_listwise(
        str(data), model=MODEL, seed=seed, output=run, runs_dir=below, report=False, **once
    )
    document: Any = llmfair.mitigate(run, remedy=list(remedies), report=False).found
    base = document.remedies[0]
    consistency = base.figures[CONSISTENCY].value
    before = first(run / "rankings" / "neutral.run")
    found = {}
    for one in document.remedies:
        odds, utility, alike = (one.figures[name].value for name in (ODDS, UTILITY, CONSISTENCY))
        change = one.changes.get(ODDS)
        file = run / "mitigation" / one.rankings[0] if one.rankings else run / "rankings" / "neutral.run"
        kept = [len(ids & before[query]) / FIRST for query, ids in first(file).items()]
        found[one.remedy] = Shown(
            odds,
            utility - base.figures[UTILITY].value,
            alike - consistency,
            float(np.mean(kept)),
            bool(change and change.p_adjusted < 0.05 and abs(log(odds)) < abs(log(base.figures[ODDS].value))),
        )
    return found


def first(path: Path) -> Mapping[str, set[str]]:
    """The first documents of each query."""
    rankings = read_run(path).rankings
    return {query_id: {*ranking.doc_ids[:FIRST]} for query_id, ranking in rankings.items()}


Summary = Mapping[str, Shown]
"""By remedy, means over seeds: geometric of the odds; `nearer` is a share."""


def summary(found: Iterable[Mapping[str, Shown]]) -> Summary:
    """The means over the seeds."""
    by_name: dict[str, list[Shown]] = {}
    for of_seed in found:
        for name, one in of_seed.items():
            by_name.setdefault(name, []).append(one)
    return {
        name: Shown(
            float(np.exp(np.mean([log(one.odds) for one in of]))),
            float(np.mean([one.utility for one in of])),
            float(np.mean([one.consistency for one in of])),
            float(np.mean([one.kept for one in of])),
            float(np.mean([one.nearer for one in of])),
        )
        for name, of in by_name.items()
    }


KNOWN: Mapping[str, Callable[[Summary], bool]] = {
    "the logit offset restores odds of 1 (0.95 to 1.05)": lambda of: 0.95 < of["offset"].odds < 1.05,
    "so does the stand-in for an adapter": lambda of: 0.95 < of["stand-in"].odds < 1.05,
    "neither loses nDCG@20": lambda of: min(of["offset"].utility, of["stand-in"].utility) > -0.005,
    "FA*IR hardly moves the first 20 (98 % stay)": lambda of: of["fair-star"].kept > 0.98,
    "nor the odds": lambda of: abs(log(of["fair-star"].odds / of["none"].odds)) < 0.05,
    "the consensus is more consistent": lambda of: of["consensus"].consistency > 0,
    "and no nearer to parity": lambda of: of["consensus"].odds <= of["none"].odds,
    "their order by odds: consensus, unmitigated and FA*IR, greedy, offset and stand-in": lambda of: (
        of["consensus"].odds < of["none"].odds <= of["fair-star"].odds < of["greedy"].odds
        < min(of["offset"].odds, of["stand-in"].odds)
    ),
}  # fmt: skip
"""What is known beforehand."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--queries", type=int, default=QUERIES)
    asked = parser.parse_args()
    register("remedy", "stand-in")(StandIn)
    with tempfile.TemporaryDirectory() as name:
        data = folder(Path(name) / "data", asked.queries)
        found = summary(simulated(seed, data, Path(name) / "runs") for seed in range(asked.seeds))
    print(f"{asked.seeds} seeds, {asked.queries} queries of {2 * EACH}, 3 orders, {MODEL}")
    print(
        f"{'remedy':<12}{'odds of rankings':>18}{'nDCG@20':>10}{'consistency':>13}{'first 20 kept':>15}{'nearer':>8}"
    )
    for remedy, one in found.items():
        print(
            f"{remedy:<12}{one.odds:>18.3f}{one.utility:>+10.3f}{one.consistency:>+13.3f}{one.kept:>15.1%}"
            f"{one.nearer:>8.0%}"
        )
    held = {said: holds(found) for said, holds in KNOWN.items()}
    for said, holds in held.items():
        print(f"{'yes' if holds else 'NO':<4}{said}")
    if not all(held.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
