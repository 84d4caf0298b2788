"""Baselines that learn: in no run is a query ordered by a model that saw its judgements."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llmfair.nouns import NUMBERS, Candidates
from llmfair.rankers.deltr import CrossFitted, DeltrModel
from tests.audits.refine.test_refine import ran

WORDS = ("reef", "map", "chess")
PLANTED = ("-d", "planted", "--baseline", "deltr=deltr:gamma=0", "--objective", "KL@4", "-o", "run")


@pytest.mark.whole
def test_no_query_is_ordered_by_a_model_that_saw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[int, set[str]] = {}
    ordered: list[str] = []
    made, scored = DeltrModel.__init__, DeltrModel.__call__

    def learning(model: DeltrModel, lists: Sequence[Candidates], *more: Any) -> None:
        seen[id(model)] = {one.query.query_id for one in lists}
        made(model, lists, *more)

    def scoring(model: DeltrModel, candidates: Candidates) -> list[float]:
        assert candidates.query.query_id not in seen[id(model)]
        ordered.append(candidates.query.query_id)
        return scored(model, candidates)

    monkeypatch.setattr(DeltrModel, "__init__", learning)
    monkeypatch.setattr(DeltrModel, "__call__", scoring)
    ran("--baseline", "deltr", "-o", "run")
    assert len(ordered) == len({*ordered}) == 12 and {*map(len, seen.values())} == {9, 10}


def planted() -> None:
    """Three topics of twelve documents alike but for one number, known of one topic's documents alone.

    It is lower where a document is relevant: a weight below 0, which only the topic itself teaches.
    """
    folder = Path("planted")
    folder.mkdir()
    documents, groups, qrels = [], [], []
    for topic, (word, number) in enumerate(zip(WORDS, NUMBERS, strict=True)):
        for n in range(12):
            doc_id, relevant = f"{topic}-{n:02}", n % 3 == 0
            documents.append(
                {"doc_id": doc_id, "title": word, "text": word, number: 1.0 if relevant else 3.0}
            )
            groups.append(f"{doc_id}\tgender\t{'female' if n % 2 else 'male'}\n")
            qrels.append(f"q{topic} 0 {doc_id} {int(relevant)}\n")
    (folder / "docs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    (folder / "queries.tsv").write_text("".join(f"q{n}\t{word}\n" for n, word in enumerate(WORDS)))
    (folder / "groups.tsv").write_text("".join(groups))
    (folder / "qrels.txt").write_text("".join(qrels))


def utility() -> list[float]:
    """nDCG of DELTR's page, by query."""
    rows = csv.DictReader(Path("run/per_query.csv").read_text().splitlines())
    return [float(row["value"]) for row in rows if (row["measure"], row["condition"]) == ("nDCG@4", "deltr")]


@pytest.mark.whole
def test_a_number_that_only_leakage_could_use_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    planted()
    ran(*PLANTED)
    assert utility() == [0, 0, 0]
    monkeypatch.setattr(CrossFitted, "training", lambda ranker, query_id: ranker.lists)
    ran(*PLANTED, "--fresh")
    assert utility() == [1, 1, 1], "a model of all topics puts the relevant documents first"
