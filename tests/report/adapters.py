"""An adapter folder as far as its report reads it, from margins made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmfair.jsonfiles import json_text
from llmfair.tuning.effects import changes
from llmfair.tuning.gates import validate
from llmfair.tuning.outcome import results_of
from tests.tuning.answered import biased, figures

DESIGN = {
    "preset": None, "queries": 40, "split": {"train": 29, "validation": 3, "test": 8, "unused": 0},
    "labels": "shifted", "anchor": "relevance", "rank": 1, "form": "letter", "seed": 3, "max_prompts": 1024,
}  # fmt: skip
FACTS = {
    "words": {"protected": "female", "unprotected": "male"}, "level": 0.95, "band": [0.8, 1.25], "design": DESIGN,
    "counts": {"test": {"mixed": {"queries": 8, "pairs": 288}}},
    "overlap": {"items": 0, "train_items": 384, "pairs": 0, "dropped_items": 0, "strict": False},
}  # fmt: skip


def results(passed: bool) -> dict[str, Any]:
    before, after = biased(-1.5), biased(-0.1)
    base, adapter = figures(before, before), figures(after, before)
    training = {
        "offset": -1.5, "stopped_early": False, "steps": 4, "prompts": 1024, "best_step": 4, "modules": 8,
        "why": "no checkpoint kept the gates.", "layout": "padded", "layout_why": "as asked", "validation": validate(base, adapter).as_json(),
    }  # fmt: skip
    named = {"run": "small", "dataset": "data", "attribute": "gender", "model": "hf:org/model"}
    of = {"base": base, "adapter": adapter, "free baseline": figures(before.shifted_by(-1.5), before)}
    change = changes(before, after, 0.95)
    return results_of(named, passed, FACTS, of, change, validate(base, adapter), training)


def adapter(folder: Path, passed: bool = True) -> Path:
    """An adapter folder as far as its report reads it."""
    folder.mkdir()
    (folder / "results.json").write_text(json_text(results(passed)), encoding="utf-8")
    return folder
