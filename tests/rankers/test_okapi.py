"""BM25 of Fair-RAG: by hand, and as the formula has it in any list."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair import registry
from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Document, Query
from llmfair.rankers.base import RankerOptions
from tests.cli.command import llmfair


def scores(text: str, *texts: str) -> list[float]:
    documents = tuple(Document(str(number), "", of) for number, of in enumerate(texts))
    ranker = registry.lookup("ranker", "bm25-okapi")(RankerOptions((), Path()))
    found: list[float] = ranker.scores(Candidates(Query("q", text), documents, {}))
    return found


def test_scores_by_hand() -> None:
    """N = 4; lengths 2, 3, 1, 2, mean 2. `film` stands in 1, `the` in 3 (idf negative), `a` and `war` in 1 each."""
    rare, common = math.log(3.5 / 1.5), math.log(1.5 / 3.5)
    least = 0.25 * (3 * rare + common) / 4  # of film, a, war and the
    found = scores("the film film gone", "the film", "the war a", "the", "a a")
    # `a` stands in two items, so its idf is ln(2.5/2.5) = 0.
    least = 0.25 * (2 * rare + 0 + common) / 4
    first = 1.5 * (0.25 + 0.75 * 2 / 2)
    expected = [
        (least + 2 * rare) * 2.5 / (1 + first),
        least * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 3 / 2)),
        least * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 1 / 2)),
        0.0,
    ]
    assert found == pytest.approx(expected, abs=1e-12)


def test_case_and_punctuation_are_part_of_a_word_and_titles_are_read() -> None:
    assert scores("Film", "film", "Film.", "x", "y", "z") == [0.0] * 5
    ranker = registry.lookup("ranker", "bm25-okapi")(RankerOptions((), Path()))
    documents = (Document("a", "Film", "x"), Document("b", "", "y"), Document("c", "", "z"))
    found = ranker.scores(Candidates(Query("q", "Film"), documents, {}))
    assert found[0] > 0 == found[1] == found[2]


@given(st.lists(st.text("ab ", max_size=8), min_size=1, max_size=5), st.text("abc ", max_size=5))
def test_any_list_has_finite_scores_zero_without_a_common_word(texts: list[str], query: str) -> None:
    found = scores(query, *texts)
    assert all(map(math.isfinite, found))
    words = set(query.split())
    assert all(value == 0 for value, text in zip(found, texts, strict=True) if not words & set(text.split()))


def test_it_is_a_ranker_of_lists_too_and_has_no_checkpoints() -> None:
    found = llmfair("listwise", "-m", "bm25-okapi", "-n", "2", "--orders", "1", "--json")
    assert found.code == 0 and found.json["model"] == "bm25-okapi"
    with pytest.raises(UsageError, match="no checkpoints"):
        registry.lookup("ranker", "bm25-okapi")(RankerOptions((), Path(), checkpoint="x"))
