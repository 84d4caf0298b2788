"""Merging an adapter into its base, on request, and what that costs.

A rank-1 change is smaller than the steps of bfloat16 over most of a weight matrix, so merged weights are not the
adapter: how far off they are, and how many answers flip, is measured and said.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llmfair.errors import BackendError, UsageError
from llmfair.tuning.adapter import NAME
from llmfair.tuning.examples import ExampleGroup
from llmfair.tuning.margins import pair_margins
from llmfair.tuning.room import room_wanted

if TYPE_CHECKING:
    from llmfair.backends.local import LocalModel


@dataclass(frozen=True)
class MergingCost:
    """What merging did: |ΔW|/|W| over all adapted matrices; the distance of the rounded sum from the exact one, over
    |ΔW|; and of `answers` probe answers, those that `flipped`."""

    matrices: int
    change: float
    distortion: float
    answers: int
    flipped: int


def merge(model: LocalModel, folder: Path, probes: Sequence[ExampleGroup], batch_tokens: int) -> MergingCost:
    """Writes the base with the adapter merged into it to `folder`, a new one, with its tokenizer.

    Added in float32 and rounded once, to the base's type. Raises UsageError for a folder that exists or a model
    without adapter, BackendError for a base in 4 bits and for weights that cannot be written.
    """
    if not hasattr(model.model, "peft_config"):
        raise UsageError(
            f"{model.checkpoint.name} was loaded without an adapter.", "name its folder with --merge"
        )
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty.", "choose another --output")
    before = np.concatenate(pair_margins(model, probes, batch_tokens))
    matrices, sums = _add(model.model)
    model.model = model.model.unload()
    after = np.concatenate(pair_margins(model, probes, batch_tokens))
    _save(model, folder)
    weights, delta, error = np.sqrt(sums)
    return MergingCost(
        matrices=matrices,
        change=float(delta / weights),
        distortion=float(error / delta) if delta else 0.0,
        answers=before.size,
        flipped=int((np.sign(before) != np.sign(after)).sum()),
    )


def _add(model: Any) -> tuple[int, Any]:
    """Adds every matrix's change to it; how many there are, and the sums of squares of W, ΔW and what rounding lost."""
    import torch

    sums, matrices = np.zeros(3), 0
    with torch.no_grad():
        for layer in model.modules():
            if not hasattr(layer, "get_delta_weight") or NAME not in getattr(layer, "lora_A", {}):
                continue
            weight = layer.get_base_layer().weight
            if not weight.is_floating_point():
                raise BackendError(
                    "a base in 4 bits cannot take an adapter in.", "merge it into the whole base"
                )
            own, delta = weight.float(), layer.get_delta_weight(NAME).float()
            rounded = (own + delta).to(weight.dtype)
            lost = rounded.float() - own - delta
            sums += [float(part.double().square().sum()) for part in (own, delta, lost)]
            weight.copy_(rounded)
            matrices += 1
    return matrices, sums


def _save(model: LocalModel, folder: Path) -> None:
    """Weights and tokenizer, and the base's own settings for generating: those of `LocalModel` are for audits."""
    from transformers import GenerationConfig

    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    source, revision = model.checkpoint.source, model.checkpoint.revision
    with suppress(OSError, ValueError):  # many bases have none
        named = {"revision": revision} if revision else {}
        model.model.generation_config = GenerationConfig.from_pretrained(source, **named)
    try:
        with room_wanted(folder.parent):
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
