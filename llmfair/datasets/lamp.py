"""LaMP 1 to 7, and what Fair-RAG released of them: which items are useful to a generator, scores of a retriever.

LaMP is CC BY-NC-SA 4.0 and task 6 needs the Avocado collection, so users bring the files or fetch them: nothing of them
is here. Its authors publish neither sizes nor checksums, so that what is fetched is read as a whole before it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, defstruct

from llmfair.datasets.answers import Question, QuestionSet, Task
from llmfair.datasets.base import cache_folder
from llmfair.datasets.fetch import DownloadProgress, Origin, alone_in, download
from llmfair.datasets.files import NO_GROUPS, Groups, Id
from llmfair.datasets.judgements import Finite
from llmfair.errors import LlmfairError, UsageError
from llmfair.io.files import MOST_OF_JSON, number, read_document, sha256, wrong
from llmfair.io.tables import delimited
from llmfair.io.trec import RUN, cell, columns
from llmfair.nouns import LABEL, LEAST_GAIN, Document, Query
from llmfair.registry import register

LICENCE = "CC BY-NC-SA 4.0 (LaMP, Salemi et al. 2024)"
FILES = ("dev_questions.json", "dev_outputs.json")
LAYOUTS = ("{0}_user_dev_inputs.json", "{0}_user_dev_outputs.json"), FILES
"""Names of inputs and outputs of task {0} in a folder; the first pair that is there is read."""
HINT = (
    "--data DIR    a folder with 4_user_dev_inputs.json and 4_user_dev_outputs.json, or with LaMP's own "
    "dev_questions.json and dev_outputs.json"
)
OTHER_TASK = "the files of another task, or cut off?"


def _behind(mark: str) -> tuple[re.Pattern[str], ...]:
    return (re.compile(f"{mark}(.*)", re.IGNORECASE | re.DOTALL),)


@dataclass(frozen=True, slots=True)
class Format:
    """Facts of one task. `searched`: the groups of the first pattern that is in the input are what is searched with.

    `title`, `text` and `label` name the fields of an item that are read as such; a retriever reads title and text.
    `insertion`: what items are put before, where they stand in the input. `meanings`: what the groups are called.
    """

    searched: tuple[re.Pattern[str], ...]
    task: Task
    title: str = ""
    text: str = "text"
    label: str = ""
    insertion: re.Pattern[str] | None = None
    meanings: tuple[str, ...] = ()


# The first pattern holds for titles with quotation marks in them, the second is what the official code reads.
_REFERENCES = (
    re.compile(r'\[1\]:\s*"(.*)"\s*\[2\]:\s*"(.*)"\s*$', re.DOTALL),
    re.compile(r'"[^"]*"[^"]*"([^"]*)"[^"]*"([^"]*)"'),
)
FORMATS: Mapping[int, Format] = {
    1: Format(
        _REFERENCES, Task("rag/lamp-1", "accuracy"),
        title="title", text="abstract",
        insertion=re.compile(r"which reference is related", re.IGNORECASE), meanings=("[1]", "[2]"),
    ),
    2: Format(
        _behind("description:"), Task("rag/lamp-2", "accuracy"), text="description", label="tag"
    ),
    3: Format(_behind("review:"), Task("rag/lamp-3", "mae", "accuracy"), label="score"),
    4: Format(_behind("article:"), Task("rag/lamp-4", "rouge-l"), title="title"),
    5: Format(_behind(":"), Task("rag/lamp-5", "rouge-l"), title="title", text="abstract"),
    6: Format(_behind(":"), Task("rag/lamp-6", "rouge-l"), label="title"),
    7: Format(_behind(":"), Task("rag/lamp-7", "rouge-l")),
}  # fmt: skip


class _Gold(Struct):
    id: Id
    output: str | int | float


class _Outputs(Struct):
    golds: list[_Gold]
    task: str = ""


class Lamp(QuestionSet):
    """A task of LaMP, read from a folder of the user's, else from where fetched data are kept."""

    def __init__(self, number: int, folder: Path | None = None) -> None:
        self.number = number
        self.folder = folder or cache_folder() / "datasets" / "lamp" / str(number)
        facts = {"licence": LICENCE, "folder": str(self.folder)}
        task = FORMATS[number].task
        super().__init__(f"lamp/{number}", lambda: read_task(number, *self.files), task, facts=facts)

    def at(self, folder: Path) -> Lamp:
        """The same task from another folder."""
        return Lamp(self.number, folder)

    @property
    def files(self) -> tuple[Path, Path]:
        """Inputs and outputs. Raises UsageError."""
        for inputs, outputs in LAYOUTS:
            pair = self.folder / inputs.format(self.number), self.folder / outputs.format(self.number)
            if all(path.is_file() for path in pair):
                return pair
        raise UsageError(
            f"dataset '{self.name}': no inputs and outputs of LaMP-{self.number} in {self.folder}.",
            f"llmfair datasets fetch {self.name}, or {HINT}",
        )

    def listing(self) -> dict[str, Any]:
        """What `datasets list` says, without reading any data."""
        there = any((self.folder / inputs.format(self.number)).is_file() for inputs, _ in LAYOUTS)
        return {"attributes": [], "queries": None, "size": "to fetch, or --data DIR", "fetched": there}


for _number in FORMATS:
    register("dataset", f"lamp/{_number}")(partial(Lamp, _number))


def read_task(number: int, inputs: Path, outputs: Path) -> list[Question]:
    """The questions of a task. Raises UsageError naming file, query, item and field."""
    answers: _Outputs = read_document(outputs, _Outputs, HINT, MOST_OF_JSON)
    if (named := re.match(r"LaMP_(\d)", answers.task)) and int(named[1]) != number:
        raise wrong(outputs, 0, "task", f"is '{answers.task}', not LaMP_{number}", HINT)
    of = FORMATS[number]
    fields = dict.fromkeys(filter(None, (of.title, of.text, of.label)), str | int | float)
    item = defstruct("Item", [("id", Id), *fields.items()])
    items = Annotated[list[item], Meta(min_length=1)]  # type: ignore[valid-type]
    entry = defstruct("Entry", [("id", Id), ("input", str), ("profile", items)])
    entries = read_document(inputs, Annotated[list[entry], Meta(min_length=1)], OTHER_TASK, MOST_OF_JSON)  # type: ignore[valid-type]
    queries, golds = ([str(row.id) for row in rows] for rows in (entries, answers.golds))
    for place, (query_id, gold_id) in enumerate(zip_longest(queries, golds), start=1):
        if query_id != gold_id:
            raise UsageError(
                f"entry {place} is '{query_id}' in {inputs} and '{gold_id}' in {outputs}.",
                "both files have to be of one task and split, in one order",
            )
    labels: dict[str, Groups] = {}
    return [
        _question(of, entry, str(gold.output), inputs, labels)
        for entry, gold in zip(entries, answers.golds, strict=True)
    ]


def _question(of: Format, entry: Any, gold: str, path: Path, labels: dict[str, Groups]) -> Question:
    """An entry as a question; items of one label share its record in `labels`."""
    where = f"query '{entry.id}'"
    match = next(filter(None, (pattern.search(entry.input) for pattern in of.searched)), None)
    if match is None:
        raise wrong(path, 0, f"{where}, input", "asks otherwise than this task", OTHER_TASK)
    items: dict[str, Document] = {}
    for item in entry.profile:
        if (doc_id := str(item.id)) in items:
            raise wrong(path, 0, f"{where}, profile.id", f"'{doc_id}' was already given", OTHER_TASK)
        values = (getattr(item, name, "") for name in (of.title, of.text, of.label))
        title, text, label = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        groups = labels.setdefault(label, {LABEL: (label,)}) if of.label else NO_GROUPS
        items[doc_id] = Document(doc_id, title, text, groups)
    parts = tuple(map(str.strip, match.groups()))
    place = of.insertion.search(entry.input) if of.insertion else None
    return Question(
        Query(str(entry.id), entry.input),
        (gold,),
        tuple(items.values()),
        searched=" ".join(parts),
        insertion=place.start() if place else 0,
        meanings=dict(zip(of.meanings, parts, strict=False)),
    )


# Fetched: the development inputs and answers of the user split

PUBLISHED = "https://ciir.cs.umass.edu/downloads/LaMP/"
FOLDERS = {number: f"LaMP_{number}/dev/" for number in FORMATS} | {2: "LaMP_2/new/dev/"}
LICENSED = 6


def lamp_number(name: str) -> int | None:
    """The task that a dataset id names, None of any other dataset."""
    return next((number for number in FORMATS if name == f"lamp/{number}"), None)


def lamp_origins(number: int) -> list[Origin]:
    """The files of a task, here or not. Raises UsageError for the one that cannot be fetched."""
    if number == LICENSED:
        raise UsageError(
            "the e-mails of lamp/6 are those of the Avocado collection (LDC2015T03), which the Linguistic Data "
            "Consortium licenses.",
            "with it LaMP's own program (the folder avocado of github.com/LaMP-Benchmark/LaMP) makes the files; then "
            "--data DIR",
        )
    folder = Lamp(number).folder
    return [Origin(name, folder / name, f"{PUBLISHED}{FOLDERS[number]}{name}") for name in FILES]


def fetch_lamp(number: int, progress: DownloadProgress) -> dict[str, Any]:
    """Gets what is missing of a task, and says what it holds.

    Raises LlmfairError when a connection fails for good or the disk is full, UsageError for files that are no LaMP;
    these are removed, so that the same command begins anew.
    """
    origins = lamp_origins(number)
    with alone_in(origins[0].path.parent):
        for origin in origins:
            download(origin, progress)
        inputs, outputs = (origin.path for origin in origins)
        try:
            questions = read_task(number, inputs, outputs)
        except UsageError as error:
            for origin in origins:
                origin.path.unlink()
            raise LlmfairError(f"what came is no LaMP: {error.message}", "repeat the command") from None
    return {
        "collection": f"lamp/{number}",
        "queries": len(questions),
        "items": sum(len(question.items) for question in questions),
        "sources": [
            {"name": of.name, "from": of.url, "bytes": of.path.stat().st_size, "sha256": sha256(of.path)}
            for of in origins
        ],
    }


# Released by Fair-RAG, and others in their form. Ids are texts: "0111" is not 111. What a file says of other queries or
# items than the dataset's is refused, since ids of one task or generator fit another by chance.

Lists = Mapping[str, Sequence[str]]
"""The dataset's items: `{query_id: doc_ids}`."""
Rows = dict[str, dict[str, float]]
"""A number for items, by query and item."""
LABELS = ("relevance_label", "delta")
"""The column that says of what use an item is: 0 or 1, or the gain of showing it alone."""
FIT_HINT = "is it of this task, generator and query set?"
RETRIEVAL = 'a file of {"query_id": [["doc_id", score], …]}'
LABELS_HINT = "header qid, pid, relevance_label (0 or 1) or delta (a gain), separated by tabs"


def read_useful(path: Path, lists: Lists) -> dict[str, dict[str, bool]]:
    """Which items are useful, from `4_relevance_mapping.tsv` or `4_delta.tsv`; queries that it leaves out are absent.

    Raises UsageError naming line and field, and for a query of which not every item is labelled.
    """

    def rows() -> Iterator[tuple[int, str, str, float]]:
        for line, row in delimited(path, LABELS_HINT):
            label = next((name for name in LABELS if name in row), "")
            if not label or not {"qid", "pid"} <= row.keys():
                raise wrong(path, 1, "", f"is no header with qid, pid and {' or '.join(LABELS)}", LABELS_HINT)
            value = cell(path, line, label, number, row[label].strip())
            if label == LABELS[0] and value not in (0, 1):
                raise wrong(path, line, label, f"'{row[label]}' is not 0 or 1", LABELS_HINT)
            yield line, row["qid"].strip(), row["pid"].strip(), value

    return {
        query_id: {doc_id: value > LEAST_GAIN for doc_id, value in row.items()}
        for query_id, row in _by_query(path, rows(), lists, complete=True).items()
    }


def read_retrieval(path: Path, lists: Lists, needed: Collection[str], complete: bool = True) -> Rows:
    """A retriever's scores, from released JSON `{qid: [[pid, score], …]}` or a TREC run.

    `needed`: the queries that must be there. `complete`: every item of a query needs a score, else those that a
    retriever found of a corpus. Raises UsageError.
    """

    def rows() -> Iterator[tuple[int, str, str, float]]:
        if path.suffix == ".json":
            rankings = read_document(path, dict[str, list[tuple[str | int, Finite]]], RETRIEVAL, MOST_OF_JSON)
            for query_id, ranking in rankings.items():
                yield from ((0, query_id, str(doc_id), value) for doc_id, value in ranking)
        else:
            for line, (query_id, _, doc_id, _, score, _) in columns(path, RUN, hint=FIT_HINT):
                yield line, query_id, doc_id, cell(path, line, "score", number, score)

    scores = _by_query(path, rows(), lists, complete)
    if absent := [query_id for query_id in needed if query_id not in scores]:
        raise UsageError(
            f"{path}: has no scores for query '{absent[0]}' ({len(absent)} lack them).", FIT_HINT
        )
    return scores


def _by_query(path: Path, rows: Iterable[tuple[int, str, str, float]], lists: Lists, complete: bool) -> Rows:
    """The numbers of rows. Raises UsageError for an item that is given twice, not in the dataset, or lacking."""
    values: Rows = {}
    for line, query_id, doc_id, value in rows:
        if doc_id in values.setdefault(query_id, {}):
            raise wrong(path, line, "pid", f"'{doc_id}' was already given for query '{query_id}'", FIT_HINT)
        values[query_id][doc_id] = value
    for query_id, row in values.items():
        items = dict.fromkeys(lists.get(query_id, ()))
        lacking = [doc_id for doc_id in items if doc_id not in row] if complete else []
        if strange := next((doc_id for doc_id in row if doc_id not in items), None):
            raise UsageError(f"{path}: query '{query_id}' has no item '{strange}'.", FIT_HINT)
        if lacking:
            count = f"{len(lacking)} of {len(items)} items"
            raise UsageError(f"{path}: query '{query_id}' lacks item '{lacking[0]}' ({count}).", FIT_HINT)
    return values
