"""From candidate lists to questions: the probes of an audit, every draw seeded per query.

A query's probes depend on the seed and the query alone, so adding a query moves no other result.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from operator import itemgetter
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import UsageError
from llmfair.nouns import Attribute, Candidates, Document, PairStratum, Probe, Side

T = TypeVar("T")
REPEAT = "repeat"
Pools = tuple[Sequence[str], Sequence[str]]
"""The ids of protected and of unprotected items that are paired."""
# The streams of a query's seed: 0..15 draw lists, 16 + r draws initial order r, 32 and 33 permute
# the pools of relevant and of irrelevant pairs, 34 is the order in which windows are asked.
_ORDER_STREAM = 16
PAIR_STREAM, WINDOW_STREAM = 32, 34


@dataclass(frozen=True, slots=True)
class PromptCondition:
    """What lists are asked under: a variant of the prompt, or neutral once more (`repeat`)."""

    name: str
    variant: str
    first_draw: int = 0


def conditions_of(variants: Sequence[str], repeats: int, repeat: bool) -> list[PromptCondition]:
    """The variants, and neutral once more under later draws when there is a neutral to compare with."""
    conditions = [PromptCondition(variant, variant) for variant in variants]
    if repeat and "neutral" in variants:
        conditions.append(PromptCondition(REPEAT, "neutral", first_draw=repeats))
    return conditions


def listwise_probes(
    candidates: Candidates, orders: Sequence[Candidates], conditions: Sequence[PromptCondition], repeats: int
) -> Iterator[Probe]:
    """The chains of one query: each condition asks each initial order `repeats` times."""
    query_id = candidates.query.query_id
    for condition in conditions:
        for order, listed in enumerate(orders):
            for repeat in range(repeats):
                yield Probe(
                    probe_id=f"{query_id}/{condition.name}/o{order}/r{repeat}",
                    candidates=listed,
                    condition=condition.name,
                    variant=condition.variant,
                    order=order,
                    repeat=repeat,
                    draw=condition.first_draw + repeat,
                )


def initial_orders(
    candidates: Candidates,
    attribute: Attribute,
    stratum: Literal["random", "given", "mirrored", "deltr"],
    count: int,
    seed: int,
) -> list[Candidates]:
    """The orders in which a list is first shown, the same in every condition.

    `random`: independent permutations of the sorted doc_ids. `given`: the dataset's order. `deltr`: that order
    with relevance falling and, within a grade, unprotected items before protected ones. `mirrored`: every
    odd order swaps the slots of protected and unprotected items of the one before, grade by grade, so that
    group exposures swap exactly. Raises UsageError when a grade has unequal numbers of both sides.
    """
    if stratum == "given":
        return [candidates] * count
    if stratum == "deltr":
        # relevance falling, then unprotected, protected, no side [official code: DELTR's evaluation]
        rank = {Side.UNPROTECTED: 0, Side.PROTECTED: 1, None: 2}
        grades = candidates.relevance
        by_grade = sorted(
            candidates.documents,
            key=lambda document: (-grades.get(document.doc_id, 0), rank[attribute.side(document)]),
        )
        return [replace(candidates, documents=tuple(by_grade))] * count
    orders: list[Candidates] = []
    for order in range(count):
        if stratum == "mirrored" and order % 2:
            orders.append(_mirror(orders[-1], attribute))
            continue
        rng = _rng(seed, candidates, _ORDER_STREAM + order)
        documents = sorted(candidates.documents, key=lambda document: document.doc_id)
        orders.append(replace(candidates, documents=tuple(_permuted(documents, rng))))
    return orders


def _mirror(candidates: Candidates, attribute: Attribute) -> Candidates:
    """In every relevance grade the i-th protected and the i-th unprotected item change places."""
    slots: dict[int, dict[Side, list[int]]] = {}
    for slot, document in enumerate(candidates.documents):
        if side := attribute.side(document):
            grade = candidates.relevance.get(document.doc_id, 0)
            slots.setdefault(grade, {of: [] for of in Side})[side].append(slot)
    mirrored: list[Document] = list(candidates.documents)
    for grade, by_side in slots.items():
        protected, unprotected = by_side.values()
        if len(protected) != len(unprotected):
            raise UsageError(
                f"--initial mirrored needs equal numbers of both groups, but query "
                f"'{candidates.query.query_id}' has {len(protected)} protected and {len(unprotected)} "
                f"unprotected items of relevance {grade}.",
                "use --initial random",
            )
        for slot, other in zip(protected + unprotected, unprotected + protected, strict=True):
            mirrored[slot] = candidates.documents[other]
    return replace(candidates, documents=tuple(mirrored))


Grading = Literal["match", "any"]
"""Which pairs of a stratum are asked about: those of equal grade, or any."""


@dataclass(frozen=True, slots=True, eq=False)
class PairProbes:
    """What is asked of one query and stratum, by pair and draw: a million probes, each made when its turn comes.

    `pairs`: the number in the schedule of each pair, and where its protected and its unprotected item stand in the
    list; shape (pairs, 3). All are asked `repeats` times, the first `twice` at least twice. `contrast`: of which groups
    they are, where several are compared.
    """

    candidates: Candidates
    stratum: PairStratum
    pairs: NDArray[np.int32]
    repeats: int
    twice: int
    contrast: str = ""

    def __len__(self) -> int:
        return len(self.pairs) * self.repeats + self.twice * (max(self.repeats, 2) - self.repeats)

    def __iter__(self) -> Iterator[Probe]:
        query, documents = self.candidates.query, self.candidates.documents
        of = f"{self.stratum}/{self.contrast}" if self.contrast else self.stratum
        for place, (number, protected, unprotected) in enumerate(self.pairs.tolist()):
            pair = replace(self.candidates, documents=(documents[protected], documents[unprotected]))
            for draw in range(max(self.repeats, 2) if place < self.twice else self.repeats):
                yield Probe(
                    probe_id=f"{query.query_id}/{of}/p{number}/d{draw}",
                    candidates=pair,
                    condition=self.stratum,
                    variant="neutral",
                    order=number,
                    draw=draw,
                    contrast=self.contrast,
                )


def pairwise_probes(
    candidates: Candidates,
    attribute: Attribute,
    stratum: PairStratum,
    pairs: int,
    seed: int,
    text_of: Callable[[Document], str],
    noise_share: float = 0.0,
    repeats: int = 1,
    grades: Grading = "match",
    contrast: str = "",
) -> PairProbes:
    """The first `pairs` pairs of one query's schedule, each a probe of (protected, unprotected) documents.

    Everything is asked `repeats` times (draws 0, 1, …), and the first ⌈noise_share · n⌉ of the n pairs at least
    twice. A query without items of one side has no probes. The pairs of a `contrast` do not depend on which others
    there are; `attribute` is then its view of the groups.
    """
    texts = {document.doc_id: text_of(document) for document in candidates.documents}
    places = {doc_id: place for place, doc_id in enumerate(candidates.doc_ids)}
    chosen = list[tuple[int, int, int]]()
    pools = pair_pools(candidates, attribute, stratum, seed, contrast)
    alike = by_grade(candidates, *pools).values() if grades == "match" else [pools]
    for number, (protected, unprotected) in enumerate(merged_schedule(alike)):
        if len(chosen) == pairs:
            break
        if texts[protected] != texts[unprotected]:  # else there is nothing to choose
            chosen.append((number, places[protected], places[unprotected]))
    # Less a little: 0.1 · 70 is 7.000000000000001.
    twice = math.ceil(noise_share * len(chosen) - 1e-9)
    rows = np.array(chosen, np.int32).reshape(-1, 3)
    return PairProbes(candidates, stratum, rows, repeats, twice, contrast)


def pair_schedule(protected_ids: Sequence[str], unprotected_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every pair of the two pools once, in an order of which any beginning uses a side's items equally often.

    Pair t is (P[t mod a], U[(t + ⌊t/L⌋) mod b]) for pools of a and b ids, L = lcm(a, b): after L pairs the two
    cycles would meet again, so one is shifted by a place.
    """
    a, b = len(protected_ids), len(unprotected_ids)
    cycle = math.lcm(a, b)
    for t in range(a * b):
        yield protected_ids[t % a], unprotected_ids[(t + t // cycle) % b]


def merged_schedule(pools: Iterable[Pools]) -> Iterator[tuple[str, str]]:
    """Every pair of each of these pools once; any beginning goes equally often through the shorter sides of all."""

    def placed(protected_ids: Sequence[str], unprotected_ids: Sequence[str]) -> Iterator[tuple[float, Any]]:
        shorter = min(len(protected_ids), len(unprotected_ids))
        for number, pair in enumerate(pair_schedule(protected_ids, unprotected_ids), start=1):
            yield number / shorter, pair

    return (pair for _, pair in merge(*(placed(*sides) for sides in pools), key=itemgetter(0)))


def by_grade(
    candidates: Candidates, protected_ids: Sequence[str], unprotected_ids: Sequence[str]
) -> dict[int, Pools]:
    """The pools of pairs whose items are of one grade, by grade, the highest first; not judged is grade 0."""
    pools: dict[int, tuple[list[str], list[str]]] = {}
    for place, ids in enumerate((protected_ids, unprotected_ids)):
        for doc_id in ids:
            pools.setdefault(candidates.relevance.get(doc_id, 0), ([], []))[place].append(doc_id)
    return {grade: pools[grade] for grade in sorted(pools, reverse=True)}


def pair_grades(candidates: Candidates, attribute: Attribute, stratum: str) -> list[int]:
    """The grades of the items that pairs of a stratum could be made of, falling; none where one group has no item."""
    pools = pair_pools(candidates, attribute, stratum, seed=0)
    return [*by_grade(candidates, *pools)] if all(pools) else []


def pair_pools(
    candidates: Candidates, attribute: Attribute, stratum: str, seed: int, contrast: str = ""
) -> tuple[list[str], list[str]]:
    """The ids of protected and unprotected items that are relevant, that are not, or all, each in random order."""
    pools: dict[Side, list[str]] = {side: [] for side in Side}
    for document in candidates.documents:
        side = attribute.side(document)
        relevant = candidates.relevance.get(document.doc_id, 0) >= 1
        if side is not None and (stratum == "unjudged" or relevant == (stratum == "relevant")):
            pools[side].append(document.doc_id)
    rng = _rng(seed, candidates, pair_stream(stratum), *([zlib.crc32(contrast.encode())] if contrast else []))
    protected, unprotected = (_permuted(sorted(ids, key=_by_number), rng) for ids in pools.values())
    return protected, unprotected


def pair_stream(stratum: str) -> int:
    """The stream of a seed for draws of a stratum: items without judgements are drawn like irrelevant ones."""
    return PAIR_STREAM + (stratum != "relevant")


def _by_number(doc_id: str) -> tuple[bool, int, str]:
    """Numbers by value, then other ids as text: an order that no other document can change."""
    number = doc_id.isascii() and doc_id.isdigit()
    return not number, int(doc_id) if number else 0, doc_id


def _rng(seed: int, candidates: Candidates, *stream: int) -> np.random.Generator:
    """The draws of a query, whatever other queries there are."""
    return np.random.default_rng([seed, zlib.crc32(candidates.query.query_id.encode()), *stream])


def _permuted(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    return [items[place] for place in rng.permutation(len(items))]
