"""Searches against the exact formula: scores, order, ties, weights, and text that is no query syntax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from llmfair.nouns import Document
from llmfair.retrieval.analysis import ENGLISH, STANDARD, Analyzer
from llmfair.retrieval.bm25 import Bm25Index
from llmfair.retrieval.engine import Engine, Hit
from tests.retrieval.search_stub import Exact, decoded, encoded

FACTOR = 2.2
FIVE = [
    Document("d1", "Marie Curie", "Physics and chemistry of radium"),  # 7 terms
    Document("d2", "Lise Meitner", "Nuclear physics, more physics"),  # 6 terms
    Document("d3", "Clara Schumann", "Piano"),  # 3 terms
    Document("d4", "Béla Bartók"),  # 2 terms
    Document("d5", "Nobody's 2nd piano", "and violin"),  # 6 terms
]


def index(documents: Sequence[Document], analyzer: Analyzer = STANDARD) -> Engine:
    return Bm25Index(None, documents, analyzer)


def test_five_documents_by_hand() -> None:
    """N = 5, lengths 7, 6, 3, 2, 6, mean 24 / 5 = 4.8; `physics` and `piano` each stand in 2 documents."""
    idf = math.log(1 + 3.5 / 2.5)  # 0.875469
    parts = {
        "d1": idf * 1 / (1 + 1.2 * (0.25 + 0.75 * 7 / 4.8)),
        "d2": idf * 2 / (2 + 1.2 * (0.25 + 0.75 * 6 / 4.8)),
        "d3": idf * 1 / (1 + 1.2 * (0.25 + 0.75 * 3 / 4.8)),
        "d5": idf * 1 / (1 + 1.2 * (0.25 + 0.75 * 6 / 4.8)),
    }
    hits = index(FIVE).search("physics piano", 10)
    assert [hit.doc_id for hit in hits] == ["d2", "d3", "d5", "d1"]
    for hit in hits:
        assert hit.score / FACTOR == pytest.approx(parts[hit.doc_id], abs=1e-6)
    for hit in Exact(FIVE, STANDARD).search("physics piano", 10):
        assert hit.score == pytest.approx(parts[hit.doc_id], abs=1e-12)
    assert [hit.doc_id for hit in index(FIVE).search("physics piano", 2)] == ["d2", "d3"]


def test_added_words_count_so_many_times() -> None:
    engine, exact = index(FIVE), Exact(FIVE, STANDARD)
    for added, weight in (("piano", 1.0), ("piano", 2.5), ("piano Physics", 0.25), ("", 3.0)):
        hits = engine.search("physics", 5, added, weight)
        expected = exact.search("physics", 5, added, weight)
        assert [hit.doc_id for hit in hits] == [hit.doc_id for hit in expected]
        assert [hit.score / FACTOR for hit in hits] == pytest.approx(
            [hit.score for hit in expected], abs=1e-6
        )
    assert engine.search("physics", 5, "piano") == engine.search("physics piano", 5)
    assert engine.search("", 5, "piano") == engine.search("piano", 5)


def test_lengths_as_lucene_keeps_them() -> None:
    kept = {0: 0, 23: 23, 24: 24, 39: 39, 40: 40, 41: 40, 57: 56, 100: 96, 150: 144, 1000: 984}
    assert {length: decoded(encoded(length)) for length in kept} == kept


@pytest.mark.parametrize("folder", [None, Path("indexes")])
def test_400_tied_documents_come_in_the_order_of_their_ids(folder: Path | None) -> None:
    shuffled = np.random.default_rng(0).permutation(400)
    documents = [Document(f"t{number:03}", "film", "drama") for number in shuffled]
    documents += [Document("best", "film film", "")] + [Document(f"z{n}", "opera") for n in range(50)]
    engine = Bm25Index(folder, documents)
    tied = [f"t{number:03}" for number in range(400)]
    for k in (1, 2, 20, 300, 401, 1000):
        hits = engine.search("film drama", k)
        assert [hit.doc_id for hit in hits] == [*tied, "best"][:k]
    assert len({hit.score for hit in engine.search("film", 1000)}) == 2
    assert engine.search("film", 0) == []


@cache
def collection() -> tuple[list[Document], list[str]]:
    """2,000 documents of 1 to 5,000 words, some of the same text, and 50 queries of 1 to 150 words."""
    rng = np.random.default_rng(22)
    words = np.array([f"w{number}" for number in range(4_000)])
    share = 1 / np.arange(1, 4_001)

    def text(length: int) -> str:
        return " ".join(rng.choice(words, length, p=share / share.sum()))

    lengths = np.exp(rng.uniform(0, math.log(5_000), 2_000)).astype(int)
    lengths[:2] = 1, 5_000
    texts = [text(length) for length in lengths]
    texts[1_900:] = texts[:100]
    order = rng.permutation(2_000)
    documents = [Document(f"d{order[place]}", "", text) for place, text in enumerate(texts)]
    sizes = [1, 150, *np.exp(rng.uniform(0, math.log(150), 48)).astype(int)]
    return documents, [" ".join(rng.choice(words, size)) for size in sizes]


@pytest.mark.whole
def test_2000_documents_and_50_queries_equal_the_formula() -> None:
    documents, queries = collection()
    engine, exact = index(documents), Exact(documents, STANDARD)
    assert engine.count() == 2_000
    for query in queries:
        hits, expected = engine.search(query, 2_000), exact.search(query, 2_000)
        formula = dict(expected)
        for hit, one in zip(hits, expected, strict=True):
            assert hit.score / FACTOR == pytest.approx(formula[hit.doc_id], abs=1e-4)
            # the same place, but for what a score of 32 bits cannot tell apart
            assert hit.doc_id == one.doc_id or formula[hit.doc_id] == pytest.approx(one.score, rel=1e-7)
        assert hits[:20] == engine.search(query, 20)
        some = [hit.doc_id for hit in hits[::7]] + ["d0"]
        found = engine.scores(query, some)
        assert list(found) == list(dict.fromkeys(some))
        assert found.items() >= dict(hits[::7]).items()


ODD = [
    "(physics OR piano) AND NOT radium", '"physics', "doc_id:d1 text:physics", "physics^3 ~2 [a TO b]", "/ { ?",
    "Nobody's violin", "d'Artagnan’s", "\\physics\\", "* ? + - = && || > < !", "text:[* TO *]", "</script>", "\x00\x07", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("query", ODD)
@pytest.mark.parametrize("analyzer", [ENGLISH, STANDARD])
def test_query_syntax_is_words(query: str, analyzer: Analyzer) -> None:
    words = "".join(character if character.isalnum() else " " for character in query)
    engine = index(FIVE, analyzer)
    assert engine.search(query, 5) == engine.search(words, 5)
    assert engine.search("", 5, query, 2.0) == engine.search("", 5, words, 2.0)


@pytest.mark.parametrize("query", ["", " ", "?!", "\n", "'", "東"])
def test_a_query_of_no_word_finds_nothing(query: str) -> None:
    engine = index(FIVE)
    assert list(engine.search(query, 5)) == []
    assert engine.scores(query, ["d2", "d1"]) == {"d2": 0.0, "d1": 0.0}
    with pytest.raises(KeyError):
        engine.scores(query, ["d9"])


def test_a_query_of_ten_thousand_words() -> None:
    query = " ".join(["physics", "piano"] * 2_500 + [f"word{number}" for number in range(5_000)])
    engine, exact = index(FIVE), Exact(FIVE, STANDARD)
    hits, expected = engine.search(query, 5), exact.search(query, 5)
    assert [hit.doc_id for hit in hits] == [hit.doc_id for hit in expected]
    assert [hit.score / FACTOR for hit in hits] == pytest.approx([hit.score for hit in expected], rel=1e-4)


def test_analyzers() -> None:
    text = "The Films of U.S.A., foo_bar: don't 3.14 Élodie’s " + "x" * 41 + " " + "y" * 256
    common = ["of", "u", "s", "a", "foo", "bar", "don", "t", "3", "14"]
    assert STANDARD.terms(text) == ["the", "films", *common, "élodie", "s", "x" * 41]
    assert ENGLISH.terms(text)[:2] == ["the", "film"] and "x" * 41 not in ENGLISH.terms(text)
    documents = [Document("a", "films")]
    assert index(documents, ENGLISH).search("film", 1) and not index(documents, STANDARD).search("film", 1)
    identities = {Bm25Index(None, documents, analyzer).identity for analyzer in (ENGLISH, STANDARD)}
    assert len({identity.split("index=")[1] for identity in identities}) == 2


def test_threads_share_an_engine() -> None:
    documents, queries = collection()
    engine = Bm25Index(Path("indexes"), documents)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda query: engine.search(query, 20), queries))
    assert found == [engine.search(query, 20) for query in queries]
    assert all(isinstance(hit, Hit) for hits in found for hit in hits)
