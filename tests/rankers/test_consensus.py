"""The central ranking of several orders: held against every order there is, and by its properties."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.nouns import Ranking
from llmfair.rankers.reranking import central, consensus, kendall_distance
from tests.pace import within


@st.composite
def orders(draw: st.DrawFn, most: int = 7) -> list[list[int]]:
    n = draw(st.integers(1, most))
    return draw(st.lists(st.permutations(range(n)), min_size=1, max_size=6))


def ranks_of(found: list[list[int]]) -> np.ndarray:
    return np.argsort(np.array(found), axis=1)


def test_by_hand() -> None:
    # a is ahead of b twice, of c three times; b of c twice: a b c differs from b a c once and from a c b once
    ranks = ranks_of([[0, 1, 2], [1, 0, 2], [0, 2, 1]])
    assert central(ranks).tolist() == [0, 1, 2]
    assert kendall_distance([0, 1, 2], ranks) == 2


@settings(max_examples=60, deadline=None)
@given(orders(6))
def test_least_of_all_orders(found: list[list[int]]) -> None:
    ranks = ranks_of(found)
    least = min(kendall_distance(order, ranks) for order in permutations(range(ranks.shape[1])))
    assert kendall_distance(central(ranks), ranks) == least


def test_least_of_all_orders_of_seven() -> None:
    rng = np.random.default_rng(0)
    every = np.array([*permutations(range(7))])
    places = np.argsort(every, axis=1)
    for count in (3, 4, 5, 6):
        for _ in range(5):
            ranks = np.array([rng.permutation(7) for _ in range(count)])
            ahead = places[:, :, None] < places[:, None, :]
            behind = sum((row[:, None] > row[None, :]).astype(int) for row in ranks)
            least = int((ahead * behind).sum(axis=(1, 2)).min())
            assert kendall_distance(central(ranks), ranks) == least


@given(orders(), st.randoms(use_true_random=False))
def test_names_make_no_difference(found: list[list[int]], random) -> None:  # type: ignore[no-untyped-def]
    names = [f"d{item}" for item in range(len(found[0]))]
    others = random.sample(names, len(names))
    one = consensus([Ranking("q", tuple(names[item] for item in order)) for order in found])
    other = consensus([Ranking("q", tuple(others[item] for item in order)) for order in found])
    assert [names.index(doc_id) for doc_id in one.doc_ids] == [others.index(d) for d in other.doc_ids]


@given(orders(9), st.integers(1, 5))
def test_orders_all_alike_are_the_consensus(found: list[list[int]], count: int) -> None:
    assert central(ranks_of([found[0]] * count)).tolist() == found[0]


@given(orders(9))
def test_what_all_agree_on_stays(found: list[list[int]]) -> None:
    ranks = ranks_of(found)
    place = np.argsort(central(ranks))
    for one, other in permutations(range(ranks.shape[1]), 2):
        if (ranks[:, one] < ranks[:, other]).all():
            assert place[one] < place[other]


def test_long_lists_are_quick() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=200)
    ranks = np.argsort(np.argsort(-(weights + rng.gumbel(size=(5, 200))), axis=1), axis=1)
    found = within(0.5, lambda: central(ranks))
    assert kendall_distance(found, ranks) <= min(
        kendall_distance(np.argsort(row), ranks) for row in (*ranks, ranks.sum(axis=0))
    )


def test_orders_of_other_documents_are_refused() -> None:
    with pytest.raises(ValueError, match="q are of different documents"):
        consensus([Ranking("q", ("a", "b")), Ranking("q", ("a", "c"))])
