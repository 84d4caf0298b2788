"""Fairness and utility of what exists: TREC runs, or run folders, each by its kind of audit. No model is asked.

A run is measured as it stands, in the order trec_eval reads it. A query of the qrels that it lacks counts 0 in
the measures of trec_eval (of a run folder that is not through it does not count: it was not asked yet), a query
without judgement only where no judgement is needed. A document that neither
groups nor qrels name is unlisted: it keeps its rank, and is on no side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from llmfair import results as typed
from llmfair.audits import gates
from llmfair.audits.aggregates import ALL, Inference, summarise, undefined_counts
from llmfair.audits.commands import continuing, plan_of, scoring_of, settings_of, ways_of
from llmfair.audits.comparing import ComparedRun, changes_by_query
from llmfair.audits.design import observed, of_measures, versions
from llmfair.audits.documents import ChangeRow
from llmfair.audits.kind import kind_in, kind_of, kinds, results_of
from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.files import DataOptions
from llmfair.datasets.judgements import HINT, Judgements, of_dataset, of_files, read_any_run
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN, SCHEMA, json_text, read_rows, write_whole, writing
from llmfair.io.trec import RunFile, read_scores
from llmfair.metrics.base import Column, Measure, Observation, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Attribute, Key, Measurement, is_of, picked
from llmfair.rundir import COLUMNS, Manifest, RunDir, csv_text
from llmfair.settings.commands import LOG, SCORE_FORMS, JudgementSettings, ScoreSettings
from llmfair.settings.declaration import band_of

Rows = Sequence[typed.Row]


class DocumentCounts(typed.JsonObject, frozen=True, kw_only=True):
    """How many documents of how many queries, and the first of these."""

    queries: typed.Count = 0
    documents: typed.Count = 0
    first: Sequence[str] = ()


class ScoreFacts(typed.JsonObject, frozen=True, kw_only=True):
    """What has to be known to read the figures of one condition of a run."""

    queries: typed.Count
    documents: typed.Count = 0
    pairs: typed.Count = 0
    tied: DocumentCounts = DocumentCounts()
    upside_down: bool = False
    unlisted: DocumentCounts = DocumentCounts()
    missing: DocumentCounts = DocumentCounts()
    unjudged: DocumentCounts = DocumentCounts()
    not_ranked: DocumentCounts = DocumentCounts()


class IncompleteRun(typed.JsonObject, frozen=True, kw_only=True):
    """What is known of a run that is not through, or whose last command was not."""

    status: str
    chains: Mapping[str, typed.ProbeCounts]
    failures: typed.Counts


class ScoredRun(typed.JsonObject, frozen=True, kw_only=True):
    """One run; `findings` are those of its kind of audit, `relevance` the ratio that relevance alone gives."""

    run: str
    verdict: typed.RunVerdict | None = None
    dataset: str
    attribute: str
    model: str
    task: str
    words: typed.Words
    measures: Sequence[str]
    conditions: Mapping[str, ScoreFacts]
    contrasts: Sequence[str] = ()
    undefined: typed.Undefined
    findings: Mapping[str, Any]
    relevance: Mapping[str, float | None] = {}
    family: typed.Family
    incomplete: IncompleteRun | None = None


class ScoreResults(typed.JsonDocument, frozen=True, kw_only=True):
    """llmfair score; results.json of its --output. `verdict` is that of the run with the gravest."""

    status: Literal["complete", "failed"]
    verdict: typed.RunVerdict | None = None
    task: Literal["score"]
    level: typed.Level
    band: typed.Band
    measures: Sequence[str]
    labels: Mapping[str, str]
    measure_notes: Mapping[str, str]
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    command: str = ""
    runs: Sequence[ScoredRun]
    requirements: Sequence[typed.Requirement] = ()
    rows: Rows


# TREC run files that exist, the scores of their ranker where a run folder has them, and who judges them

SCORES = "scores.tsv"
Scores = Mapping[tuple[str, tuple[str, ...]], tuple[float, ...]]
"""A ranker's own scores, by query_id and the documents best first."""


def judgements_of(settings: JudgementSettings, ranked: Collection[str] = ()) -> Judgements:
    """The judgements that the settings name. Raises UsageError.

    `ranked` are the documents of the runs, without which a source that loads them by id has no judgements.
    """
    if settings.dataset is not None:
        return of_dataset(settings.dataset, ranked, options_of(settings))
    assert settings.groups is not None
    return of_files(settings.qrels, settings.groups, declared(settings), options_of(settings).wanted)


def options_of(settings: JudgementSettings) -> DataOptions:
    """What settings say of a dataset beside its name."""
    return DataOptions(columns=settings.columns, asked=settings.attribute)


def declared(settings: JudgementSettings) -> dict[str, Attribute]:
    """The attributes that are known by name: the user's, or those shipped."""
    return read_attributes(settings.attributes or shipped_attributes())


def check_queries(path: Path, file: RunFile, judgements: Judgements) -> None:
    """Raises UsageError for a run that has none of the judged queries."""
    if judgements.qrels and not judgements.qrels.keys() & file.rankings.keys():
        raise ranks_none(path, f"queries of {judgements.name}", file.rankings, judgements.qrels)


def check_documents(path: Path, file: RunFile, judgements: Judgements) -> None:
    """Raises UsageError for a run that has none of the documents that have a group."""
    documents = judgements.documents
    ranked = [doc_id for ranking in file.rankings.values() for doc_id in ranking.doc_ids]
    if not any(doc_id in documents and documents[doc_id].groups for doc_id in ranked):
        grouped = (doc_id for doc_id, document in documents.items() if document.groups)
        raise ranks_none(path, "documents that have a group", ranked, grouped)


def ranks_none(path: Path, of: str, here: Iterable[str], there: Iterable[str]) -> UsageError:
    """Of a run whose ids are others."""
    return UsageError(
        f"{path} ranks none of the {of} (here '{next(iter(here), '')}', there '{next(iter(there), '')}').",
        "a run, its qrels and its groups call queries and documents by the same ids",
    )


def read_file(path: Path, scores_kept: bool = False) -> RunFile:
    """A run file. Raises UsageError with file and line."""
    file = read_any_run(path, scores_kept)
    if not file.rankings:
        raise UsageError(f"{path}: holds no ranked document.", HINT)
    return file


def own_scores(folder: Path) -> Scores:
    """The scores of a run folder whose ranker has any. Raises UsageError with the line."""
    path = folder / SCORES
    return read_scores(path, AGAIN) if path.is_file() else {}


def scored(file: RunFile, scores: Scores) -> RunFile:
    """The run with its ranker's own scores, whose ties the strictly falling ones of the file do not show."""
    rankings = {
        query_id: replace(ranking, scores=scores.get((query_id, ranking.doc_ids), ranking.scores))
        for query_id, ranking in file.rankings.items()
    }
    return replace(file, rankings=rankings)


# A run measured again


@dataclass(frozen=True)
class RunMeasurement:
    """One RUN: `facts` as results.json has them, its rows, and what gates have to know (as in `GatedFigures`)."""

    facts: ScoredRun
    rows: Sequence[Measurement]
    keys: Sequence[Key]
    reach: Mapping[str, typed.Reach] = field(default_factory=dict)
    windows: str = "on these lists"


Conclude = Callable[
    [Sequence[Column], Sequence[Measurement], Inference],
    tuple[Sequence[Measurement], Mapping[str, typed.Finding], int],
]
"""The rows with those of conclusions, what is concluded, and how many p were adjusted together."""


def measured_by(
    run: RunDir,
    results: typed.Results,
    settings: ScoreSettings,
    observations: Mapping[str, Sequence[Observation]],
    measures: Sequence[Measure],
    shown: Sequence[str],
    conclude: Conclude = lambda columns, rows, inference: (rows, {}, 0),
) -> RunMeasurement:
    """What a run observed, by these measures, of which those `shown` by name are in the table."""
    columns = measure_all(measures, observations)
    inference = Inference(settings.level, settings.ci, results.design.seed)
    rows, findings, family = conclude(columns, summarise(columns, inference), inference)
    conditions = {
        name: ScoreFacts(queries=len({observation.query_id for observation in observed}))
        for name, observed in observations.items()
    }
    facts = facts_of(run, results, shown, conditions, columns, findings, family)
    return RunMeasurement(facts, rows, [*map(Key, observations)])


def facts_of(
    run: RunDir,
    results: typed.Results,
    shown: Sequence[str],
    conditions: Mapping[str, ScoreFacts],
    columns: Sequence[Column],
    findings: Mapping[str, typed.Finding],
    family: int,
) -> ScoredRun:
    """What results.json says of a run folder that was measured again."""
    return ScoredRun(
        **named(run, results),
        task=results.task,
        words=results.words,
        measures=shown,
        conditions=conditions,
        contrasts=results.design.contrasts,
        undefined=undefined_counts(columns),
        findings=findings,
        family=typed.Family(family, None),
        incomplete=incomplete(run.read_manifest(), results),
    )


def measures_of(
    run: RunDir, results: typed.Results, settings: ScoreSettings, concluded: Sequence[str] = ()
) -> tuple[Sequence[Any], list[str]]:
    """A run's measures or those asked for, with what is `concluded` of and gates'; and by name those of its table.
    Raises UsageError, also for an attribute that the run was not about."""
    if settings.attribute not in (None, results.attribute):
        raise UsageError(
            f"{run.path} was asked by {results.attribute}, not by {settings.attribute}.",
            f"llmfair {results.task} -a {settings.attribute} asks about that",
        )
    reads = kind_of(results.task).measure.reads
    gated = [gates.parse_gate(text, reads).measure for text in settings.require]
    measures, shown = (
        parse_measures(",".join((settings.measures or ",".join(names), *also, *gated)), reads)
        for names, also in ((results.measures, concluded), (results.shown, ()))
    )
    return measures, [str(measure) for measure in shown]


def named(run: RunDir, results: typed.Results) -> dict[str, Any]:
    """The columns that name a run."""
    return {**picked(results, NAMING), "run": run.path.resolve().name}


def incomplete(manifest: Manifest, results: typed.Results) -> IncompleteRun | None:
    """What is known of a run that is not through, or whose last command was not; None of a complete one."""
    if manifest.status == results.status == "complete":
        return None
    return IncompleteRun(status=manifest.status, chains=results.chains, failures=results.failures)


# How runs of a kind are measured again and compared, as one value, whose parts serve any kind


def rows_observed(run: RunDir) -> Mapping[str, Sequence[Observation]]:
    """What the rows of NAME.csv tell. Raises UsageError, also of a kind that keeps none."""
    results = results_of(run)
    task, of_kind = results.task, kind_of(results.task).measure
    if of_kind.row is None:
        raise UsageError(f"{run.path}: {task} keeps nothing that could be measured again.")
    rows = read_rows(run.path / f"{task}.csv", f"a row of {task}", of_kind.row)
    return observed(rows, results.design.conditions, of_kind.reads)


def score_folder(run: RunDir, settings: ScoreSettings) -> RunMeasurement:
    """What the folder keeps, measured without conclusions."""
    results = results_of(run)
    measures, shown = measures_of(run, results, settings)
    observations = kind_of(results.task).measure.observations(run)
    return measured_by(run, results, settings, observations, measures, shown)


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """What measures of a kind read, and what becomes of its runs once there are figures.

    `row`: the dataclass of what one program returns, of a kind that keeps these rows in NAME.csv. It has a `condition`
    and a `query_id`, and `reads` is made of a `query_id` and its rows.
    `aside`: conditions that only repeat another, to show how much answers vary: of several runs they are not shown.
    `gated`: the conditions that gates speak of where they name none, if not all. `asked_by`: settings that say how a
    model is asked: figures with an attainable range compare where these agree. `agree`: what runs must agree in to be
    compared, beside the general settings, and what it means where they do not. `how_changed`: how
    `changes` are made, said below a comparison; empty where they are paired by query, and signs flipped.
    """

    reads: type[Observation]
    row: type[Any] | None = None
    aside: Collection[str] = ()
    gated: Collection[str] = ()
    asked_by: Sequence[str] = ()
    agree: Mapping[str, str] = field(default_factory=dict)
    how_changed: str = ""

    observations: Callable[[RunDir], Mapping[str, Sequence[Observation]]] = rows_observed
    """What a run folder keeps that measures read, by condition. Raises UsageError."""
    score: Callable[[RunDir, ScoreSettings], RunMeasurement] = score_folder
    """A run folder measured again. Raises UsageError."""
    score_files: Callable[[Sequence[Path], ScoreSettings], Iterator[RunMeasurement]] | None = None
    """Measures TREC run files, where the kind does."""
    score_log: Callable[[Path, ScoreSettings], RunMeasurement] | None = None
    """Measures a log of requests, a file of JSON lines, where the kind does. Raises UsageError."""
    changes: Callable[[ComparedRun, ComparedRun, Sequence[Measure] | None], Iterable[ChangeRow]] = (
        changes_by_query
    )
    """What changed from run to run, in the chosen measures or those with a direction. Raises UsageError."""
    described: Callable[[ComparedRun, ComparedRun], dict[str, Any]] = lambda run, base: {}
    """What a comparison says of a run, beside what it says of every kind."""


# Runs measured

LOG_HINT = "llmfair score LOG.jsonl    of what a generator was shown and said"
NAMING = ("run", "dataset", "attribute", "model")
"""The facts of a run that are columns of its rows."""


@dataclass(frozen=True)
class ScoreOutcome:
    """What was found: `results` as results.json has it, and the rows of single queries."""

    results: ScoreResults
    per_query: Rows


def score(runs: Sequence[Path], settings: ScoreSettings) -> ScoreOutcome:
    """Measures TREC run files and run folders.

    With `settings.output`, metrics.csv, per_query.csv and results.json are written there. Raises UsageError for
    malformed files (file and line), RunConflict when the output is the folder of another run.
    """
    # map, since a loop would hold one large run while it reads the next
    measured = list(map(partial(_scored, settings), runs, _remeasured(runs, settings)))
    facts = [run for run, _, _ in measured]
    failing(settings, facts)
    conditions = dict.fromkeys(condition for run in facts for condition in run.conditions)
    gates.read_gates(settings.require, conditions, kind_of(facts[0].task).measure.reads)
    entries = [entry for _, of_run, _ in measured for entry in of_run]
    if len(runs) > 1:  # each reason with the name of its RUN
        entries = [
            structs.replace(entry, reason=f"{entry.run}: {entry.reason}")
            if entry.reason and entry.run != entry.condition
            else entry
            for entry in entries
        ]
    measures = parse_measures(",".join(dict.fromkeys(name for run in facts for name in run.measures)))
    data = picked(settings, ("dataset", "qrels", "groups", "attributes"))
    results = ScoreResults(
        schema=SCHEMA,
        status="complete",
        verdict=gravest(facts),
        task="score",
        level=settings.level,
        band=band_of(settings.band),
        **of_measures(measures),
        settings={
            "runs": [str(run) for run in runs],
            **{name: str(value) for name, value in data.items() if value},
        },
        versions=versions(),
        command=scoring_of(runs, settings),
        runs=facts,
        requirements=entries,
        rows=[row for _, _, rows in measured for row in rows if row.query_id == ALL],
    )
    per_query = [row for _, _, rows in measured for row in rows if row.query_id != ALL]
    if settings.output is not None:
        folder = RunDir(settings.output)
        folder.refuse_run()
        with writing(folder.path, "choose another --output folder"):
            folder.drop_report()
            write_whole(folder.path / "metrics.csv", [csv_text(COLUMNS, typed.lines_of(results.rows))])
            write_whole(folder.path / "per_query.csv", [csv_text(COLUMNS, typed.lines_of(per_query))])
            write_whole(folder.path / "results.json", [json_text(results)])
    return ScoreOutcome(results, per_query)


def _remeasured(runs: Sequence[Path], settings: ScoreSettings) -> Iterator[RunMeasurement]:
    """Every RUN, measured by its kind of audit, one after the other. Raises UsageError."""
    judgements = settings.dataset is not None or settings.qrels is not None
    logs = [run for run in runs if run.suffix == LOG and run.is_file()]
    if logs and (judgements or len(logs) < len(runs)):
        raise UsageError("logs are measured by themselves, without other runs, qrels and datasets.", LOG_HINT)
    if settings.groups and not (logs or judgements):
        raise UsageError("--groups goes with --qrels, or with a log.", SCORE_FORMS)
    if not judgements and (settings.contrast is not None or settings.min_group != ScoreSettings.min_group):
        raise UsageError(
            "--contrast and --min-group go with --qrels or a dataset; run folders and logs are compared as they were.",
            "leave them out, or score the folder's rankings/*.run",
        )
    for run in runs:
        if run.is_dir() and judgements:
            RunDir(run).read_manifest()  # if it is no run, that is what there is to say
            raise UsageError(
                f"{run} is a folder and brings its own judgements.",
                f"with others: llmfair score {run}/rankings/*.run --qrels FILE --groups FILE",
            )
        if not (run.is_dir() or judgements or logs):
            lacks = (
                "what is relevant, and who is in which group?" if run.exists() else "there is no such file."
            )
            raise UsageError(f"{run}: {lacks}", SCORE_FORMS)
    parts = [kind.measure for kind in kinds()] if logs or judgements else []
    if logs:
        score_log = next(part.score_log for part in parts if part.score_log)
        yield from (score_log(run, settings) for run in runs)
        return
    if judgements:
        yield from next(part.score_files for part in parts if part.score_files)(runs, settings)
        return
    names = Counter(run.resolve().name for run in runs)
    for folder in map(RunDir, runs):
        part = kind_in(folder.manifest, folder.read_manifest().task).measure
        measured = part.score(folder, settings)
        if names[folder.path.resolve().name] > 1:
            measured = replace(measured, facts=structs.replace(measured.facts, run=str(folder.path)))
        yield measured


def _scored(
    settings: ScoreSettings, run: Path, measured: RunMeasurement
) -> tuple[ScoredRun, list[typed.Requirement], Rows]:
    """A RUN with its verdict, which of the gates on its conditions it holds, and its rows."""
    facts, kind = measured.facts, kind_of(measured.facts.task)
    rows = typed.rows_of(measured.rows, picked(facts, NAMING), facts.words)
    of_all = [row for row in rows if row.query_id == ALL]
    figures = gates.GatedFigures(
        measured.keys, facts.measures, of_all, facts.findings, measured.reach,
        f" {kind.words.condition}" * run.is_dir(), measured.windows,
        gates.aside_of(kind.measure, measured.keys), kind.words.titles,
    )  # fmt: skip
    wanted = [gates.parse_gate(text, kind.measure.reads) for text in settings.require]
    asked = [gate for gate in wanted if gate.condition is None or gate.condition in facts.conditions]
    met = gates.check_gates(asked, figures, settings.require_interval)
    entries = [structs.replace(entry, run=facts.run) for entry in met]
    judged = structs.replace(facts, verdict=verdict_of(settings, measured, of_all, run))
    return judged, entries, rows


# Their gates and verdicts


def verdict_of(settings: ScoreSettings, measured: RunMeasurement, rows: Rows, run: Path) -> typed.RunVerdict:
    """What the RUN comes to, in the words of its kind of audit."""
    facts, kind, folder = measured.facts, kind_of(measured.facts.task), RunDir(run)
    of_run: dict[str, Any] = {"run": None, "prompted": False}
    ways = dict[str, str]()
    if run.is_dir():  # with the commands that ask the same with what a reason calls for
        manifest, results = folder.read_manifest(), results_of(folder)
        of_run = {
            "run": str(run),
            "prompted": results.design.prompted,
            "problems": {name: answers.problem for name, answers in results.answers.items()},
        }
        if asked := settings_of(folder, manifest):
            of_run["planned"] = plan_of(kind.name, asked, manifest.model)
            ways = ways_of(kind.name, asked, manifest.model, texts=False)
        if missing := continuing(folder):
            ways["unfinished"] = missing
    else:
        ways["per_query"] = f"{scoring_of([run], settings)} --per-query"
    names = ("task", "dataset", "attribute", "model", "measures", "words", "findings")
    return kind.words.verdict(
        typed.Conclusions(
            **picked(facts, names),
            level=settings.level,
            band=band_of(settings.band),
            keys=[key for key in measured.keys if not is_of(key, kind.measure.aside)],
            figures={(row.measure, row.key(facts.contrasts)): row for row in rows if not row.group},
            by_group=[row for row in rows if row.group],
            complete=facts.incomplete is None,
            ways=ways,
            **of_run,
        )
    )


def gravest(runs: Sequence[ScoredRun]) -> typed.RunVerdict:
    """The gravest verdict of all RUNs, the first of several, with its RUN's name where there are several."""
    judged = [
        (run.run, run.verdict, kind_of(run.task).words.statuses) for run in runs if run.verdict is not None
    ]
    name, verdict, _ = min(judged, key=lambda of_run: of_run[2].index(of_run[1].status))
    return structs.replace(verdict, sentence=f"{name}: " * (len(runs) > 1) + verdict.sentence)


def failing(settings: ScoreSettings, runs: Sequence[ScoredRun]) -> tuple[str, ...]:
    """The statuses of `--fail-on`. Raises UsageError for one that no RUN could have."""
    statuses = dict.fromkeys(status for run in runs for status in kind_of(run.task).words.statuses[:-1])
    return gates.statuses_of(settings.fail_on, statuses)


def require_all(results: ScoreResults, settings: ScoreSettings) -> None:
    """Raises RequirementFailed, with what is wrong, unless every gate holds."""
    fail_on, several = failing(settings, results.runs), len(results.runs) > 1
    reasons = {run.run: gates.refused(run.verdict, fail_on) for run in results.runs}
    refusals = [f"{run}: {why}" if several else why for run, why in reasons.items() if why is not None]
    unwritten = "--json lists verdicts and requirements, -o DIR keeps them"
    gates.require_met(results.requirements, *refusals, hint=gates.WRITTEN if settings.output else unwritten)
