"""Files that Fair-RAG released, and others in their form: which items are useful to a generator, scores of a retriever.

Ids are texts: "0111" is not 111. What a file says of other queries or items than the dataset's is refused, since ids
of one task or generator fit another by chance.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from llmfair.datasets.runs import Finite
from llmfair.errors import UsageError
from llmfair.io.files import csv_rows, number, read_document, wrong
from llmfair.io.trec import RUN, cell, columns
from llmfair.nouns import LEAST_GAIN

Lists = Mapping[str, Sequence[str]]
"""The dataset's items: `{query_id: doc_ids}`."""
Rows = dict[str, dict[str, float]]
"""A number for items, by query and item."""
GENERATORS: Mapping[str, str] = {
    "flanT5Small": "google/flan-t5-small",
    "flanT5Base": "google/flan-t5-base",
    "flanT5XXL": "google/flan-t5-xxl",
}
"""What folders of released files call the models that they were made with."""
LABELS = ("relevance_label", "delta")
"""The column that says of what use an item is: 0 or 1, or the gain of showing it alone."""
HINT = "is it of this task, generator and query set?"
RETRIEVAL = 'a file of {"query_id": [["doc_id", score], …]}'
_LABELS_HINT = "header qid, pid, relevance_label (0 or 1) or delta (a gain), separated by tabs"


def read_useful(path: Path, lists: Lists) -> dict[str, dict[str, bool]]:
    """Which items are useful, from `4_relevance_mapping.tsv` or `4_delta.tsv`; queries that it leaves out are absent.

    Raises UsageError naming line and field, and for a query of which not every item is labelled.
    """
    found: Rows = {}
    for line, row in csv_rows(path, _LABELS_HINT, "\t"):
        label = next((name for name in LABELS if name in row), "")
        if not label or not {"qid", "pid"} <= row.keys():
            raise wrong(path, 1, "", f"is no header with qid, pid and {' or '.join(LABELS)}", _LABELS_HINT)
        value = cell(path, line, label, number, row[label].strip())
        if label == LABELS[0] and value not in (0, 1):
            raise wrong(path, line, label, f"'{row[label]}' is not 0 or 1", _LABELS_HINT)
        _add(found, row["qid"].strip(), row["pid"].strip(), value, path, line)
    _check(path, found, lists, whole=True)
    return {
        query_id: {doc_id: value > LEAST_GAIN for doc_id, value in row.items()}
        for query_id, row in found.items()
    }


def read_retrieval(path: Path, lists: Lists, needed: Collection[str], whole: bool = True) -> Rows:
    """A retriever's scores, from released JSON `{qid: [[pid, score], …]}` or a TREC run.

    `needed`: the queries that must be there. `whole`: every item of a query needs a score, else those that a
    retriever found of a corpus. Raises UsageError.
    """
    found: Rows = {}
    if path.suffix == ".json":
        rankings = read_document(path, dict[str, list[tuple[str | int, Finite]]], RETRIEVAL)
        for query_id, ranking in rankings.items():
            for doc_id, value in ranking:
                _add(found, query_id, str(doc_id), value, path, 0)
    else:
        for line, (query_id, _, doc_id, _, score, _) in columns(path, RUN, hint=HINT):
            _add(found, query_id, doc_id, cell(path, line, "score", number, score), path, line)
    if absent := [query_id for query_id in needed if query_id not in found]:
        raise UsageError(f"{path}: has no scores for query '{absent[0]}' ({len(absent)} lack them).", HINT)
    _check(path, found, lists, whole)
    return found


def _add(found: Rows, query_id: str, doc_id: str, value: float, path: Path, line: int) -> None:
    if doc_id in found.setdefault(query_id, {}):
        raise wrong(path, line, "pid", f"'{doc_id}' was already given for query '{query_id}'", HINT)
    found[query_id][doc_id] = value


def _check(path: Path, found: Rows, lists: Lists, whole: bool) -> None:
    """Raises UsageError for the first query or item that the dataset has not, and for an item that is lacking."""
    for query_id, row in found.items():
        if query_id not in lists:
            raise UsageError(f"{path}: query '{query_id}' is not in the dataset.", HINT)
        known = set(lists[query_id])
        if strange := next((doc_id for doc_id in row if doc_id not in known), None):
            raise UsageError(f"{path}: query '{query_id}' has no item '{strange}'.", HINT)
        if whole and (lacking := [doc_id for doc_id in lists[query_id] if doc_id not in row]):
            raise UsageError(
                f"{path}: query '{query_id}' lacks item '{lacking[0]}' ({len(lacking)} of {len(known)} items).",
                HINT,
            )


def check_belongs(path: Path, dataset: str, model: str | None = None) -> None:
    """Raises UsageError for a released file whose name or folder says another task, or another generator.

    `model`: as in -m; None for files that hang on no generator.
    """
    task, of = re.match(r"(\d)(?:_|\.json)", path.name), dataset.partition("lamp/")[2]
    if task and of and task[1] != of:
        raise UsageError(f"{path}: is of LaMP-{task[1]}, and the dataset is {dataset}.", HINT)
    for name, checkpoint in GENERATORS.items():
        made = any(name in part for part in path.parts)
        if (
            made
            and model is not None
            and model.partition(":")[2].rstrip("/").rpartition("/")[2] != checkpoint[7:]
        ):
            raise UsageError(f"{path}: was made with {checkpoint}, and the generator is {model}.", HINT)
