"""Datasets that have answers: a generator is asked a question beside some of its items, and its output is scored.

A user's own are one file of JSON lines, or a folder of documents, queries and answers; a mistake is named by file, line
and field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from llmfair import registry
from llmfair.datasets.attributes import data_folder
from llmfair.datasets.base import no_dataset
from llmfair.datasets.files import (
    NO_GROUPS,
    Groups,
    Id,
    Words,
    check_files,
    check_query_id,
    groups_of,
    numbers_of,
    read_documents,
    read_queries,
)
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.files import json_lines, wrong
from llmfair.io.trec import read_groups, read_qrels, read_ranks
from llmfair.nouns import LABEL, Attribute, Candidates, Document, Qrels, Query

ITEM = Attribute("item", protected=(), unprotected=(), words={}, worded=False)
"""What rows are about where no groups are compared: all items alike."""


@dataclass(frozen=True, slots=True)
class Task:
    """How a generator is asked, and how its answers are scored unless the user says otherwise.

    `prompt`: a prompt's name. `utility`: that of an answer; `label_utility`: that by which items are told useful,
    the same where it is empty.
    """

    prompt: str
    utility: str
    label_utility: str = ""


CHOICE, FREE = Task("rag/label", "accuracy"), Task("rag/question", "token-f1")
"""One of the labels that items have, or a text of any kind."""


@dataclass(frozen=True, slots=True)
class Question:
    """One input of a generator, its right answers (none: unknown), and its items in profile order.

    `searched`: the text that a retriever searches with. Items are put behind the first `insertion` characters of the
    input, 0 where the prompt alone says where they stand. `meanings`: what short answers stand for, as `[1]` for a
    title. `relevance`: judgements, where they were asked for.
    """

    query: Query
    golds: tuple[str, ...]
    items: tuple[Document, ...]
    searched: str
    insertion: int = 0
    meanings: Mapping[str, str] = field(default_factory=dict)
    relevance: Mapping[str, int] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, str]:
        """The input before and behind the place where items are put; ("", input) where the prompt alone says it."""
        return self.query.text[: self.insertion], self.query.text[self.insertion :]


class QuestionSet:
    """Questions, right answers, and the items to answer from; read when they are first needed.

    `queries`: their text is the input as the generator gets it. `candidates(query)`: all items of the query, in
    profile order. An item's title and text are what a retriever reads; where it has a label, `groups["label"]` is its
    only one. Without a task, it is a choice where every item of every question has a label, else free text. `shared`:
    all questions have the same items, a corpus, of which an audit takes those that its retriever finds.
    """

    has_lists = True
    attributes = (ITEM,)
    # Of lists of its own every item is at hand.
    stand_ins: Mapping[str, Document] = {}
    relevant_counts: Mapping[str, Mapping[str, int]] = {}

    def __init__(
        self,
        name: str,
        read: Callable[[], Sequence[Question]],
        task: Task | None = None,
        *,
        shared: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.shared = shared
        self._read, self._task, self._facts = read, task, facts or {}

    def with_items(self, items: Mapping[str, tuple[Document, ...]]) -> QuestionSet:
        """The same questions, each with these items alone."""
        read = [replace(self.questions[query_id], items=of) for query_id, of in items.items()]
        return QuestionSet(self.name, lambda: read, self.task, facts=self._facts)

    @cached_property
    def questions(self) -> Mapping[str, Question]:
        return {question.query.query_id: question for question in self._read()}

    @cached_property
    def task(self) -> Task:
        if self._task is not None:
            return self._task
        labelled = all(LABEL in item.groups for of in self.questions.values() for item in of.items)
        return CHOICE if labelled else FREE

    @property
    def prompt(self) -> str:
        return self.task.prompt

    @property
    def queries(self) -> Sequence[Query]:
        return [question.query for question in self.questions.values()]

    @cached_property
    def qrels(self) -> Qrels:
        return {query_id: of.relevance for query_id, of in self.questions.items() if of.relevance}

    @cached_property
    def documents(self) -> Mapping[str, Document]:
        """Items by id. Where two questions give one id to different items, the first: `candidates` knows each."""
        documents: dict[str, Document] = {}
        for question in self.questions.values():
            for item in question.items:
                documents.setdefault(item.doc_id, item)
        return documents

    def candidates(self, query: Query) -> Candidates:
        question = self.questions[query.query_id]
        return Candidates(question.query, question.items, question.relevance)

    def searched(self, query: Query) -> str:
        """The text that a retriever searches with."""
        return self.questions[query.query_id].searched

    def describe(self) -> dict[str, Any]:
        answered = sum(bool(question.golds) for question in self.questions.values())
        return {"answered": answered, "utility": self.task.utility, "prompt": self.prompt, **self._facts}


# Datasets by name, and a user's own


NEEDED = ("docs.jsonl", "queries.tsv", "answers.jsonl")
HINT = (
    'a .jsonl file of lines {"id": "q1", "input": "…", "gold": "…", "items": [{"id": "d1", "text": "…"}]}, or a folder '
    'with docs.jsonl, queries.tsv and answers.jsonl: {"query_id": "q1", "gold": "…"}'
)
Scalar = Words | int | float


class _Item(Struct):
    id: Id
    text: str
    title: str = ""
    label: Scalar | None = None


FIELDS = {*_Item.__struct_fields__}


class _Golds(Struct, kw_only=True):
    # A blank one is refused below, since msgspec 0.22 corrupts memory where a union has a list beside a text with a
    # pattern: the process may crash as it ends.
    gold: str | int | float | list[Scalar] | None = None
    golden_answers: str | int | float | list[Scalar] | None = None

    def __post_init__(self) -> None:
        for name in ("gold", "golden_answers"):
            if isinstance(gold := getattr(self, name), str) and not gold.strip():
                raise ValueError(f"is empty - at `$.{name}`")  # as msgspec names a field

    @property
    def texts(self) -> tuple[str, ...]:
        value = self.golden_answers if self.gold is None else self.gold
        golds = value if isinstance(value, list) else [] if value is None else [value]
        return tuple(map(str, golds))


class _Line(_Golds, kw_only=True):
    id: Id
    input: Words
    items: Annotated[list[_Item], Meta(min_length=1)]


class _Answer(_Golds, kw_only=True):
    query_id: Id


def load_answers(
    name: str, data: Path | None = None, judged: bool = False, grouped: bool = False
) -> QuestionSet:
    """A dataset with answers: by id, a folder, or a .jsonl file.

    `data`: the folder of a dataset that users bring (`lamp/4`). `judged`: with qrels, which only folders have.
    `grouped`: with the groups that a user's own items have, beside their labels. Raises UsageError.
    """
    path, registered = Path(name), registry.has("dataset", name)
    if not registered and path.is_dir():
        return answer_folder(path, judged, grouped)
    if judged:
        hint = "a folder with qrels.txt has; others know labels by gain"
        raise UsageError(f"dataset '{name}' has no qrels.", hint)
    if not registered and path.is_file():
        return answer_lines(path, grouped=grouped)
    if not registered:
        raise no_dataset(name, HINT)
    dataset: QuestionSet = registry.lookup("dataset", name)()
    if not hasattr(dataset, "searched"):
        raise UsageError(f"dataset '{name}' has no questions with answers.", HINT)
    if data is None:
        return dataset
    if not hasattr(dataset, "at"):
        raise UsageError(f"--data {data}: dataset '{name}' is not read from a folder.", "leave it out")
    of_folder: QuestionSet = dataset.at(data)
    return of_folder


def has_answers(path: Path) -> bool:
    """Whether a file or folder of a user's own is one of questions with answers: a table of items has no `items`."""
    if path.suffix != ".jsonl" or not path.is_file():
        return path.suffix == ".jsonl" or files.stored(path / "answers.jsonl").is_file()
    try:
        _, first = next(json_lines(path, dict[str, Any], HINT))
    except UsageError:
        return True  # which says what is wrong
    return "items" in first or "doc_id" not in first


def questions_sha256(dataset: QuestionSet, queries: Sequence[Query]) -> str:
    """SHA-256 over inputs, right answers and items, with their labels: what makes runs comparable; not judgements."""
    digest = sha256()
    last: tuple[Document, ...] | None = None
    for query in queries:
        items = dataset.candidates(query).documents
        if items is not last:  # a corpus that queries share is read once
            last, rows = items, [[item.doc_id, item.title, item.text, item.groups] for item in items]
            of_items = sha256(json.dumps(rows).encode()).hexdigest()
        question = dataset.questions[query.query_id]
        row = [query.query_id, query.text, question.searched, question.golds, of_items]
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()


def answer_lines(path: Path, name: str | None = None, grouped: bool = False) -> QuestionSet:
    """A dataset in one file: a question a line, with the items of its own. Raises UsageError when it is read.

    `grouped`: whatever else items have is a group of theirs, such as `"source": "Acme"`.
    """

    def read() -> list[Question]:
        questions: dict[str, Question] = {}
        further = json_lines(path, dict[str, Any], HINT) if grouped else repeat((0, {"items": repeat({})}))
        for (line, row), (_, beside) in zip(json_lines(path, _Line, HINT), further, strict=False):
            query_id, items = str(row.id), dict[str, Document]()
            check_query_id(path, line, "id", query_id, questions)
            for place, (item, fields) in enumerate(zip(row.items, beside["items"], strict=False)):
                doc_id, where = str(item.id), f"items[{place}]"
                if doc_id in items:
                    raise wrong(path, line, f"{where}.id", f"'{doc_id}' was already given", HINT)
                if not (item.text.strip() or item.title.strip()):
                    raise wrong(path, line, f"{where}.text", "is empty", HINT)
                groups = NO_GROUPS if item.label is None else {LABEL: (str(item.label),)}
                if more := {of: texts for of in fields.keys() - FIELDS if (texts := _texts(fields[of]))}:
                    groups = {**groups, **dict(sorted(more.items()))}
                items[doc_id] = Document(doc_id, item.title, item.text, groups)
            query = Query(query_id, row.input)
            questions[query_id] = Question(query, row.texts, tuple(items.values()), row.input)
        return list(questions.values())

    return QuestionSet(name or path.stem, read)


def _texts(value: Any) -> tuple[str, ...]:
    """The groups that a field names: a text or number, or several of them."""
    values = value if isinstance(value, list) else [value]
    texts = (str(of).strip() for of in values if isinstance(of, str | int | float))
    return tuple(dict.fromkeys(filter(None, texts)))


def answer_folder(path: Path, judged: bool = False, grouped: bool = False) -> QuestionSet:
    """A folder of docs.jsonl, queries.tsv and answers.jsonl; groups.tsv may give items a `label`.

    Items of a query are those of candidates.run where there is one, else all documents: a corpus. `judged`: with
    relevance from qrels.txt; `grouped`: with all of groups.tsv. Raises UsageError, some when it is read.
    """
    docs, texts, golds, qrels, groups, run = (
        files.stored(path / name) for name in (*NEEDED, "qrels.txt", "groups.tsv", "candidates.run")
    )
    check_files(path, [*NEEDED, *["qrels.txt"] * judged], HINT)

    def read() -> list[Question]:
        labels: dict[str, Groups] = {}
        of_label: dict[str, Groups] = {}  # few labels, many documents
        for line, doc_id, attribute, group in read_groups(groups, None) if groups.is_file() else ():
            if attribute == LABEL and doc_id in labels:
                raise wrong(groups, line, LABEL, f"'{doc_id}' has a label already", HINT)
            if attribute == LABEL:
                labels[doc_id] = of_label.setdefault(group, {LABEL: (group,)})
        if grouped and groups.is_file():
            labels, _ = groups_of(groups, None, "")
        documents, queries = read_documents(docs, labels, needed="text"), read_queries(texts)
        answers: dict[str, tuple[str, ...]] = {}
        for line, row in json_lines(golds, _Answer, HINT):
            query_id = str(row.query_id)
            check_query_id(golds, line, "query_id", query_id, answers)
            if query_id not in queries:
                raise wrong(golds, line, "query_id", f"'{query_id}' is not in queries.tsv", HINT)
            answers[query_id] = row.texts

        judgements = numbers_of(qrels, read_qrels(qrels), queries, documents) if judged else {}
        ranked = numbers_of(run, read_ranks(run), queries, documents) if run.is_file() else None
        for of, rows, what in ((golds, answers, "line"), (run, ranked, "item")):
            if rows is not None and (gone := next((q for q in queries if q not in rows), None)):
                raise wrong(of, 0, "query_id", f"query '{gone}' has no {what}", HINT)
        corpus, questions = tuple(documents.values()), []
        for query_id, query in queries.items():
            ranks = ranked[query_id] if ranked else {}
            items = tuple(documents[doc_id] for doc_id in sorted(ranks, key=ranks.__getitem__)) or corpus
            relevance = judgements.get(query_id, {})
            questions.append(Question(query, answers[query_id], items, query.text, relevance=relevance))
        return questions

    return QuestionSet(path.resolve().name, read, shared=not run.is_file())


@registry.register("dataset", "rag-sample")
def rag_sample() -> QuestionSet:
    """The bundled sample (CC0): eight questions with twenty labelled items each, five to eight with the right label."""
    return answer_lines(data_folder() / "rag-sample" / "questions.jsonl", "rag-sample")
