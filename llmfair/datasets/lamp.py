"""LaMP 1 to 7: inputs, profiles and right answers, as LaMP gives them away or as Fair-RAG released them.

LaMP is CC BY-NC-SA 4.0 and task 6 needs the Avocado collection, so users bring the files: nothing of them is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from llmfair.datasets.base import cache_folder
from llmfair.datasets.files import identifier
from llmfair.datasets.questions import Question, QuestionSet, Task
from llmfair.errors import UsageError
from llmfair.io.files import document
from llmfair.io.trec import RESERVED_QUERY, Problems
from llmfair.nouns import LABEL, Document, Query
from llmfair.registry import register

T = TypeVar("T")
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


@dataclass
class _Entry:
    id: str | int
    input: str
    profile: list[dict[str, Any]]


@dataclass
class _Gold:
    id: str | int
    output: str | int | float


@dataclass
class _Outputs:
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
    """The questions of a task, each file parsed once. Raises UsageError naming file, query, item and field."""
    told = _decoded(outputs, _Outputs)
    if (of := re.match(r"LaMP_(\d)", told.task)) and int(of[1]) != number:
        raise UsageError(f"{outputs}: task: is '{told.task}', not LaMP_{number}.", HINT)
    entries = _decoded(inputs, list[_Entry])
    _check_ids(inputs, [str(entry.id) for entry in entries], outputs, [str(gold.id) for gold in told.golds])
    problems = Problems()
    make = partial(_question, FORMATS[number], _items_of(FORMATS[number]))
    questions = []
    entries.reverse()
    for gold in told.golds:
        entry = entries.pop()  # so that a large file is not held twice

        def wrong(field: str, text: str, query_id: str = str(entry.id)) -> None:
            problems.add(inputs, 0, f"query '{query_id}', {field}", text)

        questions.append(make(entry, str(gold.output), wrong))
    problems.raise_any("the files of another task, or cut off?")
    return questions


Wrong = Callable[[str, str], None]
"""Takes the field and what is wrong with it."""


def _question(
    of: Format,
    items_of: Callable[[_Entry, Wrong], Iterator[Document]],
    entry: _Entry,
    gold: str,
    wrong: Wrong,
) -> Question:
    found = next(filter(None, (pattern.search(entry.input) for pattern in of.searched)), None)
    if found is None:
        wrong("input", f"has no {of.wanted}")
    groups = tuple(map(str.strip, found.groups())) if found else ()
    place = of.insertion.search(entry.input) if of.insertion else None
    if not entry.profile:
        wrong("profile", "is empty")
    return Question(
        Query(str(entry.id), entry.input),
        (gold,),
        tuple(items_of(entry, wrong)),
        searched=" ".join(groups),
        insertion=place.start() if place else 0,
        meanings=dict(zip(of.meanings, groups, strict=False)),
    )


def _items_of(of: Format) -> Callable[[_Entry, Wrong], Iterator[Document]]:
    """What reads the items of an entry; items of one label share its record."""
    fields = [field for field in (of.title, of.text, of.label) if field]
    labels: dict[str, dict[str, tuple[str, ...]]] = {}

    def read(entry: _Entry, wrong: Wrong) -> Iterator[Document]:
        seen = set[str]()
        for place, item in enumerate(entry.profile):
            doc_id = identifier(item.get("id"))
            where = f"profile[{place}]" if doc_id is None else f"item '{doc_id}'"
            texts = {field: _text(item.get(field)) for field in fields}
            if doc_id is None:
                wrong(f"{where}.id", "is missing, empty or holds white space")
            elif doc_id in seen:
                wrong(f"{where}, id", "was already given to an item of this query")
            for field, text in texts.items():
                if text is None:
                    wrong(f"{where}, {field}", "is not a text" if field in item else "is missing")
            if doc_id is None or doc_id in seen or None in texts.values():
                continue
            seen.add(doc_id)
            label = texts.get(of.label)
            groups = {} if label is None else labels.setdefault(label, {LABEL: (label,)})
            yield Document(doc_id, texts.get(of.title) or "", texts[of.text] or "", groups)

    return read


def _text(value: object) -> str | None:
    """A field as text: scores may be numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value if isinstance(value, str) else None


def _check_ids(inputs: Path, queries: list[str], outputs: Path, golds: list[str]) -> None:
    """Raises UsageError unless both files have the same ids in the same order, each once, fit for TREC files."""
    for place, (query_id, gold) in enumerate(zip(queries, golds, strict=False), start=1):
        if query_id != gold:
            raise UsageError(
                f"entry {place} is '{query_id}' in {inputs} and '{gold}' in {outputs}.",
                "both files have to be of one task and split, in one order",
            )
    if len(queries) != len(golds):
        longer, count = (inputs, len(queries)) if len(queries) > len(golds) else (outputs, len(golds))
        raise UsageError(
            f"{longer} has {count} entries, and {outputs if longer is inputs else inputs} has "
            f"{min(len(queries), len(golds))}.",
            "both files have to be of one task and split",
        )
    if not queries:
        raise UsageError(f"{inputs}: has no entry.", HINT)
    seen = set[str]()
    for query_id in queries:
        if identifier(query_id) is None or query_id == RESERVED_QUERY or query_id in seen:
            why = "is given twice" if query_id in seen else "is empty, holds white space, or is 'all'"
            raise UsageError(f"{inputs}: id: '{query_id}' {why}.", "ids of queries are unique")
        seen.add(query_id)


def _decoded(path: Path, of: type[T]) -> T:
    """A JSON file as this type, a byte-order mark accepted. Raises UsageError naming the field."""
    from msgspec import DecodeError, ValidationError
    from msgspec.json import decode

    try:
        return decode(document(path).removeprefix(b"\xef\xbb\xbf"), type=of)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.", HINT) from None
    except ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise UsageError(
            f"{path}: {where.strip('.`') or 'the file'}: {what[:1].lower()}{what[1:]}.", HINT
        ) from None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}.", "fetch or copy it again") from None
