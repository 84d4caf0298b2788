"""Settings of the commands that read what exists, `llmfair score`, `rerank`, `mitigate`, and of `finetune-lora`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from llmfair.errors import UsageError
from llmfair.settings.asking import SpendingSettings
from llmfair.settings.audit import ListSettings
from llmfair.settings.declaration import (
    DATA,
    ENGINE,
    LOSSES,
    MODEL,
    MOST_NUMBERED,
    MOST_SEED,
    OUTPUT,
    PROMPT,
    SENT,
    SPENDING,
    STATISTICS,
    TRAINING,
    WRITTEN,
    CommandSettings,
    MeasureSettings,
    PromptSettings,
)

LOG = ".jsonl"
"""How a log ends of what a generator was shown and said: like a run folder it brings its judgements."""
OF_DATASET, OF_FILES = frozenset({"dataset", "columns"}), frozenset({"qrels", "groups", "attributes"})
"""The two ways to say what is relevant, and who is in which group."""
SCORE_FORMS = "llmfair score RUN --qrels FILE --groups FILE, or llmfair score RUN -d DATASET"
RERANK_FORMS = (
    "llmfair rerank RUN --with fair-star -d DATASET -o NEW.run, or with --groups FILE in place of -d"
)


@dataclass(frozen=True, kw_only=True)
class JudgementSettings(CommandSettings):
    """Rankings that exist: where their judgements and groups are."""

    columns: str | None = DATA(
        None, "Of a table as dataset, what its columns are called: doc_id=id,gender=sex.", advanced=True
    )
    qrels: Path | None = DATA(None, "TREC qrels, instead of a dataset.")
    groups: Path | None = DATA(
        None, "Lines of doc_id, attribute, group, separated by tabs; goes with --qrels."
    )
    attributes: Path | None = DATA(
        None,
        "Which groups are protected, which the reference, in a file as llmfair datasets attributes prints it.",
    )

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        others = OF_FILES if flags & OF_DATASET else OF_DATASET if flags & OF_FILES else frozenset()
        return super().giving_way(flags, runs, output) | others


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(JudgementSettings, MeasureSettings):
    """What is measured of rankings that exist."""

    report: bool = OUTPUT(True, "Write report.html into the --output folder.")
    open: bool = OUTPUT(False, "Open the report in the browser.")
    per_query: bool = OUTPUT(False, "Every query's values as tab-separated rows, then those of all.")

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        brought = OF_DATASET | OF_FILES | {"attribute", "mixed"}
        bring = all(run.is_dir() or run.suffix == LOG for run in runs)
        return super().giving_way(flags, runs, output) | (brought if bring else frozenset())

    def check(self) -> None:
        super().check()
        of_files = self.qrels or self.groups or self.attributes
        if (self.qrels is None) != (self.groups is None) or (self.dataset and of_files):
            raise UsageError(
                "judgements and groups come from --dataset, or from --qrels, --groups and --attributes.",
                SCORE_FORMS,
            )


@dataclass(frozen=True, kw_only=True)
class RerankSettings(JudgementSettings):
    """Rankings that exist, to be ordered anew: where groups and texts are, and where the new ones go."""

    query_text: Literal["keywords", "title"] = DATA(
        "keywords",
        "What rankers read of a topic: its keywords, where it has any (keywords.jsonl), or its title.",
        result=False,
    )

    output: Path | None = OUTPUT(
        None,
        "The new run, or of several runs the folder of the new ones; a name that ends in .gz is packed.",
        short="-o",
        effect=WRITTEN,
    )

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | {"level", "band", "format"}

    def check(self) -> None:
        super().check()
        if self.output is None:
            raise UsageError("--output is missing: where does the new run go?", RERANK_FORMS)
        if bool(self.dataset) == bool(self.groups or (self.dataset and self.qrels)):
            raise UsageError("either --dataset or --groups says who is in which group.", RERANK_FORMS)


@dataclass(frozen=True, kw_only=True)
class MitigateSettings(SpendingSettings, CommandSettings):
    """Which remedies are held against a run, and for how much; data, model and prompt are those of the run."""

    remedy: tuple[str, ...] = DATA(
        (),
        "A remedy, with parameters as in fair-star:p=0.4,alpha=0.1; repeatable (default: all).",
        result=False,
    )
    free: bool = DATA(False, "Only remedies that ask no model.", result=False)
    condition: str | None = DATA(
        None, "The prompt of the run that is mitigated (default: neutral).", result=False
    )
    adapter: Path | None = MODEL(
        None,
        "Folder of a LoRA adapter for the run's model (default: those trained beside the run).",
        result=False,
        advanced=False,
    )
    extra: tuple[str, ...] = MODEL(
        (),
        "An --extra of the run whose value is secret, so that no run folder keeps it; repeatable.",
        result=False,
    )
    base_url: tuple[str, ...] = MODEL(
        (),
        "A --base-url of the run with the password or key in it that no run folder keeps; repeatable.",
        effect=SENT,
        result=False,
    )
    margin: float = STATISTICS(0.02, "Loss of nDCG that still counts as none.", least=0, below=1)
    report: bool = OUTPUT(True, "Write report.html beside the results.")
    open: bool = OUTPUT(False, "Open the report in the browser.", advanced=True)
    output: Path | None = OUTPUT(
        None,
        "Folder of the results and of the new rankings (default: mitigation, in the run's folder).",
        short="-o",
        effect=WRITTEN,
    )

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | {"dataset", "attribute", "mixed", "band", "level"}  # the run's own


ORDERS = 2
"""Prompts of a pair: every pair is always asked in both orders."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(PromptSettings, ListSettings):
    """A LoRA adapter that removes a measured preference, and the measure of what else it changes."""

    makes_runs = True

    train_share: float | None = DATA(
        None,
        "Share of the queries that are trained on; the rest measure (default: as many as an adapter at parity takes to "
        "be called repaired in 80 %, between a fifth and half of all).",
        above=0,
        below=1,
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
                "train_share": 0.8,
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
    def make(cls, preset: str | None = None, **values: Any) -> Self:
        settings = super().make(preset, **values)
        if settings.loss == "lm" and (preset or "").partition("+")[0] != "paper":
            raise UsageError(
                "--loss lm goes with --preset paper: it trains all of an answer's tokens, and the audit measures two.",
                "leave --loss out",
            )
        return settings

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
