"""What an audit of a generator found, as the files of its run folder: made from what was read of each query alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import fsum, inf, isfinite
from typing import Any

import numpy as np
from msgspec import structs

from llmfair.audits.aggregates import ALL, Inference, summarise, value_of
from llmfair.audits.comparing import ComparedRun, changes_by_query
from llmfair.audits.design import Condition, Outcome
from llmfair.audits.documents import ChangeRow, ComparisonRun
from llmfair.audits.kind import results_of
from llmfair.audits.rag import RAG
from llmfair.audits.rag.design import CHANGE, DETERMINISTIC, DISPARITY, GOLD, RagDesign, bounded
from llmfair.audits.rag.files import QRELS, files_of, kept_queries, observations_of, read_observations
from llmfair.audits.rag.results import (
    AlphaTest,
    Collected,
    Curve,
    CurvePoint,
    IntervalCell,
    Intervals,
    JudgedPairs,
    OutputCounts,
    RagFinding,
    RagResults,
)
from llmfair.audits.readable import as_readable
from llmfair.audits.run_files import Announce
from llmfair.audits.scoring import RemeasuredRun, ScoreFacts, facts_of, measures_of
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.metrics.base import Column, Measure, measure_all, measure_each
from llmfair.metrics.expected import Retrieved
from llmfair.metrics.generation import FEWEST_USEFUL, LABEL_OUTPUT
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.nouns import Conclusion, Failure, Measurement
from llmfair.rankers.reader import Judged, Read
from llmfair.results import Family, Figure, ProbeCounts
from llmfair.rundir import RunDir
from llmfair.settings import ScoreSettings
from llmfair.stats import tradeoff
from llmfair.stats.intervals import Estimate
from llmfair.stats.paired import change_by_query
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import keeping, most_changed

# What fairer lists cost: quality over disparity by retriever, from the queries' own values under every alpha. Kim &
# Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2 and Figures 4 and 5. An observation is a query under one alpha;
# the one list by score is the baseline and no observation. Of several measures of one name the run's first counts, so
# that a run with the norms of the paper has tables with those.


AXES = ("EE-D", "EE-R", "EU")
RAW, OF_SLOTS = "EE-D(norm=raw)", "EE-D/k'"
"""The disparity that stands beside EAE-D, whose greatest value is the same: Σ ε² over k'."""
UNBOUNDED = (-inf, inf)
Values = dict[tuple[str, str], dict[str, float]]
"""Queries' own values by measure and condition; those without one are absent."""


@dataclass(frozen=True)
class Traded:
    """Utility by interval of disparity, every curve, and tests of every two alphas; by retriever."""

    intervals: Mapping[str, Intervals]
    curves: Mapping[str, Sequence[Curve]]
    alpha_tests: Mapping[str, Sequence[AlphaTest]]


def lacking(measures: Sequence[Measure]) -> list[Measure]:
    """What is measured for the curves beside the measures of a run."""
    wanted = [*(first_of(name, measures) for name in AXES), RAW]
    return [measure for measure in map(parse_measure, wanted) if measure not in measures]


def traded(
    conditions: Sequence[Condition],
    columns: Sequence[Column],
    slots: Mapping[str, int],
    level: float,
) -> Traded:
    """What the draws of every retriever cost, from the columns of a run, those it is `lacking` among them.

    `slots`: how many items of each query are shown at a time.
    """
    measures = list(dict.fromkeys(column.measure for column in columns))
    disparity, relevance, utility = (first_of(name, measures) for name in AXES)
    values = _values(columns, slots)
    drawn = _drawn(conditions)
    axes = [(disparity, relevance), (disparity, utility), (relevance, utility)]
    axes += [(across, ear) for ear in _named("EAR", measures)[:1] for across in (disparity, relevance)]
    axes += [(OF_SLOTS, eae) for eae in _named("EAE-D", measures)[:1]]
    cells, baselines = [], []
    for retriever, names in drawn.items():
        baseline = values.get((utility, f"{retriever}-{DETERMINISTIC}"), {})
        x, y, queries = _observations(values, names, disparity, utility, baseline)
        cells.append(tradeoff.cells(x, y, queries, baseline, level) if baseline else [])
        baselines.append(baseline)
    tables = {
        retriever: Intervals(
            disparity=disparity, utility=utility, baseline=_mean(baseline.values()), cells=[*map(_cell, row)]
        )
        for retriever, baseline, row in zip(drawn, baselines, tradeoff.adjusted(cells), strict=True)
    }
    bounds = {str(measure): measure.definition.bounds for measure in measures}
    curves = {
        retriever: [
            _curve(values, retriever, names, across, up, level, bounds.get(up, UNBOUNDED))
            for across, up in axes
        ]
        for retriever, names in drawn.items()
    }
    tests = {retriever: _alpha_tests(values, disparity, names) for retriever, names in drawn.items()}
    return Traded(tables, curves, tests)


def _drawn(conditions: Sequence[Condition]) -> dict[str, list[str]]:
    """The conditions that draw from a retriever's scores, by retriever."""
    drawn: dict[str, list[str]] = {}
    for condition in conditions:
        if condition.name != GOLD and condition.factors["alpha"] != DETERMINISTIC:
            drawn.setdefault(condition.factors["retriever"], []).append(condition.name)
    return drawn


def _alpha_tests(values: Values, disparity: str, conditions: Sequence[str]) -> list[AlphaTest]:
    tests = []
    for pair in combinations(conditions, 2):
        before, after = (values.get((disparity, condition), {}) for condition in pair)
        changes = [after[query_id] - before[query_id] for query_id in before if query_id in after]
        if changes:
            difference, p = fsum(changes) / len(changes), tradeoff.paired_p(changes)
            tests.append(AlphaTest(conditions=pair, queries=len(changes), difference=difference, p=p))
    return tests


def _named(name: str, measures: Sequence[Measure]) -> list[str]:
    """Those of the name that lie between 0 and 1, where that is what a norm decides."""
    return [str(one) for one in measures if one.name == name and ("norm", "raw") not in one.params]


def first_of(name: str, measures: Sequence[Measure]) -> str:
    """The measure of this name that counts: the run's first in the norm of its table, else the plain one."""
    return next(iter(_named(name, measures)), name)


def _values(columns: Sequence[Column], slots: Mapping[str, int]) -> Values:
    found: Values = {
        (str(column.measure), column.condition): {
            query_id: number
            for query_id, value in column.values.items()
            if (number := value_of(value)[0]) is not None
        }
        for column in columns
        if not column.group
    }
    per_slot: Values = {
        (OF_SLOTS, condition): {
            query_id: raw[query_id] / shown for query_id, shown in slots.items() if query_id in raw
        }
        for (measure, condition), raw in found.items()
        if measure == RAW
    }
    return found | per_slot


def _observations(
    values: Values, conditions: Sequence[str], across: str, up: str, of: Mapping[str, float] | None = None
) -> tuple[list[float], list[float], list[str]]:
    """Both values and the query of every observation that has both, of these queries alone where they are given."""
    found = [
        (x, values[up, condition][query_id], query_id)
        for condition in conditions
        for query_id, x in values.get((across, condition), {}).items()
        if query_id in values.get((up, condition), {}) and (of is None or query_id in of)
    ]
    return [x for x, _, _ in found], [y for _, y, _ in found], [query_id for *_, query_id in found]


def _curve(
    values: Values,
    retriever: str,
    conditions: Sequence[str],
    across: str,
    up: str,
    level: float,
    bounds: tuple[float, float],
) -> Curve:
    x, y, queries = _observations(values, conditions, across, up)
    anchors = tradeoff.anchors(x, y, queries, level) if x else []
    places, means = tradeoff.averaged([anchors])
    line, flat, area = tradeoff.line(x, y), tradeoff.line(places, means), tradeoff.area(places, means)
    whole = [_mean(values.get((name, f"{retriever}-{DETERMINISTIC}"), {}).values()) for name in (across, up)]
    return Curve(
        across=across,
        up=up,
        observations=len(x),
        queries=len({*queries}),
        slope=None if line is None else line.slope,
        slope_of_points=None if flat is None else flat.slope,
        area=None if area is None else area.whole,
        area_observed=None if area is None else area.observed,
        low=None if area is None else area.low,
        high=None if area is None else area.high,
        deterministic=None if whole[0] is None or whole[1] is None else (whole[0], whole[1]),
        points=[
            CurvePoint(
                at=one.disparity, observations=one.observations, mean=_figure(one.quality, bounds=bounds)
            )
            for one in anchors
        ],
    )


def _cell(cell: tradeoff.Cell) -> IntervalCell:
    return IntervalCell(
        interval=cell.interval,
        observations=cell.observations,
        queries=cell.queries,
        difference=cell.difference,
        starred=cell.starred,
        p_student=cell.p_student,
        p_welch=cell.p_welch,
        paired=None if cell.paired is None else _figure(cell.paired, cell.p_paired, cell.p_adjusted),
    )


def _figure(
    found: Estimate,
    p: float | None = None,
    p_adjusted: float | None = None,
    bounds: tuple[float, float] = UNBOUNDED,
) -> Figure:
    low = None if found.low is None else max(found.low, bounds[0])
    high = None if found.high is None else min(found.high, bounds[1])
    return Figure(found.value, low, high, found.n, p, p_adjusted, None, found.reason)


def _mean(values: Collection[float]) -> float | None:
    return fsum(values) / len(values) if values else None


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
        told = structs.replace(told, design=structs.replace(told.design, calls=told.calls_made))
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
    findings: dict[str, RagFinding] = {}
    for of_retriever in _drawn(conditions).values():
        names = [name for name in of_retriever if name in changes]
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
    concluded_rows = []
    for row in rows:
        finding = findings.get(row.condition)
        if row.query_id == ALL and row.reason == LABEL_OUTPUT:
            row = replace(row, conclusion=Conclusion.NOT_ASSESSABLE)
        elif row.query_id == ALL and row.measure == CHANGE and finding is not None:
            row = replace(row, p=finding.p, p_adjusted=finding.p_adjusted, conclusion=finding.conclusion)
        concluded_rows.append(row)
    return findings, concluded_rows


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
    return Collected(
        kept=len(kept),
        dropped={str(useful): queries for useful, queries in sorted(few.items())},
        items=_mean([sizes[read.query_id] for read in kept]),
        useful=_mean([len(read.useful) for read in kept]),
        useful_share=_mean([len(read.useful) / sizes[read.query_id] for read in kept]),
    )


def score_rag(run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A run folder from its files alone: the figures of its audit, unless others are asked for.

    Before any answer they are those of what is shown. Raises UsageError.
    """
    results = results_of(run)
    design = results.design
    announce(run.path / "outputs.csv")
    observations = read_observations(run)
    measures, shown = measures_of(settings, results, Retrieved, [CHANGE, DISPARITY])
    if settings.measures is None and not any(
        shown_list.output is not None
        for of in observations.values()
        for query in of
        for shown_list in query.lists
    ):
        only = None if GOLD in observations else DISPARITY  # without labels nobody knows what is useful
        measures = [
            measure for measure in measures if measure.definition.of_lists and only in (None, measure.name)
        ]
        shown = [name for name in shown if name in map(str, measures)]
    columns = measure_all(bounded(measures, design.utility), observations)
    rows = summarise(columns, Inference(level=settings.level, ci=settings.ci, seed=design.seed))
    conditions = [Condition(name, design.factors[name]) for name in observations]
    findings, rows = concluded(conditions, columns, rows, settings.level, design.margin)
    facts = {name: ScoreFacts(queries=len(of)) for name, of in observations.items()}
    tested = sum(finding.p is not None for finding in findings.values())
    return RemeasuredRun(
        facts_of(run, results, shown, facts, columns, findings, tested), rows, list(observations)
    )


# What changed from one generator to another, as far as it does not hang on which items each of them finds useful.


BOUND = "EE-R, EE-L, EU(norm=ceiling)"
"""What depends on which items are useful."""


def rag_changes(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
) -> Iterator[ChangeRow]:
    """By query, in the chosen measures or those that both tables show.

    Where other items are useful, nothing that depends on them. Raises UsageError where nothing is left.
    """
    if chosen is None:
        both = {*base.results.measures} & {*other.results.measures}
        declared = parse_measures(",".join(base.results.shown))
        wanted = [measure for measure in declared if measure.definition.better and str(measure) in both]
    else:
        wanted = list(chosen)
    bound, samples = other_labels(base, other), base.setting("samples") != other.setting("samples")
    left = [
        measure
        for measure in wanted
        if not (bound and (measure.name in ("EE-R", "EE-L") or ("norm", "ceiling") in measure.params))
        and not (samples and ("of", "samples") in measure.params)
    ]
    if not left:
        why = "find other items useful" if bound else "drew other numbers of lists"
        raise UsageError(
            f"{base.name} and {other.name} {why}, and {', '.join(map(str, wanted))} hangs on that.",
            "EE-D, EU and EU-change can be compared",
        )
    for row in changes_by_query(base, other, left, RAG.condition):
        settled = row.measure == CHANGE and row.condition not in base.results.findings  # nothing could change
        if not settled and not (bound and row.condition == GOLD):
            yield row


def other_labels(base: ComparedRun, other: ComparedRun) -> bool:
    """Whether the two find other items useful, or nobody can tell any more."""
    paths = [run.run.path / QRELS for run in (base, other)]
    return not all(path.is_file() for path in paths) or len({*map(files.sha256, paths)}) > 1


def described_labels(run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
    """How many queries of a run have useful items enough, and whether these are other items than the base's."""
    return {"kept": run.results.collection.kept, "other_labels": other_labels(base, run)}


def labels_notes(runs: Sequence[ComparisonRun]) -> list[str]:
    """What is left out of a comparison of these runs, as described."""
    named = [run.name for run in runs[1:] if run.own["other_labels"]]
    if not named:
        return []
    return [
        f"{', '.join(named)}: other items are useful than for {runs[0].name}, so what hangs on them is left out "
        f"({BOUND}, the setting {GOLD}); the rest is of the queries that both kept"
    ]
