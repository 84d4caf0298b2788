"""A real vLLM server that reranks: a cross-encoder of random weights, asked through `rerank:`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import only_run, ran
from tests.engines import needs_vllm, serving
from tests.folders import balanced, write_folder

pytestmark = [needs_vllm, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models import bert

    return bert(tmp_path_factory.mktemp("bert"), labels=1)


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    with serving(model, ("--runner", "pooling"), log) as url:
        yield url


def test_scores_are_those_of_transformers(server: str, model: Path) -> None:
    """Through a sigmoid, as the server gives them."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    lists = write_folder(Path("lists"), balanced(3, 6, 6))
    ran("listwise", "-d", lists, "-m", "rerank:base", "--base-url", server, "--orders", "2")
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
