"""What fairer lists cost: quality over disparity by retriever, from the queries' own values under every alpha.

Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2 and Figures 4 and 5. An observation is a query under one
alpha; the one list by score is the baseline and no observation. Of several measures of one name the run's first counts,
so that a run with the norms of the paper has tables with those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum, inf

from llmfair.audits.condition import Condition
from llmfair.audits.rag.policies import DETERMINISTIC, GOLD
from llmfair.audits.rag.results import AlphaTest, Curve, CurvePoint, IntervalCell, Intervals
from llmfair.audits.summary import value_of
from llmfair.metrics.base import Measure
from llmfair.metrics.columns import Column
from llmfair.metrics.names import parse_measure
from llmfair.results import Figure
from llmfair.stats import tradeoff
from llmfair.stats.intervals import Estimate

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
    drawn: dict[str, list[str]] = {}
    for one in conditions:
        if one.name != GOLD and one.factors["alpha"] != DETERMINISTIC:
            drawn.setdefault(one.factors["retriever"], []).append(one.name)
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
            disparity=disparity, utility=utility, baseline=_mean(baseline), cells=[*map(_cell, row)]
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


def _alpha_tests(values: Values, disparity: str, conditions: Sequence[str]) -> list[AlphaTest]:
    found = []
    for one, other in combinations(conditions, 2):
        before, after = (values.get((disparity, condition), {}) for condition in (one, other))
        changes = [after[query_id] - before[query_id] for query_id in before if query_id in after]
        if changes:
            difference, p = fsum(changes) / len(changes), tradeoff.paired_p(changes)
            found.append(AlphaTest(conditions=(one, other), queries=len(changes), difference=difference, p=p))
    return found


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
    whole = [_mean(values.get((name, f"{retriever}-{DETERMINISTIC}"), {})) for name in (across, up)]
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


def _mean(values: Mapping[str, float]) -> float | None:
    return fsum(values.values()) / len(values) if values else None
