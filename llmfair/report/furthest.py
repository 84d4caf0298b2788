"""Queries far from parity, with what was answered: rankings side by side, or pairs with both answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

from llmfair.io.files import query_figures
from llmfair.metrics.base import plain_name
from llmfair.results import Results

FURTHEST = 10
Values = Mapping[str, float]


@dataclass(frozen=True)
class Item:
    """A document of a ranking as it is shown; `initial`: its rank before the model, from 1, where it is known."""

    title: str
    side: str | None
    relevant: bool
    initial: int | None = None


@dataclass(frozen=True)
class FurthestQuery:
    """A query far from parity: its figures, and rankings or pairs of it."""

    query: str
    figures: str
    rankings: Sequence[tuple[str, Sequence[Item]]] = ()
    pairs: Sequence[tuple[str, ...]] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Furthest:
    """Queries by their own value of a measure, the one furthest from parity first; `over` what it was taken."""

    title: str
    by: str
    over: str
    queries: Sequence[FurthestQuery]


def furthest_from_parity(
    folder: Path,
    results: Results,
    conditions: Sequence[str],
    by: str,
    over: str,
    show: Callable[[str, Values], FurthestQuery | None],
) -> Furthest | None:
    """The queries whose own values of the measure `by` are furthest from parity; None where none is shown.

    `show` gives a query as it is shown, by its id and its values under these `conditions`, or None.
    """
    values = own_values(folder, by, conditions)
    first = sorted(values, key=lambda query_id: (-distance(values[query_id]), query_id))[:FURTHEST]
    found = [shown for query_id in first if (shown := show(query_id, values[query_id])) is not None]
    return (
        Furthest(_title(len(found), len(values), results.design.queries), named(by, results), over, found)
        if found
        else None
    )


def _title(shown: int, known: int, queries: int) -> str:
    """How many queries are shown, of how many; `known` ones have a value of their own."""
    if shown == queries:
        return "The only query" if shown == 1 else f"All {shown} queries, furthest from parity first"
    if shown == known:
        return f"The {shown} of {queries:,} queries with a figure of their own, furthest from parity first"
    return f"The {shown} of {queries:,} queries furthest from parity"


def distance(values: Values) -> float:
    """How far a query is from parity at most, over its conditions: |ln ratio|."""
    return max(abs(log(value)) if value > 0 else float("inf") for value in values.values())


def named(measure: str, results: Results) -> str:
    """A measure as the run's tables call it."""
    return results.labels.get(measure, plain_name(measure))


def figures_text(values: Values, by: str, titles: Mapping[str, str]) -> str:
    """A query's own values of what is called `by`, in a line."""
    return f"{by} " + ", ".join(
        f"{titles.get(condition, condition)} {value:.2f}" for condition, value in values.items()
    )


def own_values(folder: Path, measure: str, conditions: Sequence[str]) -> dict[str, dict[str, float]]:
    """A measure's values of single queries: `{query_id: {condition: value}}`, undefined ones absent."""
    found: dict[str, dict[str, float]] = {}
    wanted = set(conditions)
    for row in query_figures(folder):
        if row.measure == measure and row.condition in wanted and not row.group and row.value is not None:
            found.setdefault(row.query_id, {})[row.condition] = row.value
    return found
