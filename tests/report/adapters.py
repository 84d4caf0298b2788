"""An adapter folder as far as its report reads it, from margins made by hand."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from llmfair.io.files import json_text
from llmfair.results import Words
from llmfair.tuning.effects import changes, results_of, validate, with_text
from llmfair.tuning.results import FinetuneResults, Overlap, PairCounts, TrainingFacts, TuningFacts
from llmfair.tuning.words import judged
from tests.tuning.answered import BAND, biased, figures

AUDIT = "llmfair pairwise -m hf:org/model --adapter small"
DESIGN = TuningFacts(
    preset=None, queries=40, split={"train": 29, "validation": 3, "test": 8, "unused": 0}, train_share=0.8, pairs=36,
    form="letter", labels="shifted", soft_labels=False, anchor="relevance", rank=1, lora_alpha=2.0,
    learning_rate=1e-3, prompts_per_step=256, max_prompts=1024, target_modules="q_proj", loss={}, seed=3,
    split_seed=0, prompt_sha256=64 * "0",
)  # fmt: skip
TOLD = {
    "schema": 1, "task": "finetune-lora", "run": "small", "dataset": "data", "attribute": "gender", "model": "hf:org/model",
    "words": Words("female", "male"), "level": 0.95, "band": BAND, "design": DESIGN,
    "counts": {"test": {"mixed": PairCounts(queries=8, pairs=288)}},
    "overlap": Overlap(items=0, train_items=384, pairs=0, dropped_items=0, strict=False), "groups": 8,
}  # fmt: skip


def results(passed: bool) -> FinetuneResults:
    before, after = biased(-1.5), biased(-0.1)
    base, adapter = figures(before, before), figures(after, before)
    found = validate(base, adapter)
    training = TrainingFacts(
        best_step=4, steps=4, prompts=1024, seconds=1.0, stopped_early=False, rejected=not passed, layout="padded",
        layout_why="as asked", modules=8, trace=[], prompts_per_second=1024.0,
        validation=replace(found, gates=with_text(found.gates)), why="no checkpoint kept the gates.", offset=-1.5,
        processes=1,
    )  # fmt: skip
    of = {"base": base, "adapter": adapter, "logit offset": figures(before.shifted_by(-1.5), before)}
    return judged(results_of(TOLD, of, changes(before, after, 0.95), found, training), AUDIT)


def adapter(folder: Path, passed: bool = True) -> Path:
    """An adapter folder as far as its report reads it."""
    folder.mkdir()
    (folder / "results.json").write_text(json_text(results(passed)), encoding="utf-8")
    return folder
