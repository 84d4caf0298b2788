"""A real vLLM server asked through `openai:`: constrained answers, margins, and adapters by their names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmfair.backends.local import ChatTemplate
from llmfair.prompts import load_prompt
from tests.cli.command import Outcome, only_run, ran
from tests.engines import needs_vllm, served, serving
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a server with a base model, `base`, and an adapter over it, `fair`."""
    import torch

    from tests.models import adapter, causal

    folder = tmp_path_factory.mktemp("models")
    base = causal(folder / "base", "llama")
    prefer_letters(base)
    torch.manual_seed(0)
    with served(base, {"fair": adapter(base, folder / "fair")}, folder / "server.log") as url:
        yield url


def prefer_letters(folder: Path) -> None:
    """Changes a model so that A and B are its likeliest answers, either of them: a server sends twenty."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tests.models import quiet, save

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with quiet():
        model = AutoModelForCausalLM.from_pretrained(folder)
    template, prompt = ChatTemplate(tokenizer), load_prompt("pairwise-general")
    values = [
        {"query": f"Topic q{n}", "first": f"Title q{n}f{n}", "second": f"Title q{n}m{n}"} for n in range(8)
    ]
    prompts = [torch.tensor([template.ids(prompt.render(v, "letter"))]) for v in values]
    with torch.no_grad():
        state = torch.stack([model.model(ids).last_hidden_state[0, -1] for ids in prompts]).mean(0)
        state /= state.norm()
        for letter in "AB":  # alike on average, apart by what a prompt shows
            row = model.lm_head.weight[tokenizer.convert_tokens_to_ids(letter)]
            row.copy_(0.3 * (row - (row @ state) * state) + 3 * state)
    save(model, folder)


def audited(command: str, url: str, model: str, *more: str | Path) -> Outcome:
    lists = write_folder(Path("lists"), balanced(3, 6, 6))
    return ran(command, "-d", lists, "-m", f"openai:{model}", "--base-url", url, "--json", *more)


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()[1:]]


def test_margins_of_the_base_and_of_an_adapter_by_name(server: str) -> None:
    margins = {}
    for model in ("base", "fair"):
        folder = Path(model)
        margin = ("--answers", "margin", "--pairs", "9", "--noise-share", "0", "--max-invalid", "1")
        audited("pairwise", server, model, *margin, "-o", folder)
        rows = journal(folder)
        assert len(rows) == 3 * 2 * 9 * 2 and {row["model"] for row in rows} == {model}
        margins[model] = {
            json.dumps(row["chat"]): row["logprobs"]["A"] - row["logprobs"]["B"]
            for row in rows
            if row["logprobs"].keys() == {"A", "B"}
        }
    both = margins["base"].keys() & margins["fair"].keys()
    assert len(margins["base"]) == 3 * 2 * 9 * 2 and len(both) > 10
    assert max(abs(margins["base"][chat] - margins["fair"][chat]) for chat in both) > 0.1
