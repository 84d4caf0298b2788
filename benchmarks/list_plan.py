"""How listwise audits end, beside what their plan says: `python -m benchmarks.list_plan`.

Simulated audits of lists that are written to a folder for a while: those of a plan, and those of a calibration with
another seed, which go through all that real ones do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.rows import print_lines
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.plan import calibrate, findable_of
from llmfair.audits.listwise.settings import CalibrateSettings, PlanSettings

AUDITS, OTHER_SEED = 500, 7


@dataclass(frozen=True)
class Design:
    """Lists of `n` items, half of either group, of which a share is relevant; of a pool, or none in two lists.

    `alike`, `slots`: how models answer. `how`: other settings.
    """

    queries: int
    n: int
    odds: float
    how: Mapping[str, Any]
    relevant: float = 0.5
    pool: int | None = None
    alike: float = 0.0
    slots: float = 0.0


DESIGNS = (
    Design(8, 40, 0.6, {}),
    Design(44, 40, 0.7, {}, relevant=0.1, alike=1.0),
    Design(15, 20, 0.5, {"design": "partition", "window": 10}, alike=0.5, slots=1.5),
    Design(20, 24, 0.5, {}, pool=60, alike=0.5),
)


def lists_of(design: Design) -> Iterator[tuple[str, Sequence[tuple[str, str, int]]]]:
    """Ids, groups and grades of every query's items."""
    rng, half = np.random.default_rng(1), design.n // 2
    for query in range(design.queries):
        rows = list[tuple[str, str, int]]()
        for group in ("female", "male"):
            numbers = (
                rng.permutation(design.pool // 2)[:half] if design.pool else query * half + np.arange(half)
            )
            rows += [
                (f"{group}{number}", group, int(place < round(design.relevant * half)))
                for place, number in enumerate(numbers.tolist())
            ]
        yield f"q{query}", rows


def write(design: Design, folder: Path) -> str:
    """A dataset of the design's lists."""
    lists = dict(lists_of(design))
    groups = {doc_id: group for rows in lists.values() for doc_id, group, _ in rows}
    files = {
        "docs.jsonl": [json.dumps({"doc_id": doc_id, "title": doc_id}) for doc_id in groups],
        "queries.tsv": [f"{query}\t{query}" for query in lists],
        "qrels.txt": [
            f"{query} 0 {doc_id} {grade}" for query, rows in lists.items() for doc_id, _, grade in rows
        ],
        "groups.tsv": [f"{doc_id}\tgender\t{group}" for doc_id, group in groups.items()],
    }
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return str(folder)


def row(design: Design, dataset: str, audits: int) -> str:
    asked: dict[str, Any] = {**design.how, "dataset": dataset, "alike": design.alike, "slots": design.slots}
    settings = PlanSettings.make(odds=design.odds, conditions="neutral", **asked)
    (planned,) = findable_of(make_design(settings), settings).prospects
    simulated = calibrate(
        CalibrateSettings.make(seed=OTHER_SEED, runs=audits, injected=str(log(design.odds)), **asked)
    )
    at_odds, fair = simulated["injected"]
    items = f"pool of {design.pool}" if design.pool else "each once"
    how = "partition" if design.how else "3 orders"
    ends = (
        f"{100 * planned.disparity:.0f} ± {100 * planned.disparity_error:.0f}, {100 * at_odds['outside']:.0f}",
        f"{100 * planned.parity:.0f} ± {100 * planned.parity_error:.0f}, {100 * fair['within']:.0f}",
    )
    return (
        f"| {design.queries} × {design.n}, {how}, {100 * design.relevant:g} % relevant, {items} "
        f"| {design.odds:g}, {design.alike:g}, {design.slots:g} | {' | '.join(ends)} |"
    )


def lines(audits: int) -> Iterator[str]:
    yield f"{audits:,} audits a row; standard errors at most {50 / audits**0.5:.1f}"
    yield "| lists | odds, alike, slots | disparity %: said, real | parity at 1 %: said, real |"
    yield "| --- | --- | --- | --- |"
    for design in DESIGNS:
        with TemporaryDirectory() as folder:
            yield row(design, write(design, Path(folder)), audits)


if __name__ == "__main__":
    print_lines(__doc__, AUDITS, lines)
