"""What a learnt ranker knows of candidates."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llmfair.nouns import Attribute, Candidates, Document, Query, Side
from llmfair.rankers.deltr import Features
from llmfair.retrieval.bm25 import Bm25Index

GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "women", Side.UNPROTECTED: "men"})
DOCUMENTS = (
    Document("a", "Physics prize", "a woman in the laboratory", {"gender": ("female",)}),
    Document("b", "Chemistry", "a physics prize and a film", {"gender": ("male",)}),
    Document("c", "Film", "nothing of it", {}),
)
QUERY = Query("q", "physics prize")
METADATA = ("predicted quality", "ln sitelinks", "relative page views")


def test_flag_title_text_and_length(tmp_path: Path) -> None:
    features = Features(DOCUMENTS, GENDER, tmp_path)
    assert features.names == ("protected", "BM25(query, title)", "BM25(query, text)", "ln length")
    assert features.missing == METADATA
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
    assert features.missing == ("BM25(query, text)", *METADATA)
    assert features(Candidates(QUERY, bare, {})).shape == (3, 3)
    assert "text" not in features.identity and "bm25" in features.identity


def test_numbers_of_the_metadata_are_features_and_unknown_ones_their_mean(tmp_path: Path) -> None:
    numbers: tuple[dict[str, float], ...] = (
        {"pred_qual": 0.2, "num_sitelinks": 0.0},
        {"pred_qual": 0.6, "num_sitelinks": 8.0},
        {},
    )
    known = tuple(replace(one, numbers=of) for one, of in zip(DOCUMENTS, numbers, strict=True))
    features = Features(known, GENDER, tmp_path)
    assert features.names[-2:] == METADATA[:2] and features.missing == METADATA[2:]
    found = features(Candidates(QUERY, known, {}))[:, -2:]
    assert found == pytest.approx(np.array([[0.2, 0], [0.6, math.log(9)], [0.4, math.log(9) / 2]]))
    other = (*known[:2], replace(known[2], numbers={"pred_qual": 0.4}))
    assert Features(other, GENDER, tmp_path).identity != features.identity
