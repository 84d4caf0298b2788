"""Prompts, answer tokens and margins of training are those of the audit; two rows in float32 do what the whole does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.asking.journal import chat_sampling
from llmfair.backends.base import BackendOptions
from llmfair.backends.hf import LocalBackend
from llmfair.backends.local import ChatTemplate
from llmfair.checkpoints import find_checkpoint
from llmfair.errors import BackendError, ContextTooLong, UsageError
from llmfair.nouns import Candidates, Completion, Probe, Request, Sampling
from llmfair.rankers.choices import LABELS, read_margin
from llmfair.tuning.drawing import answer_ids, render
from llmfair.tuning.head import answer_head, pair_margins, require_same_margin
from tests import models
from tests.models import one_thread as one_thread
from tests.tuning import tiny

models.needs_local()

FAMILIES: tuple[models.Family, ...] = ("mistral", "llama", "qwen")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {family: tiny.saved(root / family, family) for family in FAMILIES}


def audited(folder: Path, form: Any) -> tuple[list[Any], list[Completion]]:
    """What the audit's backend sees and answers for the pairs of `tiny.pair_groups`: its jobs, and completions."""
    backend = LocalBackend(find_checkpoint(str(folder)), BackendOptions())
    jobs = []
    own = backend._job

    def kept(*arguments: Any) -> Any:
        jobs.append(own(*arguments))
        return jobs[-1]

    backend._job = kept  # type: ignore[assignment,method-assign]
    requests: list[Request] = []
    for group in tiny.pair_groups(2):
        for pair in group:
            probe = Probe(pair.pair_id, Candidates(pair.query, (pair.a, pair.b), {}), "relevant", "neutral")
            for chat in tiny.ranker(form).chats(probe):
                sampling = chat_sampling(chat, Sampling(margins=True))
                requests.append(Request(chat, sampling, f"{len(requests)}", pair.pair_id))

    async def ask() -> list[Completion]:
        await backend.open()
        try:
            return [await backend.complete(one) for one in requests]
        finally:
            await backend.close()

    return jobs, asyncio.run(ask())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", ["letter", "order"])
def test_ids_answers_and_margins_are_those_of_the_audit(
    folders: dict[str, Path], family: models.Family, form: Any
) -> None:
    model = tiny.loaded(folders[family])
    assert model.template is not None
    groups = render(tiny.pair_groups(2), tiny.ranker(form), model.template, None)
    jobs, completions = audited(folders[family], form)
    prompts = [ids for group in groups for example in group for ids in example.prompts]
    assert [ids.tolist() for ids in prompts] == [job.ids for job in jobs]
    first, second = LABELS[form]
    assert {(job.labels[first], job.labels[second]) for job in jobs} == {answer_ids(groups)}
    margins = [read_margin(one, LABELS[form]).margin for one in completions]
    found = np.concatenate(pair_margins(model, groups, 500)).ravel()
    assert found == pytest.approx(np.array(margins), abs=models.margin_error())
    if (bos := model.tokenizer.bos_token_id) is not None:
        assert all((ids == bos).sum() == 1 and ids[0] == bos for ids in prompts)


def test_answers_that_begin_with_one_token_are_told_apart_at_the_next(folders: dict[str, Path]) -> None:
    """As Mistral's tokenizer has it, where a space before a letter is a token of its own."""

    class Spaced:
        def __init__(self, own: Any) -> None:
            self.own = own

        def __getattr__(self, name: str) -> Any:
            return getattr(self.own, name)

        def __call__(self, texts: Any, **settings: Any) -> Any:
            shown = texts if isinstance(texts, str) else [
                f"{text[:-1]}  {text[-1]}" if text.endswith(("]A", "]B")) else text for text in texts
            ]  # fmt: skip
            return self.own(shown, **settings)

    tokenizer = models.chat_tokenizer("mistral")
    space, a, b = (tokenizer(text, add_special_tokens=False).input_ids for text in (" ", " A", " B"))
    plain, spaced = ChatTemplate(tokenizer), ChatTemplate(Spaced(tokenizer))
    for one, other in zip(
        render(tiny.pair_groups(1), tiny.ranker(), plain, None)[0],
        render(tiny.pair_groups(1), tiny.ranker(), spaced, None)[0],
        strict=True,
    ):
        assert [[token] for token in other.answers] == [a, b]
        assert other.first.tolist() == [*one.first.tolist(), *space]


def test_a_prompt_that_is_too_long_names_its_pair(folders: dict[str, Path]) -> None:
    model = tiny.loaded(folders["mistral"])
    assert model.template is not None
    with pytest.raises(ContextTooLong, match=r"pair q0/0 has \d+ tokens"):
        render(tiny.pair_groups(1), tiny.ranker(), model.template, 20)


@pytest.mark.parametrize("kind", ["plain", "capped", "multiplied", "divided", "biased"])
def test_two_rows_give_the_margins_of_the_whole_head(tmp_path: Path, kind: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GraniteConfig, PhiConfig

    tokenizer = models.chat_tokenizer("llama", corpus=tiny.CORPUS)
    sizes = {
        "vocab_size": 1024, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512,
        "eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id, "pad_token_id": None,
    }  # fmt: skip
    if kind == "plain":
        tiny.saved(tmp_path, "llama")
    else:
        config = {
            "capped": lambda: Gemma2Config(**sizes, final_logit_softcapping=1.5, tie_word_embeddings=False),
            "multiplied": lambda: CohereConfig(**sizes, logit_scale=0.25),
            "divided": lambda: GraniteConfig(**sizes, logits_scaling=8.0, tie_word_embeddings=False),
            "biased": lambda: PhiConfig(**sizes),
        }[kind]()
        torch.manual_seed(3)
        made = AutoModelForCausalLM.from_config(config)
        for values in made.parameters():
            values.data.normal_(0.0, 0.3)
        models.save(made, tmp_path)
        tokenizer.save_pretrained(tmp_path)
    model = tiny.loaded(tmp_path, attention="eager")  # which soft-capping needs
    (group,) = tiny.examples(model, 1)
    answers = list(group[0].answers)
    (found,) = pair_margins(model, [group], 4096)
    for example, margins in zip(group, found, strict=True):
        for ids, margin in zip(example.prompts, margins, strict=True):
            with torch.inference_mode():
                logits = model.model(torch.tensor(ids[None]).long()).logits[0, -1, answers].float()
            assert margin == pytest.approx(float(logits[0] - logits[1]), abs=1e-5)
    assert model.model.get_output_embeddings().weight.shape[0] >= len(tokenizer), "the head is back"


def test_a_head_of_two_rows_nests_and_adds_nothing_to_what_is_saved(folders: dict[str, Path]) -> None:
    model = tiny.loaded(folders["llama"])
    whole, keys = model.model.lm_head, set(model.model.state_dict())
    with answer_head(model.model, (3, 4)):
        own = model.model.lm_head
        assert set(model.model.state_dict()) == keys - {"lm_head.weight"}
        with answer_head(model.model, (3, 4)):
            assert model.model.lm_head is own
        assert model.model.lm_head is own
    assert model.model.lm_head is whole


@pytest.mark.whole
def test_bfloat16_models_have_margins_without_ties(tmp_path: Path) -> None:
    import torch

    tiny.saved(tmp_path, "mistral", dtype="bfloat16")
    model = tiny.loaded(tmp_path, "bfloat16")
    groups = tiny.examples(model, 12)
    a, b = answer_ids(groups)
    noise = torch.randn(64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        rows = model.model.lm_head.weight
        rows[b] = rows[a] + (0.003 * noise).to(rows.dtype)
        own = [
            model.model(torch.tensor(example.first[None]).long()).logits[0, -1]
            for group in groups
            for example in group
        ]
    assert sum(int(logits[a] == logits[b]) for logits in own) >= 3, "the model's own logits tie"
    assert (np.concatenate(pair_margins(model, groups, 4096)) != 0).all()


def test_what_two_logits_alone_cannot_show_is_an_error_and_not_a_guess(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import MistralForCausalLM

    own = MistralForCausalLM.forward
    model = tiny.loaded(folders["mistral"])
    (group,) = tiny.examples(model, 1)
    require_same_margin(model, group[0])

    def cubed(self: Any, *arguments: Any, **named: Any) -> Any:
        found = own(self, *arguments, **named)
        found.logits = found.logits**3
        return found

    def standardised(self: Any, *arguments: Any, **named: Any) -> Any:
        found = own(self, *arguments, **named)
        if found.logits.shape[-1] == 2:
            found.logits = found.logits / found.logits.std(-1, keepdim=True)
        return found

    for forward in (cubed, standardised):
        monkeypatch.setattr(MistralForCausalLM, "forward", forward)
        with pytest.raises(BackendError) as error:
            pair_margins(model, [group], 4096)
        assert error.value.hint == "choose another --base-model"


def test_answers_that_depend_on_the_prompt_are_refused(folders: dict[str, Path]) -> None:
    from dataclasses import replace

    (group,) = tiny.examples(tiny.loaded(folders["llama"]), 1)
    with pytest.raises(UsageError, match="2 different pairs of tokens"):
        answer_ids([group, (replace(group[0], answers=(1, 2)),)])


def test_a_batch_that_does_not_fit_runs_in_halves(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import MistralForCausalLM

    model = tiny.loaded(folders["mistral"])
    groups = tiny.examples(model, 3)
    expected, own, most = pair_margins(model, groups, 10**6), MistralForCausalLM.forward, 5

    def small(self: Any, input_ids: Any = None, **named: Any) -> Any:
        if len(input_ids) > most:
            raise torch.OutOfMemoryError("out of memory")
        return own(self, input_ids=input_ids, **named)

    monkeypatch.setattr(MistralForCausalLM, "forward", small)
    found = pair_margins(model, groups, 10**6)
    assert np.concatenate(found) == pytest.approx(np.concatenate(expected), abs=models.margin_error())
    most = 0
    monkeypatch.setattr("llmfair.tuning.head.require_same_margin", lambda *_: None)
    with pytest.raises(BackendError, match="too small for a prompt of"):
        pair_margins(model, groups, 10**6)
