"""What a learnt ranker knows of candidates."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from llmfair.rankers.features import Features
from llmfair.records import Attribute, Candidates, Document, Query, Side
from llmfair.retrieval.bm25 import Bm25Index

GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "women", Side.UNPROTECTED: "men"})
DOCUMENTS = (
    Document("a", "Physics prize", "a woman in the laboratory", {"gender": ("female",)}),
    Document("b", "Chemistry", "a physics prize and a film", {"gender": ("male",)}),
    Document("c", "Film", "nothing of it", {}),
)
QUERY = Query("q", "physics prize")


def test_flag_title_text_and_length(tmp_path: Path) -> None:
    features = Features(DOCUMENTS, GENDER, tmp_path)
    assert features.names == ("protected", "BM25(query, title)", "BM25(query, text)", "ln length")
    assert features.missing == ()
    found = features(Candidates(QUERY, DOCUMENTS[::-1], {}))
    assert found[:, 0].tolist() == [0, 0, 1], "of no group is not protected"
    titles = Bm25Index(None, [Document(one.doc_id, one.title, "") for one in DOCUMENTS])
    assert found[:, 1].tolist() == [0, 0, titles.scores("physics prize", ["a"])["a"]]
    assert found[0, 2] == found[2, 2] == 0 < found[1, 2]
    assert found[:, 3] == pytest.approx([math.log(5), math.log(8), math.log(8)])


def test_what_no_document_has_is_left_out_by_name(tmp_path: Path) -> None:
    bare = tuple(Document(one.doc_id, one.title, "", one.groups) for one in DOCUMENTS)
    features = Features(bare, GENDER, tmp_path)
    assert features.names == ("protected", "BM25(query, title)", "ln length")
    assert features.missing == ("BM25(query, text)",)
    assert features(Candidates(QUERY, bare, {})).shape == (3, 3)
    assert "text" not in features.identity and "bm25" in features.identity
