"""transformers' Trainer for groups of pairs: its loss, its log, its validations, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.checkpoints import INSTALL, Place
from llmfair.errors import BackendError
from llmfair.results import plain
from llmfair.tuning import ranks
from llmfair.tuning.adapter import save_adapter
from llmfair.tuning.loss import PARTS
from llmfair.tuning.progress import Interrupts, TrainingLog, is_over
from llmfair.tuning.safeguards import REJECTED

if TYPE_CHECKING:
    import torch

    from llmfair.tuning.examples import ExampleGroup
    from llmfair.tuning.layouts import Batch, Collator
    from llmfair.tuning.recipe import Recipe
    from llmfair.tuning.results import Validation


@dataclass(frozen=True)
class Step:
    """A step's prompts, over all devices, and the steps between validations and between checkpoints."""

    prompts: int
    evaluate_every: int
    save_every: int


def arguments_of(recipe: Recipe, place: Place, checkpoints: Path, accumulated: int) -> Any:
    """transformers' settings. It renames some from version to version: those it does not have are left out, if they
    only spare work."""
    from transformers import TrainingArguments

    needed = {
        "output_dir": str(checkpoints),
        "per_device_train_batch_size": 1,  # group
        "gradient_accumulation_steps": accumulated,
        "max_steps": recipe.steps,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": recipe.schedule,
        "warmup_steps": round(recipe.warmup * recipe.steps),
        "weight_decay": 0.0,
        "max_grad_norm": recipe.clip,
        "seed": recipe.seed,
        "bf16": place.dtype == "bfloat16",
        "use_cpu": place.device == "cpu",
        "logging_steps": 1,
        "eval_strategy": "no",  # `Step` says when
        "save_strategy": "steps",
        "save_steps": recipe.steps,
        "save_total_limit": 3,  # the last two and the best
        "metric_for_best_model": "eval_standing",
        "greater_is_better": False,
        "remove_unused_columns": False,
        "report_to": recipe.report_to,
    }
    wished = {
        "disable_tqdm": True,
        "log_level": "error",
        "dataloader_pin_memory": place.device.startswith("cuda"),
        "ddp_find_unused_parameters": False,
        # Buffers never change; sent between two passes of a step they would void the first one's gradients.
        "ddp_broadcast_buffers": False,
        "logging_nan_inf_filter": False,
    }
    known = {item.name for item in fields(TrainingArguments)}
    if missing := needed.keys() - known:
        raise BackendError(
            f"this version of transformers does not know {', '.join(sorted(missing))}.", INSTALL
        )
    if recipe.schedule == "constant" and needed["warmup_steps"]:
        needed["lr_scheduler_type"] = "constant_with_warmup"
    made = TrainingArguments(**needed, **{name: wished[name] for name in wished.keys() & known})
    made._n_gpu = min(1, made.n_gpu)  # one process never spreads over several GPUs: see `ranks`
    return made


def make_trainer(
    *,
    model: Any,
    arguments: Any,
    groups: Sequence[ExampleGroup],
    collator: Collator,
    parts: Callable[[Any, Batch], Mapping[str, torch.Tensor]],
    validate: Callable[[], Validation],
    patience: int,
    step: Step,
    log: TrainingLog,
    interrupts: Interrupts,
    tell: Callable[[int, str], None],
) -> Any:
    """A Trainer that takes `groups` in their order; `parts(model, batch)` are the loss and what it is made of."""
    import torch
    from transformers import PrinterCallback, Trainer, TrainerCallback

    class Rhythm(TrainerCallback):  # type: ignore[misc]
        """When there is a validation or a checkpoint, and when no step follows."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            number = state.global_step
            control.should_evaluate = number % step.evaluate_every == 0 or number >= state.max_steps
            control.should_save = control.should_evaluate or number % step.save_every == 0

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop |= is_over(state, patience, state.max_steps)

    class PairTrainer(Trainer):  # type: ignore[misc]
        control: Any

        def __init__(self) -> None:
            super().__init__(model, arguments, collator, groups, callbacks=[Rhythm()])
            self.remove_callback(PrinterCallback)
            self._sums = torch.zeros(len(PARTS), device=arguments.device)
            self._since = time.perf_counter()

        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(groups)  # `groups` are in order

        def compute_loss(self, model: Any, inputs: Batch, *_: Any, **__: Any) -> torch.Tensor:
            found = parts(model, inputs)
            self._sums += torch.stack([found[name].detach() for name in PARTS])
            return found["loss"]

        def floating_point_ops(self, inputs: Batch) -> int:
            return 0  # nobody reads it, and it looks for a batch of another shape

        def log(self, logs: dict[str, float], *arguments: Any) -> None:
            """After each step: its losses, of all devices, and whether somebody waits for the end."""
            if "loss" in logs:
                means = self.accelerator.reduce(self._sums, "mean") / self.args.gradient_accumulation_steps
                if not means.isfinite().all():
                    raise BackendError(
                        f"the loss of step {self.state.global_step} is not a number.",
                        "start again in another folder with a lower --learning-rate",
                    )
                logs |= dict(zip(PARTS, means.tolist(), strict=True))
                self._sums.zero_()
                number, now = self.state.global_step, time.perf_counter()
                shown = {name: logs[name] for name in (*PARTS, "learning_rate", "grad_norm") if name in logs}
                done = number * step.prompts
                log.add({"step": number, "prompts": done, **shown, "seconds": now - self._since})
                self._since = now
                if ranks.rank() == 0:
                    tell(done, f"loss {logs['loss']:.3f}")
                if number := _of_any(interrupts.number, self.args.device):
                    interrupts.number = number
                    self.control.should_save = self.control.should_training_stop = True
            super().log(logs, *arguments)

        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            found, number = validate(), self.state.global_step
            asked = found.figures.get("objective")
            raw = found.objective if asked is None else asked
            good = found.passed and isfinite(raw)
            standing = raw if good else REJECTED + (raw if isfinite(raw) else REJECTED)
            log.add({"step": number, "prompts": number * step.prompts, **plain(found), "seconds": 0.0})
            metrics = {"eval_standing": standing, "eval_objective": raw}
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            self._since = time.perf_counter()  # a validation is no part of a step
            return metrics

        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            if self.args.should_save:
                save_adapter(self.model, Path(output_dir or self.args.output_dir))

    return PairTrainer()


def _of_any(number: int, device: Any) -> int:
    """The signal that any process got: all of them have to leave after the same step."""
    if ranks.world() == 1:
        return number
    import torch

    flag = torch.tensor([number], device=device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return int(flag.item())
