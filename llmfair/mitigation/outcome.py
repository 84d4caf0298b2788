"""What remedies came to, told together: figures, paired changes, Holm over the remedies, the front, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from llmfair.audits.summary import ALL, Inference
from llmfair.errors import LlmfairError, MissingExtra, MissingKey, UsageError
from llmfair.metrics.names import parse_measure
from llmfair.mitigation.files import files_of, stem
from llmfair.mitigation.front import distance, front
from llmfair.mitigation.measuring import (
    Answers,
    Measured,
    changes_of,
    inference_of,
    judged_of,
    measured,
    rows_of,
)
from llmfair.mitigation.remedy import Remedy
from llmfair.mitigation.results import ANSWERS, MEASURED, NONE, ODDS, UTILITY, MitigationResults, RemedyRow
from llmfair.mitigation.unmitigated import Orders, Unmitigated
from llmfair.mitigation.verdict import verdict_of
from llmfair.nouns import Measurement
from llmfair.results import ErrorSaid, Figure, Words
from llmfair.results import rows_of as as_rows
from llmfair.rundir import tidy
from llmfair.stats.significance import holm

NOT_HERE = (UsageError, MissingExtra, MissingKey)
"""What says that a remedy cannot be had here, which is no fault of the command."""


@dataclass(frozen=True)
class Tried:
    """A remedy that was tried: what it came to, or why it came to nothing."""

    spec: str
    remedy: Remedy
    found: Measured | None = None
    orders: Orders | None = None
    calls: int | None = None
    cost: float | None = None
    run: Path | None = None
    remarks: Sequence[str] = ()
    error: LlmfairError | None = None

    @property
    def title(self) -> str:
        """Its name in words, with the parameters given."""
        _, _, parameters = self.spec.partition(":")
        return f"{self.remedy.title} ({parameters})" if parameters else self.remedy.title


def said(error: LlmfairError) -> ErrorSaid:
    return {"class": type(error).__name__, "message": error.message, "hint": error.hint}


def told(
    base: Unmitigated, tried: Sequence[Tried], answers: Answers, folder: Path
) -> tuple[MitigationResults, Sequence[Measurement]]:
    """All that was found, as results.json has it, and the rows of single queries too; `answers` are the run's own."""
    inference, run = inference_of(base), base.results
    before = measured(NONE, judged_of(base, base.orders), answers=answers)
    found = {NONE: before, **{one.spec: one.found for one in tried if one.found is not None}}
    rows = [row for of_it in found.values() for row in rows_of(of_it, inference)]
    named = {
        "run": base.run.path.name,
        **{key: getattr(run, key) for key in ("dataset", "attribute", "model")},
    }
    of_all = as_rows(tidy([row for row in rows if row.query_id == ALL], named))
    figures: dict[str, dict[str, Figure]] = {}
    for row in of_all:
        figures.setdefault(row.condition, {})[row.measure] = Figure(
            **{item.name: getattr(row, item.name) for item in fields(Figure)}
        )
    remedies = [_row(one, figures.get(one.spec, {}), before, figures, inference) for one in tried]
    remedies = _adjusted(remedies)
    unmitigated_row = RemedyRow(
        name=NONE, remedy=NONE, title="unmitigated", does="The rankings as they are.", available=True, calls=0,
        figures=figures[NONE],
    )  # fmt: skip
    every = _with_front([unmitigated_row, *remedies])
    measures = [parse_measure(name) for name in (*MEASURED, ANSWERS)]
    results = MitigationResults(
        status="complete"
        if all(one.error is None or isinstance(one.error, NOT_HERE) for one in tried)
        else "incomplete",
        run=str(base.run.path),
        dataset=run.dataset,
        attribute=run.attribute,
        model=run.named_model,
        words=Words(run.words.protected, run.words.unprotected),
        condition=base.condition,
        conclusion=None if (finding := run.findings.get(base.condition)) is None else finding.conclusion,
        level=run.level,
        band=run.band,
        margin=base.chosen.margin,
        seed=base.settings.seed,
        queries=len(base.orders),
        orders=max(map(len, base.orders.values())),
        prompted=base.prompted,
        measures=[str(measure) for measure in measures],
        labels={str(measure): measure.label for measure in measures if measure.definition.worded},
        measure_notes={str(measure): measure.note for measure in measures if measure.note},
        family=sum(one.found is not None for one in tried),
        remedies=every,
        rows=of_all,
    )
    return replace(results, verdict=verdict_of(results, folder)), rows


def _row(
    one: Tried,
    figures: Mapping[str, Figure],
    base: Measured,
    every: Mapping[str, Mapping[str, Figure]],
    inference: Inference,
) -> RemedyRow:
    row = RemedyRow(
        name=stem(one.spec), remedy=one.spec, title=one.title, does=one.remedy.does,
        available=one.found is not None, error=None if one.error is None else said(one.error),
        run=None if one.run is None else str(one.run),
    )  # fmt: skip
    if one.found is None:
        return row
    return replace(
        row,
        calls=one.calls,
        cost=one.cost,
        rankings=[*files_of(one.spec, one.orders or {})],
        figures=figures,
        changes=changes_of(one.spec, base, one.found, every, inference),
        remarks=[*one.remarks],
    )


def _adjusted(remedies: Sequence[RemedyRow]) -> list[RemedyRow]:
    """With p of odds and of utility adjusted over the remedies, each measure by itself."""
    found = list(remedies)
    for measure in (ODDS, UTILITY):
        places = [place for place, one in enumerate(found) if measure in one.changes]
        for place, p in zip(places, holm([found[k].changes[measure].p for k in places]), strict=True):
            changes = found[place].changes
            found[place] = replace(
                found[place], changes={**changes, measure: replace(changes[measure], p_adjusted=p)}
            )
    return found


def _with_front(remedies: Sequence[RemedyRow]) -> list[RemedyRow]:
    """With their distances from parity, and those marked that no other dominates."""
    points: dict[str, tuple[float, float]] = {}
    found = []
    for one in remedies:
        odds, useful = (one.figures[name].value if name in one.figures else None for name in (ODDS, UTILITY))
        far = distance(odds)
        if far is not None and useful is not None:
            points[one.remedy] = (far, useful)
        found.append(replace(one, distance=far))
    best = front(points)
    return [replace(one, front=one.remedy in best) for one in found]
