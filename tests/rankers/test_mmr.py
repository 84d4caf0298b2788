"""MMR: the orders of the reference, ties, both forms, and what the ranker weighs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from llmfair import registry
from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Document, Query
from llmfair.rankers.base import Ranker, RankerOptions
from llmfair.rankers.reranking import cosines, min_max, mmr, mmr_of_vectors, tf_idf
from tests.pace import within
from tests.shared import vectors


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
    assert mmr([], np.zeros((0, 0))) == [] and mmr_of_vectors([1.0, 0.0], []) == []
    assert mmr([0.4], [[1.0]], k=9) == [0] and mmr([0.1, 0.2], np.eye(2), k=0) == []
    assert mmr_of_vectors([1.0, 0.0], [[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]]) == [1, 0, 2]


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
