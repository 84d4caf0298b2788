"""Remedies for a finished run: each tried, measured on the same queries, and held against the unmitigated rankings.

The data's way: a run folder -> rankings -> each remedy's rankings, with no call or from an audit of its own in a run
folder of its own -> figures -> changes, paired by query -> the front and the verdict -> the output folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from itertools import chain, product
from math import exp, log, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from msgspec import convert, structs

from llmfair import registry
from llmfair.audits.aggregates import ALL, Inference, preference, summarise
from llmfair.audits.comparing import ComparedRun, changed, with_figures
from llmfair.audits.design import of_measures
from llmfair.audits.documents import ChangeRow
from llmfair.audits.kind import kind_of, results_of
from llmfair.audits.listwise.measure import paired
from llmfair.audits.listwise.score import of_folder
from llmfair.audits.plan import plan
from llmfair.audits.runs.run import Spending, Watch, perform
from llmfair.errors import LlmfairError, MissingExtra, MissingKey, UsageError, warn
from llmfair.io.files import SCHEMA, json_text, make_inside, read_document, write_whole
from llmfair.io.trec import run_lines
from llmfair.metrics.agreement import consistent
from llmfair.metrics.base import Column, Judged, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.mitigation import ANSWERS, CONSISTENCY, MEASURED, NONE, ODDS, UTILITY
from llmfair.mitigation.remedies import Audit, Halves, Orders, Remedy, Unmitigated, orders_of, unmitigated
from llmfair.mitigation.results import MitigationPlan, MitigationResults, RemedyPlanned, RemedyRow
from llmfair.mitigation.words import verdict_of
from llmfair.nouns import Key, Measurement, picked
from llmfair.results import ErrorDocument, Figure, Row, lines_of, rows_of
from llmfair.rundir import COLUMNS, MITIGATION, RunDir, csv_text
from llmfair.settings.commands import AuditSettings, MitigateSettings, ScoreSettings, SpendingSettings
from llmfair.settings.declaration import WRITTEN
from llmfair.stats.paired import change_by_query
from llmfair.stats.power import queries_needed
from llmfair.stats.significance import holm
from llmfair.stats.strata import Figure as Odds

FIRST = ("named-prompt", "fair-prompt", "consensus", "offset", "fair-star", "greedy", "lora")
"""The order in which remedies are told; others follow by name."""
NOT_HERE = (UsageError, MissingExtra, MissingKey)
"""What says that a remedy cannot be had here, which is no fault of the command."""
UNTOUCHED = "answers_untouched"
"""Why there are no odds of answers: the remedy orders anew what was answered."""
Answers = tuple[Figure, Mapping[str, float]]
"""The preference odds of answers, and what each query contributes to them."""
Figures = Mapping[str, Mapping[str, Figure]]
"""Figures of all queries by remedy and measure."""


@dataclass(frozen=True)
class Mitigated:
    """What the remedies came to, the folder that has it, and the gravest error of those that asked."""

    results: MitigationResults
    folder: Path
    error: LlmfairError | None


@dataclass(frozen=True)
class Measured:
    """A remedy's columns by measure, and the odds of the answers behind it."""

    name: str
    columns: Mapping[str, Column]
    answers: Answers | None = None

    def rows(self, inference: Inference) -> list[Measurement]:
        """Its queries, then all of them together; the odds of answers, or the reason they lack."""
        odds = Measurement(ALL, ANSWERS, None, self.name, n=0, reason=UNTOUCHED)
        if self.answers is not None:
            names = ("value", "low", "high", "n", "reason")
            odds = replace(odds, **{name: getattr(self.answers[0], name) for name in names})
        return [*summarise([*self.columns.values()], inference), odds]


@dataclass(frozen=True)
class Tried:
    """A remedy's row without figures, what was measured and the run files of its rankings; or the error of one that
    could be had here."""

    row: RemedyRow
    measured: Measured | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    error: LlmfairError | None = None


def mitigate(run: RunDir, settings: MitigateSettings, watch_of: Callable[[str], Watch]) -> Mitigated:
    """Tries the remedies and writes what they come to.

    `watch_of(remedy)` shows each that asks. A remedy that this run or machine lacks something for is told, and no
    error. Raises UsageError for what is no complete listwise run, for an unknown remedy and malformed parameters.
    """
    base, remedies = _begun(run, settings)
    folder = settings.output or run.path / MITIGATION
    run.refuse_links()
    RunDir(folder).refuse_run()
    spending = Spending()
    tried = [_try(base, spec, remedy, spending, watch_of(spec)) for spec, remedy in remedies.items()]
    results, rows = outcome_of(base, tried, folder)
    results = write(folder, results, rows, dict(chain(*(each.files.items() for each in tried))))
    errors = [each.error for each in tried if each.error is not None]
    return Mitigated(results, folder, max(errors, key=lambda error: error.exit_code, default=None))


def plan_mitigation(run: RunDir, settings: MitigateSettings) -> MitigationPlan:
    """What each remedy would ask; nothing is asked or written. Raises UsageError as `mitigate` does."""
    base, remedies = _begun(run, settings)
    rows = []
    for spec, remedy in remedies.items():
        counts: dict[str, Any] = {"calls": 0, "answered": 0, "folder": None}
        error = None
        try:
            made = remedy.apply(base)
            if isinstance(made, Audit):
                planned = plan(kind_of(base.manifest.task), _settings_of(base, made))
                counts = {key: planned[key] for key in counts}
                if planned["unready"]:
                    error = ErrorDocument(kind="MissingKey", message=planned["unready"][0], hint="")
        except NOT_HERE as absent:
            counts, error = dict.fromkeys(counts), document_of(absent)
        rows.append(RemedyPlanned(remedy=spec, title=remedy.title, **counts, error=error))
    calls = sum(row.calls or 0 for row in rows)
    return MitigationPlan(schema=SCHEMA, task="mitigate", run=str(run.path), calls=calls, remedies=rows)


def _begun(run: RunDir, settings: MitigateSettings) -> tuple[Unmitigated, dict[str, Remedy]]:
    """The run, and the remedies asked for, or all. Raises UsageError, also for an unknown one and wrong parameters.
    What the run says of whom to ask is told first: somebody else may have made it."""
    base, remedies = unmitigated(run, settings), dict[str, Remedy]()
    others = [name for name in registry.names("remedy") if name not in FIRST]
    for spec in settings.remedy or (*FIRST, *others):
        name, _, parameters = spec.partition(":")
        try:
            remedy: Remedy = registry.lookup("remedy", name)(parameters)
        except UsageError as error:
            raise UsageError(f"--remedy {spec}: {error.message}", error.hint) from None
        if not (settings.free and remedy.asks):
            remedies[spec] = remedy
    if not remedies:
        raise UsageError("--free leaves no remedy: all that are named ask a model.", "leave --free out")
    if any(remedy.asks for remedy in remedies.values()):
        items = (item for item in fields(base.settings) if item.metadata["effect"] is not WRITTEN)
        values = {item.name: getattr(base.settings, item.name) for item in items}
        if effects := base.settings.effects(values | {"model": (base.model,)}):
            warn(f"{run.manifest} sets what reaches beyond the run folder: {'; '.join(effects)}.")
    return base, remedies


def _try(base: Unmitigated, spec: str, remedy: Remedy, spending: Spending, watch: Watch) -> Tried:
    """A remedy's rankings, measured; what is written already is not asked again."""
    _, _, parameters = spec.partition(":")
    title = remedy.title + f" ({parameters})" * bool(parameters)
    row = RemedyRow(name=stem(spec), remedy=spec, title=title, does=remedy.does, available=False)
    halves, answers = None, None
    try:
        made = remedy.apply(base)
        if isinstance(made, Audit):
            run = _asked(base, made, spending, watch)
            orders = orders_of(of_folder(run, ScoreSettings()), base.condition)
            compared = _compared(run)
            answers = answers_of(compared, base.condition)
            calls, cost, folder = compared.results.calls, compared.manifest.cost, str(run.path)
        else:
            orders, halves, calls, cost, folder = made.orders, made.halves, made.calls, None, None
            if made.condition is not None:
                answers = answers_of(_compared(base.run), made.condition)
        orders = base.completed(orders)
        measured = measure(spec, base.judged(orders), halves, answers)
    except LlmfairError as error:
        row = structs.replace(row, error=document_of(error))
        error.message = f"{spec}: {error.message}"
        return Tried(row, error=None if isinstance(error, NOT_HERE) else error)
    texts = files_of(spec, orders)
    row = structs.replace(
        row, available=True, rankings=[*texts], calls=calls, cost=cost, run=folder, remarks=[*made.remarks]
    )
    return Tried(row, measured, texts)


def _asked(base: Unmitigated, audit: Audit, spending: Spending, watch: Watch) -> RunDir:
    """The run folder of an audit that is run, or continued. Raises LlmfairError where it does not come to its end."""
    with spending.run(_settings_of(base, audit), audit.subject, watch) as (left, noting):
        written = perform(kind_of(base.manifest.task).design(left, audit.subject), noting)
    if written.error is not None:
        raise written.error
    if written.folder.read_manifest().settings["lists_sha256"] != base.manifest.settings["lists_sha256"]:
        raise UsageError(
            "the lists are not what they were at the time of the run.",
            f"{base.command()}    audits them as they are now",
        )
    return written.folder


def _settings_of(base: Unmitigated, audit: Audit) -> AuditSettings:
    """The audit's settings in the run folder that its own command would take, with the budget of this command."""
    values: dict[str, Any] = {of.name: getattr(base.chosen, of.name) for of in fields(SpendingSettings)}
    values |= dict.fromkeys(("output", "measures", "fail_on", "junit", "label"))
    values |= dict.fromkeys(("dry_run", "batch", "fresh", "report"), False)
    values |= {"runs_dir": base.run.path.parent, "model": (audit.subject.spec,), "require": ()}
    return replace(audit.settings, **values)


def _compared(run: RunDir) -> ComparedRun:
    return ComparedRun("", run, run.read_manifest(), results_of(run))


def document_of(error: LlmfairError) -> ErrorDocument:
    return ErrorDocument(kind=type(error).__name__, message=error.message, hint=error.hint)


# Figures of a remedy's rankings, and their changes beside the unmitigated ones, paired by query.


def measure(
    name: str, judged: Sequence[Judged], halves: Halves | None = None, answers: Answers | None = None
) -> Measured:
    """Every measure of every query. Rankings that were merged are as consistent as those of their halves."""
    measures = {of: parse_measure(of) for of in MEASURED}
    every = measure_all([*measures.values()], {name: judged})
    by_measure = {column.measure: column for column in every if not column.group}
    columns = {of: by_measure.get(measure, Column(measure, name, "", {})) for of, measure in measures.items()}
    if halves is not None:
        alike = dict[str, Any]()
        for query in judged:
            orders = replace(query, rankings=tuple(chain(*halves[query.query_id]))).orders
            pairs = [*zip(orders[::2], orders[1::2], strict=True)]
            alike[query.query_id] = consistent(pairs, len(query.doc_ids))
        columns[CONSISTENCY] = replace(columns[CONSISTENCY], values=alike)
    return Measured(name, columns, answers)


def answers_of(run: ComparedRun, condition: str) -> Answers:
    key = Key(condition)
    return run.figure(ANSWERS, key), run.values.get((ANSWERS, key), {})


def changes_of(
    base: Measured, other: Measured, figures: Figures, inference: Inference
) -> dict[str, ChangeRow]:
    """Each measure's change, paired over the queries that both have; `figures` are both's own, by name."""
    name, changes = other.name, dict[str, ChangeRow]()
    for measure in map(parse_measure, (*MEASURED, ANSWERS)):
        of, scale, better = str(measure), measure.definition.scale, measure.definition.better
        figure = figures[name][of]
        row = ChangeRow(name, name, ALL, of, scale, better, of in (ODDS, UTILITY), None, None)
        row = with_figures(row, figures[NONE][of], figure)
        if of != ANSWERS:
            later, earlier = other.columns[of], base.columns[of]
            pairs = paired(measure, later, earlier, {*earlier.values} & {*later.values}, inference)
            change = next(row for row in pairs if row.query_id == ALL)
            reason = (figure.reason if change.value is None else None) or change.reason
            row = structs.replace(
                row, change=change.value, reason=reason, low=change.low, high=change.high, n=change.n or 0, p=change.p
            )  # fmt: skip
        elif other.answers is None or base.answers is None:
            row = structs.replace(row, reason=UNTOUCHED)
        elif not (queries := sorted(base.answers[1].keys() & other.answers[1].keys())):
            row = structs.replace(row, reason="no_finite_odds")
        else:
            before, after = (
                [values[of_it] for of_it in queries] for _, values in (base.answers, other.answers)
            )
            rng = np.random.default_rng(inference.seed)
            row = changed(row, change_by_query(before, after, True, inference.level, rng))
        changes[of] = row
    return changes


# Whether the odds of rankings lie in the band, and which remedies are not dominated: none other is nearer to parity at
# no less utility.


def in_band(
    every: Sequence[Measured], figures: Figures, band: tuple[float, float], level: float
) -> dict[str, dict[str, Any]]:
    """By name, p of odds of rankings inside the band, and about how many lists would settle where they lie. The
    unmitigated rankings, the first, are tested by themselves, remedies together (Holm). No p without an interval."""
    odds = dict[str, Odds]()
    for of in every:
        pooled = preference(of.columns[ODDS].values.values())
        if pooled is not None and figures[of.name][ODDS].low is not None:
            odds[of.name] = pooled.figure
    p_values = [odds[of.name].inside(band) if of.name in odds else None for of in every]
    tests = max(1, sum(p is not None for p in p_values[1:]))
    result = dict[str, dict[str, Any]]()
    for of, p in zip(every, [p_values[0], *holm(p_values[1:])], strict=True):
        asked = 1 - (1 - level) / (tests if result else 1)
        lists = None if p is None else lists_to_settle(odds[of.name], band, asked)
        result[of.name] = {"p_inside": p, "lists_needed": lists}
    return result


def lists_to_settle(figure: Odds, band: tuple[float, float], level: float) -> int | None:
    """About how many lists show the odds inside the band, or outside it, in 80 %, if they stay as they are: each edge
    is missed by 10 % at most. None at the very edge."""
    if figure.log_odds is None or not figure.error:
        return None
    distance = min(abs(figure.log_odds - log(edge)) for edge in band)
    return queries_needed(exp(distance), figure.error * sqrt(figure.queries), 0.9, level)


ROUNDING = 1e-9


def distance(odds: float | None) -> float | None:
    """|ln odds|: 0 at parity, the same for odds and their inverse; None where it has no size."""
    return None if odds is None or odds <= 0 else abs(log(odds))


def front(points: Mapping[str, tuple[float, float]]) -> set[str]:
    """The names of the points, a distance from parity and a utility, that no other dominates: of equal ones all."""
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


def outcome_of(
    base: Unmitigated, tried: Sequence[Tried], folder: Path
) -> tuple[MitigationResults, Sequence[Row]]:
    """All that results.json has, and the rows of single queries too."""
    run = base.results
    length = median(len(rankings[0].doc_ids) for rankings in base.orders.values())
    inference = Inference(run.level, base.settings.ci, base.settings.seed, length)
    before = measure(NONE, base.judged(base.orders), answers=answers_of(_compared(base.run), base.condition))
    every = [before, *(each.measured for each in tried if each.measured is not None)]
    named = picked(run, ("dataset", "attribute", "model"))
    measurements = [row for each in every for row in each.rows(inference)]
    rows = rows_of(measurements, {"run": base.run.path.name, **named}, run.words)
    of_all = [row for row in rows if row.query_id == ALL]
    figures: dict[str, dict[str, Figure]] = {}
    for line in of_all:
        figures.setdefault(line.condition, {})[line.measure] = convert(line, Figure, from_attributes=True)
    changes = {each.name: changes_of(before, each, figures, inference) for each in every[1:]}
    tests = [*product(changes.values(), (ODDS, UTILITY))]
    adjusted = holm([rows_of_it[name].p for rows_of_it, name in tests])
    for (rows_of_it, name), p in zip(tests, adjusted, strict=True):
        rows_of_it[name] = structs.replace(rows_of_it[name], p_adjusted=p)
    tested, does = in_band(every, figures, run.band, run.level), "The rankings as they are."
    far = {name: distance(of[ODDS].value) for name, of in figures.items()}
    useful = {name: of[UTILITY].value for name, of in figures.items()}
    best = front(
        {name: (at, to) for name, at in far.items() if at is not None and (to := useful[name]) is not None}
    )
    none = RemedyRow(name=NONE, remedy=NONE, title="unmitigated", does=does, available=True, calls=0)
    remedies = [
        structs.replace(
            row, figures=figures[row.remedy], changes=changes.get(row.remedy, {}), distance=far[row.remedy],
            front=row.remedy in best, **tested[row.remedy],
        ) if row.available else row
        for row in (none, *(each.row for each in tried))
    ]  # fmt: skip
    measures = [parse_measure(name) for name in (*MEASURED, ANSWERS)]
    finding = run.findings.get(base.condition)
    results = MitigationResults(
        schema=SCHEMA, task="mitigate",
        status="incomplete" if any(each.error for each in tried) else "complete",
        run=str(base.run.path),
        **picked(run, ("dataset", "attribute", "words", "level", "band")),
        model=run.named_model, condition=base.condition,
        conclusion=None if finding is None else finding.conclusion, margin=base.chosen.margin,
        seed=base.settings.seed, queries=len(base.orders), orders=max(map(len, base.orders.values())),
        prompted=run.design.prompted, **of_measures(measures),
        family=sum(p is not None for p in adjusted),
        remedies=remedies, rows=of_all,
    )  # fmt: skip
    return structs.replace(results, verdict=verdict_of(results, folder)), rows


# The folder of `llmfair mitigate`: results.json, metrics.csv, per_query.csv, and the remedies' rankings as runs.


def stem(spec: str) -> str:
    """What the files of a remedy are called."""
    return re.sub(r"[^A-Za-z0-9.=,_-]+", "_", spec)


def files_of(spec: str, orders: Orders) -> dict[str, str]:
    """A run file for each ranking of a list: the first by the remedy's name, further ones as run folders name them."""
    files = {}
    for number in range(max(map(len, orders.values()), default=0)):
        name = stem(spec) + (f".o{number}.r0" if number else "")
        rankings = [of_query[number] for of_query in orders.values() if number < len(of_query)]
        files[f"rankings/{name}.run"] = "".join(run_lines(rankings, tag=f"llmfair+{stem(spec)}"))
    return files


def write(
    folder: Path, results: MitigationResults, rows: Sequence[Row], rankings: Mapping[str, str]
) -> MitigationResults:
    """Writes the folder, and returns the results with the digests of its files. Raises UsageError. Rankings of an
    earlier command that are none of these are removed, as its results name them: nobody else's."""
    texts, earlier = dict(rankings), set[str]()
    for name, of_queries in (("metrics.csv", False), ("per_query.csv", True)):
        texts[name] = csv_text(COLUMNS, lines_of(row for row in rows if (row.query_id != ALL) is of_queries))
    digests = {name: sha256(text.encode("utf-8", "backslashreplace")) for name, text in texts.items()}
    results = structs.replace(results, files={name: of.hexdigest() for name, of in digests.items()})
    with suppress(UsageError):
        earlier = {*read_document(folder / "results.json", MitigationResults).files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        make_inside(folder / "rankings")
        RunDir(folder).drop_report()
        for name in earlier - texts.keys():
            if Path(name).parent == Path("rankings"):  # whatever somebody wrote there
                (folder / name).unlink(missing_ok=True)
        for name, text in {**texts, "results.json": json_text(results)}.items():
            write_whole(folder / name, [text])
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or folder}: {error.strerror}.", "choose another --output"
        ) from None
    return results
