"""The settings of `llmfair finetune-lora`: data, labels, loss and training of an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from llmfair.errors import UsageError
from llmfair.settings.base import ENGINE, LOSSES, MOST_NUMBERED, MOST_SEED, WRITTEN, PromptSettings, setting
from llmfair.settings.lists import ListSettings

ORDERS = 2
"""Prompts of a pair: every pair is always asked in both orders."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(PromptSettings, ListSettings):
    """A LoRA adapter that removes a measured preference, and the measure of what else it changes."""

    makes_runs = True

    train_share: float = setting(0.8, "Share of the queries that are trained on; the rest measure.", "Data")
    split_seed: int = setting(
        0, "Seed of the split of queries.", "Data", advanced=True, least=0, most=MOST_SEED
    )
    pairs: int = setting(50, "Pairs per query and relevance stratum.", "Data", least=1, most=MOST_NUMBERED)
    grades: Literal["match", "any"] = setting(
        "match",
        "Pairs of two items of the same relevance grade (match), or of any two of a stratum.",
        "Data",
        result=False,
        advanced=True,
    )
    pairs_per_query: int = setting(
        4000, "Most training pairs of a query.", "Data", advanced=True, least=1, most=MOST_NUMBERED
    )
    pairs_per_item: int | None = setting(
        200,
        "Most training pairs of a query that an item is in.",
        "Data",
        advanced=True,
        least=1,
        most=MOST_NUMBERED,
    )
    strict_items: bool = setting(
        False, "Train on no item that stands in a pair of validation or test.", "Data", advanced=True
    )

    base_model: str | None = setting(
        None,
        "Model to adapt, which has to be named: ORG/NAME, or a folder.",
        "Model",
        flags=("-m",),
        result=False,
    )
    system: Literal["auto", "separate", "fold"] = setting(
        "auto",
        "Where the system text goes; fold: into the first user message; auto: there if the template takes no other.",
        "Model",
        advanced=True,
    )
    backend_arg: tuple[str, ...] = setting(
        (),
        "k=v for the engine of a model in this process, such as device=cuda:1; repeatable.",
        "Model",
        result=False,
        advanced=True,
        effect=ENGINE,
    )
    template_arg: tuple[str, ...] = setting(
        (),
        "k=v for the model's chat template, such as enable_thinking=false; repeatable.",
        "Model",
        advanced=True,
    )
    dtype: Literal["auto", "bfloat16", "float32"] = setting(
        "auto",
        "Type of the base; auto: bfloat16 on a GPU, else the checkpoint's. The adapter's is float32.",
        "Model",
    )
    load_in_4bit: bool = setting(
        False, "Hold the base in 4 bits, where bfloat16 does not fit (needs bitsandbytes).", "Model"
    )

    form: Literal["order", "letter"] = setting(
        "letter", "What is answered: the two numbers in order, or a letter.", "Prompt"
    )

    labels: Literal["shifted", "random", "soft", "equal-answers"] = setting(
        "shifted",
        "What pairs are trained towards: the model's own preferences less their median (shifted), halves at random "
        "(random), none (soft), or as many of its own answers for either group (equal-answers).",
        "Training",
    )
    soft_labels: bool = setting(
        False, "With shifted: probabilities instead of 0 and 1.", "Training", advanced=True
    )
    anchor: Literal["relevance", "base", "none"] = setting(
        "relevance",
        "What pairs of unequal relevance hold on to: judgements, or the base's answers.",
        "Training",
    )
    anchor_weight: float = setting(
        0.5, "Weight of these pairs in the loss.", "Training", advanced=True, least=0
    )
    group_weight: float = setting(
        0.5, "Weight of the squared mean preference of a group.", "Training", advanced=True, least=0
    )
    group_temperature: float = setting(
        1.0, "Margin that counts as a full preference there.", "Training", advanced=True
    )
    slot_weight: float = setting(0.0, "Weight of the squared slot bias.", "Training", advanced=True, least=0)
    loss: Literal["choice", "lm"] = setting(
        "choice",
        "Between the two answers, or over all tokens (lm: with --preset paper).",
        "Training",
        advanced=True,
    )
    rank: int = setting(1, "Rank of the adapter.", "Training", least=1, most=10_000)
    lora_alpha: float = setting(
        2.0, "Scale of the adapter: what it adds counts lora-alpha / rank times.", "Training"
    )
    lora_dropout: float = setting(0.0, "Dropout before the adapter.", "Training", advanced=True, least=0)
    target_modules: str = setting(
        "q_proj,k_proj,v_proj,o_proj",
        "Modules of the language model that are adapted, comma-separated.",
        "Training",
    )
    learning_rate: float = setting(1e-3, "Learning rate.", "Training")
    schedule: Literal["cosine", "constant", "linear"] = setting(
        "cosine", "How the learning rate goes on after it rose.", "Training", advanced=True
    )
    warmup: float = setting(
        0.05, "Share of the steps in which the learning rate rises.", "Training", advanced=True, least=0
    )
    prompts_per_step: int = setting(
        256, "Prompts of a step, of all devices together.", "Training", least=1, most=1_000_000
    )
    group_size: int = setting(
        64, "Prompts of one query that stay together.", "Training", advanced=True, least=2, most=1_000_000
    )
    max_prompts: int = setting(
        40_000, "Prompts trained on in all; two a pair.", "Training", least=1, most=MOST_NUMBERED
    )
    layout: Literal["auto", "padded", "shared"] = setting(
        "auto", "Prompts side by side, or their common beginning once.", "Training", advanced=True
    )
    compile: bool = setting(False, "Compile the layers (padded only).", "Training", advanced=True)
    eval_every: int = setting(
        2_500,
        "Prompts between validations; 0: at the end only.",
        "Training",
        advanced=True,
        least=0,
        most=MOST_NUMBERED,
    )
    patience: int = setting(
        5,
        "Validations without progress before training stops.",
        "Training",
        advanced=True,
        least=1,
        most=MOST_NUMBERED,
    )
    clip: float = setting(1.0, "Largest norm of the gradient.", "Training", advanced=True)
    report_to: Literal["none", "tensorboard", "wandb"] = setting(
        "none",
        "Where losses are also sent; training.jsonl has them always.",
        "Training",
        result=False,
        advanced=True,
        effect=LOSSES,
    )

    dry_run: bool = setting(False, "Count what would be asked; ask nothing.", "Spending", result=False)
    merge: Path | None = setting(
        None, "Write the base with this adapter merged into it to --output.", "Output", result=False
    )
    output: Path | None = setting(
        None,
        "Adapter folder (default: below adapters/, named by the settings).",
        "Output",
        flags=("-o",),
        result=False,
        effect=WRITTEN,
    )

    fail_on: str | None = setting(
        None,
        "Verdicts that end in exit 4, comma-separated: rejected, inconclusive; a training without a checkpoint that "
        "kept its gates ends so anyway.",
        "Statistics",
        result=False,
        advanced=True,
    )

    @classmethod
    def presets(cls) -> Mapping[str, Mapping[str, Any]]:
        return {
            # Wang et al. 2024, section 5. It gives no alpha (8 is peft's default), and does not say whether its
            # 140,000 pairs count orders. The form is the one of its pairwise audit, which asks for a ranking of two.
            "paper": {
                "prompt": "wikiproject",
                "form": "order",
                "labels": "random",
                "anchor": "none",
                "group_weight": 0.0,
                "rank": 1,
                "lora_alpha": 8.0,
                "learning_rate": 3e-3,
                "schedule": "constant",
                "warmup": 0.0,
                "prompts_per_step": 4,
                "group_size": 4,
                "max_prompts": 140_000 * ORDERS,
                "pairs_per_item": None,
                "layout": "padded",
                "eval_every": 0,
            }
        }

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        made = super().make(preset, **given)
        if made.loss == "lm" and (preset or "").partition("+")[0] != "paper":
            raise UsageError(
                "--loss lm goes with --preset paper: it trains all of an answer's tokens, and the audit measures two.",
                "leave --loss out",
            )
        return made

    def check(self) -> None:
        super().check()
        for name in ("group_temperature", "learning_rate", "lora_alpha", "clip"):
            if not getattr(self, name) > 0:
                raise UsageError(
                    f"--{name.replace('_', '-')} is {getattr(self, name)}, but is above 0.", "--help-all"
                )
        for name in ("warmup", "lora_dropout"):
            if getattr(self, name) >= 1:
                raise UsageError(
                    f"--{name.replace('_', '-')} is {getattr(self, name)}, but is a share of 1.",
                    "for example 0.05",
                )
        if not 0 < self.train_share < 1:
            raise UsageError(
                f"--train-share is {self.train_share}, but lies between 0 and 1.", "for example 0.8"
            )
        if self.max_prompts < self.prompts_per_step:
            raise UsageError(
                f"--max-prompts {self.max_prompts} is less than one step of {self.prompts_per_step} prompts.",
                "raise it, or lower --prompts-per-step",
            )
        if self.soft_labels and self.labels != "shifted":
            raise UsageError(f"--soft-labels does nothing with --labels {self.labels}.", "leave it out")
        if self.base_model is None and self.merge is None:
            raise UsageError("--base-model names no model.", "for example --base-model ORG/NAME, or a folder")
        if self.merge is not None and self.output is None:
            raise UsageError("--merge needs a folder to write to.", "add --output FOLDER")
