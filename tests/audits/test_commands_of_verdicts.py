"""The commands that a verdict names: they plan the same design with more queries, and train on what was audited."""

from __future__ import annotations

from typing import Any

import pytest

from llmfair.audits.commands import plan_of, takes_of, training_of, ways_of
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


def test_what_bars_a_conclusion_has_the_command_that_mends_it() -> None:
    def ways(texts: bool = True, **asked: Any) -> dict[str, str]:
        return ways_of("listwise", ListwiseSettings(**asked), "openai:x", texts)

    mended = ways(limit=3, queries="a,b,c", initial="given", orders=1, measures="P@20")
    assert mended["too_few_queries"] == (
        "llmfair listwise -m openai:x --measures P@20 --initial given --orders 1"
    ), "all queries"
    assert "--initial" not in mended["order_not_random"] and "--measures" not in mended["measured"]
    assert "--input text" in mended["chance_answers"] and "--design partition" in ways()["slots"]
    assert {"too_few_queries", "order_not_random", "measured"} & ways().keys() == set(), "nothing to change"
    assert not {"chance_answers", "no_better_than_input"} & ways(texts=False).keys()
    assert "slots" not in ways(design="partition")
    assert ways_of("listwise", ListwiseSettings(), "object:mine", True) == {}, "which no command names"


LISTS, PAIRS = ListwiseSettings, PairwiseSettings
ASKING = {"input", "prompt", "thinking", "max_tokens"}
MINE = ("http://127.0.0.1:8000/v1",)


@pytest.mark.parametrize(
    ("settings", "label", "taken"),
    [
        (LISTS(), "bm25", set()),
        (LISTS(strategy=("scores",), conditions="neutral"), "rerank:m", {"input"}),
        (PAIRS(form="scores", input="text"), "python:own:rank", set()),
        (LISTS(), "openai:m", {*ASKING, "window"}),
        (LISTS(base_url=("https://api.openai.com/v1",)), "openai:m", {*ASKING, "window"}),
        (LISTS(base_url=MINE), "openai:m", {*ASKING, "window", "constrain"}),
        (LISTS(base_url=MINE, constrain=True), "openai:m", {*ASKING, "window"}),
        (LISTS(strategy=("setwise",)), "hf:org/name + fair", {*ASKING, "constrain"}),
        (PAIRS(), "vllm:org/name", {*ASKING, "constrain"}),
        (PAIRS(answers="margin", thinking=True), "hf:org/name", {"input", "prompt", "max_tokens", "answers"}),
    ],
)
def test_advice_names_what_whoever_is_asked_has_a_use_for(settings: Any, label: str, taken: set[str]) -> None:
    assert takes_of(settings, label) == taken


def test_the_plan_of_a_ranker_that_scores_lists_names_it() -> None:
    settings = ListwiseSettings.make(strategy="scores", conditions="neutral")
    planned = plan_of("listwise", settings, "rerank:m")
    assert planned.startswith("llmfair plan listwise -m rerank:m ")
