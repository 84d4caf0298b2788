"""Sign flips, Holm's adjustment and the stratified permutation test."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc
from scipy.stats import ttest_rel

from llmfair.stats.paired import paired_t
from llmfair.stats.significance import (
    LabelledItems,
    PermutationTest,
    holm,
    p_outside,
    permutations,
    sign_flip,
    stratum_means,
)

GENERATOR = np.random.default_rng(0)


def query(exposures: list[float], sides: str, strata: str) -> LabelledItems:
    """Documents with these exposures; sides p protected, u unprotected; strata one digit each."""
    return LabelledItems(
        np.array(exposures, float),
        np.array([side == "p" for side in sides]),
        np.array([int(stratum) for stratum in strata]),
    )


def permutation(
    queries: list[LabelledItems], rngs: list[np.random.Generator], draws: int = 9999
) -> PermutationTest:
    """The test of one ranker."""
    return permutations([queries], rngs, draws)[0]


def shuffled(queries: list[LabelledItems], seed: int = 1, draws: int = 999) -> PermutationTest:
    return permutation(queries, [np.random.default_rng([seed, i]) for i in range(len(queries))], draws)


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([1, 1, 1, 1, 1, 1], 2 / 64),
        ([1, 1, 1, 1, 1, -1], 14 / 64),  # |Σ| ≥ 4: all alike, or one unlike
        ([3, 1, 1], 2 / 8),
        ([2, -1, -1], 1),
        ([0.1, 0.2, -0.3], 1),
        ([0, 0], 1),
        ([5], 1),
    ],
)
def test_sign_flips_by_hand(values: list[float], p: float) -> None:
    assert sign_flip(values, rng=GENERATOR) == p


def test_beyond_14_queries_signs_are_drawn() -> None:
    assert sign_flip([1] * 14, rng=GENERATOR) == 2 / 2**14
    assert sign_flip([1] * 20, rng=np.random.default_rng(1)) == 1 / 10_000
    # P(|Binomial(15, ½) − 7.5| ≥ 2.5) = .3017578
    drawn = sign_flip([1] * 10 + [-1] * 5, rng=np.random.default_rng(1))
    assert drawn == pytest.approx(0.3017578, abs=4 * 0.0046)
    assert drawn == sign_flip([1] * 10 + [-1] * 5, rng=np.random.default_rng(1))


def test_closed_form_by_hand() -> None:
    # Stratum 0: 6, 2, 1 with one protected: mean 3, s² = 7; stratum 1: 4, 0 with one protected: mean 2, s² = 8.
    one = query([6, 2, 1, 4, 0], "puuup", "00011")
    assert stratum_means(one) == pytest.approx((5 / 2, (2 * 3 + 2) / 3))
    variance = (1 / 2 + 1 / 3) ** 2 * (2 / 3 * 7 + 1 / 2 * 8)
    found = permutation([one], [GENERATOR], draws=0)
    assert found.statistic == pytest.approx(3 - 7 / 3 - (5 / 2 - 8 / 3))
    assert found.z == pytest.approx(found.statistic / variance**0.5)
    assert (found.p, found.ratio_low, found.ratio_high, found.draws) == (None, None, None, 0)


def test_all_shuffles_of_two_queries_are_met() -> None:
    # Each query's difference is ±1, so |T| reaches 2 in half of the shuffles; R is 1/2, 1 or 2.
    two = [query([2, 1], "pu", "00"), query([1, 2], "up", "00")]
    found = shuffled(two, draws=9999)
    assert found.statistic == 2
    assert found.p == pytest.approx(0.5, abs=4 * 0.005)
    assert (found.ratio_low, found.ratio_high) == (1 / 2, 2)


def test_what_no_shuffle_can_change_has_p_1() -> None:
    apart, alike = query([3.1, 2.7, 1.9], "ppu", "001"), query([0.1] * 4, "ppuu", "0101")
    for found in (shuffled([apart]), shuffled([alike]), shuffled([apart, alike])):
        assert (found.z, found.p_z, found.p) == (0, 1, 1)


def test_an_item_of_two_lists_changes_its_label_once() -> None:
    """Two people are in both lists of four: their labels change places together, those of the others by list."""
    lists = [query([8, 4, 2, 1], "pupu", "0000") for _ in range(2)]
    named = [replace(one, doc_ids=("a", "b", f"c{place}", f"d{place}")) for place, one in enumerate(lists)]
    # Each list's means differ by (8 + 2 − 4 − 1)/2; a and b add ± 4 together, each c and d ± ½.
    found = shuffled(named, draws=9999)
    assert found.statistic == pytest.approx(5)
    assert found.p == pytest.approx(2 / 8, abs=4 * 0.0044)
    assert found.z == pytest.approx(5 / (4**2 + 2 * 0.5**2) ** 0.5)
    alone = [replace(one, doc_ids=tuple(f"{name}{i}" for name in "abcd")) for i, one in enumerate(lists)]
    assert shuffled(alone) == shuffled(lists)


# Rounded: equal statistics and unequal ones stay apart by more than rounding.
FIGURES = st.floats(-1e3, 1e3).map(lambda figure: round(figure, 3))
EXPOSURES = st.integers(100, 1500).map(lambda figure: figure / 1000)


@st.composite
def labelled(draw: st.DrawFn) -> LabelledItems:
    """A query of up to 9 documents in up to 3 strata, equal exposures included."""
    size = draw(st.integers(2, 9))
    chosen = draw(st.integers(1, size - 1))
    sides = draw(st.permutations("p" * chosen + "u" * (size - chosen)))
    exposures = draw(st.lists(EXPOSURES, min_size=size, max_size=size))
    return query(exposures, "".join(sides), draw(st.text("012", min_size=size, max_size=size)))


QUERIES = st.lists(labelled(), min_size=1, max_size=4)


def swapped(one: LabelledItems) -> LabelledItems:
    return LabelledItems(one.exposures, ~one.protected, one.strata)


@given(st.lists(FIGURES, min_size=1, max_size=17), st.floats(1e-3, 1e6))
def test_sign_flips_know_neither_direction_nor_unit(values: list[float], unit: float) -> None:
    def p(values: NDArray[np.float64]) -> float:
        return sign_flip(values, rng=np.random.default_rng(2), draws=99)

    array = np.array(values)
    assert 0 < p(array) <= 1
    assert p(-array) == p(array) == p(unit * array)
    if len(values) <= 14:
        assert p(array[::-1]) == p(array)


@given(st.lists(st.none() | st.floats(0, 1), max_size=12))
def test_holm_raises_p_values_and_keeps_their_order(p_values: list[float | None]) -> None:
    adjusted = holm(p_values)
    assert [p is None for p in adjusted] == [p is None for p in p_values]
    pairs = sorted(
        (raw, own) for raw, own in zip(p_values, adjusted, strict=True) if raw is not None and own is not None
    )
    assert all(raw <= own <= 1 for raw, own in pairs)
    assert [own for _, own in pairs] == sorted(own for _, own in pairs)
    assert holm(p_values[::-1]) == adjusted[::-1]
    assert holm([p for p in p_values if p is not None]) == [p for p in adjusted if p is not None]


@given(labelled())
@settings(deadline=None)
def test_closed_form_is_that_of_all_assignments(one: LabelledItems) -> None:
    strata = [np.flatnonzero(one.strata == stratum) for stratum in np.unique(one.strata)]
    sides = []
    for chosen in product(*(combinations(members, int(one.protected[members].sum())) for members in strata)):
        labels = np.isin(np.arange(len(one.strata)), np.concatenate([np.array(part, int) for part in chosen]))
        sides.append((one.exposures[labels].mean(), one.exposures[~labels].mean()))
    every, found = np.array(sides), permutation([one], [GENERATOR], draws=0)
    assert stratum_means(one) == pytest.approx(tuple(every.mean(axis=0)))
    spread = np.std(every[:, 0] - every[:, 1])
    assert found.z * spread == pytest.approx(found.statistic if spread > 1e-9 else 0, abs=1e-9)


@given(QUERIES)
@settings(deadline=None)
def test_swapping_the_sides_keeps_p(queries: list[LabelledItems]) -> None:
    found, opposite = shuffled(queries, draws=99), shuffled([swapped(one) for one in queries], draws=99)
    assert found.p is not None
    assert 0 < found.p <= 1
    assert opposite.p == found.p
    assert (opposite.statistic, opposite.z) == pytest.approx((-found.statistic, -found.z), abs=1e-9)
    assert opposite.p_z == pytest.approx(found.p_z)


@given(QUERIES)
@settings(deadline=None)
def test_another_query_leaves_the_draws_of_the_others_alone(queries: list[LabelledItems]) -> None:
    inert = query([1, 1], "pu", "01")
    alone, together = shuffled(queries, draws=99), shuffled([*queries, inert], draws=99)
    assert together.p == alone.p
    assert together.statistic == pytest.approx(alone.statistic)
    rngs = [np.random.default_rng([5, place]) for place in range(len(queries) + 1)]
    again = [np.random.default_rng([5, place]) for place in range(len(queries))]
    permutation([*queries, query([1, 2, 3], "puu", "000")], rngs, 9)
    permutation(queries, again, 9)
    assert [rng.random() for rng in rngs[:-1]] == [rng.random() for rng in again]


@given(QUERIES, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_rankers_shuffled_at_once_are_tested_as_alone(queries: list[LabelledItems], random: Random) -> None:
    rankers = [
        [replace(x, exposures=np.array(random.sample(list(x.exposures), len(x.exposures)))) for x in queries]
        for _ in range(3)
    ]
    rngs = [np.random.default_rng([1, place]) for place in range(len(queries))]
    assert permutations(rankers, rngs, 99) == [shuffled(ranker, draws=99) for ranker in rankers]


def test_subsets_are_uniform() -> None:
    # Two of the three documents of stratum 0 are protected; stratum 1 is one unprotected document.
    one = query([1, 2, 4, 8], "pupu", "0001")
    rng = np.random.default_rng(8)
    hits = np.array([permutation([one], [rng], 1).ratio_low for _ in range(600)], float)
    values, counts = np.unique(hits.round(9), return_counts=True)
    expected = [(1 + 2) / (4 + 8), (1 + 4) / (2 + 8), (2 + 4) / (1 + 8)]
    assert values == pytest.approx(expected)
    assert counts == pytest.approx(200, abs=4 * 11.5)


# The t test paired by query is scipy's


def test_t_and_p_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for n in (6, 7, 20, 60):
        before, after = rng.normal(0, rng.uniform(0.01, 10), (2, n)) + rng.normal(0, 1, (2, 1))
        expected = ttest_rel(after, before)
        assert paired_t(after - before) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)


def test_what_cannot_be_tested() -> None:
    assert paired_t([0.1] * 5) is None, "fewer than six"
    assert paired_t([0.0] * 6) == (0.0, 1.0)
    assert paired_t([0.5] * 6) == (math.inf, 0.0) and paired_t([-0.5] * 6) == (-math.inf, 0.0)


def test_a_ratio_of_sums_is_held_against_the_nearer_edge() -> None:
    """At .8 · ½ each 2 are expected, and 1 is there in portions of .22: differences vary by .025, and what is amiss by
    .22, so it is as if 2²/.245 were expected, of which half is there."""
    group = np.column_stack([[0.2, 0.1, 0.3, 0.2, 0.2], np.full(5, 0.5)])
    assert p_outside([group], (0.8, 1.25)) == pytest.approx([gammaincc(1 + 2 / 0.245, 4 / 0.245)])
    assert p_outside([group], (0.3, 1.25)) == [1]
    assert p_outside([group], (0.1, 0.2)) == pytest.approx([gammainc(0.5 / 0.025, 0.25 / 0.025)])


def test_a_group_that_gets_nothing_may_have_been_missed_by_chance() -> None:
    """Of seven queries one group gets all, which is a portion: at .4 of each 2.8 are expected, none with p e^-2.8."""
    nothing, everything = (np.column_stack([np.full(7, of), np.full(7, 0.5)]) for of in (0.0, 1.0))
    assert p_outside([nothing, everything], (0.8, 1.25))[0] == pytest.approx(math.exp(-2.8))
