"""Initial orders and chains: seeded per query, equal in every condition, counterbalanced when asked."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.nouns import Attribute, Candidates, Document, PairStratum, Query, Side
from llmfair.probes import (
    PairProbes,
    conditions_of,
    initial_orders,
    listwise_probes,
    merged_schedule,
    pair_grades,
    pair_pools,
    pair_schedule,
    pairwise_probes,
)

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
    for order, shown in enumerate(initial_orders(listed, GENDER, "random", 3, seed=5)):
        rng = np.random.default_rng([5, zlib.crc32(b"q7"), 16 + order])
        assert shown.doc_ids == tuple(np.array(sorted(listed.doc_ids))[rng.permutation(6)])


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
    aside = [[d for d in of.documents if GENDER.side(d) is None] for of in (one, other)]
    assert aside[0] == aside[1]
    grades = [[shown.relevance.get(d, 0) for d in shown.doc_ids] for shown in (one, other)]
    assert grades[0] == grades[1], "utility of the two inputs is equal"


def test_mirrored_needs_equal_numbers_in_every_grade() -> None:
    with pytest.raises(UsageError, match="2 protected and 1 unprotected items of relevance 0"):
        initial_orders(candidates("q", "ffm"), GENDER, "mirrored", 2, 0)


def test_arms_and_chains() -> None:
    conditions = conditions_of(["neutral", "male", "female"], repeats=2, repeat=True)
    assert [(condition.name, condition.variant, condition.first_draw) for condition in conditions] == [
        ("neutral", "neutral", 0), ("male", "male", 0), ("female", "female", 0), ("repeat", "neutral", 2),
    ]  # fmt: skip
    assert [condition.name for condition in conditions_of(["male"], 1, repeat=True)] == ["male"]
    listed = candidates("q", "fm")
    probes = list(listwise_probes(listed, [listed, listed, listed], conditions, repeats=2))
    assert len(probes) == 4 * 3 * 2 == len({probe.probe_id for probe in probes})
    assert probes[-1].probe_id == "q/repeat/o2/r1" and probes[-1].draw == 3
    asked = {(probe.variant, probe.order, probe.draw) for probe in probes}
    assert len(asked) == len(probes), "control and repeats never ask the very same question"


def spread(counts: Counter[str], size: int) -> int:
    """How much more often the most used of `size` items was used than the least used."""
    return max(counts.values()) - (min(counts.values()) if len(counts) == size else 0)


@pytest.mark.parametrize("a", range(1, 21))
def test_every_beginning_of_a_schedule_uses_all_items_equally_often(a: int) -> None:
    for b in range(1, 21):
        asked, first, second = set[tuple[str, str]](), Counter[str](), Counter[str]()
        schedule = pair_schedule([f"p{i}" for i in range(a)], [f"u{i}" for i in range(b)])
        for number, pair in enumerate(schedule, start=1):
            asked.add(pair)
            first[pair[0]] += 1
            second[pair[1]] += 1
            assert len(asked) == number, "no pair is repeated"
            assert spread(first, a) <= 1 and spread(second, b) <= 1
            if number == min(a, b):
                assert len(first) == len(second) == number, "the first pairs are disjoint"
        assert len(asked) == a * b


def title(document: Document) -> str:
    return document.title


def pairs_of(
    listed: Candidates,
    stratum: PairStratum = "relevant",
    pairs: int = 50,
    seed: int = 0,
    noise: float = 0,
    repeats: int = 1,
) -> PairProbes:
    return pairwise_probes(listed, GENDER, stratum, pairs, seed, title, noise, repeats)


def asked_of(found: PairProbes) -> list[tuple[int, tuple[str, ...], int]]:
    return [(probe.order, probe.candidates.doc_ids, probe.draw) for probe in found]


MIXED = candidates("q7", "fmfmfm-fmfmfm-", relevance=(1, 1, 2, 1, 1, 1, 1, 0, -1))


def test_pools_are_the_documented_stream() -> None:
    ids = {"f": ["q7d000", "q7d002", "q7d004"], "m": ["q7d001", "q7d003", "q7d005"]}
    rng = np.random.default_rng([5, zlib.crc32(b"q7"), 32])
    expected = [[ids[side][i] for i in rng.permutation(3)] for side in "fm"]
    assert list(pair_pools(MIXED, GENDER, "relevant", seed=5)) == expected
    ids = {"f": ["q7d007", "q7d009", "q7d011"], "m": ["q7d008", "q7d010", "q7d012"]}
    rng = np.random.default_rng([5, zlib.crc32(b"q7"), 33])
    expected = [[ids[side][i] for i in rng.permutation(3)] for side in "fm"]
    assert list(pair_pools(MIXED, GENDER, "irrelevant", seed=5)) == expected


def test_a_probe_is_a_pair_of_either_side() -> None:
    found = pairs_of(MIXED, "irrelevant", pairs=4)
    assert [probe.order for probe in found] == [0, 1, 2, 3] and len(found) == 4
    for probe in found:
        assert [GENDER.side(d) for d in probe.candidates.documents] == [Side.PROTECTED, Side.UNPROTECTED]
        assert (probe.condition, probe.variant, probe.draw) == ("irrelevant", "neutral", 0)
        assert probe.candidates.query == MIXED.query and probe.candidates.relevance == MIXED.relevance
    assert [*found][2].probe_id == "q7/irrelevant/p2/d0"


@settings(deadline=None)
@given(
    st.text("fm-", max_size=14), st.lists(st.integers(-1, 2), max_size=14), st.integers(0, 2**32), st.integers(1, 60),
)  # fmt: skip
def test_nothing_else_moves_a_pair(sides: str, grades: list[int], seed: int, pairs: int) -> None:
    """More pairs only add some; the order of the file, the other stratum and other items' text change none."""
    listed = candidates("q", sides, relevance=tuple(grades))
    found = pairs_of(listed, pairs=pairs, seed=seed)
    assert asked_of(found) == asked_of(pairs_of(listed, pairs=60, seed=seed))[:pairs]
    backwards = Candidates(listed.query, listed.documents[::-1], listed.relevance)
    assert asked_of(pairs_of(backwards, pairs=pairs, seed=seed)) == asked_of(found)
    relevant = tuple(d for d in listed.documents if listed.relevance.get(d.doc_id, 0) >= 1)
    only = Candidates(listed.query, relevant, listed.relevance)
    assert asked_of(pairs_of(only, pairs=pairs, seed=seed)) == asked_of(found)
    assert len(found) == len({probe.probe_id for probe in found})


@settings(deadline=None)
@given(st.text("fm-", max_size=16), st.lists(st.integers(-1, 2), max_size=16), st.integers(0, 2**32))
def test_pairs_are_of_one_grade(sides: str, grades: list[int], seed: int) -> None:
    """All of them, each once; and of one grade they are the very pairs that were drawn when grades did not count."""
    listed = candidates("q", sides, relevance=tuple(grades))
    relevance = {document.doc_id: listed.relevance.get(document.doc_id, 0) for document in listed.documents}
    for stratum in get_args(PairStratum):
        pools = pair_pools(listed, GENDER, stratum, seed)
        alike = [(p, u) for p in pools[0] for u in pools[1] if relevance[p] == relevance[u]]
        found = [ids for _, ids, _ in asked_of(pairs_of(listed, stratum, pairs=999, seed=seed))]
        assert sorted(found) == sorted(alike)
        of_any = pairwise_probes(listed, GENDER, stratum, 999, seed, title, grades="any")
        assert [ids for _, ids, _ in asked_of(of_any)] == [*pair_schedule(*pools)]
        if len(pair_grades(listed, GENDER, stratum)) < 2:
            assert asked_of(of_any) == asked_of(pairs_of(listed, stratum, pairs=999, seed=seed))


def test_pools_of_several_grades_are_gone_through_alike() -> None:
    """Any beginning of 10 × 10 pairs of one grade and 1 × 10 of another uses the single item as often as the ten."""
    a, b, d = ([f"{letter}{i}" for i in range(10)] for letter in "abd")
    pools = [(a, b), (["c"], d)]
    used = Counter[str]()
    for number, (protected, _) in enumerate(merged_schedule(pools), start=1):
        used[protected] += 1
        if number <= 100:
            assert spread(used, 11) <= 1
    assert used.total() == 110


def test_equal_texts_are_passed_over() -> None:
    documents = tuple(
        Document(doc_id, text, groups={"gender": (group,)})
        for doc_id, text, group in [
            ("1", "Ada", "female"), ("2", "Bob", "female"), ("3", "Bob", "male"), ("4", "Carl", "male"), ("5", "Dan", "male"),
        ]
    )  # fmt: skip
    listed = Candidates(Query("q", "q"), documents, {})
    found = pairs_of(listed, "irrelevant", pairs=50)
    assert len(found) == 5
    assert ("2", "3") not in {probe.candidates.doc_ids for probe in found}
    schedule = list(pair_schedule(*pair_pools(listed, GENDER, "irrelevant", 0)))
    assert [schedule[probe.order] for probe in found] == [probe.candidates.doc_ids for probe in found]
    assert schedule.index(("2", "3")) not in [probe.order for probe in found]
    nobody = candidates("q", "fff")
    for none in pairs_of(nobody), pairs_of(nobody, "irrelevant"):
        assert not none and [*none] == []


@pytest.mark.parametrize(
    ("share", "pairs", "repeats", "again"),
    [(0, 50, 1, 0), (0.1, 50, 1, 5), (0.1, 70, 1, 7), (0.1, 44, 1, 5), (0.01, 7, 1, 1), (1, 9, 1, 9), (0.1, 50, 2, 50), (0.1, 20, 3, 40)],
)  # fmt: skip
def test_noise_share_and_repeats(share: float, pairs: int, repeats: int, again: int) -> None:
    found = pairs_of(candidates("q", "f" * 9, "m" * 9), "irrelevant", pairs, noise=share, repeats=repeats)
    draws = Counter(probe.draw for probe in found)
    assert len(found) == draws.total()
    assert draws[0] == pairs and sum(draws.values()) - pairs == again
    if repeats == 1:
        assert [probe.order for probe in found if probe.draw] == list(range(again))
        assert again == 0 or set(draws) == {0, 1}
        assert again == math.ceil(round(share * pairs, 9))
