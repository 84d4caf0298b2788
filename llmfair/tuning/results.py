"""What a training found, typed: `results.json` of the adapter's folder, its plan, and what merging changed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from llmfair import results
from llmfair.audits.pairwise.results import CellCounts, PairFinding
from llmfair.checkpoints import MANIFEST, SCHEMA, files_sha256
from llmfair.io.files import json_text, plain, read_lines, write_whole
from llmfair.results import Band, Count, Counts, Figure, JsonDocument, JsonObject, Level, Row, Share
from llmfair.rundir import RunDir, RunSettings, read_named

Stratum = Literal["relevant", "irrelevant", "mixed"]
NOTHING = Figure(None, None, None, None, None, None, None, "no_pairs")


class TuningFacts(JsonObject, frozen=True, kw_only=True):
    """What an adapter is trained on, and how (all of it: `settings` of the manifest); `split` counts queries, those
    `unused` that lack items of a side."""

    preset: str | None
    split: Counts
    train_share: Share
    form: Literal["order", "letter"]
    labels: str
    anchor: str
    rank: Count
    lora_alpha: float
    learning_rate: float
    prompts_per_step: Count
    target_modules: str
    seed: int


class PairCounts(JsonObject, frozen=True):
    """Pairs of a stratum in a part of the split, and their queries."""

    queries: Count
    pairs: Count


class Overlap(JsonObject, frozen=True):
    """Items and pairs that are trained on and stand in measured pairs, too."""

    items: Count
    train_items: Count
    pairs: Count


class HeldOut(JsonObject, frozen=True):
    """The test queries; how often an adapter at parity that keeps its gates is called repaired on so many of them, and
    the queries that 80 % take, by what is assumed of its answers."""

    queries: Count
    chance: Share
    needed: Count | None


class OfTraining(JsonDocument, frozen=True, kw_only=True):
    """What a training is of; `counts` by part of the split and stratum."""

    status: str
    task: Literal["finetune-lora"]
    run: str
    dataset: str
    attribute: str
    model: str
    words: results.Words
    level: Level
    band: Band
    design: TuningFacts
    counts: Mapping[str, Mapping[str, PairCounts]]
    overlap: Overlap
    held_out: HeldOut


class PromptTokens(JsonObject, frozen=True):
    """Tokens of a prompt: on average, at most, and shared by a query."""

    mean: float
    most: Count
    shared: float
    prompts: Count


class Needs(JsonObject, frozen=True):
    """Memory in GiB, operations, and by device the seconds."""

    weights: Count
    weights_gib: float
    training_gib: float
    petaflop: float
    seconds: Mapping[str, float]


class PromptAsAsked(JsonObject, frozen=True):
    """A prompt of the training, as the model reads it; `answers` are the token ids between which it chooses."""

    pair_id: str
    text: str
    answers: Mapping[str, int]


class FinetunePlan(OfTraining, frozen=True, kw_only=True):
    """llmfair finetune-lora --dry-run; `warnings`: what the training cannot tell."""

    status: Literal["planned"]
    warnings: Sequence[str] = ()
    steps: Count
    tokens: PromptTokens
    estimate: Needs | None
    prompts: Sequence[PromptAsAsked]


REJECTED = 1e6
"""Added to the distance from parity of a checkpoint that fails a gate, so that the nearest of these is known, too."""


class Safeguard(JsonObject, frozen=True):
    """A figure that parity must not be bought with: its `value`, the `limit` by the base's, and whether it is kept."""

    value: float | None
    limit: float | None
    met: bool


class Validation(JsonObject, frozen=True):
    """How far from parity a checkpoint is (`objective`; 0 is parity, None not known), and what it did to the rest."""

    objective: float | None
    gates: Mapping[str, Safeguard]

    @property
    def standing(self) -> float:
        """By which checkpoints are compared, lower being better: those that fail a gate come behind all others."""
        distance = REJECTED if self.objective is None else self.objective
        return distance + REJECTED * (not all(gate.met for gate in self.gates.values()))


class TrainingRecord(JsonObject, frozen=True, kw_only=True):
    """What a training came to. `trace`: its validations; `seconds`: of training alone, over all its parts."""

    best_step: Count
    steps: Count
    prompts: Count
    seconds: float
    stopped_early: bool
    rejected: bool
    layout: str
    layout_why: str
    modules: Count
    trace: Sequence[Mapping[str, Any]]


class TrainingFacts(TrainingRecord, frozen=True, kw_only=True):
    """The same with the last validation, why it was rejected, if it was, and the logit `offset`."""

    validation: Validation
    why: str | None
    offset: float


class FinetuneResults(OfTraining, frozen=True, kw_only=True):
    """llmfair finetune-lora; results.json of the adapter's folder.

    `status` rejected (failed on stdout): no checkpoint kept the gates. `model` of a row says whose figure it is: base,
    adapter, logit offset. `changes`: preference odds after over those before, paired; p is of no change.
    `gates_on_test`: what parity may not be bought with, on queries never seen.
    """

    status: Literal["complete", "rejected", "failed"]
    verdict: results.RunVerdict | None = None
    rows: Sequence[Row]
    findings: Mapping[str, Mapping[str, PairFinding]]
    cells: Mapping[str, Mapping[str, CellCounts]]
    objective: Mapping[str, float | None]
    changes: Mapping[str, Figure]
    gates_on_test: Mapping[str, Safeguard]
    training: TrainingFacts

    def figure(self, model: str, measure: str, stratum: str, group: str = "") -> Figure:
        """A figure of the test queries; one without value where there is none."""
        key = (model, measure, stratum, group)
        rows = (row for row in self.rows if (row.model, row.measure, row.stratum, row.group) == key)
        return next(rows, NOTHING)


class MergeResults(JsonDocument, frozen=True, kw_only=True):
    """llmfair finetune-lora --merge; what its figures are: `head.merge`."""

    status: Literal["complete"]
    task: Literal["merge"]
    adapter: str
    base: str
    dtype: str
    output: str
    form: str
    matrices: Count
    change: float
    distortion: float
    answers: Count
    flipped: Count


# The adapter folder. From the first moment on there are split.json (which queries are trained, validated and tested
# on, and the settings) and test-queries.txt (those it never saw); then pairs.jsonl (every pair with its target, weight
# and the base's margins), training.jsonl (a line for every step and validation) and checkpoints/; at the end peft's own
# two files, metrics.csv and results.json of base, adapter and logit offset on the test queries, README.md (the model
# card) and, last, llmfair.json, the manifest: a folder without one is unfinished. Where no checkpoint kept the gates,
# peft's files and the manifest lie in rejected/ instead. When an adapter is asked (`checkpoints.py`), the
# manifest's schema, base, template_sha256 and adapter_sha256 are held against the model, and refuse it; prompt, dataset
# and split against the audit, which says where they differ.

ADAPTER = ("adapter_config.json", "adapter_model.safetensors")


class PairItem(JsonObject, frozen=True):
    """An item of a pair; `group`: its values of the attribute."""

    doc_id: str
    title: str
    group: Sequence[str]
    side: str | None
    relevance: int


class PairRow(JsonObject, frozen=True):
    """A line of `pairs.jsonl`: a pair with its target and weight, and the base's margins."""

    pair_id: str
    query_id: str
    query: str
    stratum: Stratum
    a: PairItem
    b: PairItem
    target: float | None
    weight: float
    part: str
    z1: float
    z2: float


def pairs_text(rows: Iterable[PairRow]) -> str:
    return "".join(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


@dataclass(frozen=True)
class AdapterDir(RunDir):
    """An adapter folder at `path`. `split.json` says from the beginning which settings it belongs to."""

    @property
    def manifest(self) -> Path:
        return self.path / "split.json"

    def read_settings(self) -> RunSettings:
        return read_named(self.manifest, RunSettings)

    @property
    def pairs(self) -> Path:
        return self.path / "pairs.jsonl"

    @property
    def finished(self) -> bool:
        """Whether there is a manifest: of an adapter, or of one that no gate let pass."""
        return any((path / MANIFEST).is_file() for path in (self.path, self.path / "rejected"))

    def begin(self, settings: Mapping[str, Any], split: Mapping[str, Any]) -> None:
        """Makes the folder, or checks that it belongs to these settings. Raises RunConflict and UsageError."""
        if not self.prepare(settings):
            self.write_json("split.json", {"schema": SCHEMA, "settings": settings, "split": split})
        if not (queries := self.path / "test-queries.txt").exists():
            write_whole(queries, [f"{query_id}\n" for query_id in split["test"]])

    def margins(self) -> dict[str, tuple[float, float]]:
        """The base's margins of an earlier start, by pair id."""
        rows = read_lines(self.pairs, PairRow) if os.path.lexists(self.pairs) else ()
        return {row.pair_id: (row.z1, row.z2) for row in rows}

    def finish(self, manifest: Mapping[str, Any], files: Mapping[str, str], passed: bool) -> None:
        """Writes what was measured and, last, the manifest with the adapter's own sha256."""
        for name, text in files.items():
            write_whole(self.path / name, [text])
        holder = self.path if passed else self.path / "rejected"
        digest = files_sha256([holder / name for name in ADAPTER])
        write_whole(holder / MANIFEST, [json_text({"schema": SCHEMA, **manifest, "adapter_sha256": digest})])
