"""Builders of measured queries for the tests of measures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.aggregates import summarise
from llmfair.metrics.base import Groups, Judged, Observation, Value, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Attribute, Candidates, Document, Measurement, Query, Ranking, Side

LETTERS = {"p": Side.PROTECTED, "u": Side.UNPROTECTED, "-": None}


def shares(
    lists: Sequence[Sequence[int]], n: int, weights: Sequence[float] | None = None
) -> NDArray[np.float64]:
    """The share of lists that show each item, or the sum of their weights; lists of places."""
    exposure = np.zeros(n)
    for places, weight in zip(lists, weights or [1 / len(lists)] * len(lists), strict=True):
        exposure[[*{*places}]] += weight
    return exposure


def judged(
    *rankings: Sequence[str],
    sides: Mapping[str, str | None] | None = None,
    candidates: Sequence[str] | None = None,
    relevance: Mapping[str, int] | None = None,
    query_id: str = "q",
) -> Judged:
    """A query with these runs; `sides` maps doc_id to "protected", "unprotected" or None."""
    doc_ids = candidates if candidates is not None else (rankings[0] if rankings else ())
    return Judged(
        Candidates(Query(query_id, "text"), tuple(map(Document, doc_ids, doc_ids)), relevance or {}),
        tuple(Ranking(query_id, tuple(ranking)) for ranking in rankings),
        {doc_id: Side(side) if side else None for doc_id, side in (sides or {}).items()},
    )


def lettered(letters: str, query_id: str = "q", relevant: str = "") -> Judged:
    """A list ranked as written: p protected, u unprotected, - neither; `relevant`: grades by rank."""
    doc_ids = [f"d{rank}" for rank in range(len(letters))]
    sides = dict(zip(doc_ids, (LETTERS[letter] for letter in letters), strict=True))
    grades = dict(zip(doc_ids, map(int, relevant), strict=False))
    return judged(doc_ids, sides=sides, relevance=grades, query_id=query_id)


def attribute_with(name: str, *groups: str, **fields: Any) -> Attribute:
    """An attribute of exactly these groups."""
    return Attribute(name, groups[:1], groups[1:], {Side.PROTECTED: "a", Side.UNPROTECTED: "b"}, **fields)


def grouped(
    ranking: Sequence[str],
    memberships: Mapping[str, Mapping[str, tuple[str, ...]]],
    *attributes: Attribute,
    relevant: Collection[str] = (),
    query_id: str = "q",
) -> Judged:
    """A query ranked so; `memberships` are the listed documents' groups, the first attribute is the audit's."""
    documents = {doc_id: Document(doc_id, doc_id, "", groups) for doc_id, groups in memberships.items()}
    named = {attribute.name: attribute for attribute in attributes}
    return replace(
        judged(ranking, relevance=dict.fromkeys(relevant, 1), query_id=query_id),
        groups=Groups(attributes[0].name, named, documents),
    )


def rows(name: str, *queries: Observation) -> dict[tuple[str, str], Measurement]:
    """A measure's rows of these queries, by (query_id, group), through the public functions."""
    columns = measure_all([parse_measure(name)], {"neutral": queries})
    return {(row.query_id, row.group): row for row in summarise(columns)}


def value(name: str, query: Judged, group: str = "") -> float | None:
    """A measure's value of one query."""
    return rows(name, query)[query.query_id, group].value


def raw(name: str, query: Judged) -> Value:
    """A measure's Value of one query, for measures without groups."""
    return parse_measure(name).values(query)[""]
