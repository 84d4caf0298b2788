"""Initial orders and chains: seeded per query, equal in every arm, counterbalanced when asked."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.probes import arms_of, initial_orders, listwise_probes
from llmfair.records import Attribute, Candidates, Document, Query, Side

GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "female", Side.UNPROTECTED: "male"})


def candidates(query_id: str, *sides: str, relevance: tuple[int, ...] = ()) -> Candidates:
    """A list of documents, one for each letter: f, m or - (no side)."""
    groups = {"f": {"gender": ("female",)}, "m": {"gender": ("male",)}, "-": {}}
    documents = tuple(
        Document(f"{query_id}d{i:03d}", f"T{i}", groups=groups[side]) for i, side in enumerate("".join(sides))
    )
    grades = dict(zip((d.doc_id for d in documents), relevance, strict=False))
    return Candidates(Query(query_id, query_id), documents, grades)


def test_random_orders_are_the_documented_stream() -> None:
    listed = candidates("q7", "fmfmfm")
    import zlib

    for order, shown in enumerate(initial_orders(listed, GENDER, "random", 3, seed=5)):
        rng = np.random.default_rng([5, zlib.crc32(b"q7"), 16 + order])
        assert shown.doc_ids == tuple(np.array(sorted(listed.doc_ids))[rng.permutation(6)])


def test_more_orders_leave_the_first_ones_alone_and_the_file_order_does_not_matter() -> None:
    listed = candidates("q", "fmfmfm")
    backwards = Candidates(listed.query, listed.documents[::-1], listed.relevance)
    few = initial_orders(listed, GENDER, "random", 2, seed=0)
    many = initial_orders(backwards, GENDER, "random", 5, seed=0)
    assert [order.doc_ids for order in few] == [order.doc_ids for order in many[:2]]


def test_orders_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.test_probes import *\n"
        "print(initial_orders(candidates('q', 'fm' * 20), GENDER, 'random', 1, 0)[0].doc_ids)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(__import__("pathlib").Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12), st.integers(0, 4))
def test_mirrored_orders_swap_the_exposures_of_the_sides(
    seed: int, relevant: int, others: int, without: int
) -> None:
    relevance = (1,) * relevant + (0,) * others
    listed = candidates(
        "q", "f" * relevant, "f" * others, "m" * relevant, "m" * others, "-" * without,
        relevance=(*relevance, *relevance),
    )  # fmt: skip
    one, other = initial_orders(listed, GENDER, "mirrored", 2, seed)
    weights = 1 / np.log1p(np.arange(1, len(one.documents) + 1))

    def exposure(shown: Candidates, side: Side | None) -> float:
        return float(sum(w for w, d in zip(weights, shown.documents, strict=True) if GENDER.side(d) is side))

    assert sorted(one.doc_ids) == sorted(other.doc_ids)
    assert exposure(one, Side.PROTECTED) == pytest.approx(exposure(other, Side.UNPROTECTED), rel=1e-12)
    assert exposure(one, Side.UNPROTECTED) == pytest.approx(exposure(other, Side.PROTECTED), rel=1e-12)
    assert [d for d in one.documents if GENDER.side(d) is None] == [
        d for d in other.documents if GENDER.side(d) is None
    ]
    grades = [[shown.relevance.get(d, 0) for d in shown.doc_ids] for shown in (one, other)]
    assert grades[0] == grades[1], "utility of the two inputs is equal"


def test_mirrored_needs_equal_numbers_in_every_grade() -> None:
    with pytest.raises(UsageError, match="2 protected and 1 unprotected items of relevance 0"):
        initial_orders(candidates("q", "ffm"), GENDER, "mirrored", 2, 0)


def test_arms_and_chains() -> None:
    arms = arms_of(["neutral", "male", "female"], repeats=2, control=True)
    assert [(arm.name, arm.variant, arm.first_draw) for arm in arms] == [
        ("neutral", "neutral", 0), ("male", "male", 0), ("female", "female", 0), ("control", "neutral", 2),
    ]  # fmt: skip
    assert [arm.name for arm in arms_of(["male"], 1, control=True)] == ["male"]
    listed = candidates("q", "fm")
    probes = list(listwise_probes(listed, [listed, listed, listed], arms, repeats=2))
    assert len(probes) == 4 * 3 * 2 == len({probe.probe_id for probe in probes})
    assert probes[-1].probe_id == "q/control/o2/r1" and probes[-1].draw == 3
    asked = {(probe.variant, probe.order, probe.draw) for probe in probes}
    assert len(asked) == len(probes), "control and repeats never ask the very same question"
