"""Greedy re-ranking towards a target: what it trades, its target, and what it does without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmfair import registry
from llmfair.metrics.attention import kullback_leibler
from llmfair.metrics.base import Groups
from llmfair.nouns import Attribute, Candidates, Document, Query, Side
from llmfair.rankers.base import Ranker, RankerOptions
from llmfair.rankers.reranking import EPS, NO_TARGET, greedy

GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "female", Side.UNPROTECTED: "male"})
DOCUMENTS = tuple(
    Document(f"{group[0]}{place}", "", groups={"gender": (group,)} if group != "?" else {})
    for place, group in enumerate(["male", "male", "male", "female", "female", "?"])
)


def ranker(parameters: str = "") -> Ranker:
    groups = Groups("gender", {"gender": GENDER}, {one.doc_id: one for one in DOCUMENTS})
    made: Ranker = registry.lookup("ranker", "greedy")(
        RankerOptions((), Path("kept"), GENDER, checkpoint=parameters, groups=groups)
    )
    return made


def candidates(*relevant: str) -> Candidates:
    return Candidates(Query("q", ""), DOCUMENTS, dict.fromkeys(relevant, 1), (6.0, 5.0, 4.0, 3.0, 2.0, 1.0))


def test_each_step_is_the_best_of_its_formula() -> None:
    rng = np.random.default_rng(3)
    relevance, rows = rng.random(12), rng.dirichlet([1, 1, 1], 12)
    target = np.array([0.6, 0.3, 0.1])
    page: list[int] = []
    for place in greedy(relevance, rows, target, 0.4):
        left = [i for i in range(12) if i not in page]
        worth = {
            i: 0.4 * relevance[i] - 0.6 * kullback_leibler(rows[[*page, i]].mean(axis=0), target, EPS)
            for i in left
        }
        assert worth[place] == pytest.approx(max(worth.values()), abs=1e-12)
        page.append(place)
    assert sorted(page) == list(range(12))


def test_relevance_alone_keeps_the_order_and_the_target_alone_alternates() -> None:
    listed = candidates("m0", "f3")
    assert ranker("lambda=1").ordered(listed)[0].doc_ids == listed.doc_ids
    found = ranker("lambda=0").ordered(listed)[0].doc_ids
    assert found[:4] == ("m0", "f3", "m1", "f4") and found[-1] == "?5"


def test_the_target_may_be_one_that_needs_no_judgement() -> None:
    listed = candidates()
    found = ranker("lambda=0,target=uniform").ordered(listed)[0].doc_ids
    # which leaves documents of unknown group out of its shares, so that one does no harm
    assert found[:5] == ("m0", "f3", "?5", "m1", "f4")
    empirical = ranker("lambda=0")
    assert empirical.ordered(listed)[0].doc_ids == listed.doc_ids
    assert empirical.remark(listed) == NO_TARGET and ranker("target=uniform").remark(listed) == ""


def test_documents_of_which_nothing_is_known_count_as_far_from_any_target() -> None:
    unlisted = Candidates(Query("q", ""), (Document("u", ""), *DOCUMENTS[:4]), {"m0": 1, "f3": 1}, (9.0,) * 5)
    assert ranker().ordered(unlisted)[0].doc_ids[:2] == ("m0", "f3")
