"""What measuring runs needs: the runs themselves, judgements, and the groups of documents; no list, title or text."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from llmfair.datasets.base import load_dataset
from llmfair.datasets.files import DataOptions, identifier
from llmfair.datasets.pools import sides_of
from llmfair.errors import UsageError
from llmfair.io.files import csv_rows, number, read_document, wrong
from llmfair.io.trec import UNKNOWN, RunFile, cell, read_groups, read_qrels, read_run, run_of
from llmfair.nouns import Attribute, Document, Qrels, Query, Side

Groups = Mapping[str, tuple[str, ...]]
NO_GROUPS: Groups = {}


@dataclass(frozen=True)
class Judgements:
    """Relevance and groups. `documents` holds every listed document; any other id is unlisted.

    `queries` has the words of queries, where these are known.
    """

    name: str
    qrels: Qrels
    documents: Mapping[str, Document]
    attributes: Sequence[Attribute]
    queries: Mapping[str, Query] = field(default_factory=dict)

    def sides(self, attribute: Attribute) -> Mapping[str, Side]:
        """The side of every document that has one."""
        return sides_of(self.documents, attribute)


def of_dataset(name: str, ranked: Collection[str] = (), options: DataOptions | None = None) -> Judgements:
    """The judgements of a dataset, by id, folder or table. Raises UsageError.

    Of a source whose documents are loaded by id they are those that are `ranked`, and all relevant ones.
    """
    if name.startswith("irds:"):
        export = f"ir_datasets export {name.partition(':')[2]} qrels > qrels.txt"
        raise UsageError(
            f"runs are not measured by {name} itself.", f"{export}, then --qrels qrels.txt --groups FILE"
        )
    dataset = load_dataset(name, options)
    if ranked and not hasattr(dataset, "qrels"):
        topics = {query.query_id: query for query in dataset.topics}
        qrels = {query_id: dataset.grades(query_id, dataset.relevant(query_id)) for query_id in topics}
        documents = dataset.load({*ranked, *(doc_id for judged in qrels.values() for doc_id in judged)})
        return Judgements(dataset.name, qrels, documents, dataset.attributes, topics)
    if not hasattr(dataset, "qrels"):
        raise UsageError(
            f"dataset '{name}' has no qrels of its own: lists are drawn from it.",
            "name the files of the run: --qrels FILE --groups FILE",
        )
    queries = {query.query_id: query for query in getattr(dataset, "topics", dataset.queries)}
    return Judgements(dataset.name, dataset.qrels, dataset.documents, dataset.attributes, queries)


def of_files(
    qrels: Path | None, groups: Path, declared: Mapping[str, Attribute], undeclared: bool = False
) -> Judgements:
    """Judgements of a qrels file, if there is one, and a groups file; a document is listed when either names it.

    `known` declares attributes; with `undeclared` the groups file may name others too. Raises UsageError with
    file and line.
    """
    judged = {
        query_id: {doc_id: relevance for doc_id, (relevance, _) in rows.items()}
        for query_id, rows in (read_qrels(qrels) if qrels else {}).items()
    }
    by_doc, used = groups_of(groups, None if undeclared else declared)
    documents = {doc_id: Document(doc_id, "", groups=of_it) for doc_id, of_it in by_doc.items()}
    for rows in judged.values():
        for doc_id in rows:
            if doc_id not in documents:
                documents[doc_id] = Document(doc_id, "", groups=NO_GROUPS)
    used_in_order = [attribute for name, attribute in declared.items() if name in used]
    return Judgements(str(qrels or groups), judged, documents, used_in_order)


def groups_of(path: Path, declared: Mapping[str, Attribute] | None) -> tuple[dict[str, Groups], set[str]]:
    """Groups by document, and the attributes that are used. Documents of equal groups share one mapping."""
    by_doc: dict[str, Groups] = {}
    extended: dict[tuple[int, str, str], Groups] = {}
    for _, doc_id, attribute, group in read_groups(path, declared, "a file for --attributes"):
        groups = by_doc.setdefault(doc_id, NO_GROUPS)
        if group == UNKNOWN or group in groups.get(attribute, ()):
            continue
        step = (id(groups), attribute, group)
        if step not in extended:
            extended[step] = {**groups, attribute: (*groups.get(attribute, ()), group)}
        by_doc[doc_id] = extended[step]
    return by_doc, {attribute for groups in extended.values() for attribute in groups}


# Run files by the ending of their name: TREC's six columns, or scores as ranx keeps them, in JSON or CSV


HINT = (
    "a run has six columns: query_id Q0 doc_id rank score tag; in .json it is {query_id: {doc_id: score}}, in .csv it "
    "has the columns q_id, doc_id and score"
)
QUERY_IDS = ("q_id", "query_id")
Word = Annotated[str, Meta(pattern=r"^\S+\Z")]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


def read_any_run(path: Path, scores_kept: bool = False) -> RunFile:
    """A run in the order that trec_eval gives its scores; see `read_run`. Raises UsageError."""
    form = scores_form(path)
    if not form:
        return read_run(path, scores_kept)
    scored = read_document(path, dict[Word, dict[Word, Finite]], HINT) if form == ".json" else _of_csv(path)
    return run_of(path, scored, path.name.partition(".")[0], scores_kept)


def scores_form(path: Path) -> str:
    """The ending of a file that has scores as ranx keeps them; "" of any other."""
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return ending if ending in (".json", ".csv") else ""


def _of_csv(path: Path) -> dict[str, dict[str, float]]:
    scored: dict[str, dict[str, float]] = {}
    for line, row in csv_rows(path, HINT):
        query = next((name for name in QUERY_IDS if name in row), None)
        if missing := [name for name in ("doc_id", "score") if name not in row] + ["q_id"] * (query is None):
            raise wrong(path, line, missing[0], f"there is no such column ({', '.join(row)})", HINT)
        query_id, doc_id = row[str(query)].strip(), row["doc_id"].strip()
        for name, text in (("query_id", query_id), ("doc_id", doc_id)):
            if identifier(text) is None:
                raise wrong(path, line, name, f"'{text}' is no id: it is empty or holds white space", HINT)
        if doc_id in scored.setdefault(query_id, {}):
            raise wrong(path, line, "doc_id", f"'{doc_id}' was already ranked in query '{query_id}'", HINT)
        scored[query_id][doc_id] = cell(path, line, "score", number, row["score"].strip())
    return scored
