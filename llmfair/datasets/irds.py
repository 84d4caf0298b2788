"""Collections of ir_datasets, `irds:beir/scifact/test`: groups from a file, lists from a run or from BM25."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.files import NO_GROUPS, DataOptions, Groups, OwnData, groups_of
from llmfair.datasets.judgements import HINT as RUN_HINT
from llmfair.datasets.judgements import read_any_run
from llmfair.errors import UsageError, line_of
from llmfair.nouns import Document, Query
from llmfair.retrieval.bm25 import Bm25Index

PREFIX = "irds:"
POOL = 100
"""Documents that BM25 finds for a list."""
MOST_INDEXED = 1_000_000
"""Documents of a collection that is indexed whole, which takes so many texts in memory."""
HINT = "llmfair listwise -d irds:beir/scifact/test --groups groups.tsv --run bm25.run"


def ir_collection(name: str, options: DataOptions, indexes: Path) -> OwnData:
    """A collection by its name with the prefix; `indexes` is where those of BM25 are kept. Raises UsageError."""
    import ir_datasets

    theirs = name.removeprefix(PREFIX)
    if not options.groups:
        raise UsageError(f"{name} says nothing of groups.", "--groups FILE: doc_id<TAB>attribute<TAB>group")
    declared = read_attributes(Path(options.attributes) if options.attributes else shipped_attributes())
    groups, used = groups_of(Path(options.groups), declared, "a file for --attributes")
    try:
        collection = ir_datasets.load(theirs)
    except KeyError:
        raise UsageError(f"ir_datasets has no '{theirs}'.", "https://ir-datasets.com lists them") from None
    data = OwnData(name)
    try:
        data.by_id = {row.query_id: Query(row.query_id, _text(row)) for row in collection.queries_iter()}
        lists = _lists(collection, name, data.by_id, options.run, indexes)
        judged: dict[str, dict[str, int]] = {query_id: {} for query_id in lists}
        for row in collection.qrels_iter():
            if row.query_id in lists:
                judged[row.query_id][row.doc_id] = int(row.relevance)
        ranked = {doc_id for doc_ids in lists.values() for doc_id in doc_ids}
        rows = collection.docs_store().get_many([*ranked.union(*judged.values())]).values()
        data.documents = {document.doc_id: document for document in _documents(rows, groups)}
    except UsageError:
        raise
    except Exception as error:  # of a download, or of what the collection lacks
        raise UsageError(f"{name}: {line_of(error)}", HINT) from None
    if gone := sorted(ranked - data.documents.keys()):
        raise UsageError(f"{options.run}: document '{gone[0]}' is not in {name}.", RUN_HINT)
    data.qrels = {
        query_id: {doc_id: grade for doc_id, grade in of.items() if doc_id in data.documents}
        for query_id, of in judged.items()
        if of
    }
    data.lists = {query_id: [*lists[query_id]] for query_id in data.by_id if query_id in lists}
    data.leave_out_short(HINT)
    data.attributes = [attribute for name, attribute in declared.items() if name in used]
    return data


def _lists(
    collection: Any, name: str, topics: Mapping[str, Query], run: str | None, indexes: Path
) -> Mapping[str, Sequence[str]]:
    """The documents of every query, best first: of a run, or found by BM25."""
    if run:
        rankings = read_any_run(Path(run)).rankings
        lists = {query_id: of.doc_ids for query_id, of in rankings.items() if query_id in topics}
        if not lists:
            raise UsageError(f"{run} ranks none of the queries of {name}.", RUN_HINT)
        return lists
    count = collection.docs_count() or collection.docs_store().count()
    if count > MOST_INDEXED:
        raise UsageError(
            f"{name} has {count:,} documents, which are not indexed here.",
            "--run FILE: the lists, from the search engine that has them",
        )
    index = Bm25Index(indexes, _documents(collection.docs_iter(), {}))
    return {
        query_id: [hit.doc_id for hit in index.search(query.text, POOL)] for query_id, query in topics.items()
    }


def _documents(rows: Iterable[Any], groups: Mapping[str, Groups]) -> Iterator[Document]:
    for row in rows:
        title = str(getattr(row, "title", "") or "").strip()
        text = str(row.text) if title and hasattr(row, "text") else _text(row)
        yield Document(row.doc_id, title or text, text, groups.get(row.doc_id, NO_GROUPS))


def _text(row: Any) -> str:
    """What a query or document says."""
    return str(row.default_text()).strip()
