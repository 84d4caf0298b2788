"""Fairness and utility of rankings that exist, in run files and in the folders of listwise audits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.aggregates import Inference, aggregate, summarise, undefined_counts
from llmfair.audits.design import RELEVANT, read_relevant
from llmfair.audits.gates import parse_gate
from llmfair.audits.kind import results_of
from llmfair.audits.lists import asked_of_lists
from llmfair.audits.listwise.measure import (
    EXCESS,
    HEADLINE,
    SCORED,
    HowRanked,
    assessed,
    explained,
    findings_of,
    gain_on_chance,
    mean_gain,
    unassessable,
    windows_of,
    with_disparities,
    with_family,
)
from llmfair.audits.listwise.results import (
    OF_RANKINGS,
    ListwiseFinding,
    ListwiseResults,
    WindowAnswers,
    of_stratum,
)
from llmfair.audits.scoring import (
    Announce,
    DocumentCounts,
    IncompleteRun,
    Measuring,
    RunMeasurement,
    ScoredRun,
    ScoreFacts,
    check_documents,
    check_queries,
    declared,
    incomplete,
    judged_by,
    named,
    own_scores,
    read_file,
    scored,
)
from llmfair.datasets.base import attribute_of
from llmfair.datasets.judgements import Judgements, of_files
from llmfair.errors import UsageError
from llmfair.io.files import read_lines
from llmfair.io.trec import RunFile, read_run
from llmfair.metrics.base import Column, Groups, Judged, Measure, Quotient, Value, measure_all
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.metrics.preference import shared_strata
from llmfair.nouns import Attribute, Candidates, Conclusion, Document, Key, Measurement, Query, Ranking, Side
from llmfair.probes import REPEAT
from llmfair.results import MEASURED, Band, Family, Reach, Words, as_readable
from llmfair.rundir import ONE_OF_SEVERAL, RunDir
from llmfair.settings.commands import ScoreSettings
from llmfair.settings.declaration import band_of
from llmfair.stats.strata import Stratum

ODDS_OF_ANSWERS, ODDS_OF_RANKINGS = (
    (measure, *(of_stratum(measure, stratum) for stratum in Stratum)) for measure in (HEADLINE, OF_RANKINGS)
)

# Rankings that exist: those of run files and run folders, each with what they are measured against.


@dataclass(frozen=True)
class Against:
    """What rankings are measured against; `lists` are candidate lists, where there are any."""

    judgements: Judgements
    attribute: Attribute
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stand_ins: Mapping[str, Document] = field(default_factory=dict)
    relevant: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @cached_property
    def sides(self) -> Mapping[str, Side]:
        return self.judgements.sides(self.attribute)

    @cached_property
    def groups(self) -> Groups:
        attributes = {attribute.name: attribute for attribute in self.judgements.attributes}
        documents = {**self.judgements.documents, **self.stand_ins}
        return Groups(self.attribute.name, attributes, documents, self.relevant)

    def judged(self, query_id: str, rankings: Sequence[Ranking]) -> Judged:
        """One query with the rankings of it. Without a candidate list, what was ranked is the list."""
        doc_ids, missing = self.lists.get(query_id), tuple[str, ...]()
        relevance = self.judgements.qrels.get(query_id, {})
        if doc_ids is None:
            # by id: in the order of the ranking, measures that ask for the candidates' order would flatter it
            doc_ids = sorted({doc_id for ranking in rankings for doc_id in ranking.doc_ids})
            missing = tuple(sorted(relevance.keys() - {*doc_ids}))
        listed = self.judgements.documents
        documents = tuple(listed.get(doc_id) or Document(doc_id, "") for doc_id in doc_ids)
        candidates = Candidates(Query(query_id, ""), documents, relevance)
        return Judged(candidates, tuple(rankings), self.sides, groups=self.groups, missing=missing)


@dataclass(frozen=True)
class Rankings:
    """One RUN: the columns that name it, its run files by condition, and the kind of order its lists began with.

    `audit`: of a run folder, its results; `of_answers`: the rows of its answers' odds, of which conclusions
    speak where groups, level and band are the audit's. `incomplete`: what is known of a folder that is not through,
    of which the queries count that are ranked.
    """

    columns: Mapping[str, Any]
    conditions: Mapping[str, Sequence[RunFile]]
    against: Against
    seed: int = 0
    initial: str = "random"
    audit: ListwiseResults | None = None
    of_answers: Sequence[Measurement] = ()
    incomplete: IncompleteRun | None = None


def of_folder(run: RunDir, settings: ScoreSettings, announce: Announce) -> Rankings:
    """The rankings of an audit, against its own qrels, groups, lists, attribute and rule for mixed items."""
    path, manifest = run.path, run.read_manifest()
    audited_lists = asked_of_lists(run, manifest.settings)
    if settings.mixed not in ("drop", audited_lists.mixed):
        raise UsageError(
            f"{path} was audited with --mixed {audited_lists.mixed}, which its lists and groups follow.",
            "leave --mixed out, or audit again",
        )
    results: ListwiseResults = results_of(run)
    conditions, scores = results.design.conditions, own_scores(path)
    files = {condition: dict[str, RunFile]() for condition in conditions}
    for file in sorted((path / "rankings").glob("*.run"), key=lambda file: file.stem):
        condition = ONE_OF_SEVERAL.sub("", file.stem)
        name = file.stem if file.stem != condition else f"{condition}.o0.r0"
        files.setdefault(condition, {})[name] = scored(read_file(file, announce), scores)
    if not any(files.values()):
        raise UsageError(f"{path} has no rankings.", "score measures the rankings of a listwise audit")
    attributes, audited = declared(settings), audited_lists.attribute
    alike = attributes.get(audited.name)
    if alike is None or alike != replace(audited, backgrounds=alike.backgrounds):
        attributes[audited.name] = audited  # declared by the dataset, in a way of its own
    judgements = of_files(path / "qrels.txt", path / "groups.tsv", attributes, undeclared=True)
    lists = {row.query_id: row.doc_ids for row in read_lines(path / "candidates.jsonl", CandidatesLine)}
    listed = {doc_id: Document(doc_id, "") for doc_ids in lists.values() for doc_id in doc_ids}
    judgements = replace(judgements, documents={**listed, **judgements.documents})
    attribute = attribute_of(judgements, settings.attribute or audited.name, audited_lists.mixed)
    for condition, chains in results.chains.items():  # figures would be of other queries or orders
        rankings = sum(len(file.rankings) for file in files.get(condition, {}).values())
        if rankings < chains.ranked:
            raise UsageError(
                f"{path / 'rankings'} has {rankings} of the run's {chains.ranked} rankings "
                f"under the {condition} prompt.",
                "the command that began the run writes them again",
            )
    # as metrics.csv has it: a condition's orders and repeats together, then each by itself if there are several
    together = {name: [*of_it.values()] for name, of_it in files.items() if of_it}
    alone = {name: [file] for of_it in files.values() if len(of_it) > 1 for name, file in of_it.items()}
    # none where the groups, the level or the band are others than the audit's
    same = (attribute.name, settings.level, band_of(settings.band)) == (
        results.attribute, results.level, tuple(results.band),
    )  # fmt: skip
    of_answers = [
        Measurement(**{name: getattr(row, name) for name in MEASURED}, conclusion=row.conclusion)
        for row in results.of_all()
        if same and row.measure in ODDS_OF_ANSWERS and row.condition in conditions
    ]
    ordered = results.design.prompt_sha256 is not None  # a ranker forgets the order it is given
    return Rankings(
        {**named(run, results), "attribute": attribute.name},
        together | alone,
        Against(judgements, attribute, lists, *read_relevant(path / RELEVANT)),
        seed=results.design.seed,
        initial=str(manifest.settings.get("initial")) if ordered else "random",
        audit=results,
        of_answers=of_answers,
        incomplete=incomplete(manifest, results),
    )


SHOWN_QUERIES = 5


def score_files(
    paths: Sequence[Path], settings: ScoreSettings, announce: Announce
) -> Iterator[RunMeasurement]:
    """TREC run files, one after the other, so that of many large ones one is in memory: a file's tag is the model.

    Raises UsageError, also for a file of which nothing is judged.
    """
    against = Against(*judged_by(settings))
    for path in paths:
        file = read_file(path, announce)
        check_queries(path, file, against.judgements)
        check_documents(path, file, against.judgements)
        columns = {"dataset": against.judgements.name, "attribute": against.attribute.name, "model": file.tag}
        yield _measured(Rankings({"run": str(path), **columns}, {str(path): [file]}, against), settings)


def score_folder(run: RunDir, settings: ScoreSettings, announce: Announce) -> RunMeasurement:
    """The rankings of an audit. Whether a ranker could fail a gate is known where its own attribute is asked of."""
    rankings = of_folder(run, settings, announce)
    measured = _measured(rankings, settings)
    keys = [key for key in measured.keys if not ONE_OF_SEVERAL.search(key)]
    measured, audited = replace(measured, keys=keys), rankings.audit
    if audited is None or audited.attribute != measured.facts.attribute:
        return measured
    windows, notes = windows_of(audited.design), dict[str, str]()
    reach = audited.reach.get(OF_RANKINGS, Reach())
    if reach.low is not None and reach.high is not None:
        notes[OF_RANKINGS] = (
            f"answers that always put one group first reach {reach.low:.2f} … {reach.high:.2f} {windows}"
        )
    return replace(measured, reach=audited.reach, windows=windows, notes=notes)


def _measured(target: Rankings, settings: ScoreSettings) -> RunMeasurement:
    """A run file or a folder of rankings, measured."""
    audit, against = target.audit, target.against
    gates = [parse_gate(text, Judged) for text in settings.require]
    measures_text = settings.measures or f"{HEADLINE}," * bool(target.of_answers) + SCORED
    shown = parse_measures(",".join((measures_text, *(gate.measure for gate in gates))), Judged)
    audited = {row.measure for row in target.of_answers}
    measures_of_all = dict.fromkeys((*shown, *map(parse_measure, ODDS_OF_RANKINGS)))
    measures = [measure for measure in measures_of_all if str(measure) not in audited]
    rule = HowRanked(
        band_of(settings.band), level=settings.level, seed=target.seed, initial=target.initial,
        unjudged=not any(against.judgements.qrels.values()),
    )  # fmt: skip
    answered: Mapping[str, WindowAnswers] = {} if audit is None else audit.answers
    measured = {
        name: _measured_condition(measures, name, files, target) for name, files in target.conditions.items()
    }
    rows, relevance = list[Measurement](), dict[str, float | None]()
    findings = dict[str, ListwiseFinding]()
    for name, condition in measured.items():
        documents = median([n for n in condition.lengths if n] or [0])
        inference = Inference(level=settings.level, ci=settings.ci, seed=target.seed, documents=documents)
        rows += summarise(condition.columns, inference)
        if ONE_OF_SEVERAL.search(name) or name == REPEAT:  # they repeat what others claim
            continue
        items, answers = condition.items, answered.get(name)
        findings |= findings_of(
            [*condition.columns, condition.exposures],
            {},
            {name: mean_gain(condition.gains, "a random order")},
            inference,
            replace(rule, strata=shared_strata(items)),
            {} if answers is None else {name: answers.omitted.share},
        )
        by = [value.by for value in condition.exposures.values.values() if isinstance(value, Quotient)]
        alone = aggregate("ratio-of-means", by, replace(inference, ci="linear-t"))
        relevance[name] = None if alone is None else alone.value
    if audit is not None and target.of_answers:
        findings = {name: each for name, each in audit.findings.items() if name != REPEAT}
        rows, family = [*rows, *target.of_answers], audit.family
    else:
        findings = with_disparities(findings, settings.level)
        for name in [*findings]:
            items = measured[name].items
            counts = {s.value: (items[s, True] + items[s, False], items[s, True]) for s in Side}
            findings |= explained({name: findings[name]}, (), replace(rule, judged=counts))
            if name in answered:
                findings[name] = assessed(findings[name], answered[name])
        if audit is not None:
            findings = as_readable(findings, answered, audit.max_invalid)
            if audit.attribute == against.attribute.name:
                reach = audit.reach.get(OF_RANKINGS, Reach())
                findings = {name: in_reach(each, reach, rule.band) for name, each in findings.items()}
        rows, size = with_family(rows, findings, None)
        family = Family(size, None)
    columns = [column for condition in measured.values() for column in condition.columns]
    facts = ScoredRun(
        **target.columns,
        task="listwise",
        measures=[str(measure) for measure in shown],
        words=Words(*(against.attribute.words.get(side, "") for side in Side)),
        conditions={name: condition.facts for name, condition in measured.items()},
        undefined=undefined_counts([column for column in columns if column.measure in shown]),
        findings=findings,
        relevance=relevance,
        family=family,
        incomplete=target.incomplete,
    )
    return RunMeasurement(facts, rows, [*map(Key, measured)])


def in_reach(finding: ListwiseFinding, reach: Reach, band: Band) -> ListwiseFinding:
    """The finding, without parity of rankings that no answers could have brought out of the band."""
    leaves = (reach.low or 0.0) < band[0] and band[1] < (reach.high or inf)
    within = finding.conclusion is Conclusion.WITHIN
    return unassessable(finding.measure, "narrow_range") if within and not leaves else finding


@dataclass(frozen=True)
class ConditionFigures:
    """What is held of a condition's rankings: its columns, its exposures beside relevance, gains in utility by query.

    `lengths` of the lists of all queries; `items`: how many are of a side and relevant, or not.
    """

    columns: Sequence[Column]
    exposures: Column
    gains: Mapping[str, float]
    lengths: Sequence[int]
    facts: ScoreFacts
    items: Counter[tuple[Side | None, bool]]


def _measured_condition(
    measures: Sequence[Measure], condition: str, files: Sequence[RunFile], target: Rankings
) -> ConditionFigures:
    """Every measure of every query, one query at a time: a large run is never held as a whole."""
    against, excess = target.against, parse_measure(EXCESS)
    query_ids = {query_id for file in files for query_id in file.rankings}
    if not target.incomplete:
        query_ids |= against.judgements.qrels.keys()
    values: dict[tuple[Measure, str], dict[str, Value]] = {}
    exposures, gains, items = dict[str, Value](), dict[str, float](), Counter[tuple[Side | None, bool]]()
    lengths, missing = list[int](), list[int]()
    for query_id in sorted(query_ids):
        rankings = [file.rankings[query_id] for file in files if query_id in file.rankings]
        judged = against.judged(query_id, rankings)
        for column in measure_all(measures, {condition: [judged]}):
            values.setdefault((column.measure, column.group), {}).update(column.values)
        exposures |= dict.fromkeys([query_id], *excess.values(judged).values())
        if (gain := gain_on_chance(judged)) is not None:
            gains[query_id] = gain
        lengths.append(len(judged.doc_ids))
        relevance = judged.candidates.relevance
        items.update(
            (judged.sides.get(d), relevance.get(d, 0) > 0) for d in (*judged.doc_ids, *judged.missing)
        )
        if rankings:
            missing += [len(judged.missing)] * bool(judged.missing)
    columns = [Column(measure, condition, group, of_it) for (measure, group), of_it in values.items()]
    if unheld := [measure for measure in measures if not any(c.measure == measure for c in columns)]:
        raise UsageError(
            f"{unheld[0]} needs initial orders or answers of a model, which a run does not hold.",
            f"llmfair listwise measures it; of rankings there are ExpRatio and {OF_RANKINGS}",
        )
    facts = _facts(files, against, DocumentCounts(documents=sum(missing), queries=len(missing)))
    return ConditionFigures(columns, Column(excess, condition, "", exposures), gains, lengths, facts, items)


def _facts(files: Sequence[RunFile], against: Against, missing: DocumentCounts) -> ScoreFacts:
    """What has to be known to read the figures: sizes, ties, and where run and judgements do not meet.

    `missing`: judged items that lists lack.
    """
    rankings = [ranking for file in files for ranking in file.rankings.values()]
    ranked, judged = {ranking.query_id for ranking in rankings}, against.judgements.qrels.keys()
    listed = against.judgements.documents
    unlisted = [len(ranking.doc_ids) - sum(map(listed.__contains__, ranking.doc_ids)) for ranking in rankings]
    tied = [count for file in files for count in file.tied.values()]
    return ScoreFacts(
        queries=len(ranked),
        documents=sum(len(ranking.doc_ids) for ranking in rankings),
        tied=DocumentCounts(documents=sum(tied), queries=len(tied)),
        upside_down=any(file.upside_down for file in files),
        unlisted=DocumentCounts(documents=sum(unlisted), queries=sum(count > 0 for count in unlisted)),
        unjudged=_counted(ranked - judged),
        not_ranked=_counted(judged - ranked),
        missing=missing,
    )


def _counted(query_ids: set[str]) -> DocumentCounts:
    return DocumentCounts(queries=len(query_ids), first=sorted(query_ids)[:SHOWN_QUERIES])


# The rankings of a run folder, as figures and side-by-side lists need them.


HINT = "the command that began the run writes it anew"


@dataclass(frozen=True)
class CandidatesLine:
    """A line of candidates.jsonl: a list as the dataset gave it, with relevance and side of each document."""

    query_id: str
    doc_ids: Sequence[str]
    relevance: Sequence[int]
    side: Sequence[Side | None]


@dataclass(frozen=True)
class RankedLists:
    """Candidates by query_id with their sides and relevance, and what was ranked: `ranked[condition][query_id]`.

    By initial order and repeat, from 0, the documents best first.
    """

    sides: Mapping[str, Mapping[str, Side | None]]
    relevance: Mapping[str, Mapping[str, int]]
    ranked: Mapping[str, Mapping[str, Mapping[tuple[int, int], tuple[str, ...]]]]

    def ranks(self, condition: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ranks, from 1, of all items of either side over all queries and runs; shape (items,) each."""
        ranks: dict[Side | None, list[int]] = {side: [] for side in (*Side, None)}
        for query_id, lists in self.ranked[condition].items():
            for doc_ids in lists.values():
                for rank, doc_id in enumerate(doc_ids, start=1):
                    ranks[self.sides[query_id].get(doc_id)].append(rank)
        return np.array(ranks[Side.PROTECTED], np.int64), np.array(ranks[Side.UNPROTECTED], np.int64)


def read_lists(folder: Path, conditions: Sequence[str]) -> RankedLists | None:
    """The lists of a listwise run folder; None where it has none. Raises UsageError for files that are damaged."""
    path = folder / "candidates.jsonl"
    if not path.is_file():
        return None
    sides: dict[str, dict[str, Side | None]] = {}
    relevance: dict[str, dict[str, int]] = {}
    for row in read_lines(path, CandidatesLine):
        if not len(row.doc_ids) == len(row.side) == len(row.relevance):
            raise UsageError(f"{path}: the list of {row.query_id} lacks a group or relevance.", HINT)
        sides[row.query_id] = dict(zip(row.doc_ids, row.side, strict=True))
        relevance[row.query_id] = dict(zip(row.doc_ids, row.relevance, strict=True))
    ranked: dict[str, dict[str, dict[tuple[int, int], tuple[str, ...]]]] = {name: {} for name in conditions}
    for file in sorted((folder / "rankings").glob("*.run"), key=lambda file: (len(file.name), file.name)):
        condition, *numbers = ONE_OF_SEVERAL.split(file.stem)
        if condition not in ranked:
            continue
        for query_id, ranking in read_run(file, hint=HINT).rankings.items():
            if query_id not in sides:
                raise UsageError(f"{file}: ranks the query {query_id}, which {path.name} lacks.", HINT)
            order, repeat = map(int, numbers[:2] or (0, 0))
            ranked[condition].setdefault(query_id, {})[order, repeat] = ranking.doc_ids
    in_order = {condition: dict(sorted(lists.items())) for condition, lists in ranked.items()}
    return RankedLists(sides, relevance, in_order)


MEASURING = Measuring(
    reads=Judged,
    aside=(REPEAT,),
    asked_by=("strategy", "design", "window", "step", "passes", "windows"),
    score=score_folder,
    score_files=score_files,
)
