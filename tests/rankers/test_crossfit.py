"""Cross-fitting: no query is scored by a model that saw it, by fold and by a feature that only leakage could use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Document, Query
from llmfair.rankers.deltr import FOLDS, CrossFitted, DeltrModel, Model, Training, folds
from tests.rankers.test_deltr import Floats

QUERIES, ITEMS = 12, 10


def listed(number: int) -> Candidates:
    """Half of the documents are relevant."""
    documents = tuple(Document(f"{number}-{place}", "", "") for place in range(ITEMS))
    return Candidates(
        Query(f"q{number}", "words"), documents, {f"{number}-{place}": 1 for place in range(0, ITEMS, 2)}
    )


LISTS = [listed(number) for number in range(QUERIES)]


def nothing(lists: Sequence[Candidates]) -> Model:
    return lambda candidates: [0.0] * len(candidates.documents)


@given(st.sets(st.text("ab", max_size=5), min_size=1), st.integers(0, 3))
def test_folds_are_of_like_sizes_and_hang_on_no_order(query_ids: set[str], seed: int) -> None:
    found = folds(query_ids, seed=seed)
    sizes = [[*found.values()].count(fold) for fold in range(FOLDS)]
    assert set(found) == query_ids and max(sizes) - min(sizes) <= 1
    assert found == folds(sorted(query_ids, reverse=True), seed=seed)


def test_no_query_is_scored_by_a_model_that_saw_it() -> None:
    seen: list[set[str]] = []

    def fit(lists: Sequence[Candidates]) -> Model:
        names = {one.query.query_id for one in lists}
        seen.append(names)

        def model(candidates: Candidates) -> list[float]:
            assert candidates.query.query_id not in names
            return [0.0] * len(candidates.documents)

        return model

    ranker = CrossFitted("mine", fit, LISTS)
    for one in LISTS * 2:
        ranker.scores(one)
    assert len(seen) == FOLDS, "each fold's model is fitted once"
    everyone = {one.query.query_id for one in LISTS}
    left_out = [everyone - names for names in seen]
    assert set.union(*left_out) == everyone and sum(map(len, left_out)) == len(everyone)


def test_a_feature_that_only_leakage_could_use_is_of_no_use() -> None:
    """Column q is ±1 on the documents of query q alone, its sign by relevance, turned in every other query."""

    def planted(candidates: Candidates) -> Floats:
        number = int(candidates.query.query_id[1:])
        features = np.zeros((ITEMS, QUERIES + 1))
        features[:, number + 1] = [1 if candidates.relevance.get(d, 0) else -1 for d in candidates.doc_ids]
        features[:, number + 1] *= 1 if number % 2 else -1
        return features

    def fit(lists: Sequence[Candidates]) -> Model:
        return DeltrModel(lists, planted, Training(gamma=0, steps=300))

    def relevant_first(scores: Sequence[float]) -> bool:
        return min(scores[::2]) > max(scores[1::2])

    leaking = fit(LISTS)
    assert all(relevant_first(leaking(one)) for one in LISTS), "who saw the query ranks it perfectly"
    ranker = CrossFitted("mine", fit, LISTS)
    found = [relevant_first(ranker.scores(one)) for one in LISTS]
    assert sum(found) == QUERIES / 2, "the sign that a query has is chance to who did not"


def test_unjudged_queries_teach_nothing_and_are_scored_by_the_model_of_all() -> None:
    unjudged = Candidates(Query("new", "words"), LISTS[0].documents, {})
    ranker = CrossFitted("mine", nothing, [*LISTS, unjudged])
    assert ranker.training("new") == tuple(LISTS) and "new" not in ranker.fold
    assert ranker.identity == CrossFitted("mine", nothing, LISTS[::-1]).identity
    assert ranker.identity != CrossFitted("mine", nothing, LISTS[1:]).identity
    moved = replace(
        LISTS[0], documents=tuple(replace(one, groups={"gender": ("female",)}) for one in LISTS[0].documents)
    )
    assert ranker.identity != CrossFitted("mine", nothing, [moved, *LISTS[1:]]).identity
    with pytest.raises(UsageError, match="mine learns from judged queries, of which this has 1"):
        CrossFitted("mine a=1", nothing, [LISTS[0], unjudged])
