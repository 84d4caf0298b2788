"""One condition against another, paired by query: what a prompt changes, how far the same one differs from itself.

Rows of two conditions bear both names as their condition, `female vs male`: a quotient for measures on a log scale, a
difference for others. Rank agreement of two conditions is measured order by order, since both started from the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from llmfair.audits.aggregates.preference import preference_change
from llmfair.audits.summary import ALL, Inference, row_of, value_of
from llmfair.metrics.base import Judged, Measure
from llmfair.metrics.columns import Column
from llmfair.nouns import Measurement
from llmfair.probes import REPEAT
from llmfair.stats.intervals import geometric_mean, mean
from llmfair.stats.power import FEWEST_TESTED
from llmfair.stats.significance import sign_flip

NEUTRAL = "neutral"
OF_ODDS = "preference-odds"
"""The aggregate of figures that are odds over all comparisons."""
SEPARATOR = " vs "
"""Between the names of two conditions in the condition of their rows."""


def against(one: str, other: str) -> str:
    """The condition of rows that compare two conditions."""
    return f"{one}{SEPARATOR}{other}"


def pairs_of(conditions: Sequence[str]) -> list[tuple[str, str]]:
    """Every later condition against every earlier one; neutral asked again against neutral only."""
    return [(b, a) for a, b in combinations(conditions, 2) if b != REPEAT or a == NEUTRAL]


def contrasts(
    columns: Sequence[Column],
    judged: Mapping[str, Sequence[Judged]],
    conditions: Sequence[str],
    inference: Inference,
) -> list[Measurement]:
    """The rows of every pair of conditions, for every measure that has a direction and values of single queries."""
    values = {(column.measure, column.condition): column for column in columns if column.group == ""}
    # a figure that is neither better nor worse is no effect of a prompt
    measures = [
        measure
        for measure in dict.fromkeys(measure for measure, _ in values)
        if measure.definition.better and (not measure.of_all or measure.aggregate == OF_ODDS)
    ]
    rows: list[Measurement] = []
    for measure in measures:
        if measure.definition.agreement:
            rows += _agreement(measure, judged, conditions, inference)
            continue
        for one, other in pairs_of(conditions):
            if (measure, one) in values and (measure, other) in values:
                alike = _alike(judged[one], judged[other])
                rows += paired(measure, values[measure, one], values[measure, other], alike, inference)
    return rows


def _alike(one: Sequence[Judged], other: Sequence[Judged]) -> set[str]:
    """The queries that both conditions ranked from the same initial orders, as often."""
    runs = {query.query_id: query.runs for query in other}
    return {query.query_id for query in one if runs.get(query.query_id) == query.runs}


def paired(
    measure: Measure, one: Column, other: Column, alike: set[str], inference: Inference
) -> Iterator[Measurement]:
    """One measure of two conditions, over the queries alike where both have a value."""
    condition, on_log_scale = against(one.condition, other.condition), measure.definition.scale == "log"
    if measure.aggregate == OF_ODDS:
        yield _of_odds(measure, condition, one, other, alike, inference)
        return
    changes: dict[str, float] = {}
    for query_id in sorted(one.values.keys() & other.values.keys() & alike):
        a, b = (value_of(column.values[query_id])[0] for column in (one, other))
        if a is not None and b is not None:
            changes[query_id] = a / b if on_log_scale else a - b
    yield from _rows(measure, condition, changes, on_log_scale, changes, inference)


def _of_odds(
    measure: Measure, condition: str, one: Column, other: Column, alike: set[str], inference: Inference
) -> Measurement:
    """Two conditions' odds, which only all queries together have; each query's part of the change is tested."""
    held = [{q: column.values[q] for q in column.values.keys() & alike} for column in (one, other)]
    change = preference_change(held[0], held[1], inference.level)
    if change is None:
        reason = "no_finite_odds" if held[0].keys() & held[1].keys() else "no_common_query"
        return Measurement(ALL, str(measure), None, condition, n=0, reason=reason)
    estimate, parts = change
    row = row_of(str(measure), condition, estimate)
    if len(parts) < FEWEST_TESTED:
        return row
    return replace(row, p=sign_flip(parts, rng=np.random.default_rng(inference.seed)))


def _agreement(
    measure: Measure, judged: Mapping[str, Sequence[Judged]], conditions: Sequence[str], inference: Inference
) -> Iterator[Measurement]:
    """Rank agreement with neutral, tested against that of neutral with itself."""
    floor = _agreed(measure, judged.get(REPEAT, ()), judged.get(NEUTRAL, ()))
    for one, other in pairs_of(conditions):
        if other != NEUTRAL:
            continue
        found = _agreed(measure, judged[one], judged[other])
        below = {q: found[q] - floor[q] for q in found.keys() & floor.keys()} if one != REPEAT else {}
        yield from _rows(measure, against(one, other), found, False, below, inference)


def _agreed(measure: Measure, one: Sequence[Judged], other: Sequence[Judged]) -> dict[str, float]:
    """The agreement of two conditions' rankings of each query, from the same initial orders."""
    beside = {query.query_id: query for query in other}
    alike = _alike(one, other)
    held = (
        replace(query, beside=beside[query.query_id].rankings) for query in one if query.query_id in alike
    )
    return {
        query.query_id: number
        for query in held
        for value in measure.values(query).values()
        if (number := value_of(value)[0]) is not None
    }


def _rows(
    measure: Measure,
    condition: str,
    values: Mapping[str, float],
    on_log_scale: bool,
    tested: Mapping[str, float],
    inference: Inference,
) -> Iterator[Measurement]:
    """A row per query and one of all, with the p of a sign flip of `tested` (of quotients: their logarithms)."""
    for query_id, value in sorted(values.items()):
        yield Measurement(query_id, str(measure), value, condition)
    if not values:
        yield Measurement(ALL, str(measure), None, condition, n=0, reason="no_common_query")
        return
    estimate = (geometric_mean if on_log_scale else mean)([*values.values()], inference.level)
    row = row_of(str(measure), condition, estimate)
    if len(tested) >= FEWEST_TESTED:
        changes = np.array([tested[query_id] for query_id in sorted(tested)])
        rng = np.random.default_rng(inference.seed)
        row = replace(row, p=sign_flip(np.log(changes) if on_log_scale else changes, rng=rng))
    yield row
