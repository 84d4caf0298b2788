"""A real vLLM server of a re-ranker, asked through `rerank:`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import only_run, ran
from tests.engines import needs_vllm, serving
from tests.folders import balanced, write_folder

# What vLLM and torch warn of is theirs; the first test waits for the server.
pytestmark = [needs_vllm, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]


def test_scores_of_a_reranker_are_those_of_transformers(tmp_path: Path) -> None:
    """A cross-encoder of random weights, asked through `rerank:`: through a sigmoid, as the server gives them."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from tests.models import bert

    model = bert(tmp_path / "bert", labels=1)
    lists = write_folder(Path("lists"), balanced(3, 6, 6))
    with serving(model, ("--runner", "pooling"), tmp_path / "server.log") as url:
        ran("listwise", "-d", lists, "-m", "rerank:base", "--base-url", url, "--orders", "2")
    tokenizer = AutoTokenizer.from_pretrained(model)
    classifier = AutoModelForSequenceClassification.from_pretrained(model)
    rows = [json.loads(line) for line in (only_run() / "journal.jsonl").read_text().splitlines()[1:]]
    assert len(rows) == 3 * 2 * 2
    for row in rows:
        query, *documents = (text for _, text in row["chat"])
        with torch.no_grad():
            encoded = tokenizer([query] * len(documents), documents, padding=True, return_tensors="pt")
            expected = torch.sigmoid(classifier(**encoded).logits[:, 0]).tolist()
        answered = dict(json.loads(row["text"]))
        assert [answered[place] for place in range(len(documents))] == pytest.approx(expected, abs=1e-4)
