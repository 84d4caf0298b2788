"""Training through the product's own path: exact after a stop, the same however a step is divided, and gated."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree, which
from typing import Any

import numpy as np
import pytest
import typer

from llmfair.backends.local import LocalModel
from llmfair.checkpoints import find_checkpoint
from llmfair.errors import BackendError, MissingExtra, UsageError
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning import finetune, head, lora, processes
from llmfair.tuning.finetune import Done, estimate
from llmfair.tuning.head import pair_margins
from llmfair.tuning.results import AdapterDir, TrainingRecord, Validation
from tests import models
from tests.models import one_thread as one_thread
from tests.servers import free_port
from tests.tuning import answered, tiny
from tests.tuning.tiny import RECIPE, SHORT, failing, passing

pytestmark = pytest.mark.whole

models.needs_local()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model"))


def trained(
    folder: Path,
    out: Path,
    recipe: FinetuneSettings = RECIPE,
    validate: Callable[[], Validation] = passing,
    tell: Callable[[int, str], None] = lambda done, words: None,
    dtype: str = "float32",
) -> tuple[LocalModel, TrainingRecord]:
    model = tiny.loaded(folder, dtype)
    return model, lora.train(model, tiny.examples(model), validate, recipe, out, tell)


def interrupting(prompts: int, *numbers: int) -> Callable[[int, str], None]:
    """These signals one after the other, within the step that ends there."""

    def tell(done: int, words: str) -> None:
        for number in numbers if done == prompts else ():
            signal.raise_signal(number)

    return tell


def falling() -> Callable[[], Validation]:
    """Validations that come nearer to parity each time, and never reach it."""
    numbers: Iterator[int] = iter(range(2, 1000))
    return lambda: passing(1.0 / next(numbers) + 0.2)


@pytest.mark.parametrize(
    ("layout", "dropout"),
    [
        ("shared", 0.0),
        pytest.param("padded", 0.0, marks=pytest.mark.slow),
        pytest.param("shared", 0.3, marks=pytest.mark.slow),
    ],
)
def test_a_training_that_was_stopped_ends_in_the_same_adapter(
    folder: Path, tmp_path: Path, layout: Any, dropout: float
) -> None:
    recipe = replace(SHORT, layout=layout, lora_dropout=dropout)
    _, whole = trained(folder, tmp_path / "whole", recipe, falling())
    validate = falling()
    with pytest.raises(KeyboardInterrupt):
        trained(folder, tmp_path / "parts", recipe, validate, interrupting(48, signal.SIGINT))
    assert not (tmp_path / "parts" / "adapter_model.safetensors").exists()
    stopped = lora.last_checkpoint(tmp_path / "parts" / "checkpoints")
    assert stopped is not None and stopped.name == "checkpoint-3"
    _, resumed = trained(folder, tmp_path / "parts", recipe, validate)
    assert tiny.difference(tmp_path / "whole", tmp_path / "parts") == 0.0
    assert (whole.layout, resumed.layout) == (layout, layout)
    assert (resumed.steps, resumed.prompts, resumed.best_step) == (4, 64, 4)
    lines = lora.lines_of(tmp_path / "parts" / "training.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4]
    others = lora.lines_of(tmp_path / "whole" / "training.jsonl")
    losses = [[line["loss"] for line in found if "loss" in line] for found in (lines, others)]
    assert losses[0] == losses[1]


class Terminated(KeyboardInterrupt):
    """What a handler of SIGTERM raises."""


@pytest.fixture
def terminating() -> Iterator[None]:
    def terminate(*_: Any) -> None:
        raise Terminated

    previous = signal.signal(signal.SIGTERM, terminate)
    yield
    signal.signal(signal.SIGTERM, previous)


@pytest.mark.usefixtures("terminating")
def test_a_signal_sent_twice_saves_once_and_is_passed_on(folder: Path, tmp_path: Path) -> None:
    """To a process, and to its group."""
    with pytest.raises(Terminated):
        trained(folder, tmp_path, SHORT, tell=interrupting(16, signal.SIGTERM, signal.SIGTERM, signal.SIGINT))
    assert (tmp_path / "checkpoints" / "checkpoint-1" / "trainer_state.json").exists()


def test_after_a_kill_the_same_command_resumes_the_last_checkpoint(folder: Path, tmp_path: Path) -> None:
    def killed(done: int, words: str) -> None:
        if done == 48:
            os.kill(os.getpid(), signal.SIGKILL)

    assert tiny.forked(lambda: trained(folder, tmp_path / "killed", SHORT, tell=killed) and None) == [-9]
    last = lora.last_checkpoint(tmp_path / "killed" / "checkpoints")
    assert last is not None and last.name == "checkpoint-2"
    # A state that was cut off in the writing is none, and neither is a checkpoint without one.
    torn = copytree(last, last.with_name("checkpoint-3"))
    (torn / "trainer_state.json").write_text((last / "trainer_state.json").read_text()[:99])
    assert lora.last_checkpoint(tmp_path / "killed" / "checkpoints") == last
    trained(folder, tmp_path / "killed", SHORT)
    trained(folder, tmp_path / "whole", SHORT)
    ends = (tmp_path / name / "checkpoints" / "checkpoint-4" for name in ("killed", "whole"))
    assert tiny.difference(*ends) == 0.0


def test_four_micro_batches_are_one_batch(folder: Path, tmp_path: Path) -> None:
    """The gradient of a step of four groups, each taken alone, is that of their mean loss."""
    import torch

    from llmfair.tuning.head import Collator, answer_head, answer_logits, attach
    from llmfair.tuning.lora import loss_parts

    recipe = replace(
        RECIPE, prompts_per_step=32, max_prompts=32, schedule="constant", warmup=0.0, clip=1e9, layout="padded"
    )  # fmt: skip
    model, _ = trained(folder, tmp_path, recipe)
    one = tiny.loaded(folder)
    groups = tiny.examples(one)
    torch.manual_seed(recipe.seed)
    attach(one, recipe)
    order = np.random.default_rng(recipe.seed).permutation(len(groups))[:4]
    weights = [values for values in one.model.parameters() if values.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=recipe.learning_rate, weight_decay=0.0)
    with answer_head(one.model, groups[0][0].answers):
        losses = []
        for place in order:
            batch = Collator("padded")((groups[place],))
            losses.append(loss_parts(answer_logits(one.model, batch), (0, 1), batch, recipe)["loss"])
        torch.stack(losses).mean().backward()
    optimizer.step()
    for ours, theirs in zip(weights, (v for v in model.model.parameters() if v.requires_grad), strict=True):
        assert float((ours - theirs).detach().abs().max()) < 1e-6
    (line, _) = lora.lines_of(tmp_path / "training.jsonl")
    assert line["loss"] == pytest.approx(float(torch.stack(losses).mean().detach()), abs=1e-6)


def test_what_is_left_is_the_best_checkpoint_that_passes(folder: Path, tmp_path: Path) -> None:
    found = iter([passing(0.9), failing(0.2), passing(0.5), passing(0.7)])
    model, ended = trained(folder, tmp_path, validate=lambda: next(found))
    assert (ended.best_step, ended.rejected, ended.stopped_early) == (6, False, False)
    assert tiny.difference(tmp_path, tmp_path / "checkpoints" / "checkpoint-6") == 0.0
    assert [line["objective"] for line in ended.trace] == [0.9, 0.2, 0.5, 0.7]
    assert ended.trace[1]["gates"]["consistency"] == {"value": 0.5, "limit": 0.9, "met": False}
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["checkpoint-4", "checkpoint-6", "checkpoint-8"], "the last two, and the best"
    # The adapter that is active is the one that was left, and peft reads it back exactly.
    groups = tiny.examples(model, 2)
    again = tiny.loaded(folder, adapter=tmp_path)
    ours, theirs = (np.concatenate(pair_margins(one, groups, 4096)) for one in (model, again))
    assert np.abs(ours - theirs).max() == 0.0
    base = np.concatenate(pair_margins(tiny.loaded(folder), groups, 4096))
    with model.model.disable_adapter():
        assert np.abs(np.concatenate(pair_margins(model, groups, 4096)) - base).max() == 0.0
    assert np.abs(ours - base).max() > 1e-3
    assert all("lora_" in name for name in tiny.weights(tmp_path))
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    assert settings["target_modules"] == sorted(["q_proj", "k_proj", "v_proj", "o_proj"])
    assert settings["base_model_name_or_path"] == str(folder) and settings["modules_to_save"] is None


EVERY_STEP = replace(SHORT, eval_every=16)


def test_where_no_checkpoint_passes_the_nearest_is_rejected(folder: Path, tmp_path: Path) -> None:
    validations = iter([failing(0.9), failing(0.05), failing(0.5), failing(0.6)])
    _, ended = trained(folder, tmp_path, EVERY_STEP, lambda: next(validations))
    assert ended.rejected and ended.best_step == 2 and not ended.stopped_early
    assert not (tmp_path / "adapter_model.safetensors").exists()
    assert tiny.difference(tmp_path / "rejected", tmp_path / "checkpoints" / "checkpoint-2") == 0.0


def test_training_ends_at_parity_or_without_progress_and_stays_ended(folder: Path, tmp_path: Path) -> None:
    found = iter([failing(0.01), passing(0.3), passing(0.1)])
    _, ended = trained(folder, tmp_path / "parity", EVERY_STEP, lambda: next(found))
    assert (ended.steps, ended.stopped_early, ended.best_step) == (3, True, 3)
    _, again = trained(folder, tmp_path / "parity", EVERY_STEP, lambda: pytest.fail("it was over"))
    assert again.trace == ended.trace and again.seconds == ended.seconds
    found = iter([passing(0.3), passing(0.4), passing(0.3)])
    recipe = replace(EVERY_STEP, patience=2)
    _, ended = trained(folder, tmp_path / "patience", recipe, lambda: next(found))
    assert (ended.steps, ended.stopped_early, ended.best_step) == (3, True, 1)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_a_language_model_s_loss_and_an_evaluation_at_the_end_only(
    folder: Path, tmp_path: Path, dtype: str
) -> None:
    """The published recipe: four prompts a step, all of the vocabulary, nothing looked at meanwhile."""
    recipe = FinetuneSettings(
        loss="lm", layout="padded", prompts_per_step=4, group_size=4, max_prompts=32, eval_every=0,
        schedule="constant", warmup=0.0, learning_rate=3e-3, lora_alpha=8.0, anchor_weight=0.0, group_weight=0.0,
    )  # fmt: skip
    model = tiny.loaded(folder, dtype)
    groups = [group[:2] for group in tiny.examples(model)]
    calls: list[int] = []

    def validate() -> Validation:
        calls.append(1)
        assert model.model.get_output_embeddings().weight.shape[0] > 2
        return passing(float(np.abs(np.concatenate(pair_margins(model, groups, 999))).mean()))

    ended = lora.train(model, groups, validate, recipe, tmp_path)
    assert (ended.steps, len(calls), ended.layout) == (8, 1, "padded")
    weights = tiny.weights(tmp_path)
    assert {str(values.dtype) for values in weights.values()} == {"torch.float32"}
    assert max(float(values.abs().max()) for name, values in weights.items() if "lora_B" in name) > 1e-3
    lines = lora.lines_of(tmp_path / "training.jsonl")
    assert {line["learning_rate"] for line in lines if "loss" in line} == {3e-3}
    assert min(line["loss"] for line in lines if "loss" in line) > np.log(2), "the vocabulary takes part"


def test_a_bfloat16_base_has_a_float32_adapter_and_learns(tmp_path: Path) -> None:
    base = tiny.saved(tmp_path / "base", dtype="bfloat16")
    recipe = replace(RECIPE, max_prompts=48 * 4, prompts_per_step=48, eval_every=0, group_weight=0.0)
    model, ended = trained(base, tmp_path / "out", recipe, dtype="bfloat16")
    lines = lora.lines_of(tmp_path / "out" / "training.jsonl")
    losses = [line["pairs"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] - 0.02 and ended.layout == "shared"
    assert {str(values.dtype) for values in tiny.weights(tmp_path / "out").values()} == {"torch.float32"}
    groups = tiny.examples(model, 2)
    again = tiny.loaded(base, "bfloat16", adapter=tmp_path / "out")
    ours, theirs = (np.concatenate(pair_margins(one, groups, 4096)) for one in (model, again))
    assert np.abs(ours - theirs).max() == 0.0, "no trace of the training's autocast is left in the model"


def test_a_plan_counts_whole_steps_and_whole_groups(folder: Path) -> None:
    asked: dict[str, Any] = {"base_model": str(folder), "prompts_per_step": 96, "group_size": 32}

    def planned(most: int) -> float:
        settings = FinetuneSettings.make(**asked, max_prompts=most)
        needs = estimate(find_checkpoint(str(folder)), settings, 150.0, 50.0)
        assert needs is not None
        return needs.petaflop

    assert processes.prompts_of(FinetuneSettings.make(**asked, max_prompts=1000)) == 960
    assert planned(1000) == planned(960) == pytest.approx(2 * planned(480))


def test_counts_that_do_not_go_into_each_other_are_refused() -> None:
    assert processes.groups_at_a_time(FinetuneSettings(), 2) == 2
    for per_step, size, devices, multiple in ((256, 64, 3, 192), (9, 3, 1, 4), (32, 15, 1, 16)):
        with pytest.raises(UsageError, match=f"which has to be even, times {devices} device") as error:
            processes.groups_at_a_time(FinetuneSettings(prompts_per_step=per_step, group_size=size), devices)
        assert error.value.hint.endswith(f"a multiple of {multiple}")


def test_what_is_not_offered_is_said_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(recipe: FinetuneSettings = RECIPE, dtype: str = "float32") -> str:
        with pytest.raises((UsageError, MissingExtra)) as error:
            finetune.require_trainable(recipe, dtype)
        return error.value.message

    finetune.require_trainable(RECIPE, "float32")
    assert "float16 needs" in refusal(dtype="float16")
    assert finetune.quantization(False, "cpu") == {}
    with monkeypatch.context() as patched:
        patched.setattr(finetune, "find_spec", lambda package: None)
        assert "--report-to tensorboard" in refusal(replace(RECIPE, report_to="tensorboard"))
        with pytest.raises(MissingExtra, match="needs bitsandbytes"):
            finetune.quantization(True, "cuda")
    for name in ("FSDP", "DEEPSPEED"):
        with monkeypatch.context() as patched:
            patched.setenv(f"ACCELERATE_USE_{name}", "true")
            assert f"not trained with {name}" in refusal()


@pytest.mark.parametrize("number", [0, 1])
def test_a_rejection_is_said_and_exits_4_in_the_first_process_alone(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from llmfair import terminal
    from llmfair.cli import rankings

    waited: list[str] = []
    done = Done(AdapterDir(tmp_path), answered.results(passed=False), before=False)
    monkeypatch.setenv("RANK", str(number))
    monkeypatch.setattr("llmfair.tuning.finetune.finetune", lambda *_: done)
    monkeypatch.setattr("llmfair.tuning.processes.first", lambda _: waited.append(capfd.readouterr().err))
    monkeypatch.setattr(terminal, "output", terminal.Output(as_json=True))
    with pytest.raises(typer.Exit) as left:
        rankings.finetune_lora(FinetuneSettings.make(base_model="model"), "json")
    assert left.value.exit_code == (4 if number == 0 else 0)
    (before,) = waited  # all of them wait for each other
    assert before.count("Error: no checkpoint kept the gates.") == (number == 0)


def test_too_small_a_memory_is_said(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def small(*_: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("llmfair.tuning.head.answer_logits", small)
    with pytest.raises(BackendError, match="a group of 8 prompts does not fit the memory of cpu"):
        trained(folder, tmp_path)


def test_a_loss_that_is_not_a_number_ends_the_training(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"the loss of step \d is not a number") as error:
        trained(folder, tmp_path, replace(RECIPE, learning_rate=1e38, warmup=0.0))
    assert "lower --learning-rate" in error.value.hint


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own compiler warns
@pytest.mark.skipif(which("g++") is None, reason="torch compiles for a CPU with g++, which is not installed")
def test_compiled_layers_train_to_the_same_adapter(folder: Path, tmp_path: Path) -> None:
    recipe = replace(RECIPE, layout="padded", max_prompts=48)
    trained(folder, tmp_path / "plain", recipe)
    _, ended = trained(folder, tmp_path / "compiled", replace(recipe, compile=True, layout="auto"))
    assert ended.layout == "padded"
    assert tiny.difference(tmp_path / "plain", tmp_path / "compiled") < 1e-4


pytestmark = pytest.mark.whole

models.needs_local()
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
def test_two_processes_train_what_one_trains(folder: Path, tmp_path: Path) -> None:
    two, one, port = tmp_path / "two", tmp_path / "one", free_port()
    recipe = replace(RECIPE, layout="shared", prompts_per_step=32, max_prompts=64)

    def as_rank(number: str) -> None:
        from accelerate.state import AcceleratorState, PartialState

        AcceleratorState._reset_state(reset_partial_state=True)  # of trainings before, in one process
        os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        PartialState()
        model, _ = trained(folder, two, recipe)
        model.model.train()
        head.save_adapter(model.model, tmp_path / number)

    assert tiny.forked(lambda: as_rank("0"), lambda: as_rank("1")) == [0, 0]
    _, ended = trained(folder, one, recipe)
    assert ended.layout == "shared" and tiny.difference(one, two) < 1e-6
    assert tiny.difference(tmp_path / "0", tmp_path / "1") == tiny.difference(two, tmp_path / "1") == 0.0
    assert all("lora_" in name for name in tiny.weights(two / "checkpoints" / "checkpoint-2"))
    lines, alone = (lora.lines_of(of / "training.jsonl") for of in (two, one))
    assert [line["step"] for line in lines] == [line["step"] for line in alone], "only one of them writes"
    ours, theirs = ([line["loss"] for line in of if "loss" in line] for of in (lines, alone))
    assert len(ours) == 2 and ours == pytest.approx(theirs, rel=1e-5)
