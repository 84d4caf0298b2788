"""Training an adapter, read from top to bottom: where it sits, what a step is, when it stops, what it leaves.

A step's prompts are counted over all devices together; each device takes one group at a time, and as many after each
other as make up the step. The order of the groups is drawn beforehand, so that a training that was stopped goes on
where it was, to the same adapter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llmfair.checkpoints import INSTALL
from llmfair.errors import BackendError, MissingExtra, UsageError
from llmfair.tuning import ranks
from llmfair.tuning.adapter import attach, inputs_cast, load_weights, publish
from llmfair.tuning.examples import ExampleGroup, answer_ids
from llmfair.tuning.head import answer_head, language_model, require_same_margin
from llmfair.tuning.layouts import Collator, answer_logits, choose_layout, compile_layers, require_padded
from llmfair.tuning.loss import loss_parts
from llmfair.tuning.progress import Interrupts, TrainingLog, is_over, last_checkpoint
from llmfair.tuning.recipe import Recipe
from llmfair.tuning.results import TrainingRecord
from llmfair.tuning.safeguards import REJECTED
from llmfair.tuning.trainer import Step, arguments_of, make_trainer

if TYPE_CHECKING:
    import torch

    from llmfair.backends.local import LocalModel
    from llmfair.tuning.layouts import Batch
    from llmfair.tuning.results import Validation

CHECKPOINTS, LOG = "checkpoints", "training.jsonl"
SAVE_EVERY = 2_500
"""Prompts between checkpoints where nothing is validated meanwhile."""


def train(
    model: LocalModel,
    groups: Sequence[ExampleGroup],
    validate: Callable[[], Validation],
    recipe: Recipe,
    folder: Path,
    tell: Callable[[int, str], None] = lambda done, words: None,
) -> TrainingRecord:
    """Trains an adapter over `model`, in place, from the last checkpoint in `folder` if there is one.

    Leaves the best checkpoint's adapter active and its two files in `folder`, or in `folder/rejected` where none
    kept its gates, `training.jsonl` and `checkpoints/`. `validate` is called in every process with the adapter active;
    `tell(prompts, words)` after each step in the first. Ctrl-C, SIGTERM and SIGHUP end it after the step that is under
    way, with a checkpoint. Raises UsageError for counts that do not go into each other, MissingExtra, and BackendError.
    """
    accumulated = groups_at_a_time(recipe, ranks.world())
    require_trainable(recipe, model.place.dtype)
    if hasattr(model.model, "peft_config"):
        raise UsageError("the base model has an adapter already.", "name a model without one")
    answers = answer_ids(groups)
    require_same_margin(model, groups[0][0])
    log = TrainingLog(folder / LOG, writes=ranks.rank() == 0)

    from transformers import TrainerState, set_seed

    # The model: frozen, with an adapter, and two rows for a head unless the loss needs all of them.
    set_seed(recipe.seed)
    modules = attach(model, recipe)
    inner = language_model(model.model)
    columns = (0, 1) if recipe.loss == "choice" else answers

    def parts(wrapped: Any, batch: Batch) -> Mapping[str, torch.Tensor]:
        return loss_parts(answer_logits(wrapped, batch), columns, batch, recipe)

    # The order: every group once before any comes again, in a new order each time.
    rng = np.random.default_rng(recipe.seed)
    per_step = recipe.prompts_per_step // recipe.group_size
    needed = recipe.steps * per_step
    order = [int(place) for _ in range(-(-needed // len(groups))) for place in rng.permutation(len(groups))]
    step = Step(
        per_step * recipe.group_size,
        evaluate_every=recipe.steps_of(recipe.eval_every) if recipe.eval_every else recipe.steps,
        save_every=recipe.steps_of(recipe.eval_every or SAVE_EVERY),
    )

    checkpoints = folder / CHECKPOINTS
    last = ranks.first(lambda: last_checkpoint(checkpoints))
    state = None if last is None else TrainerState.load_from_json(str(last / "trainer_state.json"))
    log.cut(0 if state is None else state.global_step)
    interrupts = Interrupts()
    with ExitStack() as held:
        if recipe.loss == "choice":
            held.enter_context(answer_head(inner, answers))
        low = model.place.dtype != "float32"
        held.enter_context(inputs_cast(inner, not low))
        with _autocast(model), _fits(model, recipe):
            layout, why = choose_layout(
                model.model,
                groups,
                "padded" if recipe.compile else recipe.layout,
                model.place.dtype,
                lambda wrapped, batch: parts(wrapped, batch)["loss"],
            )
        width = max(len(ids) for example in chain(*groups) for ids in example.prompts)
        if recipe.compile:
            held.callback(compile_layers(inner))
        if state is None or not is_over(state, recipe.patience, recipe.steps):
            trainer = make_trainer(
                model=model.model,
                arguments=arguments_of(recipe, model.place, checkpoints, accumulated),
                groups=[groups[place] for place in order[:needed]],
                collator=Collator(layout, width if recipe.compile else 0),
                parts=parts,
                validate=validate,
                patience=recipe.patience,
                step=step,
                log=log,
                interrupts=interrupts,
                tell=tell,
            )
            uses_cache = inner.config.use_cache
            with interrupts, _fits(model, recipe):
                trainer.train(resume_from_checkpoint=None if last is None else str(last))
            inner.config.use_cache = uses_cache
            trainer.accelerator.unwrap_model(trainer.model_wrapped, keep_fp32_wrapper=False)
            trainer.accelerator.wait_for_everyone()
            state = trainer.state
    interrupts.pass_on()

    # The best of all checkpoints, or the one that came nearest.
    rejected = state.best_metric >= REJECTED
    best = checkpoints / f"checkpoint-{state.best_global_step}"
    ranks.first(lambda: publish(best, folder / "rejected" if rejected else folder))
    load_weights(model.model, best)
    model.model.eval()
    lines = ranks.first(log.lines)
    return TrainingRecord(
        best_step=state.best_global_step,
        steps=state.global_step,
        prompts=state.global_step * step.prompts,
        seconds=sum(line["seconds"] for line in lines),
        stopped_early=state.global_step < recipe.steps,
        rejected=rejected,
        layout=layout,
        layout_why=why,
        modules=len(modules),
        trace=[line for line in lines if "objective" in line],
    )


# Before anything is trained


def groups_at_a_time(recipe: Recipe, devices: int) -> int:
    """How many groups each device takes after each other for a step.

    Raises UsageError unless `prompts_per_step` is that many groups on that many devices exactly.
    """
    at_once = recipe.group_size * devices
    if recipe.group_size % 2:
        raise UsageError(
            f"--group-size {recipe.group_size} is odd, but a pair is two prompts.", "choose an even number"
        )
    if recipe.prompts_per_step % at_once:
        below = recipe.prompts_per_step // at_once * at_once
        nearest = [str(prompts) for prompts in (below, below + at_once) if prompts]
        raise UsageError(
            f"--prompts-per-step {recipe.prompts_per_step} cannot be shared out: {devices} "
            f"device{'s' if devices > 1 else ''} × groups of {recipe.group_size} are {at_once} prompts at a time.",
            f"the nearest that can: --prompts-per-step {' or '.join(nearest)}",
        )
    return recipe.prompts_per_step // at_once


def require_trainable(recipe: Recipe, dtype: str) -> None:
    """Raises UsageError for what is not offered, and MissingExtra; known before a model is loaded."""
    missing = [package for package in ("peft", "accelerate") if find_spec(package) is None]
    if missing:
        raise MissingExtra(f"training needs {' and '.join(missing)}.", INSTALL)
    if (report := recipe.report_to) != "none" and find_spec(report) is None:
        raise MissingExtra(f"--report-to {report} needs {report}.", f"pip install {report}")
    for variable, name in (("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")):
        if os.environ.get(variable, "").lower() in ("1", "true"):
            raise UsageError(
                f"adapters are not trained with {name}: its checkpoints lose or repeat weights.",
                "start it with torchrun --nproc-per-node N, which needs one GPU's memory per copy of the base",
            )
    if dtype == "float16":
        raise UsageError(
            "float16 needs its gradients scaled, which is not done here.",
            "use --dtype bfloat16 or float32",
        )
    if recipe.compile:
        require_padded(recipe.layout)


def quantization(in_4bit: bool, device: str) -> dict[str, Any]:
    """What `load_model` needs to hold the base in 4 bits (NF4, products in bfloat16); nothing otherwise.

    Raises MissingExtra without bitsandbytes, and UsageError without a GPU.
    """
    if not in_4bit:
        return {}
    if find_spec("bitsandbytes") is None:
        raise MissingExtra("--load-in-4bit needs bitsandbytes.", "pip install bitsandbytes")
    if not device.startswith("cuda"):
        raise UsageError("--load-in-4bit needs an NVIDIA GPU.", "leave it out")
    import torch
    from transformers import BitsAndBytesConfig

    settings = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    return {"quantization_config": settings}


@contextmanager
def _fits(model: LocalModel, recipe: Recipe) -> Iterator[None]:
    """A memory that is too small in one sentence."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise BackendError(
            f"a group of {recipe.group_size} prompts does not fit the memory of {model.place.device}.",
            "a smaller --group-size, --layout shared, or --dtype bfloat16",
        ) from None


def _autocast(model: LocalModel) -> Any:
    """What surrounds the model in training: products in bfloat16 where the base is."""
    import torch

    low = model.place.dtype == "bfloat16"
    return torch.autocast(model.model.device.type, torch.bfloat16, enabled=low)
