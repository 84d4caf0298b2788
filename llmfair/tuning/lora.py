"""Training an adapter, read from top to bottom: where it sits, what a step is, when it stops, what it leaves.

A step's prompts are counted over all devices together; each takes one group at a time, and as many after each other as
make up the step. The order of the groups is drawn beforehand, so that a stopped training goes on to the same adapter.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llmfair.backends.local import LocalModel
from llmfair.beginning import stopped_by
from llmfair.checkpoints import fits
from llmfair.errors import BackendError
from llmfair.io.files import itself, plain, write_whole
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning import head, processes
from llmfair.tuning.drawing import STRATA, ExampleGroup
from llmfair.tuning.results import REJECTED, TrainingRecord, Validation

if TYPE_CHECKING:
    import torch

FULL_DISK = re.compile("iostream error|PytorchStreamWriter failed")
"""What torch says where a checkpoint cannot be written."""


# What is trained: a two-candidate cross-entropy on the answer, held level between the groups. Per group of prompts, one
# query in both orders: L = mean over relevant and irrelevant pairs of weight · ½[BCE(z1, t) + BCE(z2, 1 − t)] +
# anchor_weight · the same over mixed pairs + group_weight · Σ over the two strata of (mean of tanh(g /
# group_temperature))² + slot_weight · mean of s², g = (z1 − z2)/2, s = (z1 + z2)/2. With two logits a prompt the
# cross-entropy is BCE(z, t); with a vocabulary of them it is a language model's.
PARTS = ("loss", "pairs", "anchor", "group", "slot")
"""The loss and what it is made of, before weighting."""


def loss_parts(
    logits: torch.Tensor, columns: tuple[int, int], batch: head.Batch, settings: FinetuneSettings
) -> Mapping[str, torch.Tensor]:
    """The loss of one group and its parts, each a number. `logits`: (prompts, 2 or vocabulary); `columns`: those of the
    answers that name the item shown first and second."""
    target, weight, stratum = batch["target"], batch["weight"], batch["stratum"]
    both = logits.log_softmax(-1)[:, list(columns)]
    first, second = both.view(2, -1, 2)  # (pairs, 2): log-probabilities of the two answers
    wins = target * (first[:, 0] + second[:, 1])
    loses = (1 - target) * (first[:, 1] + second[:, 0])
    each = -0.5 * weight * (wins + loses)
    z1, z2 = (both[:, 0] - both[:, 1]).view(2, -1)
    level = ((z1 - z2) / 2 / settings.group_temperature).tanh()
    relevant, irrelevant, mixed = (stratum == number for number in range(len(STRATA)))

    def mean(values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """0 where there are none, so that an absent stratum pulls nowhere."""
        return (values * chosen).sum() / chosen.sum().clamp(min=1)

    pairs, anchor = mean(each, ~mixed), mean(each, mixed)
    group = mean(level, relevant) ** 2 + mean(level, irrelevant) ** 2
    slot = ((z1 + z2) / 2).square().mean()
    loss = pairs + settings.anchor_weight * anchor + settings.group_weight * group
    loss = loss + settings.slot_weight * slot
    return dict(zip(PARTS, (loss, pairs, anchor, group, slot), strict=True))


# What outlives a training that is stopped: its log, its checkpoints, and how far it has come.

PARITY = 0.1
"""The objective at which a checkpoint that keeps every gate is good enough."""
_STATE = "trainer_state.json"


def add_to(log: Path, line: Mapping[str, Any]) -> None:
    """A line of `training.jsonl`: a step, or a validation. The first process alone writes."""
    if processes.rank() == 0:
        with open(log, "a", encoding="utf-8", opener=itself) as file:
            file.write(json.dumps(line) + "\n")


def lines_of(log: Path) -> list[dict[str, Any]]:
    """All lines; one that was cut off in the writing is none."""
    lines = []
    for text in log.read_text("utf-8", "replace").splitlines() if log.is_file() else ():
        with suppress(ValueError):
            lines.append(json.loads(text))
    return lines


def last_checkpoint(folder: Path) -> Path | None:
    """The latest checkpoint that is whole: its state is written last, and may itself be cut off."""
    whole = []
    for path in folder.glob("checkpoint-*"):
        with suppress(OSError, ValueError):
            step = json.loads((path / _STATE).read_text("utf-8"))["global_step"]
            if path.name == f"checkpoint-{step}":
                whole.append((step, path))
    return max(whole)[1] if whole else None


def is_over(state: Any, settings: FinetuneSettings) -> bool:
    """Whether a training has come to its end: all steps, parity with every gate kept, or no progress for too long, by
    transformers' history, in which a validation is a row with `eval_standing`."""
    standings = [row["eval_standing"] for row in state.log_history if "eval_standing" in row]
    since_best = len(standings) - 1 - standings.index(min(standings)) if standings else 0
    at_parity = bool(standings) and standings[-1] <= PARITY
    return bool(
        state.global_step >= processes.steps_of(settings) or at_parity or since_best >= settings.patience
    )


# transformers' Trainer for groups of pairs: its loss, its log, its validations, and its end.

CHECKPOINTS, LOG = "checkpoints", "training.jsonl"
SAVE_EVERY = 2_500
"""Prompts between checkpoints where nothing is validated meanwhile."""


def make_trainer(
    model: LocalModel, settings: FinetuneSettings, log: Path, groups: Sequence[ExampleGroup],
    collator: head.Collator, columns: tuple[int, int],
    validate: Callable[[], Validation], signals: list[int], tell: processes.Tell,
) -> Any:  # fmt: skip
    """A Trainer that takes `groups` in their order; `columns` of logits: those of both answers."""
    import torch
    from transformers import PrinterCallback, Trainer, TrainingArguments

    place, steps, per_step = model.place, processes.steps_of(settings), settings.prompts_per_step
    warmup, schedule = round(settings.warmup * steps), str(settings.schedule)
    save_every = max(1, round((settings.eval_every or SAVE_EVERY) / per_step))
    arguments = TrainingArguments(
        output_dir=str(log.with_name(CHECKPOINTS)),
        per_device_train_batch_size=1,  # group
        gradient_accumulation_steps=processes.groups_at_a_time(settings, processes.world()), max_steps=steps,
        seed=settings.seed, learning_rate=settings.learning_rate, warmup_steps=warmup, max_grad_norm=settings.clip,
        lr_scheduler_type="constant_with_warmup" if warmup and schedule == "constant" else schedule,
        bf16=place.dtype == "bfloat16", use_cpu=place.device == "cpu", logging_steps=1,
        train_sampling_strategy="sequential", save_steps=save_every,  # and at the end
        save_total_limit=3,  # the last two and the best
        metric_for_best_model="eval_standing", greater_is_better=False, remove_unused_columns=False,
        report_to=settings.report_to, disable_tqdm=True, log_level="error",
        dataloader_pin_memory=place.device.startswith("cuda"), ddp_find_unused_parameters=False,
        # Buffers never change; sent between two passes of a step they would void the first one's gradients.
        ddp_broadcast_buffers=False,
    )  # fmt: skip
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process never spreads over several GPUs

    class PairTrainer(Trainer):  # type: ignore[misc]
        control: Any

        def __init__(self) -> None:
            super().__init__(model.model, arguments, collator, groups)
            self.remove_callback(PrinterCallback)
            self._sums = torch.zeros(len(PARTS), device=arguments.device)
            self._since = time.perf_counter()

        def compute_loss(self, model: Any, inputs: head.Batch, *_: Any, **__: Any) -> torch.Tensor:
            losses = loss_parts(head.answer_logits(model, inputs), columns, inputs, settings)
            self._sums += torch.stack([losses[name].detach() for name in PARTS])
            return losses["loss"]

        def floating_point_ops(self, inputs: head.Batch) -> int:
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
                row = {name: logs[name] for name in (*PARTS, "learning_rate", "grad_norm") if name in logs}
                done = number * per_step
                add_to(log, {"step": number, "prompts": done, **row, "seconds": now - self._since})
                self._since = now
                if processes.rank() == 0:
                    tell(done, f"loss {logs['loss']:.3f}")
                of_rhythm = bool(settings.eval_every) and number % save_every == 0
                self.control.should_evaluate = of_rhythm or number >= steps
                # the signal that any process got: all of them have to leave after the same step
                if number := max(processes.shared_out([next(iter(signals), 0)] * processes.world(), list)):
                    signals[:] = [number]
                    self.control.should_save = self.control.should_training_stop = True
            super().log(logs, *arguments)

        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            validation, number = validate(), self.state.global_step
            add_to(log, {"step": number, "prompts": number * per_step, **plain(validation), "seconds": 0.0})
            metrics = {"eval_standing": validation.standing}
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            self.control.should_training_stop |= is_over(self.state, settings)
            self._since = time.perf_counter()  # a validation is no part of a step
            return metrics

        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            if self.args.should_save:
                head.save_adapter(self.model, Path(output_dir or self.args.output_dir))

    return PairTrainer()


def train(
    model: LocalModel, groups: Sequence[ExampleGroup], validate: Callable[[], Validation],
    settings: FinetuneSettings, folder: Path, tell: processes.Tell = lambda done, words: None,
) -> TrainingRecord:  # fmt: skip
    """Trains an adapter over `model`, in place, from the last checkpoint in `folder` if there is one.

    Leaves the best checkpoint's adapter active and its two files in `folder`, or in `folder/rejected` where none
    kept its gates, `training.jsonl` and `checkpoints/`. `validate` is called in every process with the adapter active;
    `tell(prompts, words)` after each step in the first. Ctrl-C, SIGTERM and SIGHUP end it after the step that is under
    way, with a checkpoint. Raises BackendError.
    """
    import torch
    from transformers import TrainerState, set_seed

    answers, log = groups[0][0].answers, folder / LOG
    head.require_same_margin(model, groups[0][0])

    # The model: frozen, with an adapter, and two rows for a head unless the loss needs all of them.
    set_seed(settings.seed)
    modules = head.attach(model, settings)
    inner = head.language_model(model.model)
    columns = (0, 1) if settings.loss == "choice" else answers

    # The order: every group once before any comes again, in a new order each time.
    rng = np.random.default_rng(settings.seed)
    needed = processes.prompts_of(settings) // settings.group_size
    order = [int(place) for _ in range(-(-needed // len(groups))) for place in rng.permutation(len(groups))]

    last = processes.first(lambda: last_checkpoint(folder / CHECKPOINTS))
    state = None if last is None else TrainerState.load_from_json(str(last / _STATE))
    if processes.rank() == 0:  # what came after a checkpoint is written again
        step = 0 if state is None else state.global_step
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(log, [json.dumps(line) + "\n" for line in lines_of(log) if line["step"] <= step])
    signals = list[int]()
    large = f"a group of {settings.group_size} prompts does not fit the memory of {model.place.device}."
    smaller = head.SMALLER.format("--group-size, --layout shared")
    with ExitStack() as stack:
        if settings.loss == "choice":
            stack.enter_context(head.answer_head(inner, answers))
        low, width = model.place.dtype != "float32", 0  # products in bfloat16 where the base is
        stack.enter_context(head.inputs_cast(inner, not low))
        with torch.autocast(inner.device.type, torch.bfloat16, enabled=low), fits(large, smaller):
            # a cache makes every layer compile anew
            layout, why = head.choose_layout(model, groups, "padded" if settings.compile else settings.layout)
        if settings.compile:
            width = max(len(ids) for example in chain(*groups) for ids in example.prompts)
            stack.enter_context(head.compiled(inner))
        if state is None or not is_over(state, settings):
            collator, ordered = head.Collator(layout, width), [groups[place] for place in order[:needed]]
            trainer = make_trainer(model, settings, log, ordered, collator, columns, validate, signals, tell)
            uses_cache = inner.config.use_cache
            # kept back until a step is over and saved; the first counts, as launchers and schedulers send them to a
            # process and to its group
            with stopped_by(lambda number, _: signals.append(number)), fits(large, smaller):
                try:
                    trainer.train(resume_from_checkpoint=None if last is None else str(last))
                except RuntimeError as error:  # torch names no disk that is full
                    if not FULL_DISK.search(str(error)):
                        raise
                    where = str(folder / CHECKPOINTS)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where) from None
            inner.config.use_cache = uses_cache
            trainer.accelerator.unwrap_model(trainer.model_wrapped, keep_fp32_wrapper=False)
            trainer.accelerator.wait_for_everyone()
            state = trainer.state
    if signals:  # to whom it was for
        signal.raise_signal(signals[0])
        raise KeyboardInterrupt

    # The best of all checkpoints, or the one that came nearest.
    rejected = state.best_metric >= REJECTED
    best = folder / CHECKPOINTS / f"checkpoint-{state.best_global_step}"
    processes.first(lambda: head.publish(best, folder / "rejected" if rejected else folder))
    head.load_weights(model.model, best)
    model.model.eval()
    lines = processes.first(lambda: lines_of(log))
    return TrainingRecord(
        best_step=state.best_global_step, steps=state.global_step,
        prompts=state.global_step * settings.prompts_per_step,
        seconds=sum(line["seconds"] for line in lines),
        stopped_early=state.global_step < processes.steps_of(settings), rejected=rejected, layout=layout,
        layout_why=why, modules=len(modules), trace=[line for line in lines if "objective" in line],
    )  # fmt: skip
