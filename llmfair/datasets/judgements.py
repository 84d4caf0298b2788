"""What measuring a run needs of a dataset: judgements, and the groups of documents; no list, title or text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmfair.datasets.base import DocumentSource, load_dataset
from llmfair.datasets.files import Given
from llmfair.errors import UsageError
from llmfair.io.trec import UNKNOWN, read_groups, read_qrels
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
        alike: dict[int, Side | None] = {}  # documents of equal groups share them: millions, but few kinds
        found = {}
        for doc_id, document in self.documents.items():
            kind = id(document.groups)
            if kind not in alike:
                alike[kind] = attribute.side(document)
            if (side := alike[kind]) is not None:
                found[doc_id] = side
        return found


def of_dataset(name: str, ranked: Collection[str] = (), given: Given | None = None) -> Judgements:
    """The judgements of a dataset, by id, folder or table. Raises UsageError.

    Of a source whose documents are loaded by id they are those that are `ranked`, and all relevant ones.
    """
    if name.startswith("irds:"):
        qrels = f"ir_datasets export {name.partition(':')[2]} qrels > qrels.txt"
        raise UsageError(
            f"runs are not measured by {name} itself.", f"{qrels}, then --qrels qrels.txt --groups FILE"
        )
    dataset = load_dataset(name, given)
    if ranked and not hasattr(dataset, "qrels"):
        return _of_source(dataset, ranked)
    if not hasattr(dataset, "qrels"):
        raise UsageError(
            f"dataset '{name}' has no qrels of its own: lists are drawn from it.",
            "name the files of the run: --qrels FILE --groups FILE",
        )
    queries = {query.query_id: query for query in getattr(dataset, "topics", dataset.queries)}
    return Judgements(dataset.name, dataset.qrels, dataset.documents, dataset.attributes, queries)


def _of_source(source: DocumentSource, ranked: Collection[str]) -> Judgements:
    queries = {query.query_id: query for query in source.topics}
    qrels = {query_id: source.grades(query_id, source.relevant(query_id)) for query_id in queries}
    documents = source.load({*ranked, *(doc_id for judged in qrels.values() for doc_id in judged)})
    return Judgements(source.name, qrels, documents, source.attributes, queries)


def of_files(
    qrels: Path | None, groups: Path, known: Mapping[str, Attribute], undeclared: bool = False
) -> Judgements:
    """Judgements of a qrels file, if there is one, and a groups file; a document is listed when either names it.

    `known` declares attributes; with `undeclared` the groups file may name others too. Raises UsageError with
    file and line.
    """
    judged = {
        query_id: {doc_id: relevance for doc_id, (relevance, _) in rows.items()}
        for query_id, rows in (read_qrels(qrels) if qrels else {}).items()
    }
    found, used = _groups(groups, None if undeclared else known)
    documents = {doc_id: Document(doc_id, "", groups=of_it) for doc_id, of_it in found.items()}
    for rows in judged.values():
        for doc_id in rows:
            if doc_id not in documents:
                documents[doc_id] = Document(doc_id, "", groups=NO_GROUPS)
    used_in_order = [attribute for name, attribute in known.items() if name in used]
    return Judgements(str(qrels or groups), judged, documents, used_in_order)


def _groups(path: Path, known: Mapping[str, Attribute] | None) -> tuple[dict[str, Groups], set[str]]:
    """Groups by document, and the attributes that are used. Documents of equal groups share one mapping."""
    found: dict[str, Groups] = {}
    extended: dict[tuple[int, str, str], Groups] = {}
    for _, doc_id, attribute, group in read_groups(path, known, "a file for --attributes"):
        groups = found.setdefault(doc_id, NO_GROUPS)
        if group == UNKNOWN or group in groups.get(attribute, ()):
            continue
        step = (id(groups), attribute, group)
        if step not in extended:
            extended[step] = {**groups, attribute: (*groups.get(attribute, ()), group)}
        found[doc_id] = extended[step]
    return found, {attribute for groups in extended.values() for attribute in groups}
