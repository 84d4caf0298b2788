"""A pair that an adapter is trained or measured on, and the pairs of one query.

Relevant and irrelevant pairs are those that the pairwise audit draws (`probes.py`), so that measuring the adapter
afterwards asks the very same questions. Mixed pairs, one item relevant and one not, keep relevance what it was: all
four combinations of groups come equally often, so that relevance does not stand for a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Any, Literal, get_args

from llmfair.nouns import Attribute, Candidates, Document, PairStratum, Query, Side
from llmfair.probes import Grading, pair_pools, pair_schedule, pairwise_probes

Stratum = Literal["relevant", "irrelevant", "mixed"]
STRATA: tuple[Stratum, ...] = get_args(Stratum)
COMBINATIONS = tuple(product(Side, Side))
"""Sides of the relevant and of the irrelevant item of a mixed pair."""
Shown = Callable[[Document], str]


@dataclass(frozen=True, slots=True)
class TrainingPair:
    """Two items of a query: `a` is the protected one or, in a mixed pair, the relevant one.

    `target` is the probability that `a` wins, None before labels are made; `weight` is its share in the loss.
    """

    pair_id: str
    query: Query
    stratum: Stratum
    a: Document
    b: Document
    target: float | None = None
    weight: float = 1.0


PairGroup = tuple[TrainingPair, ...]
"""Pairs of one query that are trained on together: what is shuffled, and what several devices share out."""
ByStratum = Mapping[Stratum, Sequence[TrainingPair]]


def stratum_pairs(
    candidates: Candidates,
    attribute: Attribute,
    stratum: Stratum,
    most: int,
    seed: int,
    shown: Shown,
    grades: Grading = "match",
) -> list[TrainingPair]:
    """Up to `most` different pairs of one query, its items as equally often as possible.

    Of mixed pairs there are equally many of all four combinations, in turn; none where one combination has none.
    """
    if most < 1:
        return []
    if stratum == "mixed":
        return _mixed(candidates, attribute, most // len(COMBINATIONS), seed, shown)
    made = []
    found = pairwise_probes(candidates, attribute, stratum, most, seed, shown, grades=grades)
    for probe in found:
        protected, unprotected = probe.candidates.documents
        name = f"{candidates.query.query_id}/{stratum}/{probe.order}"
        made.append(TrainingPair(name, candidates.query, stratum, protected, unprotected))
    return made


def _mixed(
    candidates: Candidates, attribute: Attribute, each: int, seed: int, shown: Shown
) -> list[TrainingPair]:
    documents = {document.doc_id: document for document in candidates.documents}
    pools = {
        stratum: dict(zip(Side, pair_pools(candidates, attribute, stratum, seed), strict=True))
        for stratum in get_args(PairStratum)
    }

    def combined(ours: Side, theirs: Side) -> Iterator[TrainingPair]:
        schedule = pair_schedule(pools["relevant"][ours], pools["irrelevant"][theirs])
        for number, (relevant, irrelevant) in enumerate(schedule):
            a, b = documents[relevant], documents[irrelevant]
            if shown(a) != shown(b):
                name = f"{candidates.query.query_id}/mixed/{ours.name[0]}{theirs.name[0]}{number}"
                yield TrainingPair(name, candidates.query, "mixed", a, b)

    found = [list(islice(combined(*sides), each)) for sides in COMBINATIONS]
    return [*chain(*zip(*found, strict=False))]


def combination(pair: TrainingPair, attribute: Attribute) -> tuple[Side, Side]:
    """The sides of a pair's items, `a` first."""
    sides = attribute.side(pair.a), attribute.side(pair.b)
    assert sides[0] is not None and sides[1] is not None
    return sides[0], sides[1]


def row(pair: TrainingPair, attribute: Attribute, relevance: Mapping[str, int]) -> dict[str, Any]:
    """A line of `pairs.jsonl`, but for its base margins."""

    def item(document: Document) -> dict[str, Any]:
        side = attribute.side(document)
        return {
            "doc_id": document.doc_id,
            "title": document.title,
            "group": list(document.groups.get(attribute.name, ())),
            "side": None if side is None else side.value,
            "relevance": relevance.get(document.doc_id, 0),
        }

    return {
        "pair_id": pair.pair_id,
        "query_id": pair.query.query_id,
        "query": pair.query.text,
        "stratum": pair.stratum,
        "a": item(pair.a),
        "b": item(pair.b),
        "target": pair.target,
        "weight": pair.weight,
    }
