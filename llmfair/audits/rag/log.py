"""Figures of traffic that exists: a log of what a generator was shown and said, one request a line. No model is asked.

    {"query_id": "q1", "shown": ["d1", "d2"], "items": ["d1", …], "useful": ["d2"], "output": "…", "gold": "…",
     "cited": ["d2"]}

`shown` is what matters: how often items are shown is their exposure, which is estimated without the bias of few
requests. All else may be absent: `items` (what could have been shown; else what ever was), `useful`, an `output` with
its `gold` (one text or several; compared as --utility exact-match does, unless the line says its `utility`, from 0 to
the 4 of ratings), and the items that an output is credited to (`cited`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmfair.audits.scoring.remeasured import RANKS_NOTHING, Announce, RemeasuredRun
from llmfair.audits.summary import Inference, summarise, undefined_counts
from llmfair.datasets.json_lines import objects
from llmfair.datasets.questions import ITEM
from llmfair.io.trec import Problems
from llmfair.metrics.columns import measure_all
from llmfair.metrics.names import parse_measures
from llmfair.metrics.retrieved import Retrieved, ShownList
from llmfair.metrics.texts import GREATEST, cleaned, utility
from llmfair.settings import ScoreSettings

SHOWN = "EE-D,EE-D(of=samples)"
USEFUL, ANSWERED, CITED = "EE-R", "EU", "EAR(by=cited),EAE-D(by=cited)"
UTILITY = "exact-match"
MOST_UTILITY = max(GREATEST.values())
HINT = 'a line: {"query_id": "q1", "shown": ["d1", "d2"], "output": "…", "gold": "…", "cited": ["d2"]}'


@dataclass
class Logged:
    """A line of the log."""

    query_id: str | int
    shown: list[str | int]
    items: list[str | int] = field(default_factory=list)
    useful: list[str | int] | None = None
    output: str | None = None
    gold: str | list[str] | None = None
    utility: float | None = None
    cited: list[str | int] | None = None

    @property
    def worth(self) -> float | None:
        """The utility of the output; None where nobody can tell."""
        if self.utility is not None or self.output is None or self.gold is None:
            return self.utility
        golds = [self.gold] if isinstance(self.gold, str) else self.gold
        return utility(UTILITY, cleaned(self.output), golds) if golds else None


def read_log(path: Path) -> list[Retrieved]:
    """The requests of a log by query, in the order that queries come first. Raises UsageError naming file and line."""
    problems = Problems()
    by_query: dict[str, list[Logged]] = {}
    for number, row in objects(path, Logged, problems):
        shown = [*map(str, row.shown)]
        wrong = []
        if not shown:
            wrong.append(("shown", "is empty"))
        if len({*shown}) < len(shown):
            wrong.append(("shown", f"'{next(one for one in shown if shown.count(one) > 1)}' comes twice"))
        if stray := {*map(str, row.cited or ())} - {*shown}:
            wrong.append(("cited", f"'{min(stray)}' was not shown"))
        items = {*map(str, row.items)}
        for name, named in (("shown", shown), ("useful", map(str, row.useful or ()))):
            if items and (strange := {*named} - items):
                wrong.append((name, f"'{min(strange)[:40]}' is none of the items"))
        if row.utility is not None and not 0 <= row.utility <= MOST_UTILITY:
            wrong.append(("utility", f"{row.utility:g} is not from 0 to {MOST_UTILITY:g}"))
        for name, text in wrong:
            problems.add(path, number, name, text)
        by_query.setdefault(str(row.query_id), []).append(row)
    if not by_query:
        problems.add(path, 0, "", "holds no request")
    problems.raise_any(HINT)
    return [_retrieved(query_id, rows) for query_id, rows in by_query.items()]


def _retrieved(query_id: str, rows: Sequence[Logged]) -> Retrieved:
    known = (str(one) for row in rows for one in (*row.items, *row.shown, *(row.useful or ())))
    requests = Counter(
        (
            tuple(map(str, row.shown)),
            row.output,
            row.worth,
            None if row.cited is None else frozenset(map(str, row.cited)),
        )
        for row in rows
    )
    return Retrieved(
        query_id=query_id,
        doc_ids=tuple(dict.fromkeys(known)),
        useful=frozenset(str(one) for row in rows for one in row.useful or ()),
        k=max(len(row.shown) for row in rows),
        exposure=None,
        lists=tuple(
            ShownList(shown, count, output, worth, cited)
            for (shown, output, worth, cited), count in requests.items()
        ),
    )


def score_log(path: Path, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A log as one condition, called by its path; of measures those that it can have, unless others are asked for."""
    announce(path)
    observed = read_log(path)
    lists = [one for query in observed for one in query.lists]
    known = [
        *[SHOWN],
        *([USEFUL] if any(query.useful for query in observed) else []),
        *([ANSWERED] if any(one.utility is not None for one in lists) else []),
        *([CITED] if any(one.attributed is not None for one in lists) else []),
    ]
    measures = parse_measures(settings.measures or ",".join(known), Retrieved)
    condition = str(path)
    columns = measure_all(measures, {condition: observed})
    facts: dict[str, Any] = {
        "run": condition,
        "dataset": path.stem,
        "attribute": ITEM.name,
        "model": "log",
        "task": "rag",
        "words": {"protected": "", "unprotected": ""},
        "measures": [str(measure) for measure in measures],
        "conditions": _conditions(condition, observed),
        "undefined": undefined_counts(columns),
        "findings": {},
        "family": {"size": 0, "contrasted": None},
    }
    rows = summarise(columns, Inference(level=settings.level, ci=settings.ci))
    return RemeasuredRun(facts, rows, [condition])


def _conditions(condition: str, observed: Sequence[Retrieved]) -> Mapping[str, Mapping[str, Any]]:
    return {condition: {"queries": len(observed), **RANKS_NOTHING}}
