"""Files that Fair-RAG released, and others in their form: which items are useful to a generator, scores of a retriever.

Ids are texts: "0111" is not 111. What a file says of other queries or items than the dataset's is refused, since ids
of one task or generator fit another by chance.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.trec import RUN, Problems, columns, finite_number, text_lines
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
    problems = Problems()
    found: Rows = {}
    for number, query_id, doc_id, label, text in _labels(path, problems):
        value = finite_number(text)
        if value is None or (label == LABELS[0] and value not in (0, 1)):
            wanted = "0 or 1" if label == LABELS[0] else "a finite number"
            problems.add(path, number, label, f"'{text}' is not {wanted}")
        else:
            _add(found, query_id, doc_id, value, path, number, problems)
    problems.raise_any(_LABELS_HINT)
    _check(path, found, lists, whole=True)
    return {
        query_id: {doc_id: value > LEAST_GAIN for doc_id, value in row.items()}
        for query_id, row in found.items()
    }


def _labels(path: Path, problems: Problems) -> Iterator[tuple[int, str, str, str, str]]:
    """Lines of a file of labels: its number, query, item, name and text of the label."""
    header: list[str] = []
    for number, line in text_lines(path, problems):
        fields = [field.strip() for field in line.split("\t")]
        if not header:
            header = fields
            label = next((name for name in LABELS if name in header), "")
            if not label or not {"qid", "pid"} <= set(header):
                problems.add(path, number, "", f"is no header with qid, pid and {' or '.join(LABELS)}")
                return
            continue
        if len(fields) != len(header):
            problems.add(
                path, number, "", f"expected {len(header)} columns separated by a tab, found {len(fields)}"
            )
            continue
        row = dict(zip(header, fields, strict=True))
        yield number, row["qid"], row["pid"], label, row[label]


def read_retrieval(path: Path, lists: Lists, needed: Collection[str], whole: bool = True) -> Rows:
    """A retriever's scores, from released JSON `{qid: [[pid, score], …]}` or a TREC run.

    `needed`: the queries that must be there. `whole`: every item of a query needs a score, else those that a
    retriever found of a corpus. Raises UsageError.
    """
    problems = Problems()
    rows = _scores_of_json(path) if path.suffix == ".json" else _scores_of_run(path, problems)
    found: Rows = {}
    for number, query_id, doc_id, score in rows:
        value = finite_number(str(score)) if isinstance(score, int | float | str) else None
        if value is None:
            problems.add(
                path,
                number,
                "score",
                f"of item '{doc_id}' of query '{query_id}' is no finite number: {score}",
            )
        else:
            _add(found, query_id, doc_id, value, path, number, problems)
    problems.raise_any(HINT)
    if absent := [query_id for query_id in needed if query_id not in found]:
        raise UsageError(f"{path}: has no scores for query '{absent[0]}' ({len(absent)} lack them).", HINT)
    _check(path, found, lists, whole)
    return found


def _scores_of_run(path: Path, problems: Problems) -> Iterator[tuple[int, str, str, Any]]:
    for number, (query_id, _, doc_id, _, score, _) in columns(path, problems, RUN, None):
        yield number, query_id, doc_id, score


def _scores_of_json(path: Path) -> Iterator[tuple[int, str, str, Any]]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for query_id, times in Counter(name for name, _ in pairs).items():
            if times > 1:
                raise UsageError(f"{path}: query '{query_id[:40]}' is there {times} times.", RETRIEVAL)
        return dict(pairs)

    try:
        rankings = json.loads(files.document(path).decode("utf-8-sig"), object_pairs_hook=once)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.", RETRIEVAL) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not JSON: {error}.", RETRIEVAL) from None
    if not isinstance(rankings, dict):
        raise UsageError(f"{path}: is no retrieval file.", RETRIEVAL)
    for query_id, ranking in rankings.items():
        for one in ranking if isinstance(ranking, list) else [ranking]:
            doc_id, score = one if isinstance(one, list) and len(one) == 2 else (None, one)
            if isinstance(doc_id, bool) or not isinstance(doc_id, str | int):
                raise UsageError(
                    f"{path}: is no retrieval file: query '{query_id[:40]}' has more than pairs of an item and "
                    "its score.",
                    RETRIEVAL,
                )
            yield 0, query_id, str(doc_id), score


def _add(
    found: Rows, query_id: str, doc_id: str, value: float, path: Path, line: int, problems: Problems
) -> None:
    row = found.setdefault(query_id, {})
    if doc_id in row:
        problems.add(path, line, "pid", f"'{doc_id}' was already given for query '{query_id}'")
    row[doc_id] = value


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
