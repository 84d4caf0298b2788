"""What changed from one generator to another, as far as it does not hang on which items each of them finds useful."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmfair.audits.comparing.changes import ChangeRow, ComparedRun, changes_by_query
from llmfair.audits.rag.files import QRELS
from llmfair.audits.rag.outcome import CHANGE
from llmfair.audits.rag.policies import GOLD
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.metrics.base import Measure
from llmfair.metrics.names import parse_measures

BOUND = "EE-R, EE-L, EU(norm=ceiling)"
"""What depends on which items are useful."""


def rag_changes(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None, called: str
) -> Iterator[ChangeRow]:
    """By query, in the chosen measures or those that both tables show.

    Where other items are useful, nothing that depends on them. Raises UsageError where nothing is left.
    """
    wanted, both = list(chosen or _shown(base)), {*base.results.measures} & {*other.results.measures}
    if chosen is None:
        wanted = [measure for measure in wanted if str(measure) in both]
    bound, samples = other_labels(base, other), base.setting("samples") != other.setting("samples")
    kept = [
        measure
        for measure in wanted
        if not (bound and _of_labels(measure)) and not (samples and ("of", "samples") in measure.params)
    ]
    if not kept:
        told = "find other items useful" if bound else "drew other numbers of lists"
        raise UsageError(
            f"{base.name} and {other.name} {told}, and {', '.join(map(str, wanted))} hangs on that.",
            "EE-D, EU and EU-change can be compared",
        )
    for row in changes_by_query(base, other, kept, called):
        settled = row.measure == CHANGE and row.condition not in base.results.findings  # nothing could change
        if not settled and not (bound and row.condition == GOLD):
            yield row


def _shown(run: ComparedRun) -> list[Measure]:
    measures = parse_measures(",".join(run.results.shown))
    return [measure for measure in measures if measure.definition.better]


def _of_labels(measure: Measure) -> bool:
    return measure.name in ("EE-R", "EE-L") or ("norm", "ceiling") in measure.params


def other_labels(base: ComparedRun, other: ComparedRun) -> bool:
    """Whether the two find other items useful, or nobody can tell any more."""
    one, two = (_digest(run.run.path / QRELS) for run in (base, other))
    return one != two or one is None


def _digest(path: Path) -> str | None:
    return files.sha256(path) if path.is_file() else None


def described_labels(run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
    """What a comparison says of a run beside the base: how many queries have useful items enough, and whether they are
    the same items."""
    return {"kept": run.results.collection.kept, "other_labels": other_labels(base, run)}


def labels_notes(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is left out of a comparison of these runs, as described."""
    named = [run["name"] for run in runs[1:] if run["other_labels"]]
    if not named:
        return []
    return [
        f"{', '.join(named)}: other items are useful than for {runs[0]['name']}, so what hangs on them is left out "
        f"({BOUND}, the setting {GOLD}); the rest is of the queries that both kept"
    ]
