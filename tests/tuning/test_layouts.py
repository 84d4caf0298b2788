"""Both layouts have the same gradients, through the product's own collator and loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.backends.local import LocalModel
from llmfair.errors import UsageError
from llmfair.tuning.drawing import ExampleGroup, answer_ids
from llmfair.tuning.head import (
    Collator,
    answer_head,
    answer_logits,
    attach,
    choose_layout,
    common_prefix,
    target_modules,
)
from llmfair.tuning.lora import loss_parts
from tests import models
from tests.models import one_thread as one_thread
from tests.tuning import tiny

models.needs_local()

FULL = replace(tiny.RECIPE, slot_weight=0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model"))


def adapted(folder: Path, **changes: Any) -> LocalModel:
    """A model under an adapter that is not zero anywhere."""
    import torch

    model = tiny.loaded(folder)
    attach(model, replace(FULL, **changes))
    torch.manual_seed(1)
    for name, values in model.model.named_parameters():
        if "lora_B" in name:
            values.data.normal_(0.0, 0.1)
    return model


def gradient(model: LocalModel, group: ExampleGroup, logits: Any, answers: tuple[int, int]) -> Any:
    import torch

    parts = loss_parts(logits, (0, 1), Collator("padded")((group,)), FULL)
    trained = [values for values in model.model.parameters() if values.requires_grad]
    return torch.cat([one.flatten().double() for one in torch.autograd.grad(parts["loss"], trained)])


@pytest.mark.parametrize("family", ["mistral", "qwen"])
def test_gradients_are_those_of_prompts_one_by_one(tmp_path: Path, family: models.Family) -> None:
    import torch

    model = adapted(tiny.saved(tmp_path, family))
    groups = tiny.examples(model, 3)
    answers = answer_ids(groups)
    for group in groups:
        # Each prompt alone, unpadded, with the whole head.
        prompts = [example.first for example in group] + [example.second for example in group]
        alone = [model.model(torch.tensor(ids[None]).long()).logits[0, -1] for ids in prompts]
        expected = gradient(model, group, torch.stack(alone)[:, list(answers)], answers)
        assert float(expected.norm()) > 1e-3
        with answer_head(model.model, answers):
            for layout in ("padded", "shared"):
                batch = Collator(layout)((group,))
                assert ("prefix" in batch) == (layout == "shared")
                found = gradient(model, group, answer_logits(model.model, batch), answers)
                assert float((found - expected).norm() / expected.norm()) < 1e-4, layout


def test_the_common_beginning_ends_at_a_token_of_all_prompts(folder: Path) -> None:
    def ids(*numbers: int) -> Any:
        return np.array(numbers, dtype=np.int32)

    assert common_prefix([ids(1, 2, 3, 4), ids(1, 2, 5, 4), ids(1, 2, 3, 4, 5)]) == 2
    assert common_prefix([ids(1, 2, 3), ids(1, 2, 3, 4)]) == 2, "a token of each is left"
    assert common_prefix([ids(1), ids(2, 3)]) == 0
    (group,) = tiny.examples(tiny.loaded(folder), 1)
    batch = Collator("shared")((group,))
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
    answers = answer_ids(groups)

    def choose(groups: Sequence[ExampleGroup], asked: Any = "auto") -> tuple[str, str]:
        def loss(wrapped: Any, batch: Any) -> Any:
            return loss_parts(answer_logits(wrapped, batch), (0, 1), batch, FULL)["loss"]

        with answer_head(model.model, answers):
            return choose_layout(model, groups, asked, loss)

    assert choose(groups, "padded") == ("padded", "as asked")
    layout, why = choose(groups)
    assert layout == "shared" and "gradients differ by" in why
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
    parts = loss_parts(
        logits, (0, 1), Collator("padded")((none,)), replace(FULL, group_weight=0, slot_weight=0)
    )
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
    level = sum(
        np.tanh(g[strata == stratum] / FULL.group_temperature).mean() ** 2
        for stratum in ("relevant", "irrelevant")
    )
    expected = each[~mixed].mean() + 0.5 * each[mixed].mean() + 0.5 * level + 0.3 * (s**2).mean()
    found = loss_parts(logits, (0, 1), Collator("padded")((group,)), FULL)["loss"]
    assert float(found) == pytest.approx(expected, rel=1e-6)
    # A language model's loss is the same where all other logits are far below.
    wide = torch.full((len(logits), 9), -60.0, dtype=torch.float64)
    wide[:, [7, 2]] = logits
    found = loss_parts(wide, (7, 2), Collator("padded")((group,)), FULL)["loss"]
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_target_modules_are_found_in_the_language_model_or_refused(folder: Path) -> None:
    model = tiny.loaded(folder)
    found = target_modules(model, ["q_proj", "k_proj", "v_proj", "o_proj"])
    assert len(found) == 8 and found[0] == "model.layers.0.self_attn.q_proj"
    with pytest.raises(UsageError, match="no module 'qkv_proj'") as error:
        target_modules(model, ["qkv_proj"])
    assert "gate_proj" in error.value.hint
    model.checkpoint = replace(model.checkpoint, config={**model.checkpoint.config, "num_hidden_layers": 3})
    with pytest.raises(UsageError, match="8 of these modules in 3 layers"):
        target_modules(model, ["q_proj", "k_proj", "v_proj", "o_proj"])


# The benchmark of training runs whole: every layout, the device's way with bfloat16 included


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_benchmark_measures_every_layout(
    dtype: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from benchmarks import lora

    small = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    monkeypatch.setitem(lora.SIZES, "tiny", small | {"num_attention_heads": 2, "num_key_value_heads": 1})
    work = lora.Work(prefix=20, suffix=8, group=8, per_step=16, steps=2)
    found = lora.measure("tiny", "cpu", dtype, work)
    assert [row["name"] for row in found["rows"]] == ["naive", "padded", "shared"]
    assert all(row["prompts_per_second"] > 0 and 0 < row["mfu"] < 1 for row in found["rows"])
    assert "gradients differ by" in found["rows"][2]["note"]
    assert found["floors"]["shared"] > found["floors"]["padded"] > 0
    assert capsys.readouterr().out.count("prompts/s") == 3
    # 2 layers of q, o (64 × 64), k, v (64 × 32) and three of 64 × 64.
    assert lora.weights_of("tiny") == 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 64)
    assert round(lora.weights_of("7b") / 1e9, 3) == 6.979
