"""The files of a run folder of `llmfair rag`: labels, scores, lists and outputs, in formats that other tools read.

All figures follow from them: `qrels.txt` has every item of every query, the useful ones judged 1; `scores.tsv` what
lists are drawn from; `outputs.csv` what was answered beside each list. `gains.tsv` says how items came to be useful,
`rankings/` has each retriever's order, `samples/` the lists drawn, in the columns of expeval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as Names
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import fsum, inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from llmfair.audits.aggregates import ALL, Inference, summarise, undefined_counts, value_of
from llmfair.audits.comparing import ComparedRun, changes_by_query
from llmfair.audits.design import Condition, Outcome
from llmfair.audits.documents import ChangeRow, ComparisonRun
from llmfair.audits.kind import results_of
from llmfair.audits.rag import RAG
from llmfair.audits.rag.design import (
    ATTRIBUTORS,
    CHANGE,
    DETERMINISTIC,
    DISPARITY,
    GOLD,
    Floats,
    Policies,
    RagDesign,
    bounded,
    probe_of,
    supporting,
)
from llmfair.audits.rag.results import (
    AlphaTest,
    Collected,
    Curve,
    CurvePoint,
    IntervalCell,
    Intervals,
    JudgedPairs,
    OutputCounts,
    RagFacts,
    RagFinding,
    RagResults,
)
from llmfair.audits.rag.settings import CITED
from llmfair.audits.run_files import Announce
from llmfair.audits.scoring import RemeasuredRun, ScoredRun, ScoreFacts, facts_of, measures_of
from llmfair.audits.verdict import as_readable
from llmfair.datasets.answers import ITEM
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.files import AGAIN, json_lines, number, read_csv, wrong
from llmfair.io.trec import read_qrels
from llmfair.metrics.base import Column, Measure, measure_all, measure_each
from llmfair.metrics.expected import Retrieved, ShownList
from llmfair.metrics.generation import FEWEST_USEFUL, LABEL_OUTPUT
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.metrics.texts import GREATEST, cleaned, utility
from llmfair.nouns import Conclusion, Failure, Measurement, Query
from llmfair.rankers.reader import Judged, Read, Shown
from llmfair.results import Family, Figure, ProbeCounts, Words
from llmfair.rundir import Contents, RunDir, csv_lines
from llmfair.settings import ScoreSettings
from llmfair.stats import tradeoff
from llmfair.stats.intervals import Estimate
from llmfair.stats.paired import change_by_query
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import keeping, most_changed

# What measures read of a query, from its lists and outputs: of an audit, or of its run folder.


@dataclass(frozen=True, slots=True)
class Credited:
    """An output, its utility, and the shown items that it is credited to; None where nobody asked.

    `supported`: of those it cites, the ones that a judge says support it.
    """

    text: str
    utility: float
    credited: frozenset[str] | None
    supported: frozenset[str] | None = None


def answered_queries(design: RagDesign, results: Mapping[str, Read]) -> list[tuple[Query, Read]]:
    """The queries that have all their answers."""
    found = ((query, results.get(query.query_id)) for query in design.queries)
    return [(query, read) for query, read in found if read is not None]


def kept_queries(design: RagDesign, results: Mapping[str, Read]) -> list[tuple[Query, Read]]:
    """Those of them that are measured: with enough useful items, and asked about lists."""
    return [(query, read) for query, read in answered_queries(design, results) if read.kept and read.lists]


def observations_of(
    design: RagDesign, results: Mapping[str, Read], judged: Mapping[str, Judged]
) -> Iterator[tuple[str, Retrieved]]:
    """What measures read of an audit, query by query, each under every condition."""
    for query, read in kept_queries(design, results):
        outputs = credited_outputs(design, query, read, judged)
        yield from observed(
            design.policies(query), design.conditions, read.useful, outputs, design.uncredited
        ).items()


def credited_outputs(
    design: RagDesign, query: Query, read: Read, judged: Mapping[str, Judged]
) -> dict[Shown, Credited]:
    """The outputs for the lists of a query, with the items that they are credited to."""
    items = {item.doc_id: item for item in design.items(query)}
    attribute = ATTRIBUTORS.get(CITED if design.settings.cites else design.settings.attribution)
    credit, asked = attribute(items) if attribute else None, judged.get(probe_of(query))
    found = {}
    for shown, output in read.lists.items():
        supported = supporting(asked, design.pairs(query, output.text, shown)) if asked else None
        credited = credit(design.meaning(query, output.text), shown) if credit else supported
        found[shown] = Credited(output.text, output.utility, credited, supported if credit else None)
    return found


def observed(
    policies: Policies,
    conditions: Sequence[Condition],
    useful: frozenset[str],
    outputs: Mapping[Shown, Credited] | None,
    uncredited: str | None = None,
) -> dict[str, Retrieved]:
    """One query under every condition, once it has the outputs of all its lists; {} before.

    `outputs` None: nobody asked for any, and what is shown is all there is. `uncredited`: why nothing is credited,
    where that is so.
    """
    drawn = policies.drawn(conditions, useful)
    if outputs is not None and any(shown not in outputs for lists in drawn.values() for shown in lists):
        return {}
    known = outputs or {}
    best = {
        one.factors["retriever"]: known[first].utility
        for one in conditions
        if one.factors["alpha"] == DETERMINISTIC and (first := next(iter(drawn[one.name]))) in known
    }
    # of its lists: a run folder has what was said beside single items, too
    utilities = (known[shown].utility for lists in drawn.values() for shown in lists if shown in known)
    ceiling = max(utilities, default=None)
    return {
        one.name: Retrieved(
            query_id=policies.query_id,
            doc_ids=policies.doc_ids,
            useful=useful,
            k=policies.k,
            exposure=policies.exposure(one, useful),
            lists=tuple(
                _shown_list(shown, count, known.get(shown)) for shown, count in drawn[one.name].items()
            ),
            baseline=best.get(one.factors["retriever"]),
            ceiling=ceiling,
            **({"uncredited": uncredited} if uncredited else {}),
        )
        for one in conditions
    }


def _shown_list(shown: Shown, count: int, output: Credited | None) -> ShownList:
    if output is None:
        return ShownList(shown, count, None, None)
    return ShownList(shown, count, output.text, output.utility, output.credited, output.supported)


QRELS, SCORES, OUTPUTS = "qrels.txt", "scores.csv", "outputs.csv"
OUTPUT_COLUMNS = ("query_id", "doc_ids", "output", "finish", "utility", "credited")
SCORE_COLUMNS = ("retriever", "query_id", "doc_id", "score")
SUPPORTED = "supported"
"""A further column, of citations that a judge was asked about."""
NOBODY = "-"
"""Stands for the credit of an output that nobody asked about."""


def files_of(
    design: RagDesign, results: Mapping[str, Read], judged: Mapping[str, Judged]
) -> dict[str, Contents]:
    """Every file by name; its lines are made, a query at a time, while it is written."""
    columns = (*OUTPUT_COLUMNS, *[SUPPORTED] * (design.settings.cites and design.judge is not None))
    return {
        QRELS: _qrels(design, results),
        SCORES: csv_lines(SCORE_COLUMNS, _scores(design)),
        OUTPUTS: csv_lines(columns, (row[: len(columns)] for row in _outputs(design, results, judged))),
        "gains.tsv": _gains(design, results),
        **{f"rankings/{retriever}.run": _run(design, retriever) for retriever in design.scores},
        **{f"samples/{one.name}.tsv": _samples(design, results, one) for one in design.conditions},
    }


def _qrels(design: RagDesign, results: Mapping[str, Read]) -> Iterator[str]:
    for query, read in answered_queries(design, results):
        for item in design.items(query):
            yield f"{query.query_id} 0 {item.doc_id} {int(item.doc_id in read.useful)}\n"


def _scores(design: RagDesign) -> Iterator[tuple[str, str, str, float]]:
    for retriever, of in design.scores.items():
        for query in design.queries:
            for item, score in zip(design.items(query), of[query.query_id].tolist(), strict=True):
                yield retriever, query.query_id, item.doc_id, score


def _outputs(
    design: RagDesign, results: Mapping[str, Read], judged: Mapping[str, Judged]
) -> Iterator[tuple[object, ...]]:
    """Of every query the outputs for labels, to which nothing is credited, then those for lists."""
    nothing = Credited("", 0.0, None)
    for query, read in answered_queries(design, results):
        outputs = credited_outputs(design, query, read, judged)
        for of, credited in ((read.alone, {}), (read.lists, outputs)):
            for shown, output in of.items():
                found = credited.get(shown, nothing)
                said = (output.text, str(output.finish), output.utility)
                credit = (_told(shown, found.credited), _told(shown, found.supported))
                yield query.query_id, " ".join(shown), *said, *credit


def _told(shown: Shown, items: frozenset[str] | None) -> str:
    return NOBODY if items is None else " ".join(one for one in shown if one in items)


def _gains(design: RagDesign, results: Mapping[str, Read]) -> Iterator[str]:
    """In the columns of Fair-RAG's own files."""
    yield "qid\tpid\taugment_score\tbaseline_score\tdelta\n"
    for query, read in answered_queries(design, results):
        for doc_id, gain in read.gains.items():
            without, alone = read.alone[()].utility, read.alone[doc_id,].utility
            yield f"{query.query_id}\t{doc_id}\t{alone!r}\t{without!r}\t{gain!r}\n"


def _run(design: RagDesign, retriever: str) -> Iterator[str]:
    """All items of every query, best first; ranks stand for scores, which may tie."""
    for query in design.queries:
        scores, items = design.scores[retriever][query.query_id], design.items(query)
        for rank, place in enumerate(np.argsort(-scores, kind="stable").tolist(), start=1):
            yield f"{query.query_id} Q0 {items[place].doc_id} {rank} {len(items) - rank + 1} {retriever}\n"


def _samples(design: RagDesign, results: Mapping[str, Read], condition: Condition) -> Iterator[str]:
    yield "qid\tsample\tdocno\trank\tsim\trun_id\n"
    for query, read in kept_queries(design, results):
        lists = design.policies(query).drawn([condition], read.useful)[condition.name]
        for drawn, doc_ids in enumerate(lists.elements()):
            for rank, doc_id in enumerate(doc_ids, start=1):
                yield f"{query.query_id}\t{drawn}\t{doc_id}\t{rank}\t{len(doc_ids) - rank + 1}\tllmfair\n"


# Read back


def read_observations(run: RunDir) -> dict[str, list[Retrieved]]:
    """What measures read, by condition, of a run folder's files. Raises UsageError naming file and line.

    Of a run that has asked about no list there is what its retrievers show, and where it has labels what of it is
    useful; it has no `gold` without. Files that tell of fewer queries than the results do are refused.
    """
    results: RagResults = results_of(run)
    design = results.design
    conditions = [Condition(name, (design.factors or {})[name]) for name in design.conditions]
    retrievers = {one.factors["retriever"] for one in conditions} - {GOLD}
    scores = _read_scores(run.path / SCORES, retrievers)
    qrels = run.path / QRELS
    labels = None if qrels.is_file() and not qrels.stat().st_size else _read_labels(qrels, scores)
    outputs = _read_outputs(run.path / OUTPUTS, design)

    def observed_of(
        which: Sequence[Condition],
        queries: Mapping[str, int],
        given: Callable[[str], Mapping[Shown, Credited] | None],
    ) -> dict[str, list[Retrieved]]:
        found: dict[str, list[Retrieved]] = {one.name: [] for one in which}
        for query_id, (doc_ids, scored) in scores.items():
            useful = frozenset[str]() if labels is None else labels.get(query_id, frozenset())
            if labels is not None and len(useful) < FEWEST_USEFUL:
                continue
            policies = Policies(query_id, doc_ids, scored, design.k, design.samples, design.seed)
            of_query = observed(policies, which, useful, given(query_id), design.uncredited)
            for name, one in of_query.items():
                found[name].append(one)
        for name, of in found.items():
            if len(of) != queries[name]:
                raise UsageError(
                    f"{run.path}: {SCORES}, {QRELS} and {OUTPUTS} tell of {len(of)} of the run's {queries[name]} "
                    f"queries under {name}.",
                    AGAIN,
                )
        return found

    dropped = sum(results.collection.dropped.values())
    asked = {name: results.chains[name].ranked - dropped for name in design.conditions}
    if any(asked.values()):
        return observed_of(conditions, asked, lambda query: outputs.get(query, {}))
    told = [one for one in conditions if labels is not None or one.name != GOLD]
    shown = design.queries if labels is None else results.collection.kept
    return observed_of(told, dict.fromkeys(design.conditions, shown), lambda query: None)


def _read_labels(path: Path, scores: Mapping[str, tuple[Shown, object]]) -> dict[str, frozenset[str]]:
    """The useful items by query. Raises UsageError, of a query with other items than those that have scores, too."""
    judged = read_qrels(path, AGAIN)
    _check_items(path, judged, scores)
    return {
        query_id: frozenset(doc_id for doc_id, (grade, _) in of.items() if grade >= 1)
        for query_id, of in judged.items()
    }


def _check_items(
    path: Path, items: Mapping[str, Iterable[str]], scores: Mapping[str, tuple[Shown, object]]
) -> None:
    for query_id, doc_ids in items.items():
        if {*doc_ids} != {*scores.get(query_id, ((), None))[0]}:
            raise UsageError(f"{path}: query '{query_id}' has other items than in {SCORES}.", AGAIN)


def _read_scores(path: Path, retrievers: Names[str]) -> dict[str, tuple[Shown, dict[str, Floats]]]:
    """Of every query its items, and their scores by retriever, each of which has to have all. Raises UsageError."""
    found: dict[str, dict[str, dict[str, float]]] = {}

    def read_score(row: dict[str, str]) -> None:
        of = found.setdefault(row["query_id"], {}).setdefault(row["retriever"], {})
        if row["doc_id"] in of:
            raise ValueError(f"item '{row['doc_id']}' has two of {row['retriever']}")
        of[row["doc_id"]] = number(row["score"])

    read_csv(path, "a score", read_score)
    scores = {}
    for query_id, of in found.items():
        doc_ids = tuple(next(iter(of.values())))  # their order is what ties and draws go by
        if of.keys() != retrievers or any(one.keys() != {*doc_ids} for one in of.values()):
            raise UsageError(
                f"{path}: query '{query_id}' lacks scores of a retriever or of some items.", AGAIN
            )
        by_retriever = {name: np.array([one[doc_id] for doc_id in doc_ids]) for name, one in of.items()}
        scores[query_id] = (doc_ids, by_retriever)
    return scores


def _read_outputs(path: Path, design: RagFacts) -> dict[str, dict[Shown, Credited]]:
    """The outputs by query and what was shown. Raises UsageError for one that is there twice, or no such utility.

    Where lists have one item, it was asked about for labels, too, with the same output: the list's comes second.
    """
    found: dict[str, dict[Shown, Credited]] = {}
    labels = set[tuple[str, Shown]]()
    most = GREATEST.get(design.utility, inf)

    def read_output(row: dict[str, str]) -> None:
        query_id, shown = row["query_id"], tuple(row["doc_ids"].split())
        credited, supported = (
            None if items == NOBODY else frozenset(items.split())
            for items in (row["credited"], row.get(SUPPORTED, NOBODY))
        )
        if stray := {*(credited or ()), *(supported or ())} - {*shown}:
            raise ValueError(f"'{min(stray)}' is credited, but was not shown")
        output = Credited(row["output"], number(row["utility"]), credited, supported)
        of = found.setdefault(query_id, {})
        if not 0 <= output.utility <= most:
            raise ValueError(f"utility {output.utility:g} is not from 0 to {most:g}")
        if shown in of:
            again = (query_id, shown) in labels or of[shown].text != output.text
            if len(shown) != design.k or design.k > 1 or again:
                raise ValueError(f"'{' '.join(shown)}' of query '{query_id}' is there twice")
            labels.add((query_id, shown))
        of[shown] = output

    read_csv(path, "an output", read_output)
    return found


# Figures of traffic that exists: a log of what a generator was shown and said, one request a line. No model is asked.
# {"query_id": "q1", "shown": ["d1", "d2"], "items": ["d1", …], "useful": ["d2"], "output": "…", "gold": "…", "cited":
# ["d2"]} `shown` is what matters: how often items are shown is their exposure, which is estimated without the bias of
# few requests. All else may be absent: `items` (what could have been shown; else what ever was), `useful`, an
# `output` with its `gold` (one text or several; compared as --utility exact-match does, unless the line says its
# `utility`, from 0 to the 4 of ratings), and the items that an output is credited to (`cited`).


SHOWN = "EE-D,EE-D(of=samples)"
USEFUL, ANSWERED, OF_CITED = "EE-R", "EU", "EAR(by=cited),EAE-D(by=cited)"
UTILITY = "exact-match"
MOST_UTILITY = max(GREATEST.values())
HINT = 'a line: {"query_id": "q1", "shown": ["d1", "d2"], "output": "…", "gold": "…", "cited": ["d2"]}'


@dataclass
class Logged:
    """A line of the log."""

    query_id: str | int
    shown: list[str | int]
    items: list[str | int] = field(default_factory=list)
    useful: list[str | int] | None = None
    output: str | None = None
    gold: str | list[str] | None = None
    utility: float | None = None
    cited: list[str | int] | None = None

    @property
    def worth(self) -> float | None:
        """The utility of the output; None where nobody can tell."""
        if self.utility is not None or self.output is None or self.gold is None:
            return self.utility
        golds = [self.gold] if isinstance(self.gold, str) else self.gold
        return utility(UTILITY, cleaned(self.output), golds) if golds else None


def read_log(path: Path) -> list[Retrieved]:
    """The requests of a log by query, in the order that queries come first. Raises UsageError naming file and line."""
    by_query: dict[str, list[Logged]] = {}
    for line, row in json_lines(path, Logged, HINT):
        shown, items = [*map(str, row.shown)], {*map(str, row.items)}
        if not shown or len({*shown}) < len(shown):
            raise wrong(path, line, "shown", "is empty, or has an item twice", HINT)
        if stray := {*map(str, row.cited or ())} - {*shown}:
            raise wrong(path, line, "cited", f"'{min(stray)}' was not shown", HINT)
        if items and (stray := {*shown, *map(str, row.useful or ())} - items):
            raise wrong(path, line, "items", f"'{min(stray)[:40]}' is none of them", HINT)
        if row.utility is not None and not 0 <= row.utility <= MOST_UTILITY:
            raise wrong(path, line, "utility", f"{row.utility:g} is not from 0 to {MOST_UTILITY:g}", HINT)
        by_query.setdefault(str(row.query_id), []).append(row)
    if not by_query:
        raise wrong(path, 0, "", "holds no request", HINT)
    return [_retrieved(query_id, rows) for query_id, rows in by_query.items()]


def _retrieved(query_id: str, rows: Sequence[Logged]) -> Retrieved:
    known = (str(one) for row in rows for one in (*row.items, *row.shown, *(row.useful or ())))
    requests = Counter(
        (
            tuple(map(str, row.shown)),
            row.output,
            row.worth,
            None if row.cited is None else frozenset(map(str, row.cited)),
        )
        for row in rows
    )
    return Retrieved(
        query_id=query_id,
        doc_ids=tuple(dict.fromkeys(known)),
        useful=frozenset(str(one) for row in rows for one in row.useful or ()),
        k=max(len(row.shown) for row in rows),
        exposure=None,
        lists=tuple(
            ShownList(shown, count, output, worth, cited)
            for (shown, output, worth, cited), count in requests.items()
        ),
    )


def score_log(path: Path, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A log as one condition, called by its path; of measures those that it can have, unless others are asked for."""
    announce(path)
    observed = read_log(path)
    lists = [one for query in observed for one in query.lists]
    known = [
        *[SHOWN],
        *([USEFUL] if any(query.useful for query in observed) else []),
        *([ANSWERED] if any(one.utility is not None for one in lists) else []),
        *([OF_CITED] if any(one.attributed is not None for one in lists) else []),
    ]
    measures = parse_measures(settings.measures or ",".join(known), Retrieved)
    condition = str(path)
    columns = measure_all(measures, {condition: observed})
    facts = ScoredRun(
        run=condition,
        dataset=path.stem,
        attribute=ITEM.name,
        model="log",
        task="rag",
        words=Words("", ""),
        measures=[str(measure) for measure in measures],
        conditions={condition: ScoreFacts(queries=len(observed))},
        undefined=undefined_counts(columns),
        findings={},
        family=Family(0, None),
    )
    rows = summarise(columns, Inference(level=settings.level, ci=settings.ci))
    return RemeasuredRun(facts, rows, [condition])


# What fairer lists cost: quality over disparity by retriever, from the queries' own values under every alpha. Kim &
# Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2 and Figures 4 and 5. An observation is a query under one alpha;
# the one list by score is the baseline and no observation. Of several measures of one name the run's first counts, so
# that a run with the norms of the paper has tables with those.


AXES = ("EE-D", "EE-R", "EU")
RAW, OF_SLOTS = "EE-D(norm=raw)", "EE-D/k'"
"""The disparity that stands beside EAE-D, whose greatest value is the same: Σ ε² over k'."""
UNBOUNDED = (-inf, inf)
Values = dict[tuple[str, str], dict[str, float]]
"""Queries' own values by measure and condition; those without one are absent."""


@dataclass(frozen=True)
class Traded:
    """Utility by interval of disparity, every curve, and tests of every two alphas; by retriever."""

    intervals: Mapping[str, Intervals]
    curves: Mapping[str, Sequence[Curve]]
    alpha_tests: Mapping[str, Sequence[AlphaTest]]


def lacking(measures: Sequence[Measure]) -> list[Measure]:
    """What is measured for the curves beside the measures of a run."""
    wanted = [*(first_of(name, measures) for name in AXES), RAW]
    return [measure for measure in map(parse_measure, wanted) if measure not in measures]


def traded(
    conditions: Sequence[Condition],
    columns: Sequence[Column],
    slots: Mapping[str, int],
    level: float,
) -> Traded:
    """What the draws of every retriever cost, from the columns of a run, those it is `lacking` among them.

    `slots`: how many items of each query are shown at a time.
    """
    measures = list(dict.fromkeys(column.measure for column in columns))
    disparity, relevance, utility = (first_of(name, measures) for name in AXES)
    values = _values(columns, slots)
    drawn = _drawn(conditions)
    axes = [(disparity, relevance), (disparity, utility), (relevance, utility)]
    axes += [(across, ear) for ear in _named("EAR", measures)[:1] for across in (disparity, relevance)]
    axes += [(OF_SLOTS, eae) for eae in _named("EAE-D", measures)[:1]]
    cells, baselines = [], []
    for retriever, names in drawn.items():
        baseline = values.get((utility, f"{retriever}-{DETERMINISTIC}"), {})
        x, y, queries = _observations(values, names, disparity, utility, baseline)
        cells.append(tradeoff.cells(x, y, queries, baseline, level) if baseline else [])
        baselines.append(baseline)
    tables = {
        retriever: Intervals(
            disparity=disparity, utility=utility, baseline=_mean(baseline.values()), cells=[*map(_cell, row)]
        )
        for retriever, baseline, row in zip(drawn, baselines, tradeoff.adjusted(cells), strict=True)
    }
    bounds = {str(measure): measure.definition.bounds for measure in measures}
    curves = {
        retriever: [
            _curve(values, retriever, names, across, up, level, bounds.get(up, UNBOUNDED))
            for across, up in axes
        ]
        for retriever, names in drawn.items()
    }
    tests = {retriever: _alpha_tests(values, disparity, names) for retriever, names in drawn.items()}
    return Traded(tables, curves, tests)


def _drawn(conditions: Sequence[Condition]) -> dict[str, list[str]]:
    """The conditions that draw from a retriever's scores, by retriever."""
    drawn: dict[str, list[str]] = {}
    for condition in conditions:
        if condition.name != GOLD and condition.factors["alpha"] != DETERMINISTIC:
            drawn.setdefault(condition.factors["retriever"], []).append(condition.name)
    return drawn


def _alpha_tests(values: Values, disparity: str, conditions: Sequence[str]) -> list[AlphaTest]:
    tests = []
    for pair in combinations(conditions, 2):
        before, after = (values.get((disparity, condition), {}) for condition in pair)
        changes = [after[query_id] - before[query_id] for query_id in before if query_id in after]
        if changes:
            difference, p = fsum(changes) / len(changes), tradeoff.paired_p(changes)
            tests.append(AlphaTest(conditions=pair, queries=len(changes), difference=difference, p=p))
    return tests


def _named(name: str, measures: Sequence[Measure]) -> list[str]:
    """Those of the name that lie between 0 and 1, where that is what a norm decides."""
    return [str(one) for one in measures if one.name == name and ("norm", "raw") not in one.params]


def first_of(name: str, measures: Sequence[Measure]) -> str:
    """The measure of this name that counts: the run's first in the norm of its table, else the plain one."""
    return next(iter(_named(name, measures)), name)


def _values(columns: Sequence[Column], slots: Mapping[str, int]) -> Values:
    found: Values = {
        (str(column.measure), column.condition): {
            query_id: number
            for query_id, value in column.values.items()
            if (number := value_of(value)[0]) is not None
        }
        for column in columns
        if not column.group
    }
    per_slot: Values = {
        (OF_SLOTS, condition): {
            query_id: raw[query_id] / shown for query_id, shown in slots.items() if query_id in raw
        }
        for (measure, condition), raw in found.items()
        if measure == RAW
    }
    return found | per_slot


def _observations(
    values: Values, conditions: Sequence[str], across: str, up: str, of: Mapping[str, float] | None = None
) -> tuple[list[float], list[float], list[str]]:
    """Both values and the query of every observation that has both, of these queries alone where they are given."""
    found = [
        (x, values[up, condition][query_id], query_id)
        for condition in conditions
        for query_id, x in values.get((across, condition), {}).items()
        if query_id in values.get((up, condition), {}) and (of is None or query_id in of)
    ]
    return [x for x, _, _ in found], [y for _, y, _ in found], [query_id for *_, query_id in found]


def _curve(
    values: Values,
    retriever: str,
    conditions: Sequence[str],
    across: str,
    up: str,
    level: float,
    bounds: tuple[float, float],
) -> Curve:
    x, y, queries = _observations(values, conditions, across, up)
    anchors = tradeoff.anchors(x, y, queries, level) if x else []
    places, means = tradeoff.averaged([anchors])
    line, flat, area = tradeoff.line(x, y), tradeoff.line(places, means), tradeoff.area(places, means)
    whole = [_mean(values.get((name, f"{retriever}-{DETERMINISTIC}"), {}).values()) for name in (across, up)]
    return Curve(
        across=across,
        up=up,
        observations=len(x),
        queries=len({*queries}),
        slope=None if line is None else line.slope,
        slope_of_points=None if flat is None else flat.slope,
        area=None if area is None else area.whole,
        area_observed=None if area is None else area.observed,
        low=None if area is None else area.low,
        high=None if area is None else area.high,
        deterministic=None if whole[0] is None or whole[1] is None else (whole[0], whole[1]),
        points=[
            CurvePoint(
                at=one.disparity, observations=one.observations, mean=_figure(one.quality, bounds=bounds)
            )
            for one in anchors
        ],
    )


def _cell(cell: tradeoff.Cell) -> IntervalCell:
    return IntervalCell(
        interval=cell.interval,
        observations=cell.observations,
        queries=cell.queries,
        difference=cell.difference,
        starred=cell.starred,
        p_student=cell.p_student,
        p_welch=cell.p_welch,
        paired=None if cell.paired is None else _figure(cell.paired, cell.p_paired, cell.p_adjusted),
    )


def _figure(
    found: Estimate,
    p: float | None = None,
    p_adjusted: float | None = None,
    bounds: tuple[float, float] = UNBOUNDED,
) -> Figure:
    low = None if found.low is None else max(found.low, bounds[0])
    high = None if found.high is None else min(found.high, bounds[1])
    return Figure(found.value, low, high, found.n, p, p_adjusted, None, found.reason)


def _mean(values: Collection[float]) -> float | None:
    return fsum(values) / len(values) if values else None


KEEPING = {
    "kept": Conclusion.WITHIN,
    "lost": Conclusion.OUTSIDE,
    "inconclusive": Conclusion.INCONCLUSIVE,
}
FEWEST_CHANGED = 5
"""An interval of a mean takes at least so many queries that change."""


def outcome_of(
    design: RagDesign, run: str, found: Mapping[str, Read | Judged], failures: Sequence[Failure]
) -> Outcome:
    """Measures the queries that have all their answers and enough useful items, one at a time."""
    settings, names = design.settings, [condition.name for condition in design.conditions]
    results = {name: result for name, result in found.items() if isinstance(result, Read)}
    judged = {name: result for name, result in found.items() if isinstance(result, Judged)}
    further = lacking(design.measures)
    every = measure_each([*design.measures, *further], observations_of(design, results, judged))
    columns = [column for column in every if column.measure not in further]
    ended = sum(bool(read.lists) or not read.kept for read in results.values())
    rows = summarise(columns, Inference(level=settings.level, seed=settings.seed))
    findings, rows = concluded(design.conditions, columns, rows, settings.level, settings.margin)
    answers = _counted(design, results)
    slots = {query.query_id: min(settings.k, len(design.items(query))) for query in design.queries}
    cost = traded(design.conditions, every, slots, settings.level)
    told = RagResults(
        **design.told(run, dict.fromkeys(names, ProbeCounts(len(design.queries), ended)), failures, columns),
        reach={},
        collection=_collected(design, results),
        intervals=cost.intervals,
        tradeoff=cost.curves,
        alpha_tests=cost.alpha_tests,
        calls_made=sum(len(read.alone) + len(read.lists) for read in results.values())
        + sum(len(one.supported) for one in judged.values()),
        judged=_judged(design, judged),
        answers=answers,
        findings=as_readable(findings, answers, settings.max_invalid),
        family=Family(sum(finding.p is not None for finding in findings.values()), None),
    )
    if told.status == "complete":
        # the plan counted as many lists of `gold` as there can be, and those of queries that are dropped
        told = structs.replace(told, design=structs.replace(told.design, calls=told.calls_made))
    return design.laid_out(told, rows, files_of(design, results, judged), failures)


def _judged(design: RagDesign, judged: Mapping[str, Judged]) -> JudgedPairs | None:
    if design.judge is None:
        return None
    answers = [answer for one in judged.values() for answer in one.supported.values()]
    return JudgedPairs(
        model=design.judge.spec,
        by=design.judge.by,
        asked=len(answers),
        supported=answers.count(True),
        unparseable=answers.count(None),
    )


def concluded(
    conditions: Sequence[Condition],
    columns: Sequence[Column],
    rows: Sequence[Measurement],
    level: float,
    margin: float,
) -> tuple[dict[str, RagFinding], list[Measurement]]:
    """Whether utility is kept, of every condition that draws from a retriever; and the rows with p and conclusion.

    Kept: the whole interval of the change is at or above −margin; lost: all of it is below. Where fewer than 5 queries
    change at all, an interval of their mean says too little: kept then takes that the largest share of queries that may
    change would lose no more than the margin. p by flipped signs, adjusted by Holm over the alphas of a retriever.
    """
    changes = {column.condition: column for column in columns if str(column.measure) == CHANGE}
    measure = first_of(DISPARITY, [column.measure for column in columns])
    disparity = {row.condition: row.value for row in rows if row.query_id == ALL and row.measure == measure}
    findings: dict[str, RagFinding] = {}
    for of_retriever in _drawn(conditions).values():
        names = [name for name in of_retriever if name in changes]
        changed = [_changed(changes[name], level, margin) for name in names]
        adjusted = holm([p for _, _, p in changed])
        for name, (conclusion, reason, p), held in zip(names, changed, adjusted, strict=True):
            findings[name] = RagFinding(
                measure=CHANGE,
                conclusion=conclusion,
                reason=reason,
                disparity=disparity.get(name),
                margin=margin,
                p=p,
                p_adjusted=held,
            )
    concluded_rows = []
    for row in rows:
        finding = findings.get(row.condition)
        if row.query_id == ALL and row.reason == LABEL_OUTPUT:
            row = replace(row, conclusion=Conclusion.NOT_ASSESSABLE)
        elif row.query_id == ALL and row.measure == CHANGE and finding is not None:
            row = replace(row, p=finding.p, p_adjusted=finding.p_adjusted, conclusion=finding.conclusion)
        concluded_rows.append(row)
    return findings, concluded_rows


def _changed(column: Column, level: float, margin: float) -> tuple[Conclusion, str | None, float | None]:
    """What the queries' changes say, why they say nothing, and the p of no change."""
    values = [value for value in (value_of(one)[0] for one in column.values.values()) if value is not None]
    if not values:
        return Conclusion.NOT_ASSESSABLE, "no_useful_items", None
    change = change_by_query([0.0] * len(values), values, False, level, np.random.default_rng(0))
    low, high = change.estimate.low, change.estimate.high
    if low is None or high is None:
        return Conclusion.NOT_ASSESSABLE, change.estimate.reason, None
    changed, greatest = int(np.count_nonzero(values)), column.measure.definition.bounds[1]
    most = most_changed(changed, len(values), level) * (greatest if isfinite(greatest) else 1.0)
    said = KEEPING[keeping(low, high, margin) or "inconclusive"]
    if said == Conclusion.WITHIN and changed < FEWEST_CHANGED and most > margin:
        return Conclusion.INCONCLUSIVE, "few_changes", change.p
    return said, None, change.p


def _counted(design: RagDesign, results: Mapping[str, Read]) -> dict[str, OutputCounts]:
    """How the distinct outputs of every condition ended."""
    ended: dict[str, Counter[str]] = {condition.name: Counter() for condition in design.conditions}
    for query, read in kept_queries(design, results):
        for name, lists in design.drawn(query, read.useful).items():
            ended[name].update(read.lists[shown].ended for shown in lists)
    return {
        name: OutputCounts(outputs=of.total(), unparseable=of.total() - of.pop("ok", 0), classes=dict(of))
        for name, of in ended.items()
    }


def _collected(design: RagDesign, results: Mapping[str, Read]) -> Collected:
    kept = [read for read in results.values() if read.kept]
    sizes = {query.query_id: len(design.items(query)) for query in design.queries}
    few = Counter(len(read.useful) for read in results.values() if len(read.useful) < FEWEST_USEFUL)
    return Collected(
        kept=len(kept),
        dropped={str(useful): queries for useful, queries in sorted(few.items())},
        items=_mean([sizes[read.query_id] for read in kept]),
        useful=_mean([len(read.useful) for read in kept]),
        useful_share=_mean([len(read.useful) / sizes[read.query_id] for read in kept]),
    )


def score_rag(run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A run folder from its files alone: the figures of its audit, unless others are asked for.

    Before any answer they are those of what is shown. Raises UsageError.
    """
    results = results_of(run)
    design = results.design
    announce(run.path / "outputs.csv")
    observations = read_observations(run)
    measures, shown = measures_of(settings, results, Retrieved, [CHANGE, DISPARITY])
    if settings.measures is None and not any(
        shown_list.output is not None
        for of in observations.values()
        for query in of
        for shown_list in query.lists
    ):
        only = None if GOLD in observations else DISPARITY  # without labels nobody knows what is useful
        measures = [
            measure for measure in measures if measure.definition.of_lists and only in (None, measure.name)
        ]
        shown = [name for name in shown if name in map(str, measures)]
    columns = measure_all(bounded(measures, design.utility), observations)
    rows = summarise(columns, Inference(level=settings.level, ci=settings.ci, seed=design.seed))
    conditions = [Condition(name, design.factors[name]) for name in observations]
    findings, rows = concluded(conditions, columns, rows, settings.level, design.margin)
    facts = {name: ScoreFacts(queries=len(of)) for name, of in observations.items()}
    tested = sum(finding.p is not None for finding in findings.values())
    return RemeasuredRun(
        facts_of(run, results, shown, facts, columns, findings, tested), rows, list(observations)
    )


# What changed from one generator to another, as far as it does not hang on which items each of them finds useful.


BOUND = "EE-R, EE-L, EU(norm=ceiling)"
"""What depends on which items are useful."""


def rag_changes(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
) -> Iterator[ChangeRow]:
    """By query, in the chosen measures or those that both tables show.

    Where other items are useful, nothing that depends on them. Raises UsageError where nothing is left.
    """
    if chosen is None:
        both = {*base.results.measures} & {*other.results.measures}
        declared = parse_measures(",".join(base.results.shown))
        wanted = [measure for measure in declared if measure.definition.better and str(measure) in both]
    else:
        wanted = list(chosen)
    bound, samples = other_labels(base, other), base.setting("samples") != other.setting("samples")
    left = [
        measure
        for measure in wanted
        if not (bound and (measure.name in ("EE-R", "EE-L") or ("norm", "ceiling") in measure.params))
        and not (samples and ("of", "samples") in measure.params)
    ]
    if not left:
        why = "find other items useful" if bound else "drew other numbers of lists"
        raise UsageError(
            f"{base.name} and {other.name} {why}, and {', '.join(map(str, wanted))} hangs on that.",
            "EE-D, EU and EU-change can be compared",
        )
    for row in changes_by_query(base, other, left, RAG.condition):
        settled = row.measure == CHANGE and row.condition not in base.results.findings  # nothing could change
        if not settled and not (bound and row.condition == GOLD):
            yield row


def other_labels(base: ComparedRun, other: ComparedRun) -> bool:
    """Whether the two find other items useful, or nobody can tell any more."""
    paths = [run.run.path / QRELS for run in (base, other)]
    return not all(path.is_file() for path in paths) or len({*map(files.sha256, paths)}) > 1


def described_labels(run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
    """How many queries of a run have useful items enough, and whether these are other items than the base's."""
    return {"kept": run.results.collection.kept, "other_labels": other_labels(base, run)}


def labels_notes(runs: Sequence[ComparisonRun]) -> list[str]:
    """What is left out of a comparison of these runs, as described."""
    named = [run.name for run in runs[1:] if run.own["other_labels"]]
    if not named:
        return []
    return [
        f"{', '.join(named)}: other items are useful than for {runs[0].name}, so what hangs on them is left out "
        f"({BOUND}, the setting {GOLD}); the rest is of the queries that both kept"
    ]
