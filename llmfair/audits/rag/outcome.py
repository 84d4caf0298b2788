"""What an audit of a generator found, as the files of its run folder: made from what was read of each query alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum, isfinite

import numpy as np

from llmfair.audits.condition import Condition
from llmfair.audits.design import Outcome
from llmfair.audits.rag.design import RagDesign
from llmfair.audits.rag.files import files_of
from llmfair.audits.rag.observing import kept_queries, observations_of
from llmfair.audits.rag.policies import DETERMINISTIC, GOLD
from llmfair.audits.rag.results import Collected, JudgedPairs, OutputCounts, RagFinding, RagResults
from llmfair.audits.rag.tradeoff import first_of, lacking, traded
from llmfair.audits.readable import as_readable
from llmfair.audits.summary import ALL, Inference, summarise, value_of
from llmfair.metrics.columns import Column, measure_each
from llmfair.metrics.generation import FEWEST_USEFUL, LABEL_OUTPUT
from llmfair.nouns import Conclusion, Failure, Measurement
from llmfair.rankers.reader import Read
from llmfair.rankers.support import Judged
from llmfair.results import Family, ProbeCounts
from llmfair.stats.paired import change_by_query
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import keeping, most_changed

CHANGE, DISPARITY = "EU-change", "EE-D"
KEEPING = {
    "kept": Conclusion.WITHIN,
    "lost": Conclusion.OUTSIDE,
    "inconclusive": Conclusion.INCONCLUSIVE,
}
FEWEST_CHANGED = 5
"""An interval of a mean takes at least so many queries that change."""


def outcome_of(
    design: RagDesign, run: str, found: Mapping[str, Read | Judged], failures: Sequence[Failure]
) -> Outcome:
    """Measures the queries that have all their answers and enough useful items, one at a time."""
    settings, names = design.settings, [condition.name for condition in design.conditions]
    results = {name: result for name, result in found.items() if isinstance(result, Read)}
    judged = {name: result for name, result in found.items() if isinstance(result, Judged)}
    further = lacking(design.measures)
    every = measure_each([*design.measures, *further], observations_of(design, results, judged))
    columns = [column for column in every if column.measure not in further]
    ended = sum(bool(read.lists) or not read.kept for read in results.values())
    rows = summarise(columns, Inference(level=settings.level, seed=settings.seed))
    findings, rows = concluded(design.conditions, columns, rows, settings.level, settings.margin)
    answers = _counted(design, results)
    slots = {query.query_id: min(settings.k, len(design.items(query))) for query in design.queries}
    cost = traded(design.conditions, every, slots, settings.level)
    told = RagResults(
        **design.told(run, dict.fromkeys(names, ProbeCounts(len(design.queries), ended)), failures, columns),
        reach={},
        collection=_collected(design, results),
        intervals=cost.intervals,
        tradeoff=cost.curves,
        alpha_tests=cost.alpha_tests,
        calls_made=sum(len(read.alone) + len(read.lists) for read in results.values())
        + sum(len(one.supported) for one in judged.values()),
        judged=_judged(design, judged),
        answers=answers,
        findings=as_readable(findings, answers, settings.max_invalid),
        family=Family(sum(finding.p is not None for finding in findings.values()), None),
    )
    if told.status == "complete":
        # the plan counted as many lists of `gold` as there can be, and those of queries that are dropped
        told = replace(told, design=replace(told.design, calls=told.calls_made))
    return design.laid_out(told, rows, files_of(design, results, judged), failures)


def _judged(design: RagDesign, judged: Mapping[str, Judged]) -> JudgedPairs | None:
    if design.judge is None:
        return None
    answers = [answer for one in judged.values() for answer in one.supported.values()]
    return JudgedPairs(
        model=design.judge.spec,
        by=design.judge.by,
        asked=len(answers),
        supported=answers.count(True),
        unparseable=answers.count(None),
    )


def concluded(
    conditions: Sequence[Condition],
    columns: Sequence[Column],
    rows: Sequence[Measurement],
    level: float,
    margin: float,
) -> tuple[dict[str, RagFinding], list[Measurement]]:
    """Whether utility is kept, of every condition that draws from a retriever; and the rows with p and conclusion.

    Kept: the whole interval of the change is at or above −margin; lost: all of it is below. Where fewer than 5 queries
    change at all, an interval of their mean says too little: kept then takes that the largest share of queries that may
    change would lose no more than the margin. p by flipped signs, adjusted by Holm over the alphas of a retriever.
    """
    changes = {column.condition: column for column in columns if str(column.measure) == CHANGE}
    measure = first_of(DISPARITY, [column.measure for column in columns])
    disparity = {row.condition: row.value for row in rows if row.query_id == ALL and row.measure == measure}
    drawn: dict[str, list[str]] = {}
    for one in conditions:
        if one.factors["alpha"] != DETERMINISTIC and one.name != GOLD and one.name in changes:
            drawn.setdefault(one.factors["retriever"], []).append(one.name)
    findings: dict[str, RagFinding] = {}
    for names in drawn.values():
        changed = [_changed(changes[name], level, margin) for name in names]
        adjusted = holm([p for _, _, p in changed])
        for name, (conclusion, reason, p), held in zip(names, changed, adjusted, strict=True):
            findings[name] = RagFinding(
                measure=CHANGE,
                conclusion=conclusion,
                reason=reason,
                disparity=disparity.get(name),
                margin=margin,
                p=p,
                p_adjusted=held,
            )
    return findings, [_with_conclusion(row, findings) for row in rows]


def _with_conclusion(row: Measurement, findings: Mapping[str, RagFinding]) -> Measurement:
    if row.query_id == ALL and row.reason == LABEL_OUTPUT:
        return replace(row, conclusion=Conclusion.NOT_ASSESSABLE)
    finding = findings.get(row.condition)
    if finding is None or row.query_id != ALL or row.measure != CHANGE:
        return row
    return replace(row, p=finding.p, p_adjusted=finding.p_adjusted, conclusion=finding.conclusion)


def _changed(column: Column, level: float, margin: float) -> tuple[Conclusion, str | None, float | None]:
    """What the queries' changes say, why they say nothing, and the p of no change."""
    values = [value for value in (value_of(one)[0] for one in column.values.values()) if value is not None]
    if not values:
        return Conclusion.NOT_ASSESSABLE, "no_useful_items", None
    change = change_by_query([0.0] * len(values), values, False, level, np.random.default_rng(0))
    low, high = change.estimate.low, change.estimate.high
    if low is None or high is None:
        return Conclusion.NOT_ASSESSABLE, change.estimate.reason, None
    changed, greatest = int(np.count_nonzero(values)), column.measure.definition.bounds[1]
    most = most_changed(changed, len(values), level) * (greatest if isfinite(greatest) else 1.0)
    said = KEEPING[keeping(low, high, margin) or "inconclusive"]
    if said == Conclusion.WITHIN and changed < FEWEST_CHANGED and most > margin:
        return Conclusion.INCONCLUSIVE, "few_changes", change.p
    return said, None, change.p


def _counted(design: RagDesign, results: Mapping[str, Read]) -> dict[str, OutputCounts]:
    """How the distinct outputs of every condition ended."""
    ended: dict[str, Counter[str]] = {condition.name: Counter() for condition in design.conditions}
    for query, read in kept_queries(design, results):
        for name, lists in design.drawn(query, read.useful).items():
            ended[name].update(read.lists[shown].ended for shown in lists)
    return {
        name: OutputCounts(outputs=of.total(), unparseable=of.total() - of.pop("ok", 0), classes=dict(of))
        for name, of in ended.items()
    }


def _collected(design: RagDesign, results: Mapping[str, Read]) -> Collected:
    kept = [read for read in results.values() if read.kept]
    sizes = {query.query_id: len(design.items(query)) for query in design.queries}
    few = Counter(len(read.useful) for read in results.values() if len(read.useful) < FEWEST_USEFUL)

    def average(values: Sequence[float]) -> float | None:
        return fsum(values) / len(values) if values else None

    return Collected(
        kept=len(kept),
        dropped={str(useful): queries for useful, queries in sorted(few.items())},
        items=average([sizes[read.query_id] for read in kept]),
        useful=average([len(read.useful) for read in kept]),
        useful_share=average([len(read.useful) / sizes[read.query_id] for read in kept]),
    )
