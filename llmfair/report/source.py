"""What a report is made of: a run folder, a study, measured runs, read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from llmfair import registry
from llmfair.audits.kind import found_of, kinds, studies, study_of
from llmfair.audits.studies.study import Study
from llmfair.errors import UsageError
from llmfair.io.files import SCHEMA, read, read_json
from llmfair.manifest import RUNS_HINT, Manifest
from llmfair.results import ProbeCounts, Results
from llmfair.rundir import RunDir

TRAINING = "split.json"
"""What a training leaves from its first moment on (`tuning/folder.py`)."""
GENERAL = ("score", "finetune-lora", "mitigate")
"""What is neither an audit nor a study of one."""


@dataclass(frozen=True)
class Source:
    """A folder with results: `manifest` None where no model was asked, `results` None where there are none yet."""

    run: RunDir
    manifest: Manifest | None
    results: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        return self.run.path.resolve().name

    @property
    def is_audit(self) -> bool:
        return self.results is not None and registry.has("audit", self.results["task"])

    @property
    def study(self) -> Study | None:
        """The study that these are results of, if they are of one."""
        return None if self.results is None else study_of(self.results["task"])

    @property
    def document(self) -> Mapping[str, Any]:
        """The results as JSON has them, of a folder that is known to have some."""
        assert self.results is not None
        return self.results

    @cached_property
    def found(self) -> Any:
        """The results as the class of their task. Raises UsageError naming the file and the field that is wrong."""
        return found_of(self.document, self.run.results)

    @property
    def audit(self) -> Results:
        """Those of an audit, as far as every kind has them."""
        found: Results = self.found
        return found


def read_source(run: RunDir) -> Source:
    """A run folder, also a half-finished one; a folder of a study, of `score`, of an adapter. Raises UsageError."""
    study = run.path / "study.json"
    if study.is_file():
        return Source(run, None, _read(study))
    if not run.manifest.is_file():
        if not (run.path / "results.json").is_file():
            if (run.path / TRAINING).is_file():
                return Source(run, None, None)
            raise UsageError(
                f"{run.path} holds neither a run nor a study: no manifest.json, results.json or study.json.",
                RUNS_HINT,
            )
        found = Source(run, None, _known(run.results, run.read_results()))
        if found.is_audit:
            run.read_manifest()  # without which nobody knows what was asked
        return found
    manifest = run.read_manifest()
    if not (run.path / "results.json").is_file():
        return Source(run, manifest, None)
    results = _known(run.results, run.read_results())
    return Source(run, manifest, {**results, **manifest.told()})


def _read(path: Path) -> dict[str, Any]:
    return _known(path, read_json(path, "the study's command writes it anew"))


def _known(path: Path, results: Any) -> dict[str, Any]:
    tasks = known_tasks()
    if not isinstance(results, dict) or results.get("schema") != SCHEMA or results.get("task") not in tasks:
        raise UsageError(f"{path}: no results of {', '.join(tasks)}.", RUNS_HINT)
    return results


def known_tasks() -> list[str]:
    """Everything that there are reports of: audits, measured runs, studies, trainings."""
    first, *others = GENERAL
    return [
        *(kind.name for kind in kinds()),
        first,
        *(study.task for _, study in studies().values()),
        *others,
    ]


def unfinished(source: Source) -> str:
    """What a run without results lacks, in a sentence."""
    if source.manifest is None:
        status = "running" if source.run.is_locked() else "interrupted"
        return f"{source.name} has no results yet ({status}; {_trained(source.run.path)})"
    summary, planned = source.run.summary(), source.manifest.planned_calls
    answers = f"{summary['answers']:,}" + (f" of {planned:,}" if planned else "") + " answers are on disk"
    return f"{source.name} has no results yet ({summary['status']}; {answers})"


class Completeness(Protocol):
    """How far a run came."""

    @property
    def chains(self) -> Mapping[str, ProbeCounts]: ...
    @property
    def failures(self) -> Mapping[str, int]: ...


def missing_of(status: str, results: Completeness, titles: Mapping[str, str]) -> list[str]:
    """What a half-finished run lacks, in sentences; none for a complete one. `status` is its manifest's."""
    said = []
    for condition, chains in results.chains.items():
        if chains.ranked < chains.asked:
            lacking = chains.asked - chains.ranked
            said.append(
                f"{titles.get(condition, condition)}: {lacking:,} of {chains.asked:,} have no answer yet"
            )
    if results.failures:
        said.append("failed: " + ", ".join(f"{name} {n:,}" for name, n in results.failures.items()))
    if status != "complete" and not said:
        said.append("the last command on this run did not come to its end; figures are of the one before")
    return [*said, "the command that began the run completes it"] if said else []


@dataclass(frozen=True)
class _TrainingSettings:
    max_prompts: int


@dataclass(frozen=True)
class _Training:
    """split.json, as far as a report reads it."""

    settings: _TrainingSettings


def _trained(folder: Path) -> str:
    """How far the training of an adapter folder is. Raises UsageError."""
    settings = read(
        folder / TRAINING, _Training, "the command that began the training writes it anew"
    ).settings
    if not (folder / "pairs.jsonl").is_file():
        return "the base has not answered all pairs, nothing is trained"
    done = max(_prompts(folder / "training.jsonl"), default=0)
    return f"{done:,} of up to {settings.max_prompts:,} prompts are trained on, nothing is measured"


def _prompts(path: Path) -> Iterator[int]:
    """Prompts after each step of a training; a last line that was cut off is none."""
    for line in path.read_text("utf-8", "replace").splitlines() if path.is_file() else ():
        try:
            yield int(json.loads(line)["prompts"])
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            continue
