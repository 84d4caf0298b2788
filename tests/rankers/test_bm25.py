"""The BM25 ranker: a program without questions, whose ties keep the order they came in."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair import registry
from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Chat, Completion, Document, Probe, Query, Ranking, drive
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.rankers.strategies import Ranked
from llmfair.retrieval.bm25 import Bm25Index
from tests.cli.command import llmfair

DOCUMENTS = (
    Document("e", "Nobody"),
    Document("c", "Chess"),
    Document("b", "Film and films", "Also a film"),
    Document("d", "Somebody"),
    Document("a", "A film"),
    Document("f", "A film"),
)


def ranker() -> ScoringRanker:
    made: ScoringRanker = registry.lookup("ranker", "bm25")(RankerOptions(DOCUMENTS, Path("kept")))
    return made


def ranked(text: str, documents: tuple[Document, ...] = DOCUMENTS) -> Ranked:
    probe = Probe("q/neutral/o0/r0", Candidates(Query("q", text), documents, {}), "neutral", "neutral")
    return drive(ranker().steps(probe), asks_nothing)


def ranking(text: str, documents: tuple[Document, ...] = DOCUMENTS) -> Ranking:
    found = ranked(text, documents).ranking
    assert found is not None
    return found


def asks_nothing(chat: Chat) -> Completion:
    raise AssertionError(chat)


def test_it_asks_nothing_and_ties_keep_their_order() -> None:
    found = ranked("Film")
    assert found.ranking is not None and found.ranking.doc_ids == ("b", "a", "f", "e", "c", "d")
    assert found.windows == () and found.ranking.query_id == "q"
    scores = found.ranking.scores
    assert (
        scores is not None and scores[0] > scores[1] == scores[2] > scores[3] == scores[4] == scores[5] == 0
    )
    assert ranking("Film", DOCUMENTS[::-1]).doc_ids == ("b", "f", "a", "d", "c", "e")


def test_what_a_first_stage_gave_stays_with_its_document() -> None:
    given = Candidates(Query("q", "Film"), DOCUMENTS, {}, scores=(6.0, 5.0, 4.0, 3.0, 2.0, 1.0))
    found, _ = ranker().ordered(given)
    assert found.doc_ids == ("b", "a", "f", "e", "c", "d") and found.scores == (4.0, 2.0, 1.0, 6.0, 5.0, 3.0)


@pytest.mark.parametrize("text", ["Mathematics", "", "?", "[3] > [1]"])
def test_a_query_that_matches_nothing_keeps_the_order(text: str) -> None:
    found = ranking(text)
    assert found.doc_ids == ("e", "c", "b", "d", "a", "f") and found.scores == (0.0,) * 6


def test_a_part_of_the_collection_is_ranked_with_the_statistics_of_all() -> None:
    whole, part = ranking("film"), ranking("film", DOCUMENTS[3:5])
    assert part.doc_ids == ("a", "d")
    assert whole.scores is not None and part.scores is not None and part.scores[0] == whole.scores[1]


def test_it_says_what_it_is_and_needs() -> None:
    bm25 = ranker()
    assert bm25.identity.startswith("bm25 k1=1.2 b=0.75 tokenizer=en_stem tantivy=")
    assert bm25.plan(40).calls == 0 and bm25.one_pass(40) == [(0, 40)]
    assert not Path("kept").exists()  # nothing is made before something is ranked


def test_with_each_list_for_itself_words_are_counted_among_its_candidates_and_nothing_is_kept() -> None:
    """As an index of the list alone has them, whatever other documents there are."""
    alone = registry.lookup("ranker", "bm25")(RankerOptions((), Path("kept"), each_list=True))
    for documents in (DOCUMENTS, DOCUMENTS[2:], DOCUMENTS[2:]):
        stored = registry.lookup("ranker", "bm25")(RankerOptions(documents, Path("elsewhere")))
        candidates = Candidates(Query("q", "a film"), documents, {})
        assert alone.scores(candidates) == stored.scores(candidates)
    assert not Path("kept").exists()
    assert (
        "each list" in alone.identity
        and alone.identity.split(" index=")[0] == stored.identity.split(" index=")[0]
    )


def test_queries_of_one_corpus_share_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(folder: None, documents: tuple[Document, ...]) -> Bm25Index:
        made.append(documents)
        return Bm25Index(folder, documents)

    monkeypatch.setattr("llmfair.rankers.bm25.Bm25Index", counted)
    ranker = registry.lookup("ranker", "bm25")(RankerOptions((), Path("kept"), each_list=True))
    for documents in (DOCUMENTS, DOCUMENTS, tuple(reversed(DOCUMENTS))):
        ranker.scores(Candidates(Query("q", "film"), documents, {}))
    assert len(made) == 2


# BM25 of Fair-RAG


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
