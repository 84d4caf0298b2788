"""The adapter folder: what peft wrote, what it was trained on, what it was measured to do, and where it belongs.

    adapter_config.json  adapter_model.safetensors   peft's own
    test-queries.txt the queries to audit it on: those it never saw
    split.json       which queries are trained, validated and tested on; and the settings, from the first moment on
    pairs.jsonl      every pair with its target, its weight, and the base's margins z1, z2
    training.jsonl   a line for every step and validation          checkpoints/   to go on from
    metrics.csv      the figures of base, adapter and free baseline on the test queries
    results.json     the same with all that explains them: what --json prints
    README.md        the model card                                llmfair.json   the manifest
    rejected/        the adapter and its manifest, where no checkpoint kept the gates; then none is at the root

The manifest is written last and whole: a folder without one is unfinished. When an adapter is asked
(`backends/adapters.py`), these keys of it are held against the model, and refuse it:

    schema           1
    base             name, identity, fingerprint (`Checkpoint.version`), dtype
    template_sha256  of the chat template (`ChatTemplate.sha256`)
    adapter_sha256   of adapter_config.json and adapter_model.safetensors (`checkpoints.files_sha256`)

and these against the audit, which says where they differ:

    prompt           name, sha256 (`Prompt.sha256`), form, input, words
    dataset, split   whose queries were trained on
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmfair.backends.adapters import MANIFEST, SCHEMA
from llmfair.checkpoints import files_sha256
from llmfair.errors import LlmfairError, UsageError
from llmfair.io.files import json_text, read_lines, write_whole
from llmfair.manifest import RunSettings, read_named
from llmfair.rundir import RunDir

ADAPTER = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(frozen=True)
class _Margins:
    """A line of pairs.jsonl, as far as it is read again."""

    pair_id: str
    z1: float
    z2: float


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
    def rejected(self) -> Path:
        return self.path / "rejected"

    @property
    def finished(self) -> bool:
        """Whether there is a manifest: of an adapter, or of one that no gate let pass."""
        return (self.path / MANIFEST).is_file() or (self.rejected / MANIFEST).is_file()

    def begin(self, settings: Mapping[str, Any], split: Mapping[str, Any]) -> None:
        """Makes the folder, or checks that it belongs to these settings. Raises RunConflict and UsageError."""
        if not self.prepare(settings):
            self.write_json("split.json", {"schema": SCHEMA, "settings": settings, "split": split})
        if not (queries := self.path / "test-queries.txt").exists():
            write_whole(queries, [f"{query_id}\n" for query_id in split["test"]])

    def read_pairs(self) -> dict[str, tuple[float, float]]:
        """The base's margins of an earlier start, by pair id; none where it did not come so far."""
        if not os.path.lexists(self.pairs):
            return {}
        try:
            return {row.pair_id: (row.z1, row.z2) for row in read_lines(self.pairs, _Margins)}
        except UsageError as damaged:
            raise LlmfairError(damaged.message, "remove it; the pairs are asked again") from None

    def write_pairs(self, text: str) -> None:
        write_whole(self.pairs, [text])

    def finish(self, manifest: Mapping[str, Any], card: str, files: Mapping[str, str], passed: bool) -> None:
        """Writes what was found and, last, the manifest with the adapter's own sha256."""
        for name, text in files.items():
            write_whole(self.path / name, [text])
        write_whole(self.path / "README.md", [card])
        holder = self.path if passed else self.rejected
        digest = files_sha256([holder / name for name in ADAPTER])
        complete = {"schema": SCHEMA, **manifest, "adapter_sha256": digest}
        write_whole(holder / MANIFEST, [json_text(complete)])


def pairs_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The lines of `pairs.jsonl`."""
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
