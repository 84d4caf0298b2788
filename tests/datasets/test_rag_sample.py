"""The bundled sample of questions with answers: small, labelled, and neither all right nor all wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from llmfair.datasets.answers import load_answers
from llmfair.datasets.attributes import data_folder
from llmfair.nouns import Document
from llmfair.rankers.bm25 import Bm25

K = 5


def answered(shown: Sequence[Document]) -> str:
    """The commonest label of the items shown; of several, the one shown first."""
    return Counter(item.groups["label"][0] for item in shown).most_common(1)[0][0]


def test_eight_questions_of_twenty_labelled_items_of_which_some_are_useful() -> None:
    dataset = load_answers("rag-sample")
    assert (dataset.prompt, dataset.utility, len(dataset.queries)) == ("rag/label", "accuracy", 8)
    ids = set[str]()
    for query in dataset.queries:
        items, (gold,) = dataset.candidates(query).documents, dataset.golds(query.query_id)
        labels = Counter(item.groups["label"][0] for item in items)
        assert len(items) == 20 and 5 <= labels[gold] <= 8 and len(labels) == 4
        assert gold not in query.text.casefold()
        assert all(3 <= len(item.text.split()) <= 25 and not item.title for item in items)
        ids.update(item.doc_id for item in items)
    assert len(ids) == 160


def test_the_best_five_are_a_mixture_and_a_reader_of_them_is_sometimes_wrong() -> None:
    dataset, ranker = load_answers("rag-sample"), Bm25()
    right = []
    for query in dataset.queries:
        candidates, (gold,) = dataset.candidates(query), dataset.golds(query.query_id)
        best, scores = ranker.ordered(candidates)
        assert scores and scores[K - 1] > scores[K], "the five best hang on no tie"
        labels = [item.groups["label"][0] for item in best.documents[:K]]
        assert 0 < labels.count(gold) < K
        right.append(answered(best.documents[:K]) == gold)
        useful = [item for item in candidates.documents if item.groups["label"] == (gold,)]
        assert answered(useful[:K]) == gold, "shown useful items alone it is always right"
    assert sum(right) == 6


def test_a_reader_of_items_drawn_by_chance_is_right_now_and_then() -> None:
    dataset, rng = load_answers("rag-sample"), np.random.default_rng(0)
    for query in dataset.queries:
        items, (gold,) = dataset.candidates(query).documents, dataset.golds(query.query_id)
        drawn = [[items[place] for place in rng.permutation(20)[:K]] for _ in range(100)]
        assert 10 < sum(answered(shown) == gold for shown in drawn) < 70


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in (data_folder() / "rag-sample").iterdir()) <= 30_000
