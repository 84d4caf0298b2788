"""How alike two rankings of one query are: known answers, and what must hold of any two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.metrics.agreement import kendall_tau, rank_biased_overlap
from llmfair.metrics.base import Judged
from llmfair.nouns import Ranking
from tests.metrics import judged, rows, value
from tests.shared import vectors

SHUFFLED = st.permutations(range(9))


def test_the_reference() -> None:
    case = vectors("injected_bias")["golden_rank_agreement"]
    query = beside([str(n) for n in case["a"]], [str(n) for n in case["b"]])
    assert value("Tau", query) == pytest.approx(case["kendall_tau"], rel=1e-9)
    assert value("RBO", query) == pytest.approx(case["rbo_ext_p09"], rel=1e-9)
    assert value("RBO(p=0.7)", query) == pytest.approx(case["rbo_ext_p07"], rel=1e-9)
    relevant = replace(query.candidates, relevance={str(n): 1 for n in case["b"][:5]})
    assert value("P@5", replace(query, candidates=relevant)) == pytest.approx(case["overlap_at_5"])


def test_by_hand() -> None:
    # the first document agrees never, all three at depth 3: A = 0, 1/2, 1
    query = beside("abc", "bca")
    assert value("RBO(p=0.5)", query) == pytest.approx(0.5 / 0.5 * (0.5 * 0.25 + 1 * 0.125) + 0.125)
    assert value("Tau", query) == pytest.approx(1 - 4 * 2 / 6)


@given(SHUFFLED, SHUFFLED)
@settings(deadline=None)
def test_tau_is_that_of_scipy(a: list[int], b: list[int]) -> None:
    from scipy.stats import kendalltau

    ranks = np.argsort(a), np.argsort(b)
    assert kendall_tau(np.array(a), np.array(b)) == pytest.approx(kendalltau(*ranks).statistic)


@given(SHUFFLED, SHUFFLED, st.floats(0.05, 0.95))
def test_agreement_is_symmetric_and_complete_only_with_itself(a: list[int], b: list[int], p: float) -> None:
    one, other = np.array(a), np.array(b)
    assert rank_biased_overlap(one, other, p) == pytest.approx(rank_biased_overlap(other, one, p))
    assert 0 <= rank_biased_overlap(one, other, p) <= 1 + 1e-12
    assert rank_biased_overlap(one, one, p) == pytest.approx(1)
    assert kendall_tau(one, one) == 1
    assert kendall_tau(one, one[::-1]) == -1
    assert (kendall_tau(one, other) == 1) == (a == b)


def test_runs_are_held_against_their_own_and_averaged() -> None:
    query = judged("abc", "cba", candidates="abc")
    query = replace(query, beside=(Ranking("q", tuple("abc")), Ranking("q", tuple("abc"))))
    assert value("Tau", query) == 0
    assert rows("Tau", judged("abc")) == {}
    assert rows("Tau", beside("a", "a"))["q", ""].reason == "too_few_common"
    assert rows("RBO", replace(query, rankings=()))["q", ""].reason == "not_ranked"


def beside(a: str | list[str], b: str | list[str]) -> Judged:
    return replace(judged(a), beside=(Ranking("q", tuple(b)),))


def test_consistency_is_the_mean_tau_of_all_pairs_of_orders() -> None:
    # abc–acb and abc–bac differ in one pair of three (tau 1/3), acb–bac in two (tau −1/3)
    query = judged("abc", "acb", "bac", candidates="cab")
    assert value("Consistency", query) == pytest.approx(1 / 9)
    assert value("Consistency", judged("abc", "abc", candidates="abc")) == 1
    once, short = judged("abc", candidates="abc"), judged("a", "a", candidates="a")
    assert rows("Consistency", once)["q", ""].reason == "single_order"
    assert rows("Consistency", short)["q", ""].reason == "too_few_common"
