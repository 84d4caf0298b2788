"""The BM25 ranker: a program without questions, whose ties keep the order they came in."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair import registry
from llmfair.nouns import Candidates, Chat, Completion, Document, Probe, Query, Ranking, drive
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.rankers.strategies import Ranked
from llmfair.retrieval.bm25 import Bm25Index

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
