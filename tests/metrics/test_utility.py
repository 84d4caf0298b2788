"""P, nDCG and the rest of ir_measures; the nDCG of TREC Fair; overlap."""

from __future__ import annotations

from typing import Any

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.io.trec import trec_order
from tests.metrics import judged, raw, rows, value
from tests.shared import vectors


def judged_run(qrels: dict[str, dict[str, int]], run: dict[str, dict[str, float]]) -> list[Any]:
    """A run as it stands: every query of the run or of the qrels."""
    orders = {query_id: [name for _, name in trec_order(scores)] for query_id, scores in run.items()}
    return [
        judged(*([orders[q]] if q in orders else []), relevance=qrels.get(q, {}), query_id=q)
        for q in {**run, **qrels}
    ]


def test_reference_figures_of_ir_measures_and_trec_fair() -> None:
    reference = vectors("p_at_k_ndcg")
    cases = [case for case in reference["cases"] if "qrels" in case["input"]]
    tolerance = reference["meta"]["tolerance_abs"]
    names = reference["meta"]["names"]
    assert cases
    for case in cases:
        queries = judged_run(case["input"]["qrels"], case["input"]["run"])
        for name, mean in case["expected"]["aggregate"].items():
            found = rows(name, *queries)
            assert found["all", ""].value == pytest.approx(mean, abs=tolerance), (case["id"], name)
            for query_id, expected in case["expected"]["per_query"].items():
                row = found[query_id, ""]
                assert row.value == pytest.approx(expected[name], abs=tolerance), (case["id"], name, query_id)
        for key, name in names.items():
            found = rows(name, *queries)
            for query_id, expected in case["expected"][key].items():
                row = found[query_id, ""]
                assert row.value == pytest.approx(expected, abs=tolerance), (case["id"], name, query_id)
                assert (row.value is None) == (row.reason == "no_relevant")


def test_reference_figures_of_overlap() -> None:
    reference = vectors("p_at_k_ndcg")
    cases = [case for case in reference["cases"] if "overlap_at_k" in case["tags"]]
    assert cases
    for case in cases:
        query = judged(case["input"]["predicted_ranking"], candidates=case["input"]["ground_truth_ranking"])
        for name, expected in case["expected"].items():
            assert value(name, query) == pytest.approx(expected, abs=1e-12), (case["id"], name)


@given(
    st.dictionaries(st.text("abcd", min_size=1, max_size=3), st.integers(0, 3).map(float), min_size=1),
    st.data(),
)
@settings(deadline=None)
def test_ir_measures_reads_ties_in_the_same_order(scores: dict[str, float], data: st.DataObject) -> None:
    relevance = {doc_id: data.draw(st.integers(0, 2)) for doc_id in scores}
    query = judged([name for _, name in trec_order(scores)], relevance=relevance)
    for theirs in (ir_measures.P @ 2, ir_measures.nDCG, ir_measures.nDCG @ 3, ir_measures.AP, ir_measures.RR):
        expected = ir_measures.pytrec_eval.calc_aggregate([theirs], {"q": relevance}, {"q": scores})[theirs]
        assert value(str(theirs), query) == pytest.approx(expected, abs=1e-12)


def test_utility_is_the_mean_over_runs_of_completed_lists() -> None:
    query = judged("ab", "ca", candidates="abc", relevance={"a": 1, "c": 1})
    assert value("P@1", query) == 1.0
    assert value("P@2", query) == pytest.approx((1 / 2 + 2 / 2) / 2)
    assert value("P@3", query) == pytest.approx(2 / 3)
    assert value("P@20", query) == pytest.approx(2 / 20)


def test_trec_fair_ndcg_by_hand() -> None:
    query = judged("abcd", relevance={"b": 1, "c": 2, "z": 1})
    ranks_2_and_3 = 1 + 1 / np.log2(3)
    assert value("nDCG(discount=trec)", query) == pytest.approx(ranks_2_and_3 / (2 + 1 / np.log2(3)))
    assert value("nDCG(discount=trec)@2", query) == pytest.approx(1 / 2)
    assert value("nDCG(discount=trec,ideal=3)@2", query) == pytest.approx(1 / (2 + 1 / np.log2(3)))
    assert value("nDCG(discount=trec,ideal=1)", query) == pytest.approx(ranks_2_and_3)


def test_undefined_utility_has_a_reason() -> None:
    nothing = judged("ab", relevance={"a": 0, "b": -1})
    assert rows("nDCG(discount=trec)@2", nothing)["q", ""].reason == "no_relevant"
    assert value("nDCG@2", nothing) == 0
    unranked = judged(candidates="ab", relevance={"a": 1})
    assert rows("nDCG(discount=trec)@2", unranked)["q", ""].reason == "not_ranked"
    assert rows("overlap@2", unranked)["q", ""].reason == "not_ranked"


def test_overlap_reference_is_relevance_then_unprotected_then_protected_then_candidate_order() -> None:
    sides = {"a": None, "b": "protected", "c": "unprotected", "d": "protected", "e": "unprotected"}
    relevance = {"d": 1, "e": 1}
    reference = "edcba"
    for k in range(1, 6):
        top = judged(reference[:k], candidates="abcde", sides=sides, relevance=relevance)
        assert value(f"overlap@{k}", top) == 1
    last = judged("abcde", sides=sides, relevance=relevance)
    assert [value(f"overlap@{k}", last) for k in (1, 2, 3, 4, 5, 10)] == [0, 0, 1 / 3, 3 / 4, 1, 1 / 2]
    tied = judged("ba", candidates="ab", sides={"a": "protected", "b": "protected"})
    assert value("overlap@1", tied) == 0


def test_overlap_is_the_mean_over_runs() -> None:
    assert raw("overlap@1", judged("ab", "ba", "ba", candidates="ab")) == pytest.approx(1 / 3)
