"""What measuring runs needs: the runs themselves, judgements, and the groups of documents; no list, title or text."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from llmfair.datasets.base import load_dataset
from llmfair.datasets.files import NO_GROUPS, DataOptions, attributes_of, groups_of, is_id, sides_of
from llmfair.errors import UsageError
from llmfair.io.files import MOST_OF_JSON, number, read_document, wrong
from llmfair.io.tables import ending, rows_of
from llmfair.io.trec import RunFile, cell, read_qrels, read_run, run_of
from llmfair.nouns import Attribute, Document, Qrels, Query, Side


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
    dataset = load_dataset(name, options)
    if hasattr(dataset, "qrels"):
        topics = {query.query_id: query for query in getattr(dataset, "topics", dataset.queries)}
        return Judgements(dataset.name, dataset.qrels, dataset.documents, dataset.attributes, topics)
    if not ranked:
        raise UsageError(
            f"dataset '{name}' has no qrels of its own: lists are drawn from it.",
            "name the files of the run: --qrels FILE --groups FILE",
        )
    topics = {query.query_id: query for query in dataset.topics}
    qrels = {query_id: dataset.grades(query_id, dataset.relevant(query_id)) for query_id in topics}
    documents = dataset.load({*ranked, *(doc_id for judged in qrels.values() for doc_id in judged)})
    return Judgements(dataset.name, qrels, documents, dataset.attributes, topics)


def of_files(
    qrels: Path | None, groups: Path, declared: Mapping[str, Attribute], wanted: Collection[str] = (),
    undeclared: bool = False,
) -> Judgements:  # fmt: skip
    """Judgements of a qrels file, if there is one, and a groups file; a document is listed when either names it.

    `declared` are the attributes; with `undeclared` the groups file may name others too. `wanted` ones are read
    whatever they are called. Raises UsageError with file and line.
    """
    judged = {
        query_id: {doc_id: relevance for doc_id, (relevance, _) in rows.items()}
        for query_id, rows in (read_qrels(qrels) if qrels else {}).items()
    }
    by_doc, used = groups_of(groups, None if undeclared else declared, "a file for --attributes", wanted)
    doc_ids = dict.fromkeys([*by_doc, *(doc_id for rows in judged.values() for doc_id in rows)])
    documents = {doc_id: Document(doc_id, "", groups=by_doc.get(doc_id, NO_GROUPS)) for doc_id in doc_ids}
    attributes = [of for of in attributes_of(declared, used) if of.name in declared or not undeclared]
    return Judgements(str(qrels or groups), judged, documents, attributes)


# Run files by the ending of their name: TREC's six columns, or scores as ranx keeps them, in JSON or CSV


HINT = (
    "a run has six columns: query_id Q0 doc_id rank score tag; in .json it is {query_id: {doc_id: score}}, in .csv it "
    "has the columns q_id, doc_id and score"
)
Word = Annotated[str, Meta(pattern=r"^\S+\Z")]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


def read_any_run(path: Path, scores_kept: bool = False) -> RunFile:
    """A run in the order that trec_eval gives its scores; see `read_run`. Raises UsageError."""
    if not (form := scores_form(path)):
        return read_run(path, scores_kept)
    if form == ".json":
        scored = read_document(path, dict[Word, dict[Word, Finite]], HINT, MOST_OF_JSON)
    else:
        scored = {}
        for line, row in rows_of(path, HINT):
            query = "query_id" if "query_id" in row else "q_id"
            if missing := [name for name in (query, "doc_id", "score") if name not in row]:
                raise wrong(path, line, missing[0], f"there is no such column ({', '.join(row)})", HINT)
            query_id, doc_id = row[query].strip(), row["doc_id"].strip()
            for name, text in ((query, query_id), ("doc_id", doc_id)):
                if not is_id(text):
                    what = f"'{text}' is no id: it is empty or holds white space"
                    raise wrong(path, line, name, what, HINT)
            if doc_id in scored.setdefault(query_id, {}):
                what = f"'{doc_id}' was already ranked in query '{query_id}'"
                raise wrong(path, line, "doc_id", what, HINT)
            scored[query_id][doc_id] = cell(path, line, "score", number, row["score"].strip())
    return run_of(path, scored, path.name.partition(".")[0], scores_kept)


def scores_form(path: Path) -> str:
    """The ending of a file that has scores as ranx keeps them; "" of any other."""
    return form if (form := ending(path)) in (".json", ".csv") else ""
