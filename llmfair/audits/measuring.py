"""How runs of a kind are measured again and compared, as one value, whose parts serve any kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmfair.audits.comparing import ComparedRun, changes_by_query
from llmfair.audits.documents import ChangeRow
from llmfair.audits.kind import kind_of, results_of
from llmfair.audits.run_files import Announce
from llmfair.audits.scoring import RemeasuredRun, check_attribute, measured_by, measures_of
from llmfair.errors import UsageError
from llmfair.metrics.base import Measure, Observation
from llmfair.rundir import RunDir
from llmfair.settings.commands import ScoreSettings


def nothing_kept(run: RunDir) -> Mapping[str, Sequence[Observation]]:
    """Raises UsageError."""
    raise UsageError(f"{run.path}: {run.read_manifest().task} keeps nothing that could be measured again.")


def score_folder(run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """What the folder keeps, measured without conclusions."""
    results = results_of(run)
    check_attribute(run, results, settings)
    of_kind = kind_of(results.task).measure
    measures, shown = measures_of(settings, results, of_kind.reads)
    return measured_by(run, results, settings, of_kind.observations(run), measures, shown)


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """What measures of a kind read, and what becomes of its runs once there are figures.

    `aside`: conditions that only repeat another, to show how much answers vary: of several runs they are not shown.
    `gated`: the conditions that gates speak of where they name none, if not all. `asked_by`: settings that say how a
    model is asked: figures with an attainable range compare where these agree. `agree`: what runs must agree in to be
    compared, beside the general settings: what it means where they do not, and the way out. `how_changed`: how
    `changes` are made, said below a comparison; empty where they are paired by query, and signs flipped.
    """

    reads: type[Observation]
    aside: Collection[str] = ()
    gated: Collection[str] = ()
    asked_by: Sequence[str] = ()
    agree: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    how_changed: str = ""

    observations: Callable[[RunDir], Mapping[str, Sequence[Observation]]] = nothing_kept
    """What a run folder keeps that measures read, by condition. Raises UsageError."""
    score: Callable[[RunDir, ScoreSettings, Announce], RemeasuredRun] = score_folder
    """A run folder measured again, `announce` told of files before they are read. Raises UsageError."""
    score_files: Callable[[Sequence[Path], ScoreSettings, Announce], Iterator[RemeasuredRun]] | None = None
    """Measures TREC run files, where the kind does."""
    score_log: Callable[[Path, ScoreSettings, Announce], RemeasuredRun] | None = None
    """Measures a log of requests, a file of JSON lines, where the kind does. Raises UsageError."""
    changes: Callable[[ComparedRun, ComparedRun, Sequence[Measure] | None], Iterable[ChangeRow]] = (
        changes_by_query
    )
    """What changed from run to run, in the chosen measures or those with a direction. Raises UsageError."""
    described: Callable[[ComparedRun, ComparedRun], dict[str, Any]] = lambda run, base: {}
    """What a comparison says of a run, beside what it says of every kind."""
