"""Questions with answers in a user's own files: one of JSON lines, or a folder of documents, queries and answers.

Every mistake is named by file, line and field; the first five and the total number are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmfair.datasets.files import identifier, read_documents, read_queries
from llmfair.datasets.json_lines import objects
from llmfair.datasets.questions import Question, QuestionSet, Task
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.trec import RESERVED_QUERY, Problems, read_groups, read_qrels, read_ranks
from llmfair.nouns import LABEL, Document, Query

NEEDED = ("docs.jsonl", "queries.tsv", "answers.jsonl")
HINT = (
    'a .jsonl file of lines {"id": "q1", "input": "…", "gold": "…", "items": [{"id": "d1", "text": "…"}]}, or a folder '
    'with docs.jsonl, queries.tsv and answers.jsonl: {"query_id": "q1", "gold": "…"}'
)
_LINE_HINT = 'a line: {"id": "q1", "input": "…", "gold": "…" or ["…"], "items": [{"id": "d1", "text": "…"}]}'
Scalar = str | int | float


@dataclass
class _Item:
    id: str | int
    text: str
    title: str = ""
    label: Scalar | None = None


@dataclass
class _Golds:
    gold: Scalar | list[Scalar] | None = None
    golden_answers: Scalar | list[Scalar] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        given = self.golden_answers if self.gold is None else self.gold
        golds = given if isinstance(given, list) else [] if given is None else [given]
        return tuple(map(str, golds))


@dataclass(kw_only=True)
class _Line(_Golds):
    id: str | int
    input: str
    items: list[_Item]


@dataclass(kw_only=True)
class _Answer(_Golds):
    query_id: str | int


def answer_lines(path: Path, name: str | None = None, task: Task | None = None) -> QuestionSet:
    """A dataset in one file: a question a line, with the items of its own."""
    return QuestionSet(name or path.stem, lambda: read_questions(path), task)


def read_questions(path: Path) -> list[Question]:
    """The questions of a file of JSON lines. Raises UsageError."""
    problems = Problems()
    found: dict[str, Question] = {}
    lines: dict[str, int] = {}
    for number, row in objects(path, _Line, problems):
        wrong = [*_wrong_id("id", row.id, lines), *_wrong_golds(row.texts), *_wrong_items(row.items)]
        if not row.input.strip():
            wrong.append(("input", "is empty"))
        for field, text in wrong:
            problems.add(path, number, field, text)
        if not wrong:
            lines[str(row.id)] = number
            items = tuple(map(_document, row.items))
            found[str(row.id)] = Question(Query(str(row.id), row.input), row.texts, items, row.input)
    problems.raise_any(_LINE_HINT)
    return list(found.values())


def answer_folder(path: Path, judged: bool = False) -> QuestionSet:
    """A folder of docs.jsonl, queries.tsv and answers.jsonl; groups.tsv may give items a `label`.

    Items of a query are those of candidates.run where there is one, else all documents: a corpus. `judged`: with
    relevance from qrels.txt. Raises UsageError.
    """
    needed = [*NEEDED, *(["qrels.txt"] if judged else [])]
    if missing := [file for file in needed if not files.stored(path / file).is_file()]:
        raise UsageError(f"{path}: needs {', '.join(needed)}; {' and '.join(missing)} missing", HINT)
    name, shared = path.resolve().name, not files.stored(path / "candidates.run").is_file()
    return QuestionSet(name, lambda: _read_folder(path, judged), shared=shared)


def _read_folder(path: Path, judged: bool) -> list[Question]:
    problems = Problems()

    def file(name: str) -> Path:
        return files.stored(path / name)

    groups, golds, run = file("groups.tsv"), file("answers.jsonl"), file("candidates.run")
    labels = _labels(groups, problems) if groups.is_file() else {}
    documents = read_documents(file("docs.jsonl"), labels, problems, needed="text")
    queries = read_queries(file("queries.tsv"), problems)
    answers: dict[str, tuple[str, ...]] = {}
    lines: dict[str, int] = {}
    for number, row in objects(golds, _Answer, problems):
        query_id = str(row.query_id)
        wrong = [*_wrong_id("query_id", row.query_id, lines), *_wrong_golds(row.texts)]
        if query_id not in queries:
            wrong.append(("query_id", f"'{query_id}' is not in queries.tsv"))
        for field, text in wrong:
            problems.add(golds, number, field, text)
        answers[query_id], lines[query_id] = row.texts, number
    for query_id in queries:
        if query_id not in answers:
            problems.add(golds, 0, "query_id", f"query '{query_id}' has no line")
    qrels = _per_query(file("qrels.txt"), read_qrels, queries, documents, problems) if judged else {}
    ranked = _per_query(run, read_ranks, queries, documents, problems) if run.is_file() else {}
    for query_id in queries if run.is_file() else ():
        if query_id not in ranked:
            problems.add(run, 0, "query_id", f"query '{query_id}' has no item")
    problems.raise_any(HINT)
    corpus = tuple(documents.values())
    questions = [
        Question(query, answers[query_id], corpus, query.text, relevance=qrels.get(query_id, {}))
        for query_id, query in queries.items()
    ]
    if not ranked:
        return questions
    return [
        replace(of, items=tuple(documents[doc_id] for doc_id in sorted(ranks, key=ranks.__getitem__)))
        for of in questions
        for ranks in [ranked[of.query.query_id]]
    ]


def _labels(path: Path, problems: Problems) -> dict[str, dict[str, dict[str, int]]]:
    """Labels as `{doc_id: {"label": {label: its first line}}}`; groups of other attributes are of no use here."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    of_label: dict[str, dict[str, dict[str, int]]] = {}  # few labels, many documents
    for number, doc_id, attribute, group in read_groups(path, problems, None):
        if attribute != LABEL:
            continue
        if doc_id in found:
            problems.add(path, number, LABEL, f"'{doc_id}' has a label already")
        found[doc_id] = of_label.setdefault(group, {LABEL: {group: number}})
    return found


def _per_query(
    path: Path, read: Any, queries: Mapping[str, Query], documents: Mapping[str, Document], problems: Problems
) -> dict[str, dict[str, int]]:
    """A qrels or run file as `{query_id: {doc_id: relevance or rank}}`, its ids checked."""
    rows: dict[str, dict[str, tuple[int, int]]] = read(path, problems)
    for query_id, by_doc in rows.items():
        for doc_id, (_, line) in by_doc.items():
            if query_id not in queries:
                problems.add(path, line, "query_id", f"'{query_id}' is not in queries.tsv")
            elif doc_id not in documents:
                problems.add(path, line, "doc_id", f"'{doc_id}' is not in docs.jsonl")
    ids = {doc_id: doc_id for doc_id in documents}  # every file has its own copies of them
    return {
        query_id: {ids[doc_id]: of for doc_id, (of, _) in by_doc.items() if doc_id in ids}
        for query_id, by_doc in rows.items()
    }


def _document(item: _Item) -> Document:
    groups = {} if item.label is None else {LABEL: (str(item.label),)}
    return Document(str(item.id), item.title, item.text, groups)


def _wrong_id(field: str, given: str | int, lines: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    if identifier(given) is None:
        yield field, "is empty or holds white space"
    elif given == RESERVED_QUERY:
        yield field, f"'{RESERVED_QUERY}' stands for all queries in results; choose another"
    elif str(given) in lines:
        yield field, f"'{given}' was already given on line {lines[str(given)]}"


def _wrong_golds(golds: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not all(map(str.strip, golds)):
        yield "gold", "is empty"


def _wrong_items(items: Sequence[_Item]) -> Iterator[tuple[str, str]]:
    if not items:
        yield "items", "is empty"
    seen = set[str]()
    for place, item in enumerate(items):
        where = f"items[{place}]"
        if identifier(item.id) is None:
            yield f"{where}.id", "is empty or holds white space"
        elif str(item.id) in seen:
            yield f"{where}.id", f"'{item.id}' was already given to an item of this query"
        if not (item.text.strip() or item.title.strip()):
            yield f"{where}.text", "is empty"
        if item.label is not None and not str(item.label).strip():
            yield f"{where}.label", "is empty"
        seen.add(str(item.id))
