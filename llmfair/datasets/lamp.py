"""LaMP 1 to 7: inputs, profiles and right answers, as LaMP gives them away or as Fair-RAG released them.

LaMP is CC BY-NC-SA 4.0 and task 6 needs the Avocado collection, so users bring the files: nothing of them is here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from llmfair.datasets.base import cache_folder
from llmfair.datasets.files import Id, identifier
from llmfair.datasets.questions import Question, QuestionSet, Task
from llmfair.errors import UsageError
from llmfair.io.files import read_document, wrong
from llmfair.io.trec import RESERVED_QUERY
from llmfair.nouns import LABEL, Document, Query
from llmfair.registry import register

LICENCE = "CC BY-NC-SA 4.0 (LaMP, Salemi et al. 2024)"
LAYOUTS = (
    ("{0}_user_dev_inputs.json", "{0}_user_dev_outputs.json"),
    ("{0}_time_dev_inputs.json", "{0}_time_dev_outputs.json"),
    *(
        (f"{folder}dev_questions.json", f"{folder}dev_outputs.json")
        for folder in ("", "dev/", "LaMP_{0}/", "LaMP_{0}/dev/", "LaMP_{0}/new/dev/")
    ),
)
"""Where inputs and outputs of task {0} may lie in a folder; the first pair that is there is read."""
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
    wanted: str
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
        _REFERENCES, 'two references, [1]: "…" [2]: "…"', Task("rag/lamp-1", "accuracy"),
        title="title", text="abstract",
        insertion=re.compile(r"which reference is related", re.IGNORECASE), meanings=("[1]", "[2]"),
    ),
    2: Format(
        _behind("description:"), "'description:'", Task("rag/lamp-2", "accuracy"), text="description", label="tag"
    ),
    3: Format(_behind("review:"), "'review:'", Task("rag/lamp-3", "mae", "accuracy"), label="score"),
    4: Format(_behind("article:"), "'article:'", Task("rag/lamp-4", "rouge-l"), title="title"),
    5: Format(_behind(":"), "a colon", Task("rag/lamp-5", "rouge-l"), title="title", text="abstract"),
    6: Format(_behind(":"), "a colon", Task("rag/lamp-6", "rouge-l"), label="title"),
    7: Format(_behind(":"), "a colon", Task("rag/lamp-7", "rouge-l")),
}  # fmt: skip


class _Entry(Struct):
    id: Id
    input: str
    profile: Annotated[list[dict[str, Any]], Meta(min_length=1)]


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
        super().__init__(f"lamp/{number}", self._load, FORMATS[number].task, facts=facts)

    def at(self, folder: Path) -> Lamp:
        """The same task from another folder. Raises UsageError if its files are not there."""
        found = Lamp(self.number, folder)
        found.files  # noqa: B018
        return found

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

    def _load(self) -> list[Question]:
        return read_task(self.number, *self.files)


for _number in FORMATS:
    register("dataset", f"lamp/{_number}")(partial(Lamp, _number))


def read_task(number: int, inputs: Path, outputs: Path) -> list[Question]:
    """The questions of a task. Raises UsageError naming file, query, item and field."""
    answers: _Outputs = read_document(outputs, _Outputs, HINT)
    if (of := re.match(r"LaMP_(\d)", answers.task)) and int(of[1]) != number:
        raise wrong(outputs, 0, "task", f"is '{answers.task}', not LaMP_{number}", HINT)
    entries: list[_Entry] = read_document(inputs, list[_Entry], HINT)
    _check_ids(
        inputs, [str(entry.id) for entry in entries], outputs, [str(gold.id) for gold in answers.golds]
    )
    labels: dict[str, dict[str, tuple[str, ...]]] = {}
    questions = []
    entries.reverse()
    for gold in answers.golds:
        entry = entries.pop()  # so that a large file is not held twice
        questions.append(_question(FORMATS[number], entry, str(gold.output), inputs, labels))
    return questions


def _question(
    of: Format, entry: _Entry, gold: str, path: Path, labels: dict[str, dict[str, tuple[str, ...]]]
) -> Question:
    found = next(filter(None, (pattern.search(entry.input) for pattern in of.searched)), None)
    if found is None:
        raise wrong(path, 0, f"query '{entry.id}', input", f"has no {of.wanted}", OTHER_TASK)
    groups = tuple(map(str.strip, found.groups()))
    place = of.insertion.search(entry.input) if of.insertion else None
    return Question(
        Query(str(entry.id), entry.input),
        (gold,),
        _items(of, entry, path, labels),
        searched=" ".join(groups),
        insertion=place.start() if place else 0,
        meanings=dict(zip(of.meanings, groups, strict=False)),
    )


def _items(
    of: Format, entry: _Entry, path: Path, labels: dict[str, dict[str, tuple[str, ...]]]
) -> tuple[Document, ...]:
    """The items of an entry; those of one label share its record in `labels`."""
    items: dict[str, Document] = {}
    for place, item in enumerate(entry.profile):
        where = f"query '{entry.id}', profile[{place}]"
        doc_id = identifier(item.get("id"))
        if doc_id is None:
            raise wrong(path, 0, f"{where}.id", "is missing, empty or holds white space", OTHER_TASK)
        if doc_id in items:
            raise wrong(path, 0, f"{where}.id", f"'{doc_id}' was already given", OTHER_TASK)
        texts = {field: _text(item.get(field)) for field in (of.title, of.text, of.label) if field}
        if gone := next((field for field, text in texts.items() if text is None), None):
            what = "is not a text" if gone in item else "is missing"
            raise wrong(path, 0, f"{where}.{gone}", what, OTHER_TASK)
        label = texts.get(of.label)
        marked = {} if label is None else labels.setdefault(label, {LABEL: (label,)})
        items[doc_id] = Document(doc_id, texts.get(of.title) or "", texts[of.text] or "", marked)
    return tuple(items.values())


def _text(value: object) -> str | None:
    """A field as text: scores may be numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value if isinstance(value, str) else None


def _check_ids(inputs: Path, queries: list[str], outputs: Path, golds: list[str]) -> None:
    """Raises UsageError unless both files have the same ids in the same order, each once."""
    if not queries:
        raise UsageError(f"{inputs}: has no entry.", HINT)
    for place, (query_id, gold) in enumerate(zip_longest(queries, golds), start=1):
        if query_id != gold:
            raise UsageError(
                f"entry {place} is '{query_id}' in {inputs} and '{gold}' in {outputs}.",
                "both files have to be of one task and split, in one order",
            )
    if len({*queries}) < len(queries) or RESERVED_QUERY in queries:
        again = next(one for one in queries if one == RESERVED_QUERY or queries.count(one) > 1)
        raise wrong(inputs, 0, "id", f"'{again}' is there twice, or stands for all queries", HINT)
