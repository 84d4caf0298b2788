"""Every query in a table: a row for each condition it was asked under, with its own values of the measures shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log
from pathlib import Path

from llmfair.io.files import QueryFigure, query_figures
from llmfair.metrics.base import plain_name
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import ratio_of
from llmfair.report.tables import Column, LabelledResults, Table, filled, headings

MOST = 2000
"""Rows of the table; a page of more opens slowly."""


def queries_table(
    folder: Path,
    condition: str,
    named: Callable[[QueryFigure], str | None],
    results: LabelledResults,
    measures: Sequence[str],
    exhibits: Exhibits,
) -> Table | None:
    """The figures of a folder's per_query.csv, furthest from parity first by the first ratio that queries have; None
    where they have none. Raises UsageError.

    `condition` says what varies between the rows of a query, `named` what it is called in a row, None where that is not
    shown; `measures` are columns in their order, under their own names or with what only whole runs take into account.
    """
    wanted = {plain_name(measure): place for place, measure in reversed([*enumerate(measures)])}
    found: dict[tuple[str, str], dict[Column, float]] = {}
    for row in query_figures(folder):
        if row.measure in wanted and row.value is not None and (of := named(row)) is not None:
            found.setdefault((row.query_id, of), {})[row.measure, row.group] = row.value
    columns = sorted(
        {column for of_it in found.values() for column in of_it}, key=lambda one: (wanted[one[0]], one[1])
    )
    if not columns:
        return None
    by = ratio_of([plain_name(measure) for measure in measures], _plainly(exhibits.measures))
    keys = sorted(found, key=lambda key: -_distance(found[key].get((by, "")) if by else None))
    rows = tuple(
        (
            exhibits.queries.get(query_id, query_id),
            query_id if query_id in exhibits.queries else "",
            of,
            *("" if (value := found[query_id, of].get(column)) is None else f"{value:.3f}" for column in columns),
        )
        for query_id, of in keys
    )  # fmt: skip
    left_out = [f"{len(rows) - MOST:,} more rows in per_query.csv"] * (len(rows) > MOST)
    header = ("query", "id", condition, *headings(columns, results))
    title = f"By query and {condition}" + ", furthest from parity first" * (by is not None)
    return filled(Table(title, header, rows[:MOST], tuple(left_out)))


def _plainly(declared: Declared) -> Declared:
    """Declarations by plain name."""
    return {plain_name(name): says for name, says in reversed([*declared.items()])}


def _distance(value: float | None) -> float:
    """|ln ratio|; what is undefined comes last."""
    return -inf if value is None else inf if value <= 0 else abs(log(value))
