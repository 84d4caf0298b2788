"""Queries whose lists are far from parity, both rankings side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from llmfair.audits.listwise.lists import RankedLists
from llmfair.audits.listwise.results import ListwiseFacts, ListwiseResults
from llmfair.audits.listwise.words import TITLES
from llmfair.nouns import Attribute, Candidates, Document, Query
from llmfair.probes import initial_orders
from llmfair.report.exhibits import Exhibits
from llmfair.report.furthest import (
    Furthest,
    FurthestQuery,
    Item,
    Values,
    distance,
    figures_text,
    furthest_from_parity,
    named,
)

SIDES_ALONE = Attribute("side", protected=("protected",), unprotected=("unprotected",), words={})
"""The attribute of documents of which the side alone is known."""
DRAWN_AGAIN: tuple[Literal["random", "given", "mirrored", "deltr"], ...] = (
    "random",
    "given",
    "mirrored",
    "deltr",
)
"""Initial orders that follow from the list and the seed."""
OVER = "prompts and initial orders"


def furthest_lists(
    folder: Path, results: ListwiseResults, exhibits: Exhibits, lists: RankedLists, by: str
) -> Furthest | None:
    """The queries whose own value of the measure `by` is furthest from parity under some prompt."""
    design, titles, queries = results.design, exhibits.titles, exhibits.queries
    conditions = [condition for condition in design.conditions if condition != "repeat"]

    def show(query_id: str, values: Values) -> FurthestQuery | None:
        """The prompt furthest from parity, and beside it the one furthest from that."""
        ordered = {
            condition: values[condition]
            for condition in conditions
            if condition in values and query_id in lists.ranked.get(condition, {})
        }
        if not ordered:
            return None
        far = max(ordered, key=lambda condition: distance({condition: ordered[condition]}))
        others = [condition for condition in ordered if condition != far]
        beside = max(others, key=lambda condition: abs(ordered[condition] - ordered[far]), default=None)
        two = [condition for condition in ordered if condition in (far, beside)]
        sides, relevance = lists.sides[query_id], lists.relevance[query_id]
        rankings = []
        for condition in two:
            run, ranking = lists.runs[condition][query_id][0], lists.ranked[condition][query_id][0]
            before = initial_ranks(lists, query_id, design, run[0])
            items = [
                Item(titles.get(d, d), sides.get(d), relevance.get(d, 0) > 0, before.get(d)) for d in ranking
            ]
            rankings.append((f"{condition} prompt{_order(design, run)}", items))
        return FurthestQuery(
            queries.get(query_id, query_id), figures_text(ordered, named(by, results), TITLES), rankings
        )

    return furthest_from_parity(folder, results, conditions, by, OVER, show)


def initial_ranks(lists: RankedLists, query_id: str, design: ListwiseFacts, order: int) -> dict[str, int]:
    """The rank, from 1, that each item had in this initial order; none of a ranker that is given no order, nor where
    another ranker made it."""
    kind = next((known for known in DRAWN_AGAIN if known == design.initial), None)
    if design.prompt_sha256 is None or kind is None:
        return {}
    sides = lists.sides[query_id]
    documents = tuple(Document(d, "", groups={"side": (side,) if side else ()}) for d, side in sides.items())
    candidates = Candidates(Query(query_id, ""), documents, lists.relevance[query_id])
    orders = initial_orders(candidates, SIDES_ALONE, kind, order + 1, design.seed)
    return {doc_id: rank for rank, doc_id in enumerate(orders[order].doc_ids, start=1)}


def _order(design: ListwiseFacts, run: tuple[int, int]) -> str:
    """Which of a query's initial orders and repeats a list is of; nothing where no model was given an order."""
    if design.prompt_sha256 is None:
        return ""
    orders, repeats = design.orders, design.repeats
    said = f", {design.initial} initial order" + (f" {run[0] + 1} of {orders}" if orders > 1 else "")
    return said + (f", repeat {run[1] + 1} of {repeats}" if repeats > 1 else "")
