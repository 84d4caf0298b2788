"""The files of a run folder of `llmfair rag`: labels, scores, lists and outputs, in formats that other tools read.

All figures follow from them: `qrels.txt` has every item of every query, the useful ones judged 1; `scores.tsv` what
lists are drawn from; `outputs.csv` what was answered beside each list. `gains.tsv` says how items came to be useful,
`rankings/` has each retriever's order, `samples/` the lists drawn, in the columns of expeval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from llmfair.audits.condition import Condition
from llmfair.audits.rag.design import RagDesign
from llmfair.audits.rag.observing import Credited, observed
from llmfair.audits.rag.policies import Floats, Policies
from llmfair.audits.rag.results import RagResults
from llmfair.metrics.generation import FEWEST_USEFUL
from llmfair.metrics.retrieved import Retrieved
from llmfair.rankers.reader import Read, Shown
from llmfair.rundir import RunDir, csv_text, read_csv
from llmfair.trec import Problems, read_qrels

QRELS, SCORES, OUTPUTS = "qrels.txt", "scores.csv", "outputs.csv"
OUTPUT_COLUMNS = ("query_id", "doc_ids", "output", "finish", "utility", "credited")
SCORE_COLUMNS = ("retriever", "query_id", "doc_id", "score")
NOBODY = "-"
"""Stands for the credit of an output that nobody asked about."""


def files_of(
    design: RagDesign,
    results: Mapping[str, Read],
    outputs: Mapping[str, Mapping[Shown, Credited]],
    observations: Mapping[str, Sequence[Retrieved]],
) -> dict[str, str]:
    """Every file by name."""
    reads = [results[query.query_id] for query in design.queries if query.query_id in results]
    return {
        QRELS: "".join(_qrels(design, results)),
        SCORES: csv_text(SCORE_COLUMNS, _scores(design)),
        OUTPUTS: csv_text(OUTPUT_COLUMNS, [line for read in reads for line in _outputs(read, outputs)]),
        "gains.tsv": "".join(_gains(reads)),
        **{f"rankings/{retriever}.run": "".join(_run(design, retriever)) for retriever in design.scores},
        **{f"samples/{name}.tsv": "".join(_samples(of)) for name, of in observations.items()},
    }


def _qrels(design: RagDesign, results: Mapping[str, Read]) -> Iterator[str]:
    for query in design.queries:
        read = results.get(query.query_id)
        if read is not None:
            for item in design.items(query):
                yield f"{query.query_id} 0 {item.doc_id} {int(item.doc_id in read.useful)}\n"


def _scores(design: RagDesign) -> list[tuple[str, str, str, float]]:
    return [
        (retriever, query.query_id, item.doc_id, score)
        for retriever, of in design.scores.items()
        for query in design.queries
        for item, score in zip(design.items(query), of[query.query_id].tolist(), strict=True)
    ]


def _outputs(read: Read, outputs: Mapping[str, Mapping[Shown, Credited]]) -> Iterator[tuple[object, ...]]:
    """Outputs for labels, to which nothing is credited, then those for lists."""
    credited = {shown: output.credited for shown, output in outputs.get(read.query_id, {}).items()}
    for of in (read.alone, read.lists):
        for shown, output in of.items():
            of_list = credited.get(shown) if of is read.lists else None
            credit = NOBODY if of_list is None else " ".join(one for one in shown if one in of_list)
            yield read.query_id, " ".join(shown), output.text, str(output.finish), output.utility, credit


def _gains(reads: Sequence[Read]) -> Iterator[str]:
    """In the columns of Fair-RAG's own files."""
    yield "qid\tpid\taugment_score\tbaseline_score\tdelta\n"
    for read in reads:
        for doc_id, gain in read.gains.items():
            without, alone = read.alone[()].utility, read.alone[doc_id,].utility
            yield f"{read.query_id}\t{doc_id}\t{alone!r}\t{without!r}\t{gain!r}\n"


def _run(design: RagDesign, retriever: str) -> Iterator[str]:
    """All items of every query, best first; ranks stand for scores, which may tie."""
    for query in design.queries:
        scores, items = design.scores[retriever][query.query_id], design.items(query)
        for rank, place in enumerate(np.argsort(-scores, kind="stable").tolist(), start=1):
            yield f"{query.query_id} Q0 {items[place].doc_id} {rank} {len(items) - rank + 1} {retriever}\n"


def _samples(observations: Sequence[Retrieved]) -> Iterator[str]:
    yield "qid\tsample\tdocno\trank\tsim\trun_id\n"
    for one in observations:
        drawn = [shown.doc_ids for shown in one.lists for _ in range(shown.count)]
        for number, doc_ids in enumerate(drawn):
            for rank, doc_id in enumerate(doc_ids, start=1):
                yield f"{one.query_id}\t{number}\t{doc_id}\t{rank}\t{len(doc_ids) - rank + 1}\tllmfair\n"


# Read back


def read_observations(run: RunDir, results: RagResults) -> dict[str, list[Retrieved]]:
    """What measures read, by condition, of a run folder's files. Raises UsageError naming file and line."""
    design = results.design
    conditions = [Condition(name, (design.factors or {})[name]) for name in design.conditions]
    problems = Problems()
    judged = read_qrels(run.path / QRELS, problems)
    problems.raise_any("the command that made the run writes its files anew, without a call")
    scores = _read_scores(run)
    outputs: dict[str, dict[Shown, Credited]] = {}
    for query_id, shown, output in read_csv(run.path / OUTPUTS, "an output", _read_output):
        outputs.setdefault(query_id, {})[shown] = output
    found: dict[str, list[Retrieved]] = {name: [] for name in design.conditions}
    for query_id, of in judged.items():
        useful = frozenset(doc_id for doc_id, (grade, _) in of.items() if grade >= 1)
        if len(useful) >= FEWEST_USEFUL:
            policies = Policies(query_id, tuple(of), scores[query_id], design.k, design.samples, design.seed)
            of_query = observed(policies, conditions, useful, outputs[query_id], design.uncredited)
            for name, one in of_query.items():
                found[name].append(one)
    return found


def _read_scores(run: RunDir) -> dict[str, dict[str, Floats]]:
    """Scores by query and retriever, in the items' order."""
    found: dict[str, dict[str, list[float]]] = {}
    for retriever, query_id, score in read_csv(
        run.path / SCORES, "a score", lambda row: (row["retriever"], row["query_id"], float(row["score"]))
    ):
        found.setdefault(query_id, {}).setdefault(retriever, []).append(score)
    return {
        query_id: {retriever: np.array(scores) for retriever, scores in of.items()}
        for query_id, of in found.items()
    }


def _read_output(row: dict[str, str]) -> tuple[str, Shown, Credited]:
    credited = None if row["credited"] == NOBODY else frozenset(row["credited"].split())
    output = Credited(row["output"], float(row["utility"]), credited)
    return row["query_id"], tuple(row["doc_ids"].split()), output
