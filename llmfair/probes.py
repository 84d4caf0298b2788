"""From candidate lists to questions: the probes of an audit, every draw seeded per query.

A query's probes depend on the seed and the query alone, so adding a query moves no other result.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from llmfair.errors import UsageError
from llmfair.records import Attribute, Candidates, Document, Probe, Side

CONTROL = "control"
# The streams of a query's seed: 0..15 draw lists, 16 + r draws initial order r (listwise.md 6).
_ORDER_STREAM = 16


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the things compared: a prompt variant, or neutral asked again (`control`)."""

    name: str
    variant: str
    first_draw: int = 0


def arms_of(variants: Sequence[str], repeats: int, control: bool) -> list[Arm]:
    """The variants, and neutral once more under later draws when there is a neutral to compare with."""
    arms = [Arm(variant, variant) for variant in variants]
    if control and "neutral" in variants:
        arms.append(Arm(CONTROL, "neutral", first_draw=repeats))
    return arms


def listwise_probes(
    candidates: Candidates, orders: Sequence[Candidates], arms: Sequence[Arm], repeats: int
) -> Iterator[Probe]:
    """The chains of one query: each arm asks each initial order `repeats` times."""
    query_id = candidates.query.query_id
    for arm in arms:
        for order, listed in enumerate(orders):
            for repeat in range(repeats):
                yield Probe(
                    probe_id=f"{query_id}/{arm.name}/o{order}/r{repeat}",
                    kind="listwise",
                    candidates=listed,
                    arm=arm.name,
                    variant=arm.variant,
                    order=order,
                    repeat=repeat,
                    draw=arm.first_draw + repeat,
                )


def initial_orders(
    candidates: Candidates,
    attribute: Attribute,
    kind: Literal["random", "given", "mirrored"],
    count: int,
    seed: int,
) -> list[Candidates]:
    """The orders in which a list is first shown, the same in every arm.

    `random`: independent permutations of the sorted doc_ids. `given`: the dataset's order. `mirrored`: every
    odd order swaps the slots of protected and unprotected items of the one before, grade by grade, so that
    group exposures swap exactly. Raises UsageError when a grade has unequal numbers of both sides.
    """
    if kind == "given":
        return [candidates] * count
    orders: list[Candidates] = []
    for order in range(count):
        if kind == "mirrored" and order % 2:
            orders.append(_mirror(orders[-1], attribute))
            continue
        rng = np.random.default_rng(
            [seed, zlib.crc32(candidates.query.query_id.encode()), _ORDER_STREAM + order]
        )
        documents = sorted(candidates.documents, key=lambda document: document.doc_id)
        orders.append(
            replace(candidates, documents=tuple(documents[i] for i in rng.permutation(len(documents))))
        )
    return orders


def _mirror(candidates: Candidates, attribute: Attribute) -> Candidates:
    """In every relevance grade the i-th protected and the i-th unprotected item change places."""
    slots: dict[int, dict[Side, list[int]]] = {}
    for slot, document in enumerate(candidates.documents):
        side = attribute.side(document)
        if side is not None:
            grade = candidates.relevance.get(document.doc_id, 0)
            slots.setdefault(grade, {Side.PROTECTED: [], Side.UNPROTECTED: []})[side].append(slot)
    mirrored: list[Document] = list(candidates.documents)
    for grade, by_side in slots.items():
        protected, unprotected = by_side[Side.PROTECTED], by_side[Side.UNPROTECTED]
        if len(protected) != len(unprotected):
            raise UsageError(
                f"--initial mirrored needs equal numbers of both sides, but query "
                f"'{candidates.query.query_id}' has {len(protected)} protected and {len(unprotected)} "
                f"unprotected items of relevance {grade}.",
                "use --initial random",
            )
        for one, other in zip(protected, unprotected, strict=True):
            mirrored[one], mirrored[other] = mirrored[other], mirrored[one]
    return replace(candidates, documents=tuple(mirrored))
