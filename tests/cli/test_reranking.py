"""`listwise -m mmr`, `fair-star` and `greedy`: lists ordered anew, without a question and without scores."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from llmfair.datasets.base import load_dataset
from llmfair.io.trec import read_run
from llmfair.nouns import Side
from llmfair.rankers.reranking import fair_table
from tests.cli.command import kept, only_run, ran, refuses

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("ranker", ["mmr", "fair-star", "greedy"])
def test_a_run_is_replayed_and_measured_again(ranker: str) -> None:
    found = ran("listwise", "-m", ranker, "--no-report", "--json").json
    run = only_run()
    manifest = kept("manifest", run)
    assert manifest["settings"]["identity"].startswith(f"{ranker} ") and manifest["calls"] == 0
    assert " over bm25 k1=1.2 " in manifest["settings"]["identity"]
    assert not (run / "scores.tsv").exists()
    ran("runs", "check", run)
    again = ran("score", run, "--json").json["rows"]
    values = {row["measure"]: row["value"] for row in found["rows"] if row["condition"] == "neutral"}
    assert {row["measure"]: row["value"] for row in again}["nDCG@20"] == values["nDCG@20"]
    assert ran("listwise", "-m", ranker, "--no-report", "--json").json["rows"] == found["rows"]


def test_fair_star_keeps_its_table_on_the_lists_of_an_audit() -> None:
    ran("listwise", "-m", "fair-star:p=0.4,alpha=0.1", "--no-report")
    dataset = load_dataset("sample")
    gender = dataset.attributes[0]
    table = fair_table(400, 0.4, 0.1).minimum
    rankings = read_run(only_run() / "rankings" / "neutral.run").rankings
    for ranking, i in product(rankings.values(), range(1, 41)):
        sides = [gender.side(dataset.documents[doc_id]) for doc_id in ranking.doc_ids[:i]]
        assert sides.count(Side.PROTECTED) >= min(table[i - 1], 20)


def test_what_cannot_be_done_is_said() -> None:
    refuses("fair-star: p cannot be '3'.", "listwise", "-m", "fair-star:p=3")
    refuses(
        "greedy: target cannot be 'uniforn'. Did you mean 'uniform'?",
        *"listwise -m greedy:target=uniforn".split(),
    )
    refuses("mmr ranks lists; it answers no questions", "pairwise", "-m", "mmr")
    refuses("mmr gives an order and no scores", "rag", "--retriever", "mmr")
    refuses("mmr gives an order and no scores", "refine", "--rerank", "mmr")
    Path("greedy.json").write_text('{"femal": 1}')
    refuses("'femal' is no group of gender.", "listwise", "-m", "greedy:target=./greedy.json")
