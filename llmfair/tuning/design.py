"""The design of an adapter: which data, which pairs, which model; known before a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from llmfair.audits.lists import lists_identity, load_lists, name_parts, selected_queries, with_prompt
from llmfair.audits.subject import backend_args, template_args
from llmfair.backends.base import BackendOptions
from llmfair.backends.hf import read_arguments
from llmfair.checkpoints import Checkpoint, Place, device_of, dtype_of, find_checkpoint
from llmfair.datasets.base import Dataset
from llmfair.errors import UsageError
from llmfair.io.files import SCHEMA, plain
from llmfair.nouns import Attribute, PairStratum, Query, Side
from llmfair.probes import pair_grades
from llmfair.prompts import Prompt
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.results import Words
from llmfair.rundir import folder_name
from llmfair.settings import FinetuneSettings, band_of
from llmfair.settings.tuning import ORDERS
from llmfair.tuning.drawing import DrawnPairs, PairLimits, draw, split_queries
from llmfair.tuning.lora import groups_at_a_time, local_device, world
from llmfair.tuning.results import AdapterDir, TuningFacts

ADAPTERS = Path("adapters")
OF_LOSS = ("anchor_weight", "group_weight", "group_temperature", "slot_weight")


@dataclass(frozen=True)
class TuningDesign:
    """Everything an adapter is trained and measured on."""

    settings: FinetuneSettings
    dataset: Dataset
    attribute: Attribute
    queries: tuple[Query, ...]
    prompt: Prompt
    ranker: PairwiseRanker
    checkpoint: Checkpoint
    drawn: DrawnPairs

    @property
    def engine(self) -> Mapping[str, Any]:
        """`--backend-arg` over its defaults: device, attention, batch_tokens."""
        return read_arguments(backend_args(self.settings.backend_arg))

    @property
    def options(self) -> BackendOptions:
        settings = self.settings
        return BackendOptions(system=settings.system, template_args=template_args(settings.template_arg))

    def place(self) -> Place:
        """Where the base runs and in which type: on a GPU in bfloat16, else as it was saved, unless told."""
        device, why = device_of(self.engine["device"])
        if self.settings.dtype == "auto" and device != "cpu":
            dtype, why_dtype = "bfloat16", "as bases of adapters are held on a GPU"
        else:
            dtype, why_dtype = dtype_of(self.checkpoint, self.settings.dtype)
        return Place(local_device(device), dtype, f"{device}: {why}; {dtype}: {why_dtype}")

    def identity(self) -> dict[str, Any]:
        """All that can change the adapter or its figures, for the folder's name and against mixing runs."""
        return {
            "task": "finetune-lora",
            "identity": self.checkpoint.identity,
            **self.settings.of_result(),
            "level": self.settings.level,
            "band": self.settings.band,
            **lists_identity(self.dataset, self.attribute, self.queries),
            "prompt_sha256": self.prompt.sha256,
            **({"grades": "match"} if self.settings.grades == "match" and self._graded() else {}),
        }

    def _graded(self) -> bool:
        """Whether the items of some query that pairs are made of have several grades."""
        lists = [self.dataset.candidates(query) for query in self.queries]
        strata = get_args(PairStratum)
        return any(len(pair_grades(one, self.attribute, stratum)) > 1 for one in lists for stratum in strata)

    def folder(self) -> AdapterDir:
        """The folder that --output says, or one derived from the settings."""
        if self.settings.output is not None:
            return AdapterDir(self.settings.output)
        name = Path(self.checkpoint.source).name
        parts = (*name_parts(self.dataset, self.attribute), name)
        return AdapterDir(ADAPTERS / folder_name(parts, self.identity()))

    def told(self, run: str) -> dict[str, Any]:
        """What results and plans say alike (`OfTraining`)."""
        settings, drawn = self.settings, self.drawn
        return {
            "schema": SCHEMA,
            "task": "finetune-lora",
            "run": run,
            "dataset": self.dataset.name,
            "attribute": self.attribute.name,
            "model": f"hf:{self.checkpoint.name}",
            "words": Words(*(self.attribute.words[side] for side in Side)),
            "level": settings.level,
            "band": band_of(settings.band),
            "design": self.facts(),
            "counts": drawn.counts(),
            "overlap": drawn.overlap(),
            "groups": len(drawn.groups),
        }

    def facts(self) -> TuningFacts:
        """What is trained on, and how."""
        settings = self.settings
        own: dict[str, Any] = {
            "preset": settings.preset_name(),
            "queries": len(self.queries),
            "split": {part: len(query_ids) for part, query_ids in plain(self.drawn.split).items()},
            "loss": {"kind": settings.loss, **{name: getattr(settings, name) for name in OF_LOSS}},
            "prompt_sha256": self.prompt.sha256,
        }
        names = {*TuningFacts.__struct_fields__} - own.keys()
        return TuningFacts(**own, **{name: getattr(settings, name) for name in names})


def make_tuning_design(settings: FinetuneSettings) -> TuningDesign:
    """Loads what the settings name and draws the pairs. Raises MissingExtra, UsageError and BackendError."""
    assert settings.base_model is not None  # checked by the settings
    read_arguments(backend_args(settings.backend_arg))
    checkpoint = find_checkpoint(settings.base_model.removeprefix("hf:"))
    if checkpoint.encoder_decoder:
        raise UsageError(
            f"{checkpoint.name} reads a task and writes an answer; adapters are trained on models that carry a "
            "conversation on.",
            "choose an instruction-tuned causal model",
        )
    groups_at_a_time(settings, world())
    dataset, attribute = load_lists(settings)
    queries = selected_queries(dataset, settings)
    lists = [dataset.candidates(query) for query in queries]
    settings, prompt = with_prompt(settings, dataset, "pairwise")
    ranker = PairwiseRanker(
        prompt=prompt, form=settings.form, answers="margin", input=settings.input, words=settings.words
    )
    split = split_queries(lists, attribute, settings.train_share, settings.split_seed)
    limits = PairLimits(
        group=settings.group_size // ORDERS,
        total=settings.max_prompts // ORDERS,
        per_query=settings.pairs_per_query,
        per_item=settings.pairs_per_item,
        measured=settings.pairs,
        grades=settings.grades,
    )
    drawn = draw(
        lists,
        attribute,
        split,
        limits,
        settings.seed,
        ranker.shown,
        anchored=settings.anchor != "none",
        strict_items=settings.strict_items,
    )
    return TuningDesign(settings, dataset, attribute, tuple(queries), prompt, ranker, checkpoint, drawn)
