"""Prompts, answer tokens, margins and gradients of training are those of the audit, in both layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.asking.journal import chat_sampling
from llmfair.backends.base import BackendOptions
from llmfair.backends.hf import LocalBackend
from llmfair.backends.local import ChatTemplate, LocalModel, common_prefix
from llmfair.checkpoints import find_checkpoint
from llmfair.errors import BackendError, ContextTooLong, UsageError
from llmfair.nouns import Candidates, Completion, Probe, Request, Sampling
from llmfair.rankers.choices import LABELS, read_margin
from llmfair.tuning import head
from llmfair.tuning.drawing import ExampleGroup, render
from llmfair.tuning.lora import loss_parts
from tests import models
from tests.backends.asking import answers_of
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
    own = backend.answer

    async def kept(job: Any) -> Completion:
        def made() -> Any:
            jobs.append((of := job())[0])
            return of

        return await own(made)

    backend.answer = kept  # type: ignore[method-assign]
    requests: list[Request] = []
    for group in tiny.pair_groups(2):
        for pair in group:
            probe = Probe(pair.pair_id, Candidates(pair.query, (pair.a, pair.b), {}), "relevant", "neutral")
            for chat in tiny.ranker(form).chats(probe):
                sampling = chat_sampling(chat, Sampling(margins=True))
                requests.append(Request(chat, sampling, f"{len(requests)}", pair.pair_id))

    return jobs, answers_of(backend, requests, alone=True)


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
    assert {(job.labels[first], job.labels[second]) for job in jobs} == {groups[0][0].answers}
    margins = [read_margin(one, LABELS[form]).margin for one in completions]
    found = np.concatenate(head.pair_margins(model, groups, 500)).ravel()
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


@pytest.mark.parametrize("kind", ["plain", *models.ALTERING])
def test_two_rows_give_the_margins_of_the_whole_head(tmp_path: Path, kind: str) -> None:
    import torch

    if kind == "plain":
        tiny.saved(tmp_path, "llama")
    else:
        models.altering(tmp_path, kind, tiny.CORPUS)
    model = tiny.loaded(tmp_path, attention="eager")  # which soft-capping needs
    (group,) = tiny.examples(model, 1)
    answers = list(group[0].answers)
    (found,) = head.pair_margins(model, [group], 4096)
    for example, margins in zip(group, found, strict=True):
        for ids, margin in zip(example.prompts, margins, strict=True):
            with torch.inference_mode():
                logits = model.model(torch.tensor(ids[None]).long()).logits[0, -1, answers].float()
            assert margin == pytest.approx(float(logits[0] - logits[1]), abs=1e-5)
    assert model.model.get_output_embeddings().weight.shape[0] >= len(model.tokenizer), "the head is back"


def test_a_head_of_two_rows_nests_and_adds_nothing_to_what_is_saved(folders: dict[str, Path]) -> None:
    model = tiny.loaded(folders["llama"])
    whole, keys = model.model.lm_head, set(model.model.state_dict())
    with head.answer_head(model.model, (3, 4)):
        own = model.model.lm_head
        assert set(model.model.state_dict()) == keys - {"lm_head.weight"}
        with head.answer_head(model.model, (3, 4)):
            assert model.model.lm_head is own
        assert model.model.lm_head is own
    assert model.model.lm_head is whole


@pytest.mark.whole
def test_bfloat16_models_have_margins_without_ties(tmp_path: Path) -> None:
    import torch

    tiny.saved(tmp_path, "mistral", dtype="bfloat16")
    model = tiny.loaded(tmp_path, "bfloat16")
    groups = tiny.examples(model, 12)
    a, b = groups[0][0].answers
    noise = torch.randn(64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        rows = model.model.lm_head.weight
        rows[b] = rows[a] + (0.003 * noise).to(rows.dtype)
        own = [model.model(torch.tensor(e.first[None]).long()).logits[0, -1] for g in groups for e in g]
    assert sum(int(logits[a] == logits[b]) for logits in own) >= 3, "the model's own logits tie"
    assert (np.concatenate(head.pair_margins(model, groups, 4096)) != 0).all()


def test_what_two_logits_alone_cannot_show_is_an_error_and_not_a_guess(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import MistralForCausalLM

    own = MistralForCausalLM.forward
    model = tiny.loaded(folders["mistral"])
    (group,) = tiny.examples(model, 1)
    head.require_same_margin(model, group[0])

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
        with pytest.raises(BackendError, match=r"logits|answers|margin"):
            head.pair_margins(model, [group], 4096)


models.needs_local()

FULL = replace(tiny.RECIPE, slot_weight=0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model"))


def adapted(folder: Path, **changes: Any) -> LocalModel:
    """A model under an adapter that is not zero anywhere."""
    import torch

    model = tiny.loaded(folder)
    head.attach(model, replace(FULL, **changes))
    torch.manual_seed(1)
    for name, values in model.model.named_parameters():
        if "lora_B" in name:
            values.data.normal_(0.0, 0.1)
    return model


def gradient(model: LocalModel, group: ExampleGroup, logits: Any, answers: tuple[int, int]) -> Any:
    import torch

    parts = loss_parts(logits, (0, 1), head.Collator("padded")((group,)), FULL)
    trained = [values for values in model.model.parameters() if values.requires_grad]
    return torch.cat([one.flatten().double() for one in torch.autograd.grad(parts["loss"], trained)])


@pytest.mark.parametrize("family", ["mistral", "qwen"])
def test_gradients_are_those_of_prompts_one_by_one(tmp_path: Path, family: models.Family) -> None:
    import torch

    model = adapted(tiny.saved(tmp_path, family))
    groups = tiny.examples(model, 3)
    answers = groups[0][0].answers
    for group in groups:
        # Each prompt alone, unpadded, with the whole head.
        prompts = [example.first for example in group] + [example.second for example in group]
        alone = [model.model(torch.tensor(ids[None]).long()).logits[0, -1] for ids in prompts]
        expected = gradient(model, group, torch.stack(alone)[:, list(answers)], answers)
        assert float(expected.norm()) > 1e-3
        with head.answer_head(model.model, answers):
            for layout in ("padded", "shared"):
                batch = head.Collator(layout)((group,))
                assert ("prefix" in batch) == (layout == "shared")
                found = gradient(model, group, head.answer_logits(model.model, batch), answers)
                assert float((found - expected).norm() / expected.norm()) < 1e-4, layout


def test_the_common_beginning_ends_at_a_token_of_all_prompts(folder: Path) -> None:
    def ids(*numbers: int) -> Any:
        return np.array(numbers, dtype=np.int32)

    assert common_prefix([ids(1, 2, 3, 4), ids(1, 2, 5, 4), ids(1, 2, 3, 4, 5)]) == 2
    assert common_prefix([ids(1, 2, 3), ids(1, 2, 3, 4)]) == 2, "a token of each is left"
    assert common_prefix([ids(1), ids(2, 3)]) == 0
    (group,) = tiny.examples(tiny.loaded(folder), 1)
    batch = head.Collator("shared")((group,))
    length, rows = batch["prefix"].shape[1], len(group)
    for row, example in enumerate(group):
        for place, prompt in ((row, example.first), (rows + row, example.second)):
            own = batch["ids"][place, : int(batch["last"][place]) + 1]
            assert [*batch["prefix"][0].tolist(), *own.tolist()] == prompt.tolist()
    assert length >= 16


def test_the_shared_layout_is_taken_where_it_pays_and_agrees(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = adapted(folder)
    groups = tiny.examples(model, 2)
    answers = groups[0][0].answers

    def choose(groups: Sequence[ExampleGroup], asked: Any = "auto") -> tuple[str, str]:
        with head.answer_head(model.model, answers):
            return head.choose_layout(model, groups, asked)

    assert choose(groups, "padded") == ("padded", "as asked")
    layout, why = choose(groups)
    assert layout == "shared" and "logits differ by" in why
    short = [tuple(replace(one, first=one.first[60:], second=one.second[60:]) for one in groups[0])]
    layout, why = choose(short)
    assert layout == "padded" and "too few" in why

    from transformers.cache_utils import Cache

    own = Cache.batch_repeat_interleave
    monkeypatch.delattr(Cache, "batch_repeat_interleave")
    layout, why = choose(groups)
    assert layout == "padded" and "cannot be shared" in why
    monkeypatch.undo()

    def forgetful(self: Any, repeats: int) -> None:
        own(self, repeats)
        for layer in self.layers:
            layer.keys = layer.keys * 0.5

    monkeypatch.setattr(Cache, "batch_repeat_interleave", forgetful)
    layout, why = choose(groups)
    assert layout == "padded" and "not taken" in why


def test_absent_strata_and_weightless_pairs_pull_nowhere(folder: Path) -> None:
    import torch

    (group,) = tiny.examples(tiny.loaded(folder), 1)
    logits = torch.randn(2 * len(group), 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    none = tuple(replace(one, weight=0.0, stratum="relevant") for one in group)
    weightless = replace(FULL, group_weight=0, slot_weight=0)
    parts = loss_parts(logits, (0, 1), head.Collator("padded")((none,)), weightless)
    assert float(parts["loss"].detach()) == 0
    parts["loss"].backward()
    assert not logits.grad.any()


def test_the_loss_is_the_one_that_is_written_down(folder: Path) -> None:
    import torch

    (group,) = tiny.examples(tiny.loaded(folder), 1, 8)
    logits = torch.randn(2 * len(group), 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = (logits[:, 0] - logits[:, 1]).numpy()
    z1, z2 = z[: len(group)], z[len(group) :]
    t, w = (np.array([getattr(one, name) for one in group]) for name in ("target", "weight"))
    strata = np.array([one.stratum for one in group])

    def bce(z: Any, t: Any) -> Any:
        return np.log1p(np.exp(-z)) * t + np.log1p(np.exp(z)) * (1 - t)

    each, g, s = w / 2 * (bce(z1, t) + bce(z2, 1 - t)), (z1 - z2) / 2, (z1 + z2) / 2
    mixed = strata == "mixed"
    of_strata = [g[strata == stratum] for stratum in ("relevant", "irrelevant")]
    level = sum(np.tanh(of / FULL.group_temperature).mean() ** 2 for of in of_strata)
    expected = each[~mixed].mean() + 0.5 * each[mixed].mean() + 0.5 * level + 0.3 * (s**2).mean()
    found = loss_parts(logits, (0, 1), head.Collator("padded")((group,)), FULL)["loss"]
    assert float(found) == pytest.approx(expected, rel=1e-6)
    # A language model's loss is the same where all other logits are far below.
    wide = torch.full((len(logits), 9), -60.0, dtype=torch.float64)
    wide[:, [7, 2]] = logits
    found = loss_parts(wide, (7, 2), head.Collator("padded")((group,)), FULL)["loss"]
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_target_modules_are_found_in_the_language_model_or_refused(folder: Path) -> None:
    model = tiny.loaded(folder)
    found = head.target_modules(model, ["q_proj", "k_proj", "v_proj", "o_proj"])
    assert len(found) == 8 and found[0] == "model.layers.0.self_attn.q_proj"
    with pytest.raises(UsageError, match="no module 'qkv_proj'") as error:
        head.target_modules(model, ["qkv_proj"])
    assert "gate_proj" in error.value.hint
    model.checkpoint = replace(model.checkpoint, config={**model.checkpoint.config, "num_hidden_layers": 3})
    with pytest.raises(UsageError, match="8 of these modules in 3 layers"):
        head.target_modules(model, ["q_proj", "k_proj", "v_proj", "o_proj"])
