"""DLF-like: its gradient in numbers, exposure that meets the target, and how relevance and fairness are merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llmfair import registry
from llmfair.errors import MissingExtra, UsageError
from llmfair.metrics.base import Groups
from llmfair.metrics.targets import cells
from llmfair.nouns import Attribute, Candidates, Document, Query, Side
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.bm25 import Bm25
from llmfair.rankers.deltr import (
    FOLDS,
    CrossFitted,
    DeltrModel,
    DlfLike,
    Lesson,
    Model,
    Training,
    folds,
    learnt,
)
from tests import models

Floats = NDArray[np.float64]

GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "women", Side.UNPROTECTED: "men"})


def lists(queries: int = 6, items: int = 12) -> list[Candidates]:
    """Every third document is of a woman; of the relevant ones, half are."""
    found = []
    for query in range(queries):
        documents = tuple(
            Document(
                f"{query}-{place}",
                f"item {place}",
                "river " * (items - place),
                {"gender": ("male" if place % 3 else "female",)},
            )
            for place in range(items)
        )
        found.append(
            Candidates(
                Query(f"q{query}", "river"), documents, {f"{query}-{place}": 1 for place in (0, 1, 3, 4)}
            )
        )
    return found


def groups_of(candidates: Sequence[Candidates]) -> Groups:
    documents = {document.doc_id: document for one in candidates for document in one.documents}
    return Groups("gender", {"gender": GENDER}, documents)


def nothing(candidates: Candidates) -> Floats:
    return np.zeros((len(candidates.documents), 1))


def lesson(seed: int = 1) -> Lesson:
    random = np.random.default_rng(seed)
    members = np.eye(3)[random.integers(0, 3, 15)]
    return Lesson(random.normal(size=(15, 4)), members, np.array([0.5, 0.5, 0.0]))


def loss(of: Lesson, weights: Floats) -> float:
    """KL(target, exposure), natural logarithm, of shares with 1e-6 added to each."""
    powers = np.exp(of.features @ weights)
    shares = np.array([of.target, powers / powers.sum() @ of.members]) + 1e-6
    target, exposure = shares / shares.sum(axis=1, keepdims=True)
    return float(target @ np.log(target / exposure))


def test_the_gradient_equals_the_numeric_one() -> None:
    given = lesson()
    for weights in np.random.default_rng(2).normal(size=(5, 4)):
        numeric = [
            (loss(given, weights + one) - loss(given, weights - one)) / 2e-6 for one in 1e-6 * np.eye(4)
        ]
        assert given.slope(weights) == pytest.approx(numeric, abs=1e-6)


def test_training_lowers_the_divergence_and_a_group_without_members_leaves_it_finite() -> None:
    given = lesson()
    assert loss(given, learnt([given], epochs=500, rate=0.01)) < 0.5 * loss(given, np.zeros(4))
    empty = Lesson(given.features, np.eye(3)[np.zeros(15, dtype=int)], np.array([0.0, 1.0, 0.0]))
    assert np.isfinite(learnt([empty], epochs=5)).all()


def test_who_is_shown_too_little_rises_and_alpha_says_how_far() -> None:
    given = lists()
    spread = cells(groups_of(given))
    models = {
        alpha: DlfLike(given[1:], nothing, spread, Bm25(), alpha=alpha, rate=0.01) for alpha in (0, 0.8, 1)
    }

    def women(alpha: float) -> list[bool]:
        scores = models[alpha](given[0])
        best = sorted(range(12), key=lambda place: -scores[place])
        return [place % 3 == 0 for place in best]

    assert women(0)[:4] == [True] * 4, "fairness alone puts the four women first"
    bm25 = Bm25().ordered(given[0])[0]
    assert women(1) == [GENDER.side(document) is Side.PROTECTED for document in bm25.documents]
    assert sum(np.flatnonzero(women(0))) <= sum(np.flatnonzero(women(0.8))) <= sum(np.flatnonzero(women(1)))
    scored = Candidates(given[0].query, given[0].documents, {}, scores=tuple(range(12)))
    assert np.argmax(models[1](scored)) == 11, "scores of a first stage are taken as they come"


def test_lists_without_a_target_teach_nothing() -> None:
    given = lists()
    spread = cells(groups_of(given))
    with pytest.raises(UsageError, match="no list with a target"):
        DlfLike([Candidates(given[0].query, given[0].documents, {})], nothing, spread, Bm25())


def options(parameters: str = "", of: Sequence[Candidates] = ()) -> RankerOptions:
    documents = tuple(document for one in of for document in one.documents)
    return RankerOptions(documents, Path("cache"), GENDER, parameters, groups=groups_of(of), lists=lambda: of)


def test_without_the_encoder_the_install_line_is_said() -> None:
    if find_spec("sentence_transformers"):
        pytest.skip("sentence-transformers is installed")
    with pytest.raises(MissingExtra):
        registry.lookup("ranker", "dlf-like")(options(of=lists()))


@pytest.mark.whole
def test_with_an_encoder_lists_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.needs_local()
    if find_spec("sentence_transformers") is None:
        pytest.skip("sentence-transformers is not installed: pip install 'llmfair[local]'")
    monkeypatch.chdir(tmp_path)
    given = lists()
    ranker = registry.lookup("ranker", "dlf-like")(
        options(f"encoder={models.encoder(tmp_path / 'dense')},epochs=20", given)
    )
    assert ranker.identity.startswith("dlf-like alpha=0.8 pool=100 epochs=20")
    whole = ranker.scores(given[0])
    turned = Candidates(given[0].query, given[0].documents[::-1], given[0].relevance)
    assert ranker.scores(turned)[::-1] == pytest.approx(whole) and len({*whole}) > 2


# Cross-fitting


QUERIES, ITEMS = 12, 10


def listed(number: int) -> Candidates:
    """Half of the documents are relevant."""
    documents = tuple(Document(f"{number}-{place}", "", "") for place in range(ITEMS))
    return Candidates(
        Query(f"q{number}", "words"), documents, {f"{number}-{place}": 1 for place in range(0, ITEMS, 2)}
    )


LISTS = [listed(number) for number in range(QUERIES)]


def asked_of_nobody(lists: Sequence[Candidates]) -> Model:
    return lambda candidates: [0.0] * len(candidates.documents)


@given(st.sets(st.text("ab", max_size=5), min_size=1), st.integers(0, 3))
def test_folds_are_of_like_sizes_and_hang_on_no_order(query_ids: set[str], seed: int) -> None:
    found = folds(query_ids, seed=seed)
    sizes = [[*found.values()].count(fold) for fold in range(FOLDS)]
    assert set(found) == query_ids and max(sizes) - min(sizes) <= 1
    assert found == folds(sorted(query_ids, reverse=True), seed=seed)


def test_cross_fitted_scores_are_of_models_that_did_not_see_the_query() -> None:
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
    ranker = CrossFitted("mine", asked_of_nobody, [*LISTS, unjudged])
    assert ranker.training("new") == tuple(LISTS) and "new" not in ranker.fold
    assert ranker.identity == CrossFitted("mine", asked_of_nobody, LISTS[::-1]).identity
    assert ranker.identity != CrossFitted("mine", asked_of_nobody, LISTS[1:]).identity
    moved = replace(
        LISTS[0], documents=tuple(replace(one, groups={"gender": ("female",)}) for one in LISTS[0].documents)
    )
    assert ranker.identity != CrossFitted("mine", asked_of_nobody, [moved, *LISTS[1:]]).identity
    with pytest.raises(UsageError, match="mine learns from judged queries, of which this has 1"):
        CrossFitted("mine a=1", asked_of_nobody, [LISTS[0], unjudged])
