"""What a report is made of: a run folder, a study, measured runs, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmfair.errors import UsageError
from llmfair.rundir import RUNS_HINT, SCHEMA, RunDir

TASKS = ("listwise", "pairwise", "score", "study windows", "finetune-lora")


@dataclass(frozen=True)
class Source:
    """A folder with results: `manifest` is empty where no model was asked, `results` None where there are none yet."""

    run: RunDir
    manifest: Mapping[str, Any]
    results: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        return self.run.path.resolve().name

    @property
    def is_audit(self) -> bool:
        return self.results is not None and self.results["task"] in ("listwise", "pairwise")


def read_source(run: RunDir) -> Source:
    """A run folder, also a half-finished one; a folder of a study, of `score`, of an adapter. Raises UsageError."""
    study = run.path / "study.json"
    if study.is_file():
        return Source(run, {}, _read(study))
    if not run.manifest.is_file():
        if not (run.path / "results.json").is_file():
            raise UsageError(
                f"{run.path} holds neither a run nor a study: no manifest.json, results.json or study.json.",
                RUNS_HINT,
            )
        return Source(run, {}, _known(run.path, run.read_results()))
    manifest = run.read_manifest()
    finished = (run.path / "results.json").is_file()
    return Source(run, manifest, _known(run.path, run.read_results()) if finished else None)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", "the study's command writes it anew") from None
    return _known(path, found)


def _known(path: Path, results: Any) -> dict[str, Any]:
    if not isinstance(results, dict) or results.get("schema") != SCHEMA or results.get("task") not in TASKS:
        raise UsageError(f"{path}: no results of {', '.join(TASKS)}.", RUNS_HINT)
    return results


def unfinished(source: Source) -> str:
    """What a run without results lacks, in a sentence."""
    summary = source.run.summary()
    answers = f"{summary['answers']:,} answers are on disk"
    return f"{source.name} has no results yet ({summary['status']}; {answers})"
