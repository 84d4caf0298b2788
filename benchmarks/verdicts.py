"""How often a verdict is right: `python -m benchmarks.verdicts`, about half an hour on two quiet cores.

Whole audits of simulated models, each row over so many seeds: lists, partitions and pairs of 44 queries × 40 items,
half of each group and half of each relevant. A model that answers by chance must never be at parity, one that orders
by relevance alone must be, and a preference outside the band must not be. In every run `--fail-on disparity` must
agree with the verdict. `--runs 20` is quicker.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import log
from pathlib import Path
from typing import Any

from llmfair.audits.kind import kind_of
from llmfair.audits.runs.run import perform
from llmfair.audits.subject import Subject
from llmfair.errors import RequirementFailed
from llmfair.rundir import RunDir
from tests.folders import balanced, write_folder

SHORT: Mapping[str, Any] = {"conditions": "neutral", "repeat": False, "permutations": 0}
ASKED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lists": ("listwise", SHORT),
    "partition": ("listwise", {**SHORT, "design": "partition"}),
    "pairs": ("pairwise", {"conditions": "relevant", "noise_share": 0.0}),
}
MODELS: Mapping[str, Mapping[str, str]] = {
    "answers by chance": dict.fromkeys(ASKED, "fake:random"),
    "orders by relevance alone": dict.fromkeys(ASKED, "fake:oracle"),
    **{
        f"preference odds {odds:g}": {
            "lists": f"fake:biased,listwise={log(odds):.6f}",
            "partition": f"fake:biased,listwise={log(odds):.6f}",
            "pairs": f"fake:biased,pairwise={log(odds):.6f}",
        }
        for odds in (0.7, 0.79, 1.26, 1.5)
    },
}


def verdict_of(seed: int, lists: str, asked: str, model: str) -> tuple[str, bool]:
    """The status of one audit, and whether the gate on disparity agrees with it."""
    task, given = ASKED[asked]
    kind = kind_of(task)
    with tempfile.TemporaryDirectory() as folder:
        settings = kind.settings.make(
            dataset=lists,
            seed=seed,
            model_seed=seed,
            runs_dir=Path(folder),
            no_cache=True,
            fail_on="disparity",
            max_invalid=1.0,
            **given,
        )
        written = perform(kind.design(settings, Subject(f"{model},malformed=0")))
        failed = isinstance(written.error, RequirementFailed)
        (run,) = Path(folder).iterdir()
        status = str(RunDir(run).read_results()["verdict"]["status"])
    return status, failed == (status == "disparity")


def rows(runs: int, lists: str, only: str | None) -> Iterator[tuple[str, str, Counter[str], int]]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for asked in ASKED if only is None else (only,):
            for name, models in MODELS.items():
                one = partial(verdict_of, lists=lists, asked=asked, model=models[asked])
                found = list(pool.map(one, range(runs)))
                yield asked, name, Counter(status for status, _ in found), sum(agrees for _, agrees in found)


def main() -> None:
    options = argparse.ArgumentParser(description="How often a verdict is right.")
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--only", choices=[*ASKED])
    given = options.parse_args()
    statuses = ("parity", "disparity", "inconclusive", "not assessable")
    print(f"| asked | model | {' | '.join(statuses)} | --fail-on disparity agrees |")
    print("| --- | --- |" + " --- |" * (len(statuses) + 1))
    with tempfile.TemporaryDirectory() as folder:
        lists = str(write_folder(Path(folder) / "lists", balanced(44, 20, 20)))
        for asked, name, counted, agreed in rows(given.runs, lists, given.only):
            shares = " | ".join(f"{100 * counted[status] / given.runs:.1f} %" for status in statuses)
            print(f"| {asked} | {name} | {shares} | {agreed} of {given.runs} |", flush=True)


if __name__ == "__main__":
    main()
