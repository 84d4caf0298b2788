"""Queries far from parity, with what was answered: both rankings side by side, or pairs with both answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from llmfair.audits.listwise.lists import SIDES, Lists, own_values, read_csv
from llmfair.audits.listwise.results import ListwiseFacts
from llmfair.report.figures import NAMES, plain
from llmfair.results import Results

FURTHEST = 10
SHOWN_PAIRS = 60
Values = Mapping[str, float]


@dataclass(frozen=True)
class Item:
    """A document of a ranking as it is shown."""

    title: str
    side: str | None
    relevant: bool


@dataclass(frozen=True)
class Shown:
    """A query far from parity: its figures, and rankings or pairs of it."""

    query: str
    figures: str
    rankings: Sequence[tuple[str, Sequence[Item]]] = ()
    pairs: Sequence[tuple[str, ...]] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Furthest:
    """Queries by their own value of a measure, the one furthest from parity first."""

    title: str
    by: str
    queries: Sequence[Shown]


def furthest_from_parity(
    folder: Path, results: Results, exhibits: Mapping[str, Any], lists: Lists | None, by: str
) -> Furthest | None:
    """The queries whose own value of the measure `by` is furthest from parity, over all prompts or kinds."""
    design = results.design
    arms = [arm for arm in design.arms if arm != "control"]
    values = own_values(folder, by, arms)
    if lists and isinstance(design, ListwiseFacts):
        show = _rankings_of(lists, design, exhibits, arms, by)
    else:
        show = _pairs_of(folder, exhibits, arms, by)
    first = sorted(values, key=lambda query_id: (-_distance(values[query_id]), query_id))[:FURTHEST]
    found = [shown for query_id in first if (shown := show(query_id, values[query_id])) is not None]
    return Furthest(_title(len(found), len(values), design.queries), plain(by), found) if found else None


def _title(shown: int, known: int, queries: int) -> str:
    """How many queries are shown, of how many; `known` ones have a value of their own."""
    if shown == queries:
        return "The only query" if shown == 1 else f"All {shown} queries, furthest from parity first"
    if shown == known:
        return f"The {shown} of {queries:,} queries with a figure of their own, furthest from parity first"
    return f"The {shown} of {queries:,} queries furthest from parity"


def _distance(values: Values) -> float:
    """How far a query is from parity at most, over its prompts or kinds: |ln ratio|."""
    return max(abs(log(value)) if value > 0 else float("inf") for value in values.values())


def _figures(values: Values, by: str) -> str:
    return f"{plain(by)} " + ", ".join(f"{NAMES.get(arm, arm)} {value:.2f}" for arm, value in values.items())


def _rankings_of(
    lists: Lists, design: ListwiseFacts, exhibits: Mapping[str, Any], arms: Sequence[str], by: str
) -> Callable[[str, Values], Shown | None]:
    titles, queries = exhibits["titles"], exhibits["queries"]

    def show(query_id: str, values: Values) -> Shown | None:
        """The prompt furthest from parity, and beside it the one furthest from that."""
        ordered = {
            arm: values[arm] for arm in arms if arm in values and query_id in lists.ranked.get(arm, {})
        }
        if not ordered:
            return None
        far = max(ordered, key=lambda arm: _distance({arm: ordered[arm]}))
        others = [arm for arm in ordered if arm != far]
        beside = max(others, key=lambda arm: abs(ordered[arm] - ordered[far]), default=None)
        two = [arm for arm in ordered if arm in (far, beside)]
        sides, relevance = lists.sides[query_id], lists.relevance[query_id]
        rankings = [
            (
                f"{arm} prompt{_order(design, lists.runs[arm][query_id][0])}",
                [
                    Item(titles.get(doc_id, doc_id), sides.get(doc_id), relevance.get(doc_id, 0) > 0)
                    for doc_id in lists.ranked[arm][query_id][0]
                ],
            )
            for arm in two
        ]
        return Shown(queries.get(query_id, query_id), _figures(ordered, by), rankings)

    return show


def _order(design: ListwiseFacts, run: tuple[int, int]) -> str:
    """Which of a query's initial orders and repeats a list is of; nothing where no model was given an order."""
    if design.prompt_sha256 is None:
        return ""
    orders, repeats = design.orders, design.repeats
    said = f", {design.initial} initial order" + (f" {run[0] + 1} of {orders}" if orders > 1 else "")
    return said + (f", repeat {run[1] + 1} of {repeats}" if repeats > 1 else "")


def _pairs_of(
    folder: Path, exhibits: Mapping[str, Any], kinds: Sequence[str], by: str
) -> Callable[[str, Values], Shown | None]:
    titles, queries = exhibits["titles"], exhibits["queries"]
    by_query: dict[str, list[dict[str, str]]] = {}
    for row in read_csv(folder / "verdicts.csv"):
        by_query.setdefault(row["query_id"], []).append(row)

    def show(query_id: str, values: Values) -> Shown | None:
        rows = [row for row in by_query.get(query_id, []) if row["draw"] == "0"]
        if not rows:
            return None
        # those that do not flip first: they are what a ratio is made of
        rows.sort(key=lambda row: (row["verdict"] not in SIDES, kinds.index(row["kind"]), int(row["pair"])))
        pairs = [
            (
                row["kind"],
                titles.get(row["protected_doc_id"], row["protected_doc_id"]),
                titles.get(row["unprotected_doc_id"], row["unprotected_doc_id"]),
                row["first_answer"] or row["first_problem"],
                row["second_answer"] or row["second_problem"],
                row["verdict"],
            )
            for row in rows[:SHOWN_PAIRS]
        ]
        ordered = {kind: values[kind] for kind in kinds if kind in values}
        return Shown(
            queries.get(query_id, query_id),
            _figures(ordered, by),
            pairs=pairs,
            left_out=len(rows) - len(pairs),
        )

    return show
