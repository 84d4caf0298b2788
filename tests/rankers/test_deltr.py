"""DELTR: the reference figures, its gradient in numbers, the published models, and what it takes; DLF-like; and cross-fitting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from llmfair import registry
from llmfair.errors import UsageError
from llmfair.metrics.base import Groups
from llmfair.metrics.targets import cells
from llmfair.nouns import Attribute, Candidates, Document, Query, Side
from llmfair.rankers import deltr
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.bm25 import Bm25
from llmfair.retrieval.bm25 import Bm25Index
from tests import models
from tests.shared import realdata, vectors

Floats = NDArray[np.float64]
GRADIENTS: tuple[tuple[deltr.Gradient, str], ...] = (
    ("exact", "true_gradient_same_schedule"),
    ("compat", "fairsearchdeltr"),
)


def scaled(features: Floats, how: deltr.Standardize = "columns") -> Floats:
    mean, deviation = deltr.scale_of(features, how)
    return (features - mean) / deviation


def rows_of(case: dict[str, Any]) -> deltr.TrainingRows:
    """The rows of a reference case: query, document, flag, features, judgement."""
    given = case["input"]
    table = np.array(given["rows"], dtype=float)
    features = table[:, 2:-1]
    if given["standardize"]:
        features = scaled(features, "global")
    return deltr.TrainingRows(table[:, 0], features, table[:, -1])


def drawn(queries: int, items: int, columns: int, seed: int = 1) -> deltr.TrainingRows:
    random = np.random.default_rng(seed)
    features = random.normal(size=(queries * items, columns))
    features[:, deltr.PROTECTED] = random.random(len(features)) < 0.4
    relevant = random.random(len(features)) < 1 / (
        1 + np.exp(1 + 2 * features[:, deltr.PROTECTED] - features[:, 1])
    )
    return deltr.TrainingRows(np.repeat(np.arange(queries), items), features, relevant)


def losses(rows: deltr.TrainingRows, weights: ArrayLike) -> dict[str, Floats]:
    """What weights cost by query, (queries,) each, as the paper has it; an exposure without a member is NaN."""
    figures = []
    for query in range(len(rows.sizes)):
        of = rows.query == query
        scores, judged = rows.features[of] @ weights, np.exp(rows.judgements[of])
        logs = scores - np.logaddexp.reduce(scores)
        groups = (rows.features[of, deltr.PROTECTED] == flag for flag in (0, 1))
        shown = [np.exp(logs[g]).mean() / math.log(2) if g.any() else np.nan for g in groups]
        gap = max(0.0, np.nan_to_num(shown[0] - shown[1]))
        figures.append((-(judged / judged.sum()) @ logs, *shown, gap**2))
    names = ("listnet_cross_entropy", "exposure_unprotected", "exposure_protected", "U")
    return dict(zip(names, np.array(figures).T, strict=True))


def objective(training: deltr.Training, rows: deltr.TrainingRows, weights: ArrayLike) -> float:
    """What the steps lower: Σ_q n_q (L_q / ln N + γ U_q)."""
    cost, divisor = losses(rows, weights), math.log(len(rows.query))
    return float(rows.sizes @ (cost["listnet_cross_entropy"] / divisor + training.gamma * cost["U"]))


def same(cost: dict[str, Floats], expected: dict[str, Any], rows: deltr.TrainingRows, gamma: float) -> None:
    """Losses and exposures as a reference case has them, to 1e-8; what it does not define is NaN."""
    for name, value in cost.items():
        of_queries = [of[name] for of in expected["per_query"].values()]
        assert value == pytest.approx(np.array(of_queries, dtype=float), abs=1e-8, nan_ok=True), name
    total = (cost["listnet_cross_entropy"] + gamma * cost["U"]).sum()
    assert total == pytest.approx(expected["loss_paper_sum_over_queries"], abs=1e-8)


def test_the_reference_figures() -> None:
    for case in vectors("deltr")["cases"]:
        given, expected, id = case["input"], case["expected"], case["id"]
        rows, gamma = rows_of(case), given["gamma"]
        same(losses(rows, given["omega0"]), expected["loss_at_omega0"], rows, gamma)
        for gradient, name in GRADIENTS:
            known = expected[f"omega_{name}"]
            if None in known:  # its NaN, of a query without a protected item
                known, name = expected["omega_true_gradient_same_schedule"], "true_gradient"
            training = deltr.Training(gamma, gradient, given["iterations"], given["learning_rate"])
            assert training.weights(rows, given["omega0"]) == pytest.approx(known, abs=1e-6), (id, gradient)
            at = expected[f"loss_at_omega_{name.removesuffix('_same_schedule')}"]
            same(losses(rows, known), at, rows, gamma)
            assert objective(training, rows, known) == pytest.approx(at["loss_package"], abs=1e-6), id


def test_the_gradient_equals_the_numeric_one() -> None:
    rows, training = drawn(5, 12, 6), deltr.Training(gamma=500)
    for weights in np.random.default_rng(3).normal(size=(8, 6)):
        step = 1e-6 * np.eye(6)
        numeric = [
            (objective(training, rows, weights + one) - objective(training, rows, weights - one)) / 2e-6
            for one in step
        ]
        assert training.slope(rows, weights) == pytest.approx(numeric, rel=1e-5, abs=1e-5)
    assert losses(rows, weights)["U"].any(), "some query has to show the protected less"


def test_what_is_no_number_is_refused() -> None:
    rows = drawn(2, 10, 3)
    with pytest.raises(UsageError, match="grew beyond all numbers"):
        deltr.Training(gamma=1e300, rate=1e200, steps=5).weights(rows, [0.1, 0.2, 0.3])
    for rows in (
        deltr.TrainingRows([1, 1], [[0.0, float("nan")], [1.0, 1.0]], [0, 1]),
        deltr.TrainingRows([1], [[0, 1]], [0]),
    ):
        with pytest.raises(UsageError, match="grew beyond all numbers"):
            deltr.Training().weights(rows, [0.1, 0.2])


def test_features_are_standardized_by_column_or_as_a_whole_and_flags_are_left() -> None:
    features = np.array([[0, 1, 5], [1, 3, 5]], dtype=float)
    assert scaled(features).tolist() == [[0, -1, 0], [1, 1, 0]]
    whole = (features - features.mean()) / features.std()
    assert scaled(features, "global")[:, 1:] == pytest.approx(whole[:, 1:])
    assert scaled(features, "global")[:, deltr.PROTECTED].tolist() == [0, 1]


def w3c(name: str) -> tuple[Floats, Floats, Floats]:
    """Query, features and judgement of TREC W3C's expert search, of its first fold."""
    path = realdata("fairrag/deltr_trec_w3c_fold1") / name
    table = np.loadtxt(path, delimiter=",")
    return table[:, 0], table[:, 1:-1], table[:, -1]


def published(name: str) -> Floats:
    return np.loadtxt(realdata("fairrag/deltr_trec_w3c_fold1") / name / "model.m")


def as_published(gamma: float) -> Floats:
    """Weights of the authors' schedule, in whose own experiments L counts whole: not divided by ln N."""
    rows = deltr.TrainingRows(*w3c("train.csv"))
    divisor = math.log(len(rows.query))
    return deltr.Training(gamma / divisor, rate=1e-5 * divisor).weights(rows, deltr.start_weights(6))


@pytest.mark.whole
def test_without_gamma_the_published_weights_are_found_again() -> None:
    found = as_published(0)
    assert found == pytest.approx(published("GAMMA=0"), abs=0.005)


@pytest.mark.whole
def test_with_gamma_they_are_but_for_the_column_that_the_authors_gradient_moves() -> None:
    found = as_published(20_000)
    assert found[3] == pytest.approx(
        -0.0316, abs=1e-4
    )  # -0.0942 published: one number taken from every column
    assert np.delete(found, 3) == pytest.approx(np.delete(published("GAMMA=SMALL"), 3), abs=0.005)


# What a learnt ranker knows of candidates


GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "women", Side.UNPROTECTED: "men"})
DOCUMENTS = (
    Document("a", "Physics prize", "a woman in the laboratory", {"gender": ("female",)}),
    Document("b", "Chemistry", "a physics prize and a film", {"gender": ("male",)}),
    Document("c", "Film", "nothing of it", {}),
)
QUERY = Query("q", "physics prize")
METADATA = ("predicted quality", "ln sitelinks", "relative page views")


def test_flag_title_text_and_length(tmp_path: Path) -> None:
    features = deltr.Features(DOCUMENTS, GENDER, tmp_path)
    assert features.names == ("protected", "BM25(query, title)", "BM25(query, text)", "ln length")
    found = features(Candidates(QUERY, DOCUMENTS[::-1], {}))
    assert found[:, 0].tolist() == [0, 0, 1], "of no group is not protected"
    titles = Bm25Index(None, [Document(one.doc_id, one.title, "") for one in DOCUMENTS])
    assert found[:, 1].tolist() == [0, 0, titles.scores("physics prize", ["a"])["a"]]
    assert found[0, 2] == found[2, 2] == 0 < found[1, 2]
    assert found[:, 3] == pytest.approx([math.log(5), math.log(8), math.log(8)])


def test_what_no_document_has_is_left_out_by_name(tmp_path: Path) -> None:
    bare = tuple(Document(one.doc_id, one.title, "", one.groups) for one in DOCUMENTS)
    features = deltr.Features(bare, GENDER, tmp_path)
    assert features.names == ("protected", "BM25(query, title)", "ln length")
    assert features(Candidates(QUERY, bare, {})).shape == (3, 3)
    assert "text" not in features.identity and "bm25" in features.identity


def test_numbers_of_the_metadata_are_features_and_unknown_ones_their_mean(tmp_path: Path) -> None:
    numbers: tuple[dict[str, float], ...] = (
        {"pred_qual": 0.2, "num_sitelinks": 0.0},
        {"pred_qual": 0.6, "num_sitelinks": 8.0},
        {},
    )
    known = tuple(replace(one, numbers=of) for one, of in zip(DOCUMENTS, numbers, strict=True))
    features = deltr.Features(known, GENDER, tmp_path)
    assert features.names[-2:] == METADATA[:2]
    found = features(Candidates(QUERY, known, {}))[:, -2:]
    assert found == pytest.approx(np.array([[0.2, 0], [0.6, math.log(9)], [0.4, math.log(9) / 2]]))
    other = (*known[:2], replace(known[2], numbers={"pred_qual": 0.4}))
    assert deltr.Features(other, GENDER, tmp_path).identity != features.identity


# DLF-like: its gradient in numbers, exposure that meets the target, and how relevance and fairness are merged


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
            Candidates(Query(f"q{query}", "river"), documents, {f"{query}-{i}": 1 for i in (0, 1, 3, 4)})
        )
    return found


def groups_of(candidates: Sequence[Candidates]) -> Groups:
    documents = {document.doc_id: document for one in candidates for document in one.documents}
    return Groups("gender", {"gender": GENDER}, documents)


def nothing(candidates: Candidates) -> Floats:
    return np.zeros((len(candidates.documents), 1))


def lesson(seed: int = 1) -> deltr.Lesson:
    random = np.random.default_rng(seed)
    members = np.eye(3)[random.integers(0, 3, 15)]
    return deltr.Lesson(random.normal(size=(15, 4)), members, np.array([0.5, 0.5, 0.0]))


def loss(of: deltr.Lesson, weights: Floats) -> float:
    """KL(target, exposure), natural logarithm, of shares with 1e-6 added to each."""
    powers = np.exp(of.features @ weights)
    shares = np.array([of.target, powers / powers.sum() @ of.members]) + 1e-6
    target, exposure = shares / shares.sum(axis=1, keepdims=True)
    return float(target @ np.log(target / exposure))


def test_the_gradient_of_the_divergence_equals_the_numeric_one() -> None:
    given = lesson()
    for weights in np.random.default_rng(2).normal(size=(5, 4)):
        numeric = [(loss(given, weights + x) - loss(given, weights - x)) / 2e-6 for x in 1e-6 * np.eye(4)]
        assert given.slope(weights) == pytest.approx(numeric, abs=1e-6)


def test_who_is_shown_too_little_rises_and_alpha_says_how_far() -> None:
    given = lists()
    spread = cells(groups_of(given))
    models = {a: deltr.dlf_model(given[1:], nothing, spread, Bm25(), alpha=a, rate=0.01) for a in (0, 0.8, 1)}

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
        deltr.dlf_model([Candidates(given[0].query, given[0].documents, {})], nothing, spread, Bm25())


def options(parameters: str = "", of: Sequence[Candidates] = ()) -> RankerOptions:
    documents = tuple(document for one in of for document in one.documents)
    return RankerOptions(documents, Path("cache"), GENDER, parameters, groups=groups_of(of), lists=lambda: of)


@pytest.mark.whole
def test_with_an_encoder_lists_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.needs_encoders()
    monkeypatch.chdir(tmp_path)
    given = lists()
    ranker = registry.lookup("ranker", "dlf-like")(
        options(f"encoder={models.encoder(tmp_path / 'dense')},epochs=20", given)
    )
    assert ranker.identity.startswith("dlf-like alpha=0.8 pool=100 epochs=20")
    whole = ranker.scores(given[0])
    turned = Candidates(given[0].query, given[0].documents[::-1], given[0].relevance)
    assert ranker.scores(turned)[::-1] == pytest.approx(whole) and len({*whole}) > 2


QUERIES, ITEMS = 12, 10


def listed(number: int) -> Candidates:
    """Half of the documents are relevant."""
    documents = tuple(Document(f"{number}-{place}", "", "") for place in range(ITEMS))
    return Candidates(
        Query(f"q{number}", "words"), documents, {f"{number}-{place}": 1 for place in range(0, ITEMS, 2)}
    )


LISTS = [listed(number) for number in range(QUERIES)]


def asked_of_nobody(lists: Sequence[Candidates]) -> deltr.Model:
    return lambda candidates: [0.0] * len(candidates.documents)


@given(st.sets(st.text("ab", max_size=5), min_size=1), st.integers(0, 3))
def test_folds_are_of_like_sizes_and_hang_on_no_order(query_ids: set[str], seed: int) -> None:
    found = deltr.folds(query_ids, seed=seed)
    sizes = [[*found.values()].count(fold) for fold in range(deltr.FOLDS)]
    assert set(found) == query_ids and max(sizes) - min(sizes) <= 1
    assert found == deltr.folds(sorted(query_ids, reverse=True), seed=seed)


def test_cross_fitted_scores_are_of_models_that_did_not_see_the_query() -> None:
    seen: list[set[str]] = []

    def fit(lists: Sequence[Candidates]) -> deltr.Model:
        names = {one.query.query_id for one in lists}
        seen.append(names)

        def model(candidates: Candidates) -> list[float]:
            assert candidates.query.query_id not in names
            return [0.0] * len(candidates.documents)

        return model

    ranker = deltr.CrossFitted("mine", fit, LISTS)
    for one in LISTS * 2:
        ranker.scores(one)
    assert len(seen) == deltr.FOLDS, "each fold's model is fitted once"
    everyone = {one.query.query_id for one in LISTS}
    left_out = [everyone - names for names in seen]
    assert set.union(*left_out) == everyone and sum(map(len, left_out)) == len(everyone)


def test_unjudged_queries_teach_nothing_and_are_scored_by_the_model_of_all() -> None:
    unjudged = Candidates(Query("new", "words"), LISTS[0].documents, {})
    ranker = deltr.CrossFitted("mine", asked_of_nobody, [*LISTS, unjudged])
    assert ranker.training("new") == tuple(LISTS) and "new" not in ranker.fold
    assert ranker.identity == deltr.CrossFitted("mine", asked_of_nobody, LISTS[::-1]).identity
    assert ranker.identity != deltr.CrossFitted("mine", asked_of_nobody, LISTS[1:]).identity
    moved_to = {"gender": ("female",)}
    moved = replace(LISTS[0], documents=tuple(replace(one, groups=moved_to) for one in LISTS[0].documents))
    assert ranker.identity != deltr.CrossFitted("mine", asked_of_nobody, [moved, *LISTS[1:]]).identity
    with pytest.raises(UsageError, match="mine learns from judged queries, of which this has 1"):
        deltr.CrossFitted("mine a=1", asked_of_nobody, [LISTS[0], unjudged])
