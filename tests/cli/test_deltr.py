"""`--model deltr`: learnt from the dataset's own judgements, cross-fitted, and what it cannot learn from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmfair.audits.lists import training_lists
from llmfair.datasets.base import load_dataset
from llmfair.datasets.collection import Collection
from tests.cli.command import kept, llmfair, only_run, ran, refuses, table
from tests.folders import balanced, write, write_folder

pytestmark = pytest.mark.whole


def test_a_run_is_cross_fitted_and_the_same_again() -> None:
    first = ran("listwise", "-m", "deltr", "--json")
    run = only_run()
    identity = kept("manifest", run)["settings"]["identity"]
    assert identity.startswith("deltr gamma=500 gradient=exact standardize=columns steps=3000 rate=0.001 ")
    assert "folds=5" in identity and "BM25(query, title)" in identity and "ln length" in identity
    assert kept("manifest", run)["calls"] == 0
    values = [row for row in table(run / "per_query.csv") if row["measure"] == "nDCG@20"]
    mean = {
        condition: sum(float(row["value"]) for row in values if row["condition"] == condition) / 8
        for condition in ("neutral", "initial")
    }
    assert mean["neutral"] > mean["initial"] + 0.1, "it ranks better than a random order"
    assert llmfair("listwise", "-m", "deltr", "--json", "--fresh").out == first.out
    ran("runs", "check", run)


def test_some_queries_are_ranked_as_in_a_run_of_all() -> None:
    ran("listwise", "-m", "deltr", "-o", "all")
    ran("listwise", "-m", "deltr", "-n", "2", "-o", "two")
    everything, two = (
        Path(run, "rankings", "neutral.run").read_text().splitlines() for run in ("all", "two")
    )
    assert len(two) == 80 and {*two} < {*everything}


def test_what_no_item_has_is_said_and_what_cannot_be_learnt_from_refused() -> None:
    folder = write_folder(Path("bare"), balanced(6, 4, 4), queries={f"q{q}": f"Title {q}" for q in range(6)})
    found = ran("listwise", "-d", folder, "-m", "deltr", "-o", "run")
    told = (
        "deltr learns without BM25(query, text), predicted quality, ln sitelinks, relative page views: no item "
        "has any"
    )
    assert told in found.err and told in kept("manifest", "run")["warnings"]
    refused = refuses(
        "deltr learns from judged queries, of which this has 1",
        "listwise", "-d", write_folder(Path("one"), balanced(1, 4, 4)), "-m", "deltr",
    )  # fmt: skip
    assert "no list is ranked by a model that saw its own" in refused.err
    refuses("deltr compares two groups", "rag", "--retriever", "deltr")
    refuses("deltr: gamma cannot be '-1'", "listwise", "-m", "deltr:gamma=-1")


def test_a_run_of_the_same_lists_is_reranked_alike() -> None:
    ran("listwise", "-m", "deltr", "-o", "own")
    ran("listwise", "-m", "bm25", "-o", "other")
    run, own = Path("other/rankings/neutral.run"), Path("own/rankings/neutral.run")
    ran("rerank", run, "--with", "deltr", "-d", "sample", "-o", "new.run")

    def scored(path: Path) -> list[tuple[str, float]]:
        """The score that DELTR gave each document, in the order of a run."""
        rows = [line.split("\t") for line in Path("own/scores.tsv").read_text("utf-8").splitlines()]
        score = {(row[0], row[1]): float(row[2]) for row in rows}
        lines = [line.split() for line in path.read_text("utf-8").splitlines()]
        return [(line[0], score[line[0], line[2]]) for line in lines]

    assert scored(Path("new.run")) == scored(own) != scored(run), "equal scores keep the order they came in"
    refuses(
        "deltr learns from judged queries",
        "rerank", run, "--with", "deltr", "--groups", "other/groups.tsv", "-o", "no.run",
    )  # fmt: skip


def test_gamma_shows_the_protected_more() -> None:
    ran("listwise", "-m", "deltr:gamma=0", "-m", "deltr:gamma=5000,steps=1000", "--runs-dir", "both")
    ratios = {}
    for run in Path("both").iterdir():
        (row,) = [
            row
            for row in table(run / "metrics.csv")
            if (row["measure"], row["condition"]) == ("ExpRatio", "neutral")
        ]
        ratios["gamma=5000" in kept("manifest", run)["settings"]["identity"]] = float(row["value"])
    assert ratios[True] > ratios[False]


def test_data_with_lists_teach_by_those_and_others_by_what_is_found() -> None:
    sample = load_dataset("refine-sample")
    own = [sample.candidates(query) for query in sample.queries]
    assert training_lists(sample) == training_lists(Collection(sample)) == own
    ran("refine", "--rerank", "deltr", "-o", "refined")
    assert kept("manifest", "refined")["settings"]["reranker"].startswith("deltr gamma=500")

    folder = Path("positive")
    write_folder(folder, balanced(3, 4, 4), queries={f"q{q}": "topic" for q in range(3)})
    lines = [json.loads(line) for line in (folder / "docs.jsonl").read_text().splitlines()]
    write(folder / "docs.jsonl", (json.dumps(line | {"text": "a topic"}) for line in lines))
    judged = (folder / "qrels.txt").read_text().splitlines()
    write(folder / "qrels.txt", (line for line in judged if line.endswith(" 1")))
    dataset = load_dataset(str(folder))
    lists = training_lists(dataset)
    assert [len(one.documents) for one in lists] == [24] * 3, "unjudged documents are found too"
    assert [sum(one.relevance.get(doc_id, 0) for doc_id in one.doc_ids) for one in lists] == [4] * 3
    assert training_lists(Collection(dataset)) == lists
