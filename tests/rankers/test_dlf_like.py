"""DLF-like: its gradient in numbers, exposure that meets the target, and how relevance and fairness are merged."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from llmfair import registry
from llmfair.errors import MissingExtra, UsageError
from llmfair.metrics.base import Groups
from llmfair.metrics.targets import cells
from llmfair.nouns import Attribute, Candidates, Document, Query, Side
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.bm25 import Bm25
from llmfair.rankers.deltr import CrossFitted, DlfLike, Lesson, Schedule
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


def test_the_gradient_equals_the_numeric_one() -> None:
    given = lesson()
    for weights in np.random.default_rng(2).normal(size=(5, 4)):
        numeric = [(given.loss(weights + one) - given.loss(weights - one)) / 2e-6 for one in 1e-6 * np.eye(4)]
        assert given.slope(weights) == pytest.approx(numeric, abs=1e-6)


def test_training_lowers_the_divergence_and_a_group_without_members_leaves_it_finite() -> None:
    given = lesson()
    weights = Schedule(epochs=500, rate=0.01).weights([given])
    assert given.loss(weights) < 0.5 * given.loss(np.zeros(4))
    empty = Lesson(given.features, np.eye(3)[np.zeros(15, dtype=int)], np.array([0.0, 1.0, 0.0]))
    assert np.isfinite(Schedule(epochs=5).weights([empty])).all() and np.isfinite(empty.loss(np.zeros(4)))


def test_who_is_shown_too_little_rises_and_alpha_says_how_far() -> None:
    given = lists()
    spread = cells(groups_of(given))
    models = {
        alpha: DlfLike(given[1:], nothing, spread, Bm25(), alpha=alpha, schedule=Schedule(rate=0.01))
        for alpha in (0, 0.8, 1)
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


def test_no_query_is_scored_by_a_model_that_saw_it() -> None:
    given = lists()
    spread = cells(groups_of(given))

    def fit(learnt: Sequence[Candidates]) -> DlfLike:
        seen.append({one.query.query_id for one in learnt})
        return DlfLike(learnt, nothing, spread, Bm25())

    seen: list[set[str]] = []
    ranker = CrossFitted("dlf-like", fit, given)
    for one in given:
        before = len(seen)
        ranker.scores(one)
        own = {other.query.query_id for other in ranker.training(one.query.query_id)}
        assert one.query.query_id not in own and (len(seen) == before or seen[-1] == own)
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
