"""The settings of `llmfair finetune-lora`: data, labels, loss and training of an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from llmfair.errors import UsageError
from llmfair.settings.audit import ListSettings
from llmfair.settings.base import PromptSettings
from llmfair.settings.declaration import (
    DATA,
    ENGINE,
    LOSSES,
    MODEL,
    MOST_NUMBERED,
    MOST_SEED,
    OUTPUT,
    PROMPT,
    SPENDING,
    STATISTICS,
    TRAINING,
    WRITTEN,
)

ORDERS = 2
"""Prompts of a pair: every pair is always asked in both orders."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(PromptSettings, ListSettings):
    """A LoRA adapter that removes a measured preference, and the measure of what else it changes."""

    makes_runs = True

    train_share: float = DATA(
        0.8, "Share of the queries that are trained on; the rest measure.", above=0, below=1
    )
    split_seed: int = DATA(0, "Seed of the split of queries.", least=0, most=MOST_SEED, advanced=True)
    pairs: int = DATA(50, "Pairs per query and relevance stratum.", least=1, most=MOST_NUMBERED)
    grades: Literal["match", "any"] = DATA(
        "match",
        "Pairs of two items of the same relevance grade (match), or of any two of a stratum.",
        result=False,
        advanced=True,
    )
    pairs_per_query: int = DATA(
        4000, "Most training pairs of a query.", least=1, most=MOST_NUMBERED, advanced=True
    )
    pairs_per_item: int | None = DATA(
        200, "Most training pairs of a query that an item is in.", least=1, most=MOST_NUMBERED, advanced=True
    )
    strict_items: bool = DATA(
        False, "Train on no item that stands in a pair of validation or test.", advanced=True
    )

    base_model: str | None = MODEL(
        None,
        "Model to adapt, which has to be named: ORG/NAME, or a folder.",
        short="-m",
        result=False,
        advanced=False,
    )
    system: Literal["auto", "separate", "fold"] = MODEL(
        "auto",
        "Where the system text goes; fold: into the first user message; auto: there if the template takes no other.",
    )
    backend_arg: tuple[str, ...] = MODEL(
        (),
        "k=v for the engine of a model in this process, such as device=cuda:1; repeatable.",
        effect=ENGINE,
        result=False,
    )
    template_arg: tuple[str, ...] = MODEL(
        (), "k=v for the model's chat template, such as enable_thinking=false; repeatable."
    )
    dtype: Literal["auto", "bfloat16", "float32"] = MODEL(
        "auto",
        "Type of the base; auto: bfloat16 on a GPU, else the checkpoint's. The adapter's is float32.",
        advanced=False,
    )
    load_in_4bit: bool = MODEL(
        False, "Hold the base in 4 bits, where bfloat16 does not fit (needs bitsandbytes).", advanced=False
    )

    form: Literal["order", "letter"] = PROMPT(
        "letter", "What is answered: the two numbers in order, or a letter."
    )

    labels: Literal["shifted", "random", "soft", "equal-answers"] = TRAINING(
        "shifted",
        "What pairs are trained towards: the model's own preferences less their median (shifted), halves at random "
        "(random), none (soft), or as many of its own answers for either group (equal-answers).",
        advanced=False,
    )
    soft_labels: bool = TRAINING(False, "With shifted: probabilities instead of 0 and 1.")
    anchor: Literal["relevance", "base", "none"] = TRAINING(
        "relevance",
        "What pairs of unequal relevance hold on to: judgements, or the base's answers.",
        advanced=False,
    )
    anchor_weight: float = TRAINING(0.5, "Weight of these pairs in the loss.", least=0)
    group_weight: float = TRAINING(0.5, "Weight of the squared mean preference of a group.", least=0)
    group_temperature: float = TRAINING(1.0, "Margin that counts as a full preference there.", above=0)
    slot_weight: float = TRAINING(0.0, "Weight of the squared slot bias.", least=0)
    loss: Literal["choice", "lm"] = TRAINING(
        "choice", "Between the two answers, or over all tokens (lm: with --preset paper)."
    )
    rank: int = TRAINING(1, "Rank of the adapter.", least=1, most=10_000, advanced=False)
    lora_alpha: float = TRAINING(
        2.0, "Scale of the adapter: what it adds counts lora-alpha / rank times.", advanced=False, above=0
    )
    lora_dropout: float = TRAINING(0.0, "Dropout before the adapter.", least=0, below=1)
    target_modules: str = TRAINING(
        "q_proj,k_proj,v_proj,o_proj",
        "Modules of the language model that are adapted, comma-separated.",
        advanced=False,
    )
    learning_rate: float = TRAINING(1e-3, "Learning rate.", advanced=False, above=0)
    schedule: Literal["cosine", "constant", "linear"] = TRAINING(
        "cosine", "How the learning rate goes on after it rose."
    )
    warmup: float = TRAINING(0.05, "Share of the steps in which the learning rate rises.", least=0, below=1)
    prompts_per_step: int = TRAINING(
        256, "Prompts of a step, of all devices together.", least=1, most=1_000_000, advanced=False
    )
    group_size: int = TRAINING(64, "Prompts of one query that stay together.", least=2, most=1_000_000)
    max_prompts: int = TRAINING(
        40_000, "Prompts trained on in all; two a pair.", least=1, most=MOST_NUMBERED, advanced=False
    )
    layout: Literal["auto", "padded", "shared"] = TRAINING(
        "auto", "Prompts side by side, or their common beginning once."
    )
    compile: bool = TRAINING(False, "Compile the layers (padded only).")
    eval_every: int = TRAINING(
        2_500, "Prompts between validations; 0: at the end only.", least=0, most=MOST_NUMBERED
    )
    patience: int = TRAINING(
        5, "Validations without progress before training stops.", least=1, most=MOST_NUMBERED
    )
    clip: float = TRAINING(1.0, "Largest norm of the gradient.", above=0)
    report_to: Literal["none", "tensorboard", "wandb"] = TRAINING(
        "none", "Where losses are also sent; training.jsonl has them always.", effect=LOSSES, result=False
    )

    dry_run: bool = SPENDING(False, "Count what would be asked; ask nothing.", advanced=False)
    merge: Path | None = OUTPUT(None, "Write the base with this adapter merged into it to --output.")
    output: Path | None = OUTPUT(
        None, "Adapter folder (default: below adapters/, named by the settings).", short="-o", effect=WRITTEN
    )

    fail_on: str | None = STATISTICS(
        None,
        "Verdicts that end in exit 4, comma-separated: rejected, inconclusive; a training without a checkpoint that "
        "kept its gates ends so anyway.",
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
