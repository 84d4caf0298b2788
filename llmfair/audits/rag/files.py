"""The files of a run folder of `llmfair rag`: labels, scores, lists and outputs, in formats that other tools read.

All figures follow from them: `qrels.txt` has every item of every query, the useful ones judged 1; `scores.tsv` what
lists are drawn from; `outputs.csv` what was answered beside each list. `gains.tsv` says how items came to be useful,
`rankings/` has each retriever's order, `samples/` the lists drawn, in the columns of expeval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as Names
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import numpy as np

from llmfair.audits.aggregates import Inference, summarise, undefined_counts
from llmfair.audits.design import Condition
from llmfair.audits.kind import results_of
from llmfair.audits.rag.design import (
    ATTRIBUTORS,
    DETERMINISTIC,
    GOLD,
    Floats,
    Policies,
    RagDesign,
    probe_of,
    supporting,
)
from llmfair.audits.rag.results import RagFacts, RagResults
from llmfair.audits.rag.settings import CITED
from llmfair.audits.run_files import Announce
from llmfair.audits.scoring import RemeasuredRun, ScoredRun, ScoreFacts, check_settings
from llmfair.datasets.answers import ITEM
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN, json_lines, number, read_csv, wrong
from llmfair.io.trec import read_qrels, read_run
from llmfair.metrics.base import measure_all
from llmfair.metrics.expected import Retrieved, ShownList
from llmfair.metrics.generation import FEWEST_USEFUL
from llmfair.metrics.names import parse_measures
from llmfair.metrics.texts import GREATEST, cleaned, utility
from llmfair.nouns import Query
from llmfair.rankers.reader import Judged, Read, Shown
from llmfair.results import Family, Words
from llmfair.rundir import Contents, RunDir, csv_lines
from llmfair.settings import ScoreSettings

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
    check_settings(run, results, ("k", "samples", "seed"))
    conditions = [Condition(name, (design.factors or {})[name]) for name in design.conditions]
    retrievers = {one.factors["retriever"] for one in conditions} - {GOLD}
    scores = _read_scores(run.path / SCORES, retrievers)
    qrels = run.path / QRELS
    labels = None if qrels.is_file() and not qrels.stat().st_size else _read_labels(qrels, scores)
    if labels is None:
        for path in (run.path / f"rankings/{retriever}.run" for retriever in retrievers):
            rankings = read_run(path, hint=AGAIN).rankings
            _check_items(path, {query_id: of.doc_ids for query_id, of in rankings.items()}, scores)
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
        if of.keys() != retrievers:
            raise UsageError(
                f"{path}: query '{query_id}' has scores of {', '.join(of)}, and the run's retrievers are "
                f"{', '.join(sorted(retrievers))}.",
                AGAIN,
            )
        for retriever, one in of.items():
            if one.keys() != {*doc_ids}:
                raise UsageError(
                    f"{path}: query '{query_id}' has {len(one)} items with a score of {retriever}, and "
                    f"{len(doc_ids)} with one of {next(iter(of))}.",
                    AGAIN,
                )
        scores[query_id] = (
            doc_ids,
            {retriever: np.array([one[doc_id] for doc_id in doc_ids]) for retriever, one in of.items()},
        )
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
        shown = [*map(str, row.shown)]
        if not shown:
            raise wrong(path, line, "shown", "is empty", HINT)
        if twice := next((item for item in shown if shown.count(item) > 1), None):
            raise wrong(path, line, "shown", f"'{twice}' comes twice", HINT)
        if stray := {*map(str, row.cited or ())} - {*shown}:
            raise wrong(path, line, "cited", f"'{min(stray)}' was not shown", HINT)
        items = {*map(str, row.items)}
        for name, named in (("shown", shown), ("useful", map(str, row.useful or ()))):
            if items and (stray := {*named} - items):
                raise wrong(path, line, name, f"'{min(stray)[:40]}' is none of the items", HINT)
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
