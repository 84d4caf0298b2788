"""Lists, the pairs drawn from them, answers to those with a known bias, and the adapter folder that they make."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np

from llmfair.audits.aggregates import Inference
from llmfair.io.files import json_text
from llmfair.nouns import Attribute, Candidates, Document, Query, Side
from llmfair.results import Words
from llmfair.tuning.drawing import STRATA, TrainingPair, group_sign, stratum_pairs
from llmfair.tuning.effects import AnsweredPairs, Figures, changes, measure, results_of, validate
from llmfair.tuning.results import FinetuneResults, HeldOut, Overlap, PairCounts, TrainingFacts, TuningFacts
from llmfair.tuning.words import judged

GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "female", Side.UNPROTECTED: "male"})
BAND = (0.8, 1.25)
QUERIES = 8


def listed(query_id: str, sizes: tuple[int, int, int, int] = (6, 6, 6, 6), shared: int = 0) -> Candidates:
    """Protected and unprotected relevant items, then irrelevant ones; `shared` of the last recur in every query."""
    documents, relevance = [], {}
    names = ("relevant-female", "relevant-male", "other-female", "other-male")
    for name, size in zip(names, sizes, strict=True):
        for place in range(size):
            own = "" if name.startswith("other") and place < shared else f"{query_id}-"
            document = Document(
                f"{own}{name}{place}", f"Title {own}{name}{place}", "", {"gender": (name.partition("-")[2],)}
            )
            documents.append(document)
            relevance[document.doc_id] = int(name.startswith("relevant"))
    return Candidates(Query(query_id, f"Topic {query_id}"), tuple(documents), relevance)


def shown(document: Document) -> str:
    return document.title


def pairs(queries: int = QUERIES) -> list[TrainingPair]:
    wanted = ((f"q{number}", stratum) for number in range(queries) for stratum in STRATA)
    return [*chain(*(stratum_pairs(listed(q), GENDER, stratum, 36, 0, shown) for q, stratum in wanted))]


def answers(margins: Callable[[TrainingPair], tuple[float, float]], queries: int = QUERIES) -> AnsweredPairs:
    asked = pairs(queries)
    return AnsweredPairs(asked, np.array([margins(pair) for pair in asked]), GENDER)


def biased(bias: float, relevance: float = 4.0, slot: float = 0.2, seed: int = 0) -> AnsweredPairs:
    """Items differ in ways that the group does not explain, the same for every bias."""
    rng = np.random.default_rng(seed)

    def margins(pair: TrainingPair) -> tuple[float, float]:
        g = bias * group_sign(pair, GENDER) + relevance * (pair.stratum == "mixed") + 1.5 * rng.normal()
        return g + slot, slot - g

    return answers(margins)


def figures(of: AnsweredPairs, base: AnsweredPairs) -> Figures:
    return measure(of, base, Inference(), BAND)


AUDIT = "llmfair pairwise -m hf:org/model --adapter small"
DESIGN = TuningFacts(
    preset=None, split={"train": 29, "validation": 3, "test": 8, "unused": 0}, train_share=0.8, form="letter",
    labels="shifted", anchor="relevance", rank=1, lora_alpha=2.0, learning_rate=1e-3, prompts_per_step=256,
    target_modules="q_proj", seed=3,
)  # fmt: skip
TOLD = {
    "schema": 5, "task": "finetune-lora", "run": "small", "dataset": "data", "attribute": "gender", "model": "hf:org/model",
    "words": Words("female", "male"), "level": 0.95, "band": BAND, "design": DESIGN,
    "counts": {"test": {"mixed": PairCounts(queries=8, pairs=288)}},
    "overlap": Overlap(items=0, train_items=384, pairs=0),
    "held_out": HeldOut(QUERIES, 0.0, 57),
}  # fmt: skip


def results(passed: bool) -> FinetuneResults:
    before, after = biased(-1.5), biased(-0.1, slot=0.3)
    base, adapter = figures(before, before), figures(after, before)
    offset = figures(before.shifted_by(-1.5), before)
    found = validate(base, offset, adapter)
    training = TrainingFacts(
        best_step=4, steps=4, prompts=1024, seconds=1.0, stopped_early=False, rejected=not passed, layout="padded",
        layout_why="as asked", modules=8, trace=[], validation=found,
        why="no checkpoint kept the gates.", offset=-1.5,
    )  # fmt: skip
    of = {"base": base, "adapter": adapter, "logit offset": offset}
    return judged(results_of(TOLD, of, changes(before, after, 0.95), found, training), AUDIT)


def adapter(folder: Path, passed: bool = True) -> Path:
    """An adapter folder as far as its report reads it."""
    folder.mkdir()
    (folder / "results.json").write_text(json_text(results(passed)), encoding="utf-8")
    return folder
