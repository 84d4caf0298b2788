"""The files of a run folder of `llmfair rag`: labels, scores, lists and outputs, in formats that other tools read.

All figures follow from them: `qrels.txt` has every item of every query, the useful ones judged 1; `scores.tsv` what
lists are drawn from; `outputs.csv` what was answered beside each list. `gains.tsv` says how items came to be useful,
`rankings/` has each retriever's order, `samples/` the lists drawn, in the columns of expeval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from llmfair.audits.condition import Condition
from llmfair.audits.rag.design import RagDesign
from llmfair.audits.rag.observing import Credited, answered_queries, credited_outputs, kept_queries, observed
from llmfair.audits.rag.policies import GOLD, Floats, Policies
from llmfair.audits.rag.results import RagResults
from llmfair.csvfiles import number, read_csv
from llmfair.metrics.generation import FEWEST_USEFUL
from llmfair.metrics.retrieved import Retrieved
from llmfair.rankers.reader import Read, Shown
from llmfair.rankers.support import Judged
from llmfair.rundir import Contents, RunDir, csv_lines
from llmfair.trec import Problems, read_qrels

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
    columns = (*OUTPUT_COLUMNS, SUPPORTED) if design.judges_citations else OUTPUT_COLUMNS
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


def read_observations(run: RunDir, results: RagResults) -> dict[str, list[Retrieved]]:
    """What measures read, by condition, of a run folder's files. Raises UsageError naming file and line.

    Of a run that has asked about no list there is what its retrievers show, and where it has labels what of it is
    useful; it has no `gold` without.
    """
    design = results.design
    conditions = [Condition(name, (design.factors or {})[name]) for name in design.conditions]
    scores = _read_scores(run)
    labels = _read_labels(run) if (run.path / QRELS).stat().st_size else None
    outputs: dict[str, dict[Shown, Credited]] = {}
    for query_id, shown, output in read_csv(run.path / OUTPUTS, "an output", _read_output):
        outputs.setdefault(query_id, {})[shown] = output

    def observed_of(
        which: Sequence[Condition], given: Callable[[str], Mapping[Shown, Credited] | None]
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
        return found

    if labels is not None and any(
        (found := observed_of(conditions, lambda query: outputs.get(query, {}))).values()
    ):
        return found
    told = [one for one in conditions if labels is not None or one.name != GOLD]
    return observed_of(told, lambda query: None)


def _read_labels(run: RunDir) -> dict[str, frozenset[str]]:
    """The useful items by query."""
    problems = Problems()
    judged = read_qrels(run.path / QRELS, problems)
    problems.raise_any("the command that made the run writes its files anew, without a call")
    return {
        query_id: frozenset(doc_id for doc_id, (grade, _) in of.items() if grade >= 1)
        for query_id, of in judged.items()
    }


def _read_scores(run: RunDir) -> dict[str, tuple[tuple[str, ...], dict[str, Floats]]]:
    """Of every query its items, and their scores by retriever."""
    ids: dict[str, dict[str, None]] = {}
    found: dict[str, dict[str, list[float]]] = {}
    for retriever, query_id, doc_id, score in read_csv(
        run.path / SCORES,
        "a score",
        lambda row: (row["retriever"], row["query_id"], row["doc_id"], number(row["score"])),
    ):
        ids.setdefault(query_id, {})[doc_id] = None
        found.setdefault(query_id, {}).setdefault(retriever, []).append(score)
    return {
        query_id: (tuple(ids[query_id]), {retriever: np.array(scores) for retriever, scores in of.items()})
        for query_id, of in found.items()
    }


def _read_output(row: dict[str, str]) -> tuple[str, Shown, Credited]:
    credited, supported = (
        None if items == NOBODY else frozenset(items.split())
        for items in (row["credited"], row.get(SUPPORTED, NOBODY))
    )
    output = Credited(row["output"], number(row["utility"]), credited, supported)
    return row["query_id"], tuple(row["doc_ids"].split()), output
