"""What an adapter's manifest says of where it belongs and where it comes from (keys: `results.py`)."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import llmfair
from llmfair.backends.local import ChatTemplate, LocalModel, label_answers
from llmfair.io.files import plain
from llmfair.rundir import now
from llmfair.settings.tuning import ORDERS
from llmfair.tuning.design import TuningDesign
from llmfair.tuning.drawing import TrainingPair, chats_of
from llmfair.tuning.effects import target_counts
from llmfair.tuning.results import FinetuneResults

LIBRARIES = ("torch", "transformers", "peft", "accelerate")
COPIED = ("counts", "overlap", "figure_4", "gates_on_test", "objective", "changes", "training")


def manifest_of(
    design: TuningDesign,
    model: LocalModel,
    labelled: Sequence[TrainingPair],
    pairs_sha256: str,
    results: FinetuneResults,
    seconds: float,
) -> dict[str, Any]:
    """The manifest but for the adapter's sha256."""
    settings, checkpoint, template = design.settings, design.checkpoint, model.template
    assert template is not None  # a causal model has one
    return {
        "task": "finetune-lora",
        "status": results.status,
        "made": now(),
        "seconds": seconds,
        "versions": {
            "llmfair": llmfair.__version__,
            "python": platform.python_version(),
            **{library: version(library) for library in LIBRARIES},
        },
        "base": {
            "name": checkpoint.name,
            "identity": checkpoint.identity,
            "fingerprint": checkpoint.version,
            "dtype": model.place.dtype,
            "load_in_4bit": settings.load_in_4bit,
            "place": model.place.why,
        },
        "template_sha256": template.sha256,
        "template_args": dict(template.template_kwargs),
        "system": "folded" if template.folded else "separate",
        "prompt": {
            "name": settings.prompt,
            "sha256": design.prompt.sha256,
            "text": design.prompt.text,
            "form": settings.form,
            "input": settings.input,
            "words": settings.words,
        },
        "attribute": design.attribute.name,
        "dataset": {"name": design.dataset.name, "lists_sha256": design.identity()["lists_sha256"]},
        "answers": answers_of(design, template),
        "settings": design.identity(),
        "split": plain(design.drawn.split),
        "targets": target_counts(labelled),
        "pairs_sha256": pairs_sha256,
        **{key: plain(getattr(results, key)) for key in COPIED},
    }


def answers_of(design: TuningDesign, template: ChatTemplate) -> dict[str, Any]:
    """The answers between which the model chooses: texts, what all begin with, and the token ids where they part."""
    pair = design.drawn.groups[0][0]
    chats = chats_of(pair, design.ranker)
    assert len(chats) == ORDERS
    texts = label_answers(chats[0].expects)
    prompt = template.ids(chats[0].messages)
    ids, labels = template.label_ids(chats[0].messages, texts)
    return {"texts": texts, "ids": labels, "forced": list(ids[len(prompt) :])}
