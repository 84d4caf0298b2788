"""Run files ordered anew by a ranker: TREC run in, TREC run out. No model is asked, and nothing is measured.

A ranker is given each query's documents in the order trec_eval reads, with the scores of the file; of a run folder's
file, with those of the ranker that made it.
"""

from __future__ import annotations

import gzip
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from llmfair.audits.lists import groups_among, training_lists
from llmfair.audits.scoring import check_queries, judgements_of, options_of, own_scores, read_file, scored
from llmfair.audits.subject import make_ranker
from llmfair.datasets.base import attribute_of, load_dataset
from llmfair.datasets.files import searched
from llmfair.datasets.judgements import Judgements, scores_form
from llmfair.errors import UsageError
from llmfair.io.files import SCHEMA, whole, writing
from llmfair.io.trec import RunFile, run_lines
from llmfair.nouns import Attribute, Candidates, Document, Query, Ranking
from llmfair.rankers.base import Ranker, remarks
from llmfair.results import Count, JsonDocument, JsonObject
from llmfair.settings.commands import RERANK_FORMS, RerankSettings


class RunReranked(JsonObject, frozen=True, kw_only=True):
    """A run in its new order."""

    run: str
    output: str
    tag: str
    queries: Count
    changed: Count
    documents: Count
    warnings: list[str]


class RerankResults(JsonDocument, frozen=True, kw_only=True):
    """llmfair rerank."""

    status: Literal["complete"]
    task: Literal["rerank"]
    ranker: str
    dataset: str
    attribute: str
    runs: list[RunReranked]
    next: str


def reranked(
    path: Path, file: RunFile, ranker: Ranker, judged: Judgements, attribute: str, query_text: str
) -> tuple[list[Ranking], list[str]]:
    """The rankings in their new order, and what has to be said of them. Raises UsageError."""
    check_queries(path, file, judged)
    lists = [
        Candidates(
            searched(judged.queries.get(query_id) or Query(query_id, ""), query_text),
            tuple(judged.documents.get(doc_id) or Document(doc_id, "") for doc_id in ranking.doc_ids),
            judged.qrels.get(query_id, {}),
            ranking.scores,
        )
        for query_id, ranking in file.rankings.items()
    ]
    documents = {document.doc_id: document for listed in lists for document in listed.documents}
    in_data = [doc_id for doc_id in documents if doc_id in judged.documents]
    grouped = [doc_id for doc_id in in_data if documents[doc_id].groups.get(attribute)]
    if not in_data or (ranker.reads_groups and not grouped):
        what = f"document has a group of {attribute}" if in_data else "document is one"
        raise UsageError(
            f"{path}: no ranked {what} of {judged.name} (here '{next(iter(documents))}').",
            "a run and its groups call documents by the same ids",
        )
    notes, all_of_them = list[str](), f"of {len(documents):,} documents"
    if ranker.reads_groups and (lack := len(documents) - len(grouped)):
        notes.append(f"{lack:,} {all_of_them} have no group of {attribute}")
    if ranker.reads_texts and (lack := len(documents) - len(in_data)):
        notes.append(f"{lack:,} {all_of_them} are not in the dataset")
    if file.upside_down:
        notes.append("scores rise with the rank, and the score orders a run")
    ordered = [ranker.ordered(candidates)[0] for candidates in lists]
    warnings = [f"{path}: {text}" for text in (*notes, *remarks(ranker, ordered))]
    return [Ranking(order.query.query_id, order.doc_ids) for order in ordered], warnings


def rerank(runs: Sequence[Path], spec: str, settings: RerankSettings) -> RerankResults:
    """Orders the documents of every run anew, and writes the new ones; all of them, or none.

    Raises UsageError for malformed files (file and line), for a ranker that needs what the data lack, and for an
    output that would overwrite what is read.
    """
    if not runs:
        raise UsageError("no run is named, so nothing is reranked.", RERANK_FORMS)
    outputs, files = outputs_of(runs, settings), list[RunFile]()
    for path in runs:
        file = read_file(path, scores_kept=True)
        # with the scores of its own ranker, where a run folder has them
        files.append(scored(file, own_scores(path.parent.parent)) if path.parent.name == "rankings" else file)
    ranked = {doc_id for file in files for ranking in file.rankings.values() for doc_id in ranking.doc_ids}
    judgements = judgements_of(settings, ranked)
    attribute = attribute_of(judgements, settings.attribute, settings.mixed)
    ranker = ranker_of(spec, settings, judgements, attribute)
    texts, new_runs = dict[Path, str](), list[RunReranked]()
    for path, file, output in zip(runs, files, outputs, strict=True):
        rankings, warnings = reranked(path, file, ranker, judgements, attribute.name, settings.query_text)
        tag = f"{file.tag}+{''.join(spec.split())}"
        texts[output] = "".join(run_lines(rankings, tag))
        changed = sum(order.doc_ids != file.rankings[order.query_id].doc_ids for order in rankings)
        new_run = RunReranked(
            run=str(path), output=str(output), tag=tag, queries=len(rankings), changed=changed,
            documents=sum(len(order.doc_ids) for order in rankings), warnings=warnings,
        )  # fmt: skip
        new_runs.append(new_run)
    for path, text in texts.items():
        with writing(path.parent, "choose another --output"), whole(path) as output_file:
            content = text.encode("utf-8", "backslashreplace")
            output_file.write(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    data: dict[str, Any] = {"-d": settings.dataset, "--columns": settings.columns}
    data |= {"--qrels": settings.qrels, "--groups": settings.groups}
    if settings.dataset is None:
        data["--qrels"] = settings.qrels or "FILE"
    elif not hasattr(load_dataset(settings.dataset, options_of(settings)), "qrels"):
        data = {"--qrels": "FILE", "--groups": "FILE"}  # `score` reads no source either
    data |= {"--attributes": settings.attributes, "-a": settings.attribute}
    words = [*runs, *outputs, *(word for flag, of in data.items() if of for word in (flag, of))]
    return RerankResults(
        schema=SCHEMA, status="complete", task="rerank", ranker=spec, dataset=judgements.name,
        attribute=attribute.name, runs=new_runs,
        next=" ".join(["llmfair score", *(shlex.quote(str(word)) for word in words)]),
    )  # fmt: skip


def ranker_of(spec: str, settings: RerankSettings, judgements: Judgements, attribute: Attribute) -> Ranker:
    """The ranker that a spec names, over the data that the settings name. Raises UsageError."""

    def lists() -> list[Candidates]:
        """Those that a ranker may learn from: a dataset's."""
        if settings.dataset is None:
            return []
        data = load_dataset(settings.dataset, options_of(settings))
        return training_lists(data, settings.query_text)

    documents = judgements.documents
    groups = groups_among(judgements.attributes, attribute, documents, {})
    ranker = make_ranker(spec, documents.values(), attribute, groups=groups, lists=lists)
    if ranker.reads_texts and settings.dataset is None:
        raise UsageError(
            f"{spec} reads what queries and documents say, and --groups does not tell.",
            "-d DATASET    names data with texts, a folder of your own too",
        )
    return ranker


def outputs_of(runs: Sequence[Path], settings: RerankSettings) -> list[Path]:
    """The file of each new run: OUT itself of one, else of the same name in the folder OUT. Raises UsageError."""
    assert settings.output is not None
    into_folder = len(runs) > 1 or settings.output.is_dir()
    names = [f"{run.name.partition('.')[0]}.run" if scores_form(run) else run.name for run in runs]
    outputs = [settings.output / name for name in names] if into_folder else [settings.output]
    if not into_folder and scores_form(settings.output):
        raise UsageError(
            f"--output {settings.output}: what is written are TREC's six columns.", "name it new.run"
        )
    for run in runs:
        if run.is_dir():
            raise UsageError(f"{run} is a folder.", f"its runs: llmfair rerank {run}/rankings/*.run …")
    files = [*map(os.path.realpath, (*runs, *outputs))]
    for output in outputs:
        if files.count(os.path.realpath(output)) > 1:
            raise UsageError(
                f"{output} is read, or would be written twice.",
                "choose another --output, or rerank runs one by one",
            )
    return outputs
