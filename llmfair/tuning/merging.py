"""`llmfair finetune-lora --merge DIR -o OUT`: a base and its adapter as one model, and how far that is from both."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from llmfair.audits.subject import backend_args
from llmfair.backends.base import BackendOptions
from llmfair.backends.hf import read_arguments
from llmfair.backends.local import LocalModel, load_model
from llmfair.checkpoints import Place, device_of, find_checkpoint, read_adapter, read_manifest, require_local
from llmfair.errors import BackendError, UsageError
from llmfair.io.files import SCHEMA, read_lines
from llmfair.nouns import Document, Query
from llmfair.prompts import load_prompt
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning.drawing import ExampleGroup, PairGroup, TrainingPair, render
from llmfair.tuning.results import AdapterDir, MergeResults, PairRow

PROBES = 200
"""Pairs whose answers are asked before and after."""


def merge_adapter(settings: FinetuneSettings) -> MergeResults:
    """Merges the adapter of `settings.merge` into its base, written to `settings.output`; what that changed. Raises
    UsageError for a folder without a manifest, or of another base, and what loading and writing raise."""
    require_local("peft")
    assert settings.merge is not None and settings.output is not None  # checked by the settings
    if (manifest := read_manifest(settings.merge)) is None:
        raise UsageError(
            f"{settings.merge} holds no finished adapter of llmfair: it has no llmfair.json.",
            "the command that began it completes it",
        )
    base, asked = manifest["base"], manifest["prompt"]
    checkpoint = find_checkpoint((settings.base_model or base["name"]).removeprefix("hf:"))
    read_adapter(settings.merge, checkpoint)
    engine = read_arguments(backend_args(settings.backend_arg))
    device, why = device_of(engine["device"])
    options = BackendOptions(
        system="fold" if manifest["system"] == "folded" else "separate",
        adapter=settings.merge,
        template_args=manifest["template_args"],
    )
    model = load_model(checkpoint, Place(device, base["dtype"], why), options, engine["attention"])
    assert model.template is not None  # it was trained with one
    how = {name: asked[name] for name in ("form", "input", "words")}
    ranker = PairwiseRanker(prompt=load_prompt(asked["name"], "pairwise"), answers="margin", **how)
    examples = render([_probes(settings.merge)], ranker, model.template, checkpoint.context)
    cost = merge(model, settings.output, examples, engine["batch_tokens"])
    return MergeResults(
        schema=SCHEMA, status="complete", task="merge", adapter=str(settings.merge), base=checkpoint.name,
        dtype=base["dtype"], output=str(settings.output), form=asked["form"], **cost,
    )  # fmt: skip


def _probes(folder: Path) -> PairGroup:
    """Up to `PROBES` pairs that the adapter was measured on, at even distances and so of all queries and strata. By
    title alone: `pairs.jsonl` holds no texts, and the data may be gone. Raises UsageError where it cannot be read."""
    rows = [row for row in read_lines(AdapterDir(folder).pairs, PairRow) if row.part == "test"]
    most, pairs = min(PROBES, len(rows)), list[TrainingPair]()
    for row in (rows[place * len(rows) // most] for place in range(most)):
        a, b = (Document(item.doc_id, item.title) for item in (row.a, row.b))
        pairs.append(TrainingPair(row.pair_id, Query(row.query_id, row.query), row.stratum, a, b))
    return tuple(pairs)


# A rank-1 change is smaller than the steps of bfloat16 over most of a weight matrix, so merged weights are not the
# adapter: how far off they are, and how many answers flip, is measured and said.


def merge(
    model: LocalModel, folder: Path, probes: Sequence[ExampleGroup], batch_tokens: int
) -> dict[str, Any]:
    """Writes the base with the adapter merged into it to `folder`, a new one, with its tokenizer; what that did.

    `change`: |ΔW|/|W| over all adapted matrices; `distortion`: the distance of the rounded sum from the exact one, over
    |ΔW|; of `answers` probe answers those that `flipped`. Added in float32 and rounded once, to the base's type. Raises
    UsageError for a folder that exists, BackendError for a base in 4 bits and for weights that cannot be written.
    """
    import torch
    from transformers import GenerationConfig

    from llmfair.tuning.head import NAME, pair_margins

    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty.", "choose another --output")
    before = np.concatenate(pair_margins(model, probes, batch_tokens))
    modules = (module for module in model.model.modules() if hasattr(module, "get_delta_weight"))
    layers, sums = [layer for layer in modules if NAME in getattr(layer, "lora_A", {})], np.zeros(3)
    with torch.no_grad():
        for layer in layers:
            weight = layer.get_base_layer().weight
            if not weight.is_floating_point():
                raise BackendError(
                    "a base in 4 bits cannot take an adapter in.", "merge it into the whole base"
                )
            base, delta = weight.float(), layer.get_delta_weight(NAME).float()
            rounded = (base + delta).to(weight.dtype)
            lost = rounded.float() - base - delta
            sums += [float(part.double().square().sum()) for part in (base, delta, lost)]
            weight.copy_(rounded)
    model.model = model.model.unload()
    after = np.concatenate(pair_margins(model, probes, batch_tokens))
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    revision = {"revision": model.checkpoint.revision} if model.checkpoint.revision else {}
    with suppress(OSError, ValueError):  # the base's own, which many have none of: the model's are for audits
        model.model.generation_config = GenerationConfig.from_pretrained(model.checkpoint.source, **revision)
    try:
        partial.mkdir(parents=True)  # so that it is no link
        model.model.save_pretrained(partial)
        model.tokenizer.save_pretrained(partial)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise BackendError(
            f"the merged model cannot be written to {folder}: {error.strerror or error}.",
            "choose another --output",
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    whole, added, rest = np.sqrt(sums)
    return {
        "matrices": len(layers),
        "change": float(added / whole),
        "distortion": float(rest / added) if added else 0.0,
        "answers": before.size,
        "flipped": int((np.sign(before) != np.sign(after)).sum()),
    }
