"""What the answers of an audit of a generator come to, and the files of its run folder, from which all of it follows.

`qrels.txt` has every item of every query, the useful ones judged 1; `scores.csv` what lists are drawn from;
`outputs.csv` what was answered beside each list. `gains.tsv` says how items came to be useful, `rankings/` has each
retriever's order, `samples/` the lists drawn, in the columns of expeval.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, structs

from llmfair.audits import scoring
from llmfair.audits.aggregates import ALL, Inference, mean_of, numbers_of, summarise, undefined_counts
from llmfair.audits.comparing import ComparedRun, changes_by_query
from llmfair.audits.design import Condition, Outcome
from llmfair.audits.documents import ChangeRow
from llmfair.audits.kind import results_of
from llmfair.audits.rag import results as typed
from llmfair.audits.rag.design import ATTRIBUTORS, Policies, RagDesign, bounded, grouped, grouping, probe_of
from llmfair.audits.rag.results import Curve, RagFacts, RagFinding, RagResults
from llmfair.audits.rag.settings import BY_GROUP, CHANGE, DETERMINISTIC, DISPARITY, GOLD
from llmfair.datasets.answers import ITEM
from llmfair.datasets.files import groups_of
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.files import AGAIN, json_lines, number, read_csv, wrong
from llmfair.io.trec import read_qrels, run_lines
from llmfair.metrics.base import Column, Floats, Measure, measure_all, measure_each
from llmfair.metrics.expected import GroupShare, ListSample, Retrieved
from llmfair.metrics.generation import FEWEST_USEFUL, LABEL_OUTPUT
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.metrics.texts import GREATEST, cleaned, utility
from llmfair.nouns import Attribute, Conclusion, Document, Failure, Key, Measurement, Query, Ranking, picked
from llmfair.rankers.plackett_luce import deterministic
from llmfair.rankers.reader import Read, Shown, Support
from llmfair.results import Family, Figure, ProbeCounts, Words
from llmfair.rundir import Contents, RunDir, csv_lines
from llmfair.settings.commands import ScoreSettings
from llmfair.settings.declaration import band_of
from llmfair.stats import tradeoff
from llmfair.stats.intervals import FEWEST_QUERIES, Estimate
from llmfair.stats.significance import holm, p_outside
from llmfair.stats.tradeoff import Utility, losses

# What measures read of a query, from its lists and outputs: of an audit, or of its run folder.

Outputs = Mapping[Shown, ListSample]
"""What a query's lists were answered, each list as if it was drawn once."""
Answered = Sequence[tuple[Query, Read]]
"""Queries that have all their answers."""


def outputs_of(design: RagDesign, query: Query, read: Read, judged: Mapping[str, Support]) -> Outputs:
    """The outputs for the lists of a query, with the items that they are credited to."""
    attribute = ATTRIBUTORS.get(design.settings.attribution.partition(",")[0])
    credit = attribute({item.doc_id: item for item in design.items(query)}) if attribute else None
    judgement, outputs = judged.get(probe_of(query)), {}
    for doc_ids, output in read.lists.items():
        supported = further = None
        if judgement is not None:
            holds = {
                pair[0]: judgement.supported.get(pair) for pair in design.pairs(query, output.text, doc_ids)
            }
            if None not in holds.values():  # one answer that cannot be read leaves the whole list open
                supported = frozenset(doc_id for doc_id, of in holds.items() if of)
        if credit:
            further, supported = supported, credit(design.meaning(query, output.text), doc_ids)
        outputs[doc_ids] = ListSample(doc_ids, 1, output.text, output.utility, supported, further)
    return outputs


def observed(
    policies: Policies,
    conditions: Sequence[Condition],
    useful: frozenset[str],
    outputs: Outputs | None,
    uncredited: str | None,
) -> dict[str, Retrieved]:
    """One query under every condition, once it has the outputs of all its lists; {} before.

    `outputs` None: nobody asked for any, and what is shown is all there is. `uncredited`: why nothing is credited,
    where that is so.
    """
    draws = policies.draws(conditions, useful)
    lists = {doc_ids for of in draws.values() for doc_ids in of}
    if outputs is None:
        outputs = {doc_ids: ListSample(doc_ids, 1, None, None) for doc_ids in lists}
    if not lists <= outputs.keys():
        return {}
    # of its lists: a run folder has what was answered beside single items, too
    utilities = [worth for doc_ids in lists if (worth := outputs[doc_ids].utility) is not None]
    baselines = {
        condition.factors["retriever"]: outputs[next(iter(draws[condition.name]))].utility
        for condition in conditions
        if condition.factors["alpha"] == DETERMINISTIC
    }
    same = picked(policies, ("query_id", "doc_ids", "k", "groups"))
    return {
        of.name: Retrieved(
            **same,
            useful=useful,
            exposure=policies.exposure(of, useful),
            lists=tuple(replace(outputs[doc_ids], count=count) for doc_ids, count in draws[of.name].items()),
            baseline=baselines.get(of.factors["retriever"]),
            ceiling=max(utilities, default=None),
            uncredited=uncredited or Retrieved.uncredited,
        )
        for of in conditions
    }


# The files of a run folder.

QRELS, SCORES, OUTPUTS = "qrels.txt", "scores.csv", "outputs.csv"
OUTPUT_COLUMNS = ("query_id", "doc_ids", "output", "finish", "utility", "credited")
SCORE_COLUMNS = ("retriever", "query_id", "doc_id", "score")
GROUP = "group"
"""A further column of scores, where items have groups."""
SUPPORTED = "supported"
"""A further column, of citations that a judge was asked about."""
NOBODY = "-"
"""Stands for the credit of an output that nobody asked about."""


def files_of(
    design: RagDesign, queries: Answered, measured: Answered, judged: Mapping[str, Support]
) -> dict[str, Contents]:
    """Every file by name; its lines are made, a query at a time, while it is written."""
    columns = (*OUTPUT_COLUMNS, *[SUPPORTED] * (design.settings.cites and design.judge is not None))
    named, groups = bool(design.settings.attribute), {of: design.groups_of(of) for of in design.queries}
    scores = (
        (retriever, query.query_id, item.doc_id, score) + (groups[query].get(item.doc_id, ""),) * named
        for retriever, scores in design.scores.items()
        for query in design.queries
        for item, score in zip(design.items(query), scores[query.query_id].tolist(), strict=True)
    )
    gains = (
        (query.query_id, doc_id, read.alone[doc_id,].utility, read.alone[()].utility, gain)
        for query, read in queries
        for doc_id, gain in read.gains.items()
    )
    columns_of_samples = ("qid", "sample", "docno", "rank", "sim", "run_id")

    def rankings(retriever: str) -> Iterator[str]:
        """All items of every query, best first; queries in the order of the audit."""
        for policies in map(design.policies, design.queries):
            best = deterministic(policies.scores[retriever], len(policies.doc_ids))
            ranked = Ranking(policies.query_id, tuple(policies.doc_ids[place] for place in best))
            yield from run_lines([ranked], retriever)

    def outputs() -> Iterator[tuple[object, ...]]:
        """Of every query the outputs for labels, to which nothing is credited, then those for lists."""
        for query, read in queries:
            credited = outputs_of(design, query, read, judged)
            for of_query, credit in ((read.alone, {}), (read.lists, credited)):
                for doc_ids, output in of_query.items():
                    of = credit.get(doc_ids)
                    names = (
                        NOBODY if ids is None else " ".join(doc_id for doc_id in doc_ids if doc_id in ids)
                        for ids in ((of.attributed, of.supported) if of else (None, None))
                    )
                    answer = (output.text, str(output.finish), output.utility)
                    yield query.query_id, " ".join(doc_ids), *answer, *names

    def samples(condition: Condition) -> Iterator[tuple[object, ...]]:
        """Every draw of a condition, an item a row."""
        for query, read in measured:
            lists = design.policies(query).draws([condition], read.useful)[condition.name]
            for sample, doc_ids in enumerate(lists.elements()):
                for rank, doc_id in enumerate(doc_ids, start=1):
                    yield query.query_id, sample, doc_id, rank, len(doc_ids) - rank + 1, "llmfair"

    return {
        QRELS: (
            f"{query.query_id} 0 {item.doc_id} {int(item.doc_id in read.useful)}\n"
            for query, read in queries
            for item in design.items(query)
        ),
        SCORES: csv_lines((*SCORE_COLUMNS, *[GROUP] * named), scores),
        OUTPUTS: csv_lines(columns, (row[: len(columns)] for row in outputs())),
        "gains.tsv": _tabbed(("qid", "pid", "augment_score", "baseline_score", "delta"), gains),
        **{f"rankings/{name}.run": rankings(name) for name in design.scores},
        **{f"samples/{of.name}.tsv": _tabbed(columns_of_samples, samples(of)) for of in design.conditions},
    }


def _tabbed(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines for tools of others, which read ids as they are."""
    return ("\t".join(map(str, row)) + "\n" for row in chain([columns], rows))


def read_observations(run: RunDir) -> dict[str, list[Retrieved]]:
    """What measures read, by condition, of a run folder's files. Raises UsageError naming file and line.

    Of a run that has asked about no list there is what its retrievers show, and where it has labels what of it is
    useful; it has no `gold` without. Files that tell of fewer queries than the results do are refused.
    """
    results: RagResults = results_of(run)
    design, qrels = results.design, run.path / QRELS
    conditions = [Condition(name, (design.factors or {})[name]) for name in design.conditions]
    labels = None if qrels.is_file() and not qrels.stat().st_size else read_qrels(qrels, AGAIN)
    retrievers = {of.factors["retriever"] for of in conditions} - {GOLD}
    scores = dict[str, dict[str, dict[str, float]]]()
    outputs = dict[str, dict[Shown, ListSample]]()
    groups = dict[str, dict[str, str]]()

    def read_score(row: dict[str, str]) -> None:
        if group := row.get(GROUP):
            groups.setdefault(row["query_id"], {})[row["doc_id"]] = group
        of = scores.setdefault(row["query_id"], {}).setdefault(row["retriever"], {})
        of[row["doc_id"]] = number(row["score"])

    def read_output(row: dict[str, str]) -> None:
        # where lists have one item, it was asked about for labels, too, with the same output: the list's comes second
        doc_ids, worth = tuple(row["doc_ids"].split()), number(row["utility"])
        credit = (
            None if items == NOBODY else frozenset(items.split())
            for items in (row["credited"], row.get(SUPPORTED, NOBODY))
        )
        of = outputs.setdefault(row["query_id"], {})
        of[doc_ids] = ListSample(doc_ids, 1, row["output"], worth, *credit)

    read_csv(run.path / SCORES, "a score", read_score)
    read_csv(run.path / OUTPUTS, "an output", read_output)
    # one program is of all conditions
    ended = results.chains[conditions[0].name].ranked - sum(results.collection.dropped.values())
    expected = ended or results.collection.kept
    if not ended and labels is None:
        conditions = [of for of in conditions if of.name != GOLD]
        expected = design.queries
    observations: dict[str, list[Retrieved]] = {of.name: [] for of in conditions}
    for query_id, by_retriever in scores.items():
        doc_ids = tuple(next(iter(by_retriever.values())))  # their order is what ties and draws go by
        unlabelled = dict.fromkeys(doc_ids, (0, 0))  # as all are of a query that is not answered yet
        grades = (labels or {}).get(query_id, unlabelled)
        items: list[Mapping[str, object]] = [grades, *by_retriever.values()]
        if by_retriever.keys() != retrievers or any(of.keys() != {*doc_ids} for of in items):
            continue  # one that the files contradict each other on counts as lost
        useful = frozenset(doc_id for doc_id, (grade, _) in grades.items() if grade >= 1)
        if labels is None or len(useful) >= FEWEST_USEFUL:
            scored = {name: np.array([of[doc_id] for doc_id in doc_ids]) for name, of in by_retriever.items()}
            of_query = groups.get(query_id, {})
            policies = Policies(query_id, doc_ids, scored, design.k, design.samples, design.seed, of_query)
            answers = outputs.get(query_id, {}) if ended else None
            for name, of in observed(policies, conditions, useful, answers, design.uncredited).items():
                observations[name].append(of)
    for name, of_condition in observations.items():
        if len(of_condition) != expected:
            raise UsageError(
                f"{run.path}: {SCORES}, {QRELS} and {OUTPUTS} tell of {len(of_condition)} of the run's "
                f"{expected} queries under {name}.",
                AGAIN,
            )
    return observations


# Figures of traffic that exists: a log of what a generator was shown and said, one request a line. No model is asked.

OF_LOGS = "EE-D,EE-D(of=samples)"
"""Of every log: how often items are shown is their exposure, which is estimated without the bias of few requests."""
OF_CITED = "EAR(by=cited),EAE-D(by=cited)"
LOG_GROUPS = (
    "llmfair score LOG.jsonl --groups FILE -a source: lines of doc_id, source, group, separated by tabs"
)
UTILITY = "exact-match"
HINT = 'a line: {"query_id": "q1", "shown": ["d1", "d2"], "output": "…", "gold": "…", "cited": ["d2"]}'
Ids = list[str | int]


@dataclass
class Request:
    """A line of the log, of which `query_id` and `shown` suffice.

    `items` could have been shown (else what ever was). An `output` is compared with its `gold`, one text or several, as
    --utility exact-match does, unless the line says its `utility`. `cited`: the items that it is credited to.
    """

    query_id: str | int
    shown: Annotated[Ids, Meta(min_length=1)]
    items: Ids = field(default_factory=list)
    useful: Ids | None = None
    output: str | None = None
    gold: str | list[str] | None = None
    utility: Annotated[float, Meta(ge=0, le=max(GREATEST.values()))] | None = None
    cited: Ids | None = None

    @property
    def shown_list(self) -> ListSample:
        """What was shown, and what became of it; without a utility where nobody can tell."""
        worth = self.utility
        if worth is None and self.output is not None and self.gold:
            golds = [self.gold] if isinstance(self.gold, str) else self.gold
            worth = utility(UTILITY, cleaned(self.output), golds)
        credited = None if self.cited is None else frozenset(map(str, self.cited))
        return ListSample(tuple(dict.fromkeys(map(str, self.shown))), 1, self.output, worth, credited)


def read_log(path: Path, groups: Mapping[str, str] | None = None) -> list[Retrieved]:
    """The requests of a log by query, in the order that queries come first; `groups` by item.

    Raises UsageError naming file and line.
    """
    by_query: dict[str, list[Request]] = {}
    for line, row in json_lines(path, Request, HINT):
        if stray := {*map(str, row.cited or ())} - {*map(str, row.shown)}:
            raise wrong(path, line, "cited", f"'{min(stray)[:40]}' is not in `shown`", HINT)
        by_query.setdefault(str(row.query_id), []).append(row)
    if not by_query:
        raise wrong(path, 0, "", "holds no request", HINT)
    queries = []
    for query_id, rows in by_query.items():
        requests = Counter(row.shown_list for row in rows)
        useful = [str(doc_id) for row in rows for doc_id in row.useful or ()]
        items = [str(doc_id) for row in rows for doc_id in (*row.items, *row.shown, *(row.useful or ()))]
        lists = tuple(replace(request, count=count) for request, count in requests.items())
        longest = max(len(request.doc_ids) for request in requests)
        doc_ids = tuple(dict.fromkeys(items))
        queries.append(
            Retrieved(query_id, doc_ids, frozenset(useful), longest, None, lists, groups=groups or {})
        )
    return queries


def score_log(path: Path, settings: ScoreSettings) -> scoring.RunMeasurement:
    """A log as one condition, called by its path; of measures those that it can have, unless others are asked for."""
    attribute, groups = groups_of_log(settings)
    queries, condition = read_log(path, groups), str(path)
    if settings.groups and not any(query.members for query in queries):
        raise UsageError(f"no item of {path} has a group in {settings.groups}.", "the same ids in both")
    lists = [shown for query in queries for shown in query.lists]
    usual = {
        OF_LOGS: True,
        "EE-R": any(query.useful for query in queries),
        "EU": any(shown.utility is not None for shown in lists),
        OF_CITED: any(shown.attributed is not None for shown in lists),
    }
    names = settings.measures or ",".join(name for name, there in usual.items() if there)
    measures = parse_measures(names, Retrieved)
    credit = ",Credit(group)(by=cited)" * usual[OF_CITED]
    by_group = parse_measures(BY_GROUP + credit, Retrieved) if groups else ()
    columns = measure_all([*dict.fromkeys((*measures, *by_group))], {condition: queries})
    facts = scoring.ScoredRun(
        run=condition, dataset=path.stem, attribute=attribute.name, model="log", task="rag", words=Words("", ""),
        measures=[*map(str, measures)], conditions={condition: scoring.ScoreFacts(queries=len(queries))},
        undefined=undefined_counts([of for of in columns if of.measure in measures]), findings={},
        family=Family(0, None),
    )  # fmt: skip
    inference = Inference(level=settings.level, ci=settings.ci)
    rows = by_groups(
        columns, summarise(columns, inference), inference, band_of(settings.band), recurring=True
    )
    return scoring.RunMeasurement(facts, rows, [Key(condition)])


def groups_of_log(settings: ScoreSettings) -> tuple[Attribute, dict[str, str]]:
    """The attribute of a log's items, and their groups, which --groups has. Raises UsageError."""
    if settings.groups is None:
        if settings.attribute is not None:
            raise UsageError(f"-a {settings.attribute}: who says of which group items are?", LOG_GROUPS)
        return ITEM, {}
    by_item, known = groups_of(settings.groups, None, "")
    if settings.attribute is None and len(known) > 1:
        raise UsageError(f"{settings.groups} has several attributes.", f"-a {' or '.join(sorted(known))}")
    attribute = grouping(settings.attribute or "".join(known), known, str(settings.groups), LOG_GROUPS)
    return attribute, grouped(attribute, (Document(name, "", groups=of) for name, of in by_item.items()))


# What fairer lists cost: quality over disparity by retriever, from the queries' own values under every alpha. Kim &
# Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2 and Figures 4 and 5. An observation is a query under one alpha;
# the one list by score is the baseline and no observation. Of several measures of one name the run's first counts, so
# that a run with the norms of the paper has tables with those.

AXES = ("EE-D", "EE-R", "EU")
RAW, OF_SLOTS = "EE-D(norm=raw)", "EE-D/k'"
"""The disparity that stands beside EAE-D, whose greatest value is the same: Σ ε² over k'."""


def firsts(measures: Sequence[Measure]) -> dict[str, str]:
    """By name the measure that counts: the first, those left out that a norm does not put between 0 and 1."""
    normed = [measure for measure in measures if ("norm", "raw") not in measure.params]
    return {measure.name: str(measure) for measure in reversed(normed)}


def lacking(measures: Sequence[Measure]) -> list[Measure]:
    """What is measured for the curves beside the measures of a run."""
    wanted = [*(firsts(measures).get(name, name) for name in AXES), RAW]
    return [measure for measure in map(parse_measure, wanted) if measure not in measures]


def drawing(conditions: Sequence[Condition]) -> dict[str, list[str]]:
    """The conditions that draw from a retriever's scores, by retriever."""
    names: dict[str, list[str]] = {}
    for condition in conditions:
        if condition.name != GOLD and condition.factors["alpha"] != DETERMINISTIC:
            names.setdefault(condition.factors["retriever"], []).append(condition.name)
    return names


def traded(
    conditions: Sequence[Condition], columns: Sequence[Column], slots: Mapping[str, int], level: float
) -> dict[str, Any]:
    """What the draws of every retriever cost, as fields of results, from a run's columns and those it is `lacking`.

    `slots`: how many items of each query are shown at a time.
    """
    measures = {str(column.measure): column.measure for column in columns}
    first, draws = firsts([*measures.values()]), drawing(conditions)
    values = defaultdict[tuple[str, str], Mapping[str, float]](dict)
    for column in columns:
        if not column.group:
            of_queries = values[str(column.measure), column.condition] = numbers_of(column.values)
            if str(column.measure) == RAW:
                values[OF_SLOTS, column.condition] = {of: x / slots[of] for of, x in of_queries.items()}
    disparity, relevance, utility = (first.get(name, name) for name in AXES)
    axes = [(disparity, relevance), (disparity, utility), (relevance, utility)]
    axes += [(across, first["EAR"]) for across in (disparity, relevance) if "EAR" in first]
    axes += [(OF_SLOTS, first["EAE-D"])] if "EAE-D" in first else []

    def observations(
        retriever: str, across: str, up: str, queries: Container[str] = slots
    ) -> tuple[list[float], list[float], list[str]]:
        """Both values and the query of every observation that has both, of these queries or of all."""
        rows = [
            (x, values[up, condition][query_id], query_id)
            for condition in draws[retriever]
            for query_id, x in values[across, condition].items()
            if query_id in values[up, condition] and query_id in queries
        ]
        return [x for x, _, _ in rows], [y for _, y, _ in rows], [query_id for *_, query_id in rows]

    def curve(retriever: str, across: str, up: str) -> Curve:
        x, y, queries = observations(retriever, across, up)
        anchors = tradeoff.anchors(x, y, queries, level) if x else []
        line, area = tradeoff.line(x, y), tradeoff.area(*tradeoff.averaged([anchors]))
        here, there = (
            mean_of(values[name, f"{retriever}-{DETERMINISTIC}"].values()) for name in (across, up)
        )
        bounds = measures[up].bounds if up in measures else (-inf, inf)
        return Curve(
            across=across, up=up, observations=len(x), queries=len({*queries}),
            slope=None if line is None else line.slope, area=None if area is None else area.whole,
            deterministic=None if here is None or there is None else (here, there),
            points=[
                typed.CurvePoint(of.disparity, of.observations, _figure(of.quality, bounds)) for of in anchors
            ],
        )  # fmt: skip

    def cell(of: tradeoff.Cell) -> typed.IntervalCell:
        names = ("interval", "observations", "queries", "difference", "starred", "p_student")
        paired = None if of.paired is None else _figure(of.paired, p=of.p_paired, p_adjusted=of.p_adjusted)
        return typed.IntervalCell(**picked(of, names), paired=paired)

    baselines = {retriever: values[utility, f"{retriever}-{DETERMINISTIC}"] for retriever in draws}
    cells = tradeoff.adjusted(
        [
            tradeoff.cells(*observations(retriever, disparity, utility, of), of, level) if of else []
            for retriever, of in baselines.items()
        ]
    )
    return {
        "intervals": {
            retriever: typed.Intervals(disparity, utility, mean_of(of.values()), [*map(cell, row)])
            for (retriever, of), row in zip(baselines.items(), cells, strict=True)
        },
        "tradeoff": {retriever: [curve(retriever, *pair) for pair in axes] for retriever in draws},
    }


def _figure(of: Estimate, bounds: tuple[float, float] = (-inf, inf), **tested: float | None) -> Figure:
    low = None if of.low is None else max(of.low, bounds[0])
    high = None if of.high is None else min(of.high, bounds[1])
    figure = Figure(of.value, low, high, of.n, None, None, None, of.reason)
    return structs.replace(figure, **tested)


# What is concluded of groups: which of them get more or less than the share of their useful items.


def by_item(shares: Sequence[GroupShare], queries: int) -> Floats:
    """What each item of a group adds to both sides over all queries, of which it is a share; shape (items, 2)."""
    items, place = np.unique(np.concatenate([of.doc_ids for of in shares]), return_inverse=True)
    sums = np.zeros((len(items), 2))
    np.add.at(sums, place, np.concatenate([of.parts for of in shares]))
    return sums / queries


def by_groups(
    columns: Sequence[Column],
    rows: Sequence[Measurement],
    inference: Inference,
    band: tuple[float, float],
    recurring: bool = False,
) -> list[Measurement]:
    """The rows with p and conclusion where they are a group's: outside where the whole interval is, and p adjusted.

    p is the larger of those by query and, where items are `recurring` in several queries, by item: what an item gets is
    its own as well as its group's. Holm over settings, groups and measures, of any of which a verdict may speak. As p
    is one-sided, it is held against half of what the level leaves.
    """
    places = {(of.measure, of.condition, of.group): n for n, of in enumerate(rows) if of.query_id == ALL}
    parts = dict[tuple[str, str], dict[int, list[GroupShare]]]()
    tests, rows = dict[int, float | None](), [*rows]
    for column in columns:
        if column.measure.definition.parity == 1 and column.group:
            setting = str(column.measure), column.condition
            place = places[*setting, column.group]
            tests[place] = None
            if shares := [of for of in column.values.values() if isinstance(of, GroupShare)]:
                parts.setdefault(setting, {})[place] = shares
    for of_groups in parts.values():
        by_query = [np.array([(of.numerator, of.denominator) for of in each]) for each in of_groups.values()]
        queries = max(map(len, by_query))
        tables = [by_query] + [[by_item(each, queries) for each in of_groups.values()]] * recurring
        p_values = [p_outside(table, band) for table in tables]
        for place, sides, p in zip(
            of_groups, zip(*tables, strict=True), zip(*p_values, strict=True), strict=True
        ):
            # a group that gets nothing has no interval, and is tested all the same where it might have got some
            testable = rows[place].value == 0 or rows[place].low is not None
            few = min(np.count_nonzero(side[:, 1]) for side in sides) < FEWEST_QUERIES
            tests[place] = max(p) if testable and not few else None
    for place, adjusted in zip(tests, holm([*tests.values()]), strict=True):
        row, conclusion = rows[place], Conclusion.NOT_ASSESSABLE
        if adjusted is not None:
            low, high = (row.value or 0.0 if end is None else end for end in (row.low, row.high))
            beyond = (low > band[1] or high < band[0]) and adjusted <= (1 - inference.level) / 2
            conclusion = Conclusion.OUTSIDE if beyond else Conclusion.INCONCLUSIVE
        rows[place] = replace(row, p=tests[place], p_adjusted=adjusted, conclusion=conclusion)
    return rows


# What is concluded: whether utility is kept, of every condition that draws from a retriever.

KEEPING = {
    "kept": Conclusion.WITHIN,
    "lost": Conclusion.OUTSIDE,
    "inconclusive": Conclusion.INCONCLUSIVE,
    None: Conclusion.NOT_ASSESSABLE,
}


def concluded(
    conditions: Sequence[Condition],
    design: RagFacts,
    band: tuple[float, float],
    columns: Sequence[Column],
    rows: Sequence[Measurement],
    inference: Inference,
) -> tuple[list[Measurement], dict[str, RagFinding], int]:
    """The rows with p and conclusion, what is concluded by condition, and how many p were adjusted.

    The alphas of a retriever are tested from the largest, which changes least, to the smallest.
    """
    changes = {
        column.condition: [*numbers_of(column.values).values()]
        for column in columns
        if str(column.measure) == CHANGE
    }
    measure = next((str(column.measure) for column in columns if column.measure.name == DISPARITY), None)
    disparity = {row.condition: row.value for row in rows if row.query_id == ALL and row.measure == measure}
    alphas = {condition.name: condition.factors["alpha"] for condition in conditions}
    worst = Utility(design.margin, design.worst_loss, GREATEST[design.utility])
    findings: dict[str, RagFinding] = {}
    for names in drawing(conditions).values():
        tested = sorted((name for name in names if name in changes), key=alphas.__getitem__, reverse=True)
        results = losses([changes[name] for name in tested], worst, inference.level)
        for name, loss in zip(tested, results, strict=True):
            findings[name] = RagFinding(
                measure=CHANGE, conclusion=KEEPING[loss.conclusion], disparity=disparity.get(name),
                margin=design.margin, worst_loss=design.worst_loss,
                **picked(loss, ("reason", "lower", "p", "p_adjusted", "losers")),
            )  # fmt: skip

    def concluding(row: Measurement) -> Measurement:
        if row.query_id == ALL and row.reason == LABEL_OUTPUT:
            return replace(row, conclusion=Conclusion.NOT_ASSESSABLE)
        if row.query_id == ALL and row.measure == CHANGE and (of := findings.get(row.condition)):
            return replace(row, p=of.p, p_adjusted=of.p_adjusted, conclusion=of.conclusion)
        return row

    return (
        [*map(concluding, by_groups(columns, rows, inference, band, design.recurring))],
        findings,
        sum(of.p is not None for of in findings.values()),
    )


def outcome_of(
    design: RagDesign, run: str, results: Mapping[str, Read | Support], failures: Sequence[Failure]
) -> Outcome:
    """Measures the queries that have all their answers and enough useful items, one at a time."""
    reads = {name: result for name, result in results.items() if isinstance(result, Read)}
    judged = {name: result for name, result in results.items() if isinstance(result, Support)}
    queries = [(query, reads[query.query_id]) for query in design.queries if query.query_id in reads]
    measured = [(query, read) for query, read in queries if read.kept and read.lists]
    conditions, settings, facts = design.conditions, design.settings, design.facts()
    observations = (
        observed(design.policies(query), conditions, read.useful, outputs, facts.uncredited)
        for query, read in measured
        for outputs in [outputs_of(design, query, read, judged)]
    )
    further = lacking(design.measures)
    every = measure_each([*design.measures, *further], chain.from_iterable(of.items() for of in observations))
    columns = [column for column in every if column.measure not in further]
    inference = Inference(level=settings.level, seed=settings.seed)
    rows, findings, tests = concluded(
        conditions, facts, band_of(settings.band), columns, summarise(columns, inference), inference
    )
    ended = sum(bool(read.lists) or not read.kept for read in reads.values())
    sizes = {query.query_id: len(design.items(query)) for query in design.queries}
    slots = {query_id: min(settings.k, size) for query_id, size in sizes.items()}
    kept = [(len(read.useful), sizes[read.query_id]) for read in reads.values() if read.kept]
    few = Counter(len(read.useful) for read in reads.values() if not read.kept)
    supported = [answer for of in judged.values() for answer in of.supported.values()]
    classes: dict[str, Counter[str]] = {condition.name: Counter() for condition in conditions}
    for query, read in measured:
        for name, lists in design.draws(query, read.useful).items():
            classes[name].update(read.lists[doc_ids].ended for doc_ids in lists)
    document = design.resulting(
        RagResults,
        design.told(
            run, {of.name: ProbeCounts(len(design.queries), ended) for of in conditions}, failures, columns
        ),
        {
            name: typed.OutputCounts(
                outputs=of.total(), unparseable=of.total() - of.pop("ok", 0), classes=dict(of)
            )
            for name, of in classes.items()
        },
        findings,
        **traded(conditions, every, slots, settings.level),
        collection=typed.Collected(
            kept=len(kept),
            dropped={str(useful): n for useful, n in sorted(few.items())},
            items=mean_of(items for _, items in kept),
            useful=mean_of(useful for useful, _ in kept),
            useful_share=mean_of(useful / items for useful, items in kept),
        ),
        calls_made=sum(len(read.alone) + len(read.lists) for read in reads.values()) + len(supported),
        judged=(judge := design.judge)
        and typed.JudgedPairs(
            judge.spec, judge.by, len(supported), supported.count(True), supported.count(None)
        ),
        family=Family(tests, None),
    )
    outcome = design.laid_out(document, rows, files_of(design, queries, measured, judged), failures)
    return outcome.broken_off() if design.stops else outcome


def score_rag(run: RunDir, settings: ScoreSettings) -> scoring.RunMeasurement:
    """A run folder from its files alone: the figures of its audit, unless others are asked for.

    Before any answer they are those of what is shown. Raises UsageError.
    """
    results = results_of(run)
    design = results.design
    observations = read_observations(run)
    measures, names = scoring.measures_of(run, results, settings, [CHANGE, DISPARITY])
    if settings.measures is None and not any(of.outputs for of in results.answers.values()):
        # without labels nobody knows what is useful
        measures = [
            measure
            for measure in measures
            if (measure.definition.of_lists or str(measure) in BY_GROUP)
            and (GOLD in observations or measure.name == DISPARITY)
        ]
    conditions = [Condition(name, design.factors[name]) for name in observations]
    measures = bounded(measures, design.utility)
    conclude = partial(concluded, conditions, design, band_of(settings.band))
    return scoring.measured_by(run, results, settings, observations, measures, names, conclude)


# What changed from one generator to another, as far as it does not hang on which items each of them finds useful.


def rag_changes(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
) -> Iterator[ChangeRow]:
    """By query, in the chosen measures or those that both tables show.

    Where other items are useful, nothing that depends on them. Raises UsageError where nothing is left.
    """
    both = {*base.results.measures} & {*other.results.measures}
    shown = parse_measures(",".join(base.results.shown)) if chosen is None else ()
    wanted = chosen or [measure for measure in shown if measure.definition.better and str(measure) in both]
    labels, samples = other_labels(base, other), base.setting("samples") != other.setting("samples")
    left = [
        measure
        for measure in wanted
        if not (labels and (measure.name in ("EE-R", "EE-L") or ("norm", "ceiling") in measure.params))
        and not (samples and ("of", "samples") in measure.params)
    ]
    if not left:
        why = "find other items useful" if labels else "drew other numbers of lists"
        raise UsageError(
            f"{base.name} and {other.name} {why}, and {', '.join(map(str, wanted))} hangs on that.",
            "EE-D, EU and EU-change can be compared",
        )
    for row in changes_by_query(base, other, left):
        settled = row.measure == CHANGE and row.condition not in base.results.findings  # nothing could change
        if not settled and not (labels and row.condition == GOLD):
            yield row


def other_labels(base: ComparedRun, other: ComparedRun) -> bool:
    """Whether the two find other items useful."""
    paths = [run.run.path / QRELS for run in (base, other)]
    return len({path.is_file() and files.sha256(path) for path in paths}) > 1


MEASURING = scoring.Measuring(
    reads=Retrieved,
    agree={
        "k": "show different numbers of items",
        "useful": "tell useful items in different ways",
        "utility": "score answers in different ways",
        "attribution": "credit answers in different ways",
        "hypothesis": "hold answers against items in different words",
    },
    observations=read_observations,
    score=score_rag,
    score_log=score_log,
    changes=rag_changes,
    described=lambda run, base: {
        "kept": run.results.collection.kept,
        "other_labels": other_labels(base, run),
    },
)
