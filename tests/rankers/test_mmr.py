"""MMR: the orders of the reference, ties, both forms, and what the ranker weighs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from llmfair import registry
from llmfair.errors import UsageError
from llmfair.metrics.attention import kullback_leibler
from llmfair.metrics.base import Groups
from llmfair.nouns import Attribute, Candidates, Document, Query, Side
from llmfair.rankers.base import Ranker, RankerOptions
from llmfair.rankers.reranking import EPS, NO_TARGET, cosines, greedy, min_max, mmr, tf_idf
from tests.pace import within
from tests.shared import vectors


def mmr_of_vectors(
    query: Sequence[float], documents: Sequence[Sequence[float]], trade: float, k: int
) -> list[int]:
    """By cosines, the most relevant document first: at λ = 0 the formula alone would not say which."""
    alike = cosines([query, *documents])
    relevance = alike[0, 1:]
    order = sorted(range(len(documents)), key=lambda place: place != relevance.argmax())
    return [order[place] for place in mmr(relevance[order], alike[1:, 1:][np.ix_(order, order)], trade, k)]


def test_the_orders_of_the_reference() -> None:
    for case in vectors("mmr")["cases"]:
        asked = case["input"]
        if "similarity" in asked:
            found = mmr(asked["relevance"], asked["similarity"], asked["lambda"], asked["k"])
        else:
            found = mmr_of_vectors(
                asked["query_embedding"], asked["doc_embeddings"], asked["lambda"], asked["k"]
            )
        assert found == case["expected"]["order"], case["id"]


def test_what_has_nothing_to_choose() -> None:
    assert mmr([], np.zeros((0, 0))) == []
    assert mmr([0.4], [[1.0]], k=9) == [0] and mmr([0.1, 0.2], np.eye(2), k=0) == []


def test_a_hundred_of_a_hundred_take_a_moment() -> None:
    rng = np.random.default_rng(0)
    relevance, similarity = rng.random(100), rng.random((100, 100))
    assert len(within(0.02, lambda: mmr(relevance, similarity))) == 100


def test_cosines_of_tf_idf_by_hand() -> None:
    found = cosines(tf_idf(["a film", "film film chess", "", "Films"]))
    film, rare = 1 + math.log(5 / 4), 1 + math.log(5 / 2)
    assert found[0, 3] == pytest.approx(film / math.hypot(film, rare))  # letter case and endings do not count
    assert found[0, 1] == pytest.approx(2 * film * film / math.hypot(film, rare) / math.hypot(2 * film, rare))
    assert found[2].tolist() == [0, 0, 0, 0] and np.allclose(found.diagonal(), [1, 1, 0, 1])


def test_scores_are_moved_to_one_scale() -> None:
    assert min_max(np.array([3.0, 1.0, 2.0])).tolist() == [1.0, 0.0, 0.5]
    assert min_max(np.array([7.0, 7.0])).tolist() == [0.0, 0.0] and min_max(np.array([])).size == 0
    assert min_max(np.array([np.inf, -1e308, -np.inf])).tolist() == [1.0, 0.0, 0.0]


TEXTS = ("film of women", "film of women", "film of chess", "garden", "film")
DOCUMENTS = tuple(Document(f"d{place}", text) for place, text in enumerate(TEXTS))


def ranker(parameters: str = "") -> Ranker:
    made: Ranker = registry.lookup("ranker", "mmr")(
        RankerOptions(DOCUMENTS, Path("kept"), checkpoint=parameters)
    )
    return made


def test_the_ranker_takes_the_scores_that_candidates_come_with() -> None:
    candidates = Candidates(Query("q", ""), DOCUMENTS, {}, (5.0, 4.0, 3.0, 2.0, 1.0))
    assert ranker("lambda=1").ordered(candidates)[0].doc_ids == candidates.doc_ids
    found, scores = ranker().ordered(candidates)
    assert found.doc_ids == ("d0", "d3", "d2", "d1", "d4") and scores is None
    assert found.scores == (5.0, 2.0, 3.0, 4.0, 1.0)
    # beyond the pool the first stage's order stays
    assert ranker("pool=2").ordered(candidates)[0].doc_ids == candidates.doc_ids


def test_without_scores_relevance_is_that_of_bm25() -> None:
    candidates = Candidates(Query("q", "garden chess"), DOCUMENTS, {})
    first = registry.lookup("ranker", "bm25")(RankerOptions(DOCUMENTS, Path("kept")))
    by_words, scores = first.ordered(candidates)
    scored = Candidates(candidates.query, by_words.documents, {}, scores)
    assert ranker().ordered(candidates)[0].doc_ids == ranker().ordered(scored)[0].doc_ids
    assert ranker().identity == f"mmr lambda=0.5 pool=100 similarity=tf-idf over {first.identity}"


def test_what_is_no_similarity_is_said() -> None:
    with pytest.raises(UsageError, match="mmr: similarity cannot be 'sbrt'"):
        ranker("similarity=sbrt")


# Greedy re-ranking towards a target


GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "female", Side.UNPROTECTED: "male"})
BY_GROUP = tuple(
    Document(f"{group[0]}{place}", "", groups={"gender": (group,)} if group != "?" else {})
    for place, group in enumerate(["male", "male", "male", "female", "female", "?"])
)


def greedy_ranker(parameters: str = "") -> Ranker:
    groups = Groups("gender", {"gender": GENDER}, {one.doc_id: one for one in BY_GROUP})
    made: Ranker = registry.lookup("ranker", "greedy")(
        RankerOptions((), Path("kept"), GENDER, checkpoint=parameters, groups=groups)
    )
    return made


def candidates(*relevant: str) -> Candidates:
    return Candidates(Query("q", ""), BY_GROUP, dict.fromkeys(relevant, 1), (6.0, 5.0, 4.0, 3.0, 2.0, 1.0))


def test_each_step_is_the_best_of_its_formula() -> None:
    rng = np.random.default_rng(3)
    relevance, rows = rng.random(12), rng.dirichlet([1, 1, 1], 12)
    target = np.array([0.6, 0.3, 0.1])
    page: list[int] = []
    for place in greedy(relevance, rows, target, 0.4):
        left = [i for i in range(12) if i not in page]
        worth = {
            i: 0.4 * relevance[i] - 0.6 * kullback_leibler(rows[[*page, i]].mean(axis=0), target, EPS)
            for i in left
        }
        assert worth[place] == pytest.approx(max(worth.values()), abs=1e-12)
        page.append(place)
    assert sorted(page) == list(range(12))


def test_relevance_alone_keeps_the_order_and_the_target_alone_alternates() -> None:
    listed = candidates("m0", "f3")
    assert greedy_ranker("lambda=1").ordered(listed)[0].doc_ids == listed.doc_ids
    found = greedy_ranker("lambda=0").ordered(listed)[0].doc_ids
    assert found[:4] == ("m0", "f3", "m1", "f4") and found[-1] == "?5"


def test_the_target_may_be_one_that_needs_no_judgement() -> None:
    listed = candidates()
    found = greedy_ranker("lambda=0,target=uniform").ordered(listed)[0].doc_ids
    # which leaves documents of unknown group out of its shares, so that one does no harm
    assert found[:5] == ("m0", "f3", "?5", "m1", "f4")
    empirical = greedy_ranker("lambda=0")
    assert empirical.ordered(listed)[0].doc_ids == listed.doc_ids
    assert empirical.remark(listed) == NO_TARGET and greedy_ranker("target=uniform").remark(listed) == ""


def test_documents_of_which_nothing_is_known_count_as_far_from_any_target() -> None:
    unlisted = Candidates(Query("q", ""), (Document("u", ""), *BY_GROUP[:4]), {"m0": 1, "f3": 1}, (9.0,) * 5)
    assert greedy_ranker().ordered(unlisted)[0].doc_ids[:2] == ("m0", "f3")
