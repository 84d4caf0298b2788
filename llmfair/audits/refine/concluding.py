"""What is concluded of refinement: whether pages come nearer their target, and whether that costs relevance.

Paired by topic: fair-qr less the original query, in every measure with a direction. Nearer: the whole intervals of the
objective and of AWRF lie on the better side of 0; no nearer: one of them lies on the other side, or nothing changed.
p by flipped signs; adjusted (Holm) over the methods that fair-qr is held against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import fsum

import numpy as np

from llmfair.audits.refine.design import FAIR_QR, REFINED
from llmfair.audits.refine.results import PaperTest, RefineFinding
from llmfair.audits.refine.settings import BASELINE
from llmfair.audits.summary import ALL, Inference, row_of, value_of
from llmfair.metrics.base import Measure
from llmfair.metrics.columns import Column
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Conclusion, Measurement
from llmfair.stats.paired import change_by_query, paired_t
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import STARRED

SYMBOLS = {BASELINE: "*", "sbert": "◇", "dlf-like": "♣", "deltr": "§", "fair-star": "†", "mmr": "‡"}
"""The signs of the paper's table, of the methods that it holds refinement against."""
CONCLUDED = {
    True: Conclusion.WITHIN,
    False: Conclusion.OUTSIDE,
    None: Conclusion.INCONCLUSIVE,
}
"""By whether pages are nearer."""
Goals = tuple[str, str, str]
"""The names of the objective, of what nearness is told by too, and of what refinement costs."""


def compared(method: str) -> str:
    """The condition of rows that hold fair-qr against a method."""
    return f"{FAIR_QR} vs {method}"


def held_against(conditions: Iterable[str]) -> list[str]:
    """The methods that fair-qr is held against: all but its own two pages."""
    return [name for name in conditions if name not in (REFINED, FAIR_QR)]


def concluded(
    columns: Sequence[Column], rows: Sequence[Measurement], goals: Goals, inference: Inference
) -> tuple[list[Measurement], dict[str, RefineFinding], int]:
    """The rows with those of the changes and the conclusion, what is concluded, and how many p were adjusted."""
    changes = _changes(columns, inference)
    for measure in dict.fromkeys(row.measure for row in changes):
        places = [
            place for place, row in enumerate(changes) if row.measure == measure and row.query_id == ALL
        ]
        for place, adjusted in zip(places, holm([changes[place].p for place in places]), strict=True):
            changes[place] = replace(changes[place], p_adjusted=adjusted)
    of_all = {
        row.measure: row for row in changes if row.query_id == ALL and row.condition == compared(BASELINE)
    }
    objective, aimed, utility = (of_all.get(name) for name in goals)
    finding = _finding(objective, aimed, utility, goals)
    told = [
        replace(row, conclusion=finding.conclusion)
        if (row.query_id, row.measure, row.condition) == (ALL, goals[0], compared(BASELINE))
        else row
        for row in (*rows, *changes)
    ]
    return told, {FAIR_QR: finding}, sum(row.p is not None for row in changes if row.measure == goals[0])


def _changes(columns: Sequence[Column], inference: Inference) -> list[Measurement]:
    """A row a topic and one of all, for every measure with a direction and every method held against."""
    by = {(column.measure, column.condition): column for column in columns if not column.group}
    rows: list[Measurement] = []
    for measure in _directed(by):
        for method in held_against(dict.fromkeys(column.condition for column in columns)):
            rows += _paired(measure, by.get((measure, FAIR_QR)), by.get((measure, method)), method, inference)
    return rows


def _directed(columns: Mapping[tuple[Measure, str], Column]) -> Iterator[Measure]:
    """The measures of single queries of which more or less is better."""
    for measure in dict.fromkeys(measure for measure, _ in columns):
        if measure.definition.better in ("higher", "lower") and not measure.of_all:
            yield measure


def _pairs(one: Column | None, other: Column | None) -> dict[str, tuple[float, float]]:
    """The queries' values of the other and of the one, where both have any."""
    if one is None or other is None:
        return {}
    return {
        query_id: (before, after)
        for query_id in sorted(one.values.keys() & other.values.keys())
        if (before := value_of(other.values[query_id])[0]) is not None
        and (after := value_of(one.values[query_id])[0]) is not None
    }


def _paired(
    measure: Measure, one: Column | None, other: Column | None, method: str, inference: Inference
) -> list[Measurement]:
    if one is None or other is None:
        return []
    name, condition = str(measure), compared(method)
    pairs = _pairs(one, other)
    if not pairs:
        return [Measurement(ALL, name, None, condition, n=0, reason="no_common_query")]
    rows = [
        Measurement(query_id, name, after - before, condition) for query_id, (before, after) in pairs.items()
    ]
    values = np.array([*pairs.values()])
    rng = np.random.default_rng(inference.seed)
    change = change_by_query(values[:, 0], values[:, 1], False, inference.level, rng)
    return [*rows, replace(row_of(name, condition, change.estimate), p=change.p)]


def paper_tests(columns: Sequence[Column]) -> list[PaperTest]:
    """Both pages of refinement against each method, in every measure with a direction [Chen & Fang 2025, Table 1]."""
    by = {(column.measure, column.condition): column for column in columns if not column.group}
    methods = held_against(dict.fromkeys(column.condition for column in columns))
    tests = []
    for measure in _directed(by):
        better = 1 if measure.definition.better == "higher" else -1
        for method, against in product((REFINED, FAIR_QR), methods):
            pairs = _pairs(by.get((measure, method)), by.get((measure, against)))
            if not pairs:
                continue
            changes = [after - before for before, after in pairs.values()]
            difference, tested = fsum(changes) / len(changes), paired_t(changes) if any(changes) else None
            p = None if tested is None else tested[1]
            told = p is not None and p < STARRED and better * difference > 0
            tests.append(
                PaperTest(method=method, against=against, measure=str(measure), queries=len(pairs),
                          difference=difference, p=p, symbol=SYMBOLS.get(against, "") if told else "")
            )  # fmt: skip
    return tests


def _finding(
    objective: Measurement | None, aimed: Measurement | None, utility: Measurement | None, goals: Goals
) -> RefineFinding:
    """Of the changes in the objective, in AWRF and in nDCG."""
    nothing = RefineFinding(
        measure=goals[0],
        aimed=goals[1],
        utility=goals[2],
        conclusion=Conclusion.NOT_ASSESSABLE,
        reason="no_query_measured",
        nearer=None,
        loss=None,
    )
    if objective is None:
        return nothing
    if objective.low is None:
        return replace(nothing, reason=objective.reason)
    said = [_better(row) for row in (objective, aimed) if row is not None]
    nearer = True if all(said) else False if False in said else None
    return replace(
        nothing,
        conclusion=CONCLUDED[nearer],
        reason=None,
        nearer=nearer,
        loss=None if utility is None or utility.high is None else utility.high < 0,
        p=objective.p,
        p_adjusted=objective.p_adjusted,
    )


def _better(row: Measurement) -> bool | None:
    """Whether the change is for the better for certain, or for certain is not; None where it is open."""
    if row.low is None or row.high is None:
        return None
    low, high = (
        (row.low, row.high)
        if parse_measure(row.measure).definition.better == "higher"
        else (-row.high, -row.low)
    )
    if low > 0:
        return True
    return False if high <= 0 else None
