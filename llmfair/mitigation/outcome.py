"""What remedies came to, told together: figures, paired changes, Holm over the remedies, the front, the verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import log
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import structs

from llmfair.audits.aggregates import ALL, Inference, summarise
from llmfair.audits.comparing import ComparedRun, with_figures
from llmfair.audits.documents import ChangeRow
from llmfair.audits.listwise.measure import paired
from llmfair.errors import LlmfairError, MissingExtra, MissingKey, UsageError
from llmfair.io.files import SCHEMA, json_text, make_inside, read, write_whole
from llmfair.io.trec import run_lines
from llmfair.metrics.agreement import consistent
from llmfair.metrics.base import Column, Judged, Measure, Undefined, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.mitigation.remedies import Remedy
from llmfair.mitigation.results import (
    ANSWERS,
    CONSISTENCY,
    MEASURED,
    NONE,
    ODDS,
    PAGE,
    UTILITY,
    MitigationResults,
    RemedyRow,
)
from llmfair.mitigation.unmitigated import Orders, Unmitigated
from llmfair.mitigation.words import verdict_of
from llmfair.nouns import Measurement, Ranking
from llmfair.results import ErrorDocument, Figure, Row, Words, lines_of
from llmfair.results import rows_of as as_rows
from llmfair.rundir import COLUMNS, RunDir, csv_text
from llmfair.stats.paired import change_by_query
from llmfair.stats.significance import holm

# Figures of a remedy's rankings, and their changes beside the unmitigated ones, paired by query.


OF_A_PAGE = (UTILITY, PAGE)
"""What compares of rankings of other documents too."""
UNTOUCHED, OTHER_LISTS = "answers_untouched", "other_lists"
"""Why there is no figure: the remedy orders anew what was answered; it ranks other documents than the run's lists."""


Answers = tuple[Figure, Mapping[str, float]]
"""The preference odds of answers, and what each query contributes to them."""


@dataclass(frozen=True)
class Measured:
    """A remedy's columns by measure, and the odds of the answers behind it, or why it is `without`."""

    condition: str
    columns: Mapping[str, Column]
    answers: Answers | None = None
    without: str = UNTOUCHED


def judged_of(run: Unmitigated, orders: Mapping[str, Sequence[Ranking]]) -> list[Judged]:
    """What measures read of rankings of the run's lists."""
    return [run.judged(query_id, rankings) for query_id, rankings in orders.items()]


def measured(
    name: str,
    judged: Sequence[Judged],
    halves: Mapping[str, Sequence[tuple[Ranking, Ranking]]] | None = None,
    own_lists: bool = False,
    answers: Answers | None = None,
) -> Measured:
    """Every measure of every query. Rankings that were merged are as consistent as those of their halves."""
    measures = [parse_measure(measure) for measure in MEASURED]
    found = {str(one.measure): one for one in measure_all(measures, {name: judged}) if one.group == ""}
    for measure in measures:
        column = found.get(str(measure), Column(measure, name, "", {}))
        if own_lists and str(measure) not in OF_A_PAGE:
            column = replace(column, values={one.query_id: Undefined(OTHER_LISTS) for one in judged})
        elif halves is not None and str(measure) == CONSISTENCY:
            column = replace(column, values={one.query_id: _of_halves(one, halves) for one in judged})
        found[str(measure)] = column
    return Measured(name, found, answers, OTHER_LISTS if own_lists else UNTOUCHED)


def _of_halves(judged: Judged, halves: Mapping[str, Sequence[tuple[Ranking, Ranking]]]) -> float | Undefined:
    pairs = halves.get(judged.query_id, ())
    orders = replace(judged, rankings=tuple(one for pair in pairs for one in pair)).orders
    found = consistent([*zip(orders[::2], orders[1::2], strict=True)], len(judged.doc_ids))
    assert isinstance(found, float | Undefined)
    return found


def answers_of(run: ComparedRun, condition: str) -> Answers:
    """The preference odds of a listwise run's answers, and what each query contributes to them."""
    return run.figure(ANSWERS, condition), run.values.get((ANSWERS, condition), {})


def inference_of(run: Unmitigated) -> Inference:
    lengths = [len(orders[0].doc_ids) for orders in run.orders.values()]
    results = run.results
    return Inference(results.level, run.settings.ci, run.settings.seed, median(lengths))


def rows_of(found: Measured, inference: Inference) -> list[Measurement]:
    """The rows of a remedy: its queries, then all of them together; the odds of answers with the reason they lack."""
    rows = summarise([*found.columns.values()], inference)
    if found.answers is None:
        return [*rows, Measurement(ALL, ANSWERS, None, found.condition, n=0, reason=found.without)]
    figure, _ = found.answers
    named = {key: getattr(figure, key) for key in ("low", "high", "n", "reason")}
    return [*rows, Measurement(ALL, ANSWERS, figure.value, found.condition, **named)]


def changes_of(
    name: str,
    base: Measured,
    other: Measured,
    figures: Mapping[str, Mapping[str, Figure]],
    inference: Inference,
) -> dict[str, ChangeRow]:
    """Each measure's change, paired over the queries that both have; `figures` are both's own, by name."""
    found: dict[str, ChangeRow] = {}
    for measure, column in other.columns.items():
        before = base.columns[measure]
        alike = {*before.values} & {*column.values}
        row = _figure_row(name, column.measure, figures)
        of_all = next(
            one for one in paired(column.measure, column, before, alike, inference) if one.query_id == ALL
        )
        own_reason = figures[name][measure].reason if of_all.value is None else None
        found[measure] = structs.replace(
            row, change=of_all.value, low=of_all.low, high=of_all.high, n=of_all.n or 0, p=of_all.p,
            reason=own_reason or of_all.reason,
        )  # fmt: skip
    found[ANSWERS] = _of_answers(name, base, other, figures, inference)
    return found


def _of_answers(
    name: str,
    base: Measured,
    other: Measured,
    figures: Mapping[str, Mapping[str, Figure]],
    inference: Inference,
) -> ChangeRow:
    row = _figure_row(name, parse_measure(ANSWERS), figures)
    if other.answers is None or base.answers is None:
        return structs.replace(row, reason=other.without)
    (_, before), (_, after) = base.answers, other.answers
    queries = sorted(before.keys() & after.keys())
    if not queries:
        return structs.replace(row, reason="no_finite_odds")
    one, two = ([of[query] for query in queries] for of in (before, after))
    change = change_by_query(one, two, True, inference.level, np.random.default_rng(inference.seed))
    of_it = change.estimate
    return structs.replace(
        row, change=of_it.value, low=of_it.low, high=of_it.high, n=of_it.n, p=change.p, reason=of_it.reason
    )


def _figure_row(name: str, measure: Measure, figures: Mapping[str, Mapping[str, Figure]]) -> ChangeRow:
    declared, of = measure.definition, str(measure)
    row = ChangeRow(name, name, of, declared.scale, declared.better, of in (ODDS, UTILITY), None, None)
    return with_figures(row, figures[NONE][of], figures[name][of])


# Which remedies are not dominated: none other is nearer to parity at no less utility.


ROUNDING = 1e-9
Point = tuple[float, float]
"""A distance from parity, |ln odds|, and a utility."""


def distance(odds: float | None) -> float | None:
    """|ln odds|: 0 at parity, the same for odds and their inverse; None where it has no size."""
    return None if odds is None or odds <= 0 else abs(log(odds))


def front(points: Mapping[str, Point]) -> set[str]:
    """The names of the points that no other dominates: of equal ones all."""
    return {
        name
        for name, (far, useful) in points.items()
        if not any(
            other_far <= far + ROUNDING
            and other_useful >= useful - ROUNDING
            and (other_far < far - ROUNDING or other_useful > useful + ROUNDING)
            for other_far, other_useful in points.values()
        )
    }


# The folder of `llmfair mitigate`: results.json, metrics.csv, per_query.csv, and the remedies' rankings as runs.


UNSAFE = re.compile(r"[^A-Za-z0-9.=,_-]+")


def stem(spec: str) -> str:
    """What the files of a remedy are called."""
    return UNSAFE.sub("_", spec)


def files_of(spec: str, orders: Orders) -> dict[str, str]:
    """A run file for each ranking of a list: the first by the remedy's name, further ones as run folders name them."""
    most = max(map(len, orders.values()), default=0)
    found = {}
    for number in range(most):
        name = stem(spec) + (f".o{number}.r0" if number else "")
        rankings = [of_query[number] for of_query in orders.values() if number < len(of_query)]
        found[f"rankings/{name}.run"] = "".join(run_lines(rankings, tag=f"llmfair+{stem(spec)}"))
    return found


def write(
    folder: Path, results: MitigationResults, rows: Sequence[Row], orders: Mapping[str, Orders]
) -> MitigationResults:
    """Writes the folder, and returns the results with the digests of its files. Raises UsageError.

    Rankings of an earlier command that are none of these are removed.
    """
    texts = {name: text for spec, of in orders.items() for name, text in files_of(spec, of).items()}
    for name, of_queries in (("metrics.csv", False), ("per_query.csv", True)):
        kept = [row for row in rows if (row.query_id != "all") is of_queries]
        texts[name] = csv_text(COLUMNS, lines_of(kept))
    digests = {
        name: sha256(text.encode("utf-8", "backslashreplace")).hexdigest() for name, text in texts.items()
    }
    results = structs.replace(results, files=digests)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        make_inside(folder / "rankings")
        RunDir(folder).drop_report()
        for name in _earlier(folder) - texts.keys():
            (folder / name).unlink(missing_ok=True)
        for name, text in {**texts, "results.json": json_text(results)}.items():
            write_whole(folder / name, [text])
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or folder}: {error.strerror}.", "choose another --output"
        ) from None
    return results


def _earlier(folder: Path) -> set[str]:
    """The rankings that an earlier command left, as its results name them: nobody else's file is touched."""
    try:
        found = read(folder / "results.json", MitigationResults)
    except UsageError:
        return set()
    named = {name for remedy in found.remedies for name in remedy.rankings}
    return {name for name in named if Path(name).parent == Path("rankings")}


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


def said(error: LlmfairError) -> ErrorDocument:
    return ErrorDocument(kind=type(error).__name__, message=error.message, hint=error.hint)


def told(
    base: Unmitigated, tried: Sequence[Tried], answers: Answers, folder: Path
) -> tuple[MitigationResults, Sequence[Row]]:
    """All that was found, as results.json has it, and the rows of single queries too; `answers` are the run's own."""
    inference, run = inference_of(base), base.results
    before = measured(NONE, judged_of(base, base.orders), answers=answers)
    found = {NONE: before, **{one.spec: one.found for one in tried if one.found is not None}}
    named = {
        "run": base.run.path.name,
        **{key: getattr(run, key) for key in ("dataset", "attribute", "model")},
    }
    measurements = [row for of_it in found.values() for row in rows_of(of_it, inference)]
    rows = as_rows(measurements, named, run.words)
    of_all = [row for row in rows if row.query_id == ALL]
    figures: dict[str, dict[str, Figure]] = {}
    for row in of_all:
        figures.setdefault(row.condition, {})[row.measure] = Figure(
            **{name: getattr(row, name) for name in Figure.__struct_fields__}
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
        schema=SCHEMA,
        task="mitigate",
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
    return structs.replace(results, verdict=verdict_of(results, folder)), rows


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
    return structs.replace(
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
            found[place] = structs.replace(
                found[place], changes={**changes, measure: structs.replace(changes[measure], p_adjusted=p)}
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
        found.append(structs.replace(one, distance=far))
    best = front(points)
    return [structs.replace(one, front=one.remedy in best) for one in found]
