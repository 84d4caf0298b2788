"""The commands that a verdict names: they plan the same design with more queries, and train on what was audited."""

from __future__ import annotations

from typing import Any

import pytest

from llmfair.audits.commands import plan_of, training_of
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.pairwise.settings import PairwiseSettings

ASKED: dict[str, Any] = {
    "dataset": "my data",
    "attribute": "location",
    "input": "text",
    "limit": 6,
    "queries": "a,b",
}


def test_more_queries_are_planned_without_what_leaves_queries_out() -> None:
    planned = plan_of("listwise", ListwiseSettings(**ASKED), "openai:x")
    assert planned == "llmfair plan listwise --dataset 'my data' --attribute location --input text"


@pytest.mark.parametrize(
    ("task", "prompt", "kept"),
    [
        ("listwise", "wikiproject", True),
        ("listwise", "mine.toml", False),  # words for lists ask nothing about pairs
        ("pairwise", "mine.toml", True),
    ],
)
def test_a_model_is_trained_on_what_was_audited(task: str, prompt: str, kept: bool) -> None:
    settings = {"listwise": ListwiseSettings, "pairwise": PairwiseSettings}[task](**ASKED, prompt=prompt)
    flags = "--dataset 'my data' --attribute location --input text" + f" --prompt {prompt}" * kept
    assert training_of(task, settings, "hf:org/name") == f"llmfair finetune-lora {flags} -m org/name"
    assert training_of(task, settings, "openai:x") == training_of(task, settings, "hf:x + adapter") == ""
