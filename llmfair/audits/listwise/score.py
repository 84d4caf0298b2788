"""Fairness and utility of rankings that exist, in run files and in the folders of listwise audits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from llmfair.audits import scoring
from llmfair.audits.aggregates import Inference, aggregate, summarise, undefined_counts
from llmfair.audits.design import RELEVANT, read_relevant
from llmfair.audits.gates import parse_gate
from llmfair.audits.kind import results_of
from llmfair.audits.lists import asked_of_lists, groups_among, of_groups
from llmfair.audits.listwise.measure import (
    EXCESS,
    HEADLINE,
    SCORED,
    Findings,
    HowRanked,
    by_contrast,
    columns_of_contrasts,
    final_findings,
    findings_of,
    gain_on_chance,
    in_groups,
    mean_gain,
    unassessable,
    windows_of,
    with_family,
)
from llmfair.audits.listwise.results import OF_RANKINGS, ListwiseFinding, ListwiseResults, of_stratum
from llmfair.datasets.base import attribute_of, named_attribute
from llmfair.datasets.judgements import Judgements, of_files
from llmfair.errors import UsageError
from llmfair.io.files import read_lines
from llmfair.io.trec import RunFile, read_run
from llmfair.metrics.base import Column, Groups, Judged, Measure, Quotient, Sides, measure_each
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.metrics.preference import shared_strata
from llmfair.nouns import (
    Attribute,
    Candidates,
    Conclusion,
    Document,
    Key,
    Measurement,
    MixedPolicy,
    Query,
    Ranking,
    Side,
    picked,
)
from llmfair.probes import REPEAT
from llmfair.results import Band, Family, Reach, Words
from llmfair.rundir import ONE_OF_SEVERAL, RunDir
from llmfair.settings.commands import ScoreSettings
from llmfair.settings.declaration import band_of
from llmfair.stats.strata import Stratum

ODDS_OF_ANSWERS, ODDS_OF_RANKINGS = (
    [measure, *(of_stratum(measure, stratum) for stratum in Stratum)] for measure in (HEADLINE, OF_RANKINGS)
)
EXCESS_RATIO = parse_measure(EXCESS)
SHOWN_QUERIES = 5
HINT = "the command that began the run writes it anew"

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
    def sides_of(self) -> Mapping[str, Sides]:
        """The side of every listed document in each contrast."""
        return {contrast: self.judgements.sides(of) for contrast, of in self.attribute.contrasts.items()}

    @cached_property
    def groups(self) -> Groups:
        documents = {**self.judgements.documents, **self.stand_ins}
        return groups_among(self.judgements.attributes, self.attribute, documents, self.relevant)

    def judged(self, query_id: str, rankings: Sequence[Ranking]) -> Judged:
        """One query with the rankings of it; of several contrasts, in the first. Without a candidate list, what was
        ranked is the list."""
        doc_ids, missing = self.lists.get(query_id), tuple[str, ...]()
        relevance = self.judgements.qrels.get(query_id, {})
        if doc_ids is None:
            # by id: in the order of the ranking, measures that ask for the candidates' order would flatter it
            doc_ids = sorted({doc_id for ranking in rankings for doc_id in ranking.doc_ids})
            missing = tuple(sorted(relevance.keys() - {*doc_ids}))
        listed = self.judgements.documents
        documents = tuple(listed.get(doc_id) or Document(doc_id, "") for doc_id in doc_ids)
        candidates = Candidates(Query(query_id, ""), documents, relevance)
        sides = next(iter(self.sides_of.values()))
        judged = Judged(candidates, tuple(rankings), sides, groups=self.groups, missing=missing)
        return in_groups(judged, self.attribute, self.sides_of)

    def between(self, judged: Judged, contrast: str) -> Judged:
        """The same query, its items on the sides of this contrast."""
        return judged.between(self.attribute, contrast, self.sides_of)


@dataclass(frozen=True)
class Rankings:
    """One RUN: the columns that name it, its run files by condition, and the kind of order its lists began with.

    `audit`: of a run folder, its results. `incomplete`: what is known of a folder that is not through, of which the
    queries count that are ranked.
    """

    columns: Mapping[str, Any]
    conditions: Mapping[str, Sequence[RunFile]]
    against: Against
    seed: int = 0
    initial: str = "random"
    audit: ListwiseResults | None = None
    incomplete: scoring.IncompleteRun | None = None

    def of_answers(self, settings: ScoreSettings) -> list[Measurement]:
        """The rows of the audit's odds of answers, of which conclusions speak where these settings are its own."""
        audit = self.audit
        if audit is None or (self.against.attribute.name, settings.level, *band_of(settings.band)) != (
            audit.attribute, audit.level, *audit.band,
        ):  # fmt: skip
            return []
        return [
            Measurement(**picked(row, [of.name for of in fields(Measurement)]))
            for row in audit.of_all()
            if row.measure in ODDS_OF_ANSWERS and row.condition in audit.design.conditions
        ]


def files_in(folder: Path) -> Iterator[tuple[Path, str, int, int]]:
    """The run files of a folder, each with its condition, initial order and repeat."""
    for path in sorted((folder / "rankings").glob("*.run"), key=lambda path: path.stem):
        condition, *numbers = ONE_OF_SEVERAL.split(path.stem)
        order, repeat = map(int, numbers[:2] or (0, 0))
        yield path, condition, order, repeat


def of_folder(run: RunDir, settings: ScoreSettings) -> Rankings:
    """The rankings of an audit, against its own qrels, groups, lists, attribute and rule for mixed items."""
    path, manifest = run.path, run.read_manifest()
    lists_asked = asked_of_lists(run, manifest.settings)
    if settings.mixed not in ("drop", lists_asked.mixed):
        raise UsageError(
            f"{path} was audited with --mixed {lists_asked.mixed}, which its lists and groups follow.",
            "leave --mixed out, or audit again",
        )
    results: ListwiseResults = results_of(run)
    scores = scoring.own_scores(path)
    files = {condition: dict[str, RunFile]() for condition in results.design.conditions}
    for file, condition, order, repeat in files_in(path):
        name = f"{condition}.o{order}.r{repeat}"
        files.setdefault(condition, {})[name] = scoring.scored(scoring.read_file(file), scores)
    if not any(files.values()):
        raise UsageError(f"{path} has no rankings.", "score measures the rankings of a listwise audit")
    for condition, chains in results.chains.items():  # figures would be of other queries or orders
        rankings = sum(len(file.rankings) for file in files.get(condition, {}).values())
        if rankings < chains.ranked:
            raise UsageError(
                f"{path / 'rankings'} has {rankings} of the run's {chains.ranked} rankings "
                f"under the {condition} prompt.",
                "the command that began the run writes them again",
            )
    attributes, audited = scoring.declared(settings), lists_asked.attribute
    alike = attributes.get(audited.name)
    if alike is None or alike != replace(audited, backgrounds=alike.backgrounds):
        attributes[audited.name] = audited  # declared by the dataset, in a way of its own
    judgements = of_files(path / "qrels.txt", path / "groups.tsv", attributes, undeclared=True)
    lists = {row.query_id: row.doc_ids for row in read_lines(path / "candidates.jsonl", CandidatesLine)}
    listed = {doc_id: Document(doc_id, "") for doc_ids in lists.values() for doc_id in doc_ids}
    judgements = replace(judgements, documents={**listed, **judgements.documents})
    attribute = compared_groups(judgements, settings.attribute or audited.name, lists_asked.mixed, settings)
    # as metrics.csv has it: a condition's orders and repeats together, then each by itself if there are several
    together = {name: [*of_it.values()] for name, of_it in files.items() if of_it}
    alone = {name: [file] for of_it in files.values() if len(of_it) > 1 for name, file in of_it.items()}
    ordered = results.design.prompt_sha256 is not None  # a ranker forgets the order it is given
    return Rankings(
        {**scoring.named(run, results), "attribute": attribute.name},
        together | alone,
        Against(judgements, attribute, lists, *read_relevant(path / RELEVANT)),
        results.design.seed,
        str(manifest.settings.get("initial")) if ordered else "random",
        results,
        scoring.incomplete(manifest, results),
    )


def compared_groups(
    judgements: Judgements, name: str | None, mixed: MixedPolicy, settings: ScoreSettings
) -> Attribute:
    """The attribute of this name with its two sides, with the groups that it was audited by, or with those that enough
    documents have. Raises UsageError."""
    attribute = named_attribute(judgements, name, mixed)
    if attribute.groups or (settings.contrast or attribute.compared) == "binary":
        return attribute_of(judgements, name, mixed)
    return of_groups(attribute, judgements.documents.values(), settings)


def score_files(paths: Sequence[Path], settings: ScoreSettings) -> Iterator[scoring.RunMeasurement]:
    """TREC run files, one after the other, so that of many large ones one is in memory: a file's tag is the model.

    Raises UsageError, also for a file of which nothing is judged.
    """
    judgements = scoring.judgements_of(settings)
    against = Against(judgements, compared_groups(judgements, settings.attribute, settings.mixed, settings))
    for path in paths:
        file = scoring.read_file(path)
        scoring.check_queries(path, file, against.judgements)
        scoring.check_documents(path, file, against.judgements)
        columns = {"dataset": against.judgements.name, "attribute": against.attribute.name, "model": file.tag}
        yield _measured(Rankings({"run": str(path), **columns}, {str(path): [file]}, against), settings)


def score_folder(run: RunDir, settings: ScoreSettings) -> scoring.RunMeasurement:
    """The rankings of an audit. Whether a ranker could fail a gate is known where its own attribute is asked of."""
    rankings = of_folder(run, settings)
    measured, audited = _measured(rankings, settings), rankings.audit
    keys = [key for key in measured.keys if not ONE_OF_SEVERAL.search(key.condition)]
    measured = replace(measured, keys=keys)
    if audited is None or audited.attribute != measured.facts.attribute:
        return measured
    return replace(measured, reach=audited.reach, windows=windows_of(audited.design))


def _measured(target: Rankings, settings: ScoreSettings) -> scoring.RunMeasurement:
    """A run file or a folder of rankings, measured: every condition by itself, then what is concluded of them."""
    audit, against, of_answers = target.audit, target.against, target.of_answers(settings)
    gates = [parse_gate(text, Judged).measure for text in settings.require]
    names = settings.measures or f"{HEADLINE}," * bool(of_answers) + SCORED
    shown = parse_measures(",".join((names, *gates)), Judged)
    audited = {row.measure for row in of_answers}
    every = dict.fromkeys((*shown, *map(parse_measure, ODDS_OF_RANKINGS)))
    measures = [measure for measure in every if str(measure) not in audited]
    answers = {} if audit is None else audit.answers
    facts, columns, rows = dict[str, scoring.ScoreFacts](), list[Column](), list[Measurement]()
    relevance, findings = dict[str, float | None](), Findings()
    contrasts = [*against.sides_of]
    rules = dict[str, HowRanked]()
    for name, files in target.conditions.items():
        of_it, gains, items, documents, facts[name] = _figures(measures, name, files, target)
        inference = Inference(settings.level, settings.ci, target.seed, documents=documents)
        measured = [column for column in of_it if column.measure in measures]
        rows += summarise(measured, inference)
        columns += measured
        if ONE_OF_SEVERAL.search(name) or name == REPEAT:  # they repeat what others claim
            continue
        for contrast in contrasts:
            key, of_contrast = Key(name, contrast=contrast), [c for c in of_it if c.contrast == contrast]
            exposures = (c.values.values() for c in of_contrast if c.measure == EXCESS_RATIO)
            by = [value.by for value in chain(*exposures) if isinstance(value, Quotient)]
            alone = aggregate("ratio-of-means", by, replace(inference, ci="linear-t"))
            relevance[key] = None if alone is None else alone.value
            if of_answers:  # of which the audit has concluded
                continue
            counts = items[contrast]
            rules[key] = HowRanked(
                band_of(settings.band), strata=shared_strata(counts), level=settings.level, seed=target.seed,
                initial=target.initial, unjudged=not any(against.judgements.qrels.values()),
                judged={s.value: (counts[s, True] + counts[s, False], counts[s, True]) for s in Side},
            )  # fmt: skip
            useful = {name: mean_gain(gains, "a random order")}
            left_out = {name: answers[name].omitted.share} if name in answers else {}
            found = findings_of(of_contrast, {}, useful, inference, rules[key], left_out)
            findings |= {Key(of, contrast=contrast): finding for of, finding in found.items()}
    if audit is not None and of_answers:
        repeated = {key for key in audit.design.keys if key.condition == REPEAT}
        findings = {key: of for key, of in audit.findings.items() if key not in repeated}
        rows, family = [*rows, *of_answers], audit.family
    else:
        findings = final_findings(findings, (), rules, answers, None if audit is None else audit.max_invalid)
        if audit is not None and audit.attribute == against.attribute.name:
            reach = audit.reach.get(OF_RANKINGS, Reach())
            findings = {
                name: in_reach(each, reach, band_of(settings.band)) for name, each in findings.items()
            }
        rows, size = with_family(rows, findings, None)
        family = Family(size, None)
    run = scoring.ScoredRun(
        **target.columns,
        task="listwise",
        measures=[str(measure) for measure in shown],
        words=Words(*("" if contrasts[0] else against.attribute.words.get(side, "") for side in Side)),
        conditions=facts,
        contrasts=tuple(filter(None, contrasts)),
        undefined=undefined_counts([column for column in columns if column.measure in shown]),
        findings=findings,
        relevance=relevance,
        family=family,
        incomplete=target.incomplete,
    )
    keys = [Key(condition, contrast=contrast) for condition in facts for contrast in contrasts]
    return scoring.RunMeasurement(run, rows, keys)


def in_reach(finding: ListwiseFinding, reach: Reach, band: Band) -> ListwiseFinding:
    """The finding, without parity of rankings that no answers could have brought out of the band."""
    leaves = (reach.low or 0.0) < band[0] and band[1] < (reach.high or inf)
    within = finding.conclusion is Conclusion.WITHIN
    return unassessable(finding.measure, "narrow_range") if within and not leaves else finding


def _figures(
    measures: Sequence[Measure], condition: str, files: Sequence[RunFile], target: Rankings
) -> tuple[
    list[Column], dict[str, float], dict[str, Counter[tuple[Side | None, bool]]], float, scoring.ScoreFacts
]:
    """Of a condition, one query at a time, since a large run is never held as a whole: every measure and the excess
    ratio, each query's gain in utility, items by contrast, side and whether they are relevant, the median length of
    lists, and what has to be known to read the figures."""
    against = target.against
    judgements, listed = against.judgements.qrels.keys(), against.judgements.documents
    ranked = {query_id for file in files for query_id in file.rankings}
    gains = dict[str, float]()
    items = {contrast: Counter[tuple[Side | None, bool]]() for contrast in against.sides_of}
    lengths, missing, unlisted = list[int](), list[int](), list[int]()

    def observed() -> Iterator[tuple[str, Judged]]:
        for query_id in sorted(ranked if target.incomplete else ranked | judgements):
            rankings = [file.rankings[query_id] for file in files if query_id in file.rankings]
            yield condition, against.judged(query_id, rankings)

    def counted() -> Iterator[tuple[str, Judged]]:
        for _, judged in observed():
            yield condition, judged
            if (gain := gain_on_chance(judged)) is not None:
                gains[judged.query_id] = gain
            relevance = judged.candidates.relevance
            every = (*judged.doc_ids, *judged.missing)
            for contrast, sides in against.sides_of.items():
                items[contrast].update((sides.get(doc_id), relevance.get(doc_id, 0) > 0) for doc_id in every)
            lengths.append(len(judged.doc_ids))
            missing.append(len(judged.missing) if judged.rankings else 0)
            unlisted.extend(sum(doc_id not in listed for doc_id in of.doc_ids) for of in judged.rankings)

    alike, compared = by_contrast([*dict.fromkeys((*measures, EXCESS_RATIO))], against.attribute)
    columns = measure_each(alike, counted())
    if compared:
        columns += columns_of_contrasts(compared, [*against.sides_of], against.between, observed())
    if unheld := [measure for measure in measures if not any(c.measure == measure for c in columns)]:
        raise UsageError(
            f"{unheld[0]} needs initial orders or answers of a model, which a run does not hold.",
            f"llmfair listwise measures it; of rankings there are ExpRatio and {OF_RANKINGS}",
        )

    def counted_by(numbers: Sequence[int]) -> scoring.DocumentCounts:
        return scoring.DocumentCounts(documents=sum(numbers), queries=sum(map(bool, numbers)))

    facts = scoring.ScoreFacts(
        queries=len(ranked),
        documents=sum(len(ranking.doc_ids) for file in files for ranking in file.rankings.values()),
        tied=counted_by([count for file in files for count in file.tied.values()]),
        upside_down=any(file.upside_down for file in files),
        unlisted=counted_by(unlisted),
        unjudged=_named(ranked - judgements),
        not_ranked=_named(judgements - ranked),
        missing=counted_by(missing),
    )
    return columns, gains, items, median([n for n in lengths if n] or [0]), facts


def _named(query_ids: set[str]) -> scoring.DocumentCounts:
    return scoring.DocumentCounts(queries=len(query_ids), first=sorted(query_ids)[:SHOWN_QUERIES])


# The rankings of a run folder, as lists side by side need them.


@dataclass(frozen=True)
class CandidatesLine:
    """A line of candidates.jsonl: a list as the dataset gave it, with relevance and side of each document."""

    query_id: str
    doc_ids: Sequence[str]
    relevance: Sequence[int]
    side: Sequence[str | None]


def read_lists(
    folder: Path,
) -> tuple[dict[str, CandidatesLine], dict[str, dict[str, tuple[int, Sequence[str]]]]]:
    """The lists of a listwise run folder by query, and by condition what came first of each: its initial order, from
    0, and the documents best first. Raises UsageError for files that cannot be read."""
    path = folder / "candidates.jsonl"
    if not path.is_file():
        return {}, {}
    lists = {row.query_id: row for row in read_lines(path, CandidatesLine)}
    for row in lists.values():
        if not len(row.doc_ids) == len(row.side) == len(row.relevance):
            raise UsageError(f"{path}: the list of {row.query_id} lacks a group or relevance.", HINT)
    ranked: dict[str, dict[str, tuple[int, Sequence[str]]]] = {}
    for file, condition, order, _ in files_in(folder):
        for query_id, ranking in read_run(file, hint=HINT).rankings.items():
            if query_id not in lists:
                raise UsageError(f"{file}: ranks the query {query_id}, which {path.name} lacks.", HINT)
            ranked.setdefault(condition, {}).setdefault(query_id, (order, ranking.doc_ids))
    return lists, ranked


MEASURING = scoring.Measuring(
    reads=Judged,
    aside=(REPEAT,),
    asked_by=("strategy", "design", "window", "step", "passes", "windows"),
    score=score_folder,
    score_files=score_files,
)
