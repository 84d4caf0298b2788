"""Datasets that have answers: a generator is asked a question beside some of its items, and its output is scored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from llmfair import registry
from llmfair.datasets.answer_files import HINT, answer_folder, answer_lines
from llmfair.datasets.base import Dataset
from llmfair.datasets.rows import json_rows
from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files
from llmfair.io.trec import Problems
from llmfair.nouns import Document, Query


class AnswerDataset(Dataset, Protocol):
    """Questions, right answers, and the items to answer from.

    `queries`: their text is the input as the generator gets it. `candidates(query)`: all items of the query, in
    profile order; their relevance where qrels were asked for, else {}. An item's title and text are what a retriever
    reads; where it has a label, `groups["label"]` is its only one. Two queries may give one id to different items.
    """

    @property
    def shared(self) -> bool:
        """Whether all queries have the same items: a corpus, of which an audit takes what its retriever finds."""
        ...

    @property
    def utility(self) -> str:
        """How outputs are scored unless the user says otherwise: accuracy, mae, rouge-l, token-f1 …"""
        ...

    @property
    def label_utility(self) -> str:
        """How outputs are scored to tell useful items."""
        ...

    def with_items(self, items: Mapping[str, tuple[Document, ...]]) -> AnswerDataset:
        """The same questions, each with these items alone."""
        ...

    def golds(self, query_id: str) -> tuple[str, ...]:
        """The right answers, any of which counts; none where they are not known."""
        ...

    def searched(self, query: Query) -> str:
        """The text that a retriever searches with."""
        ...

    def parts(self, query: Query) -> tuple[str, str]:
        """The input before and behind the place where items are put; ("", input) where the prompt alone says it."""
        ...

    def meaning(self, query: Query, output: str) -> str:
        """What an output says, to be held against items: the title that `[1]` stands for, mostly the output itself."""
        ...


def load_answers(name: str, data: Path | None = None, judged: bool = False) -> AnswerDataset:
    """A dataset with answers: by id, a folder, or a .jsonl file.

    `data`: the folder of a dataset that users bring (`lamp/4`). `judged`: with qrels, which only folders have.
    Raises UsageError.
    """
    known = registry.names("dataset")
    if name in known:
        dataset: AnswerDataset = registry.lookup("dataset", name)()
        if not hasattr(dataset, "golds"):
            raise UsageError(f"dataset '{name}' has no questions with answers.", HINT)
        if data is not None:
            if not hasattr(dataset, "at"):
                raise UsageError(
                    f"--data {data}: dataset '{name}' is not read from a folder.", "leave it out"
                )
            dataset = dataset.at(data)
    elif Path(name).is_dir():
        return answer_folder(Path(name), judged)
    elif Path(name).is_file():
        dataset = answer_lines(Path(name))
    else:
        raise UsageError(f"no dataset '{name}'.{did_you_mean(name, known)}", HINT)
    if judged:
        raise UsageError(
            f"dataset '{name}' has no qrels.", "a folder with qrels.txt has; others know labels by gain"
        )
    return dataset


def has_answers(path: Path) -> bool:
    """Whether a file or folder of a user's own is one of questions with answers: a table of items has no `items`."""
    if path.suffix == ".jsonl" and path.is_file():
        first = next(json_rows(path, Problems()), (0, {"items": None}))
        return "items" in first[1] or "doc_id" not in first[1]
    return path.suffix == ".jsonl" or files.stored(path / "answers.jsonl").is_file()


def questions_sha256(dataset: AnswerDataset, queries: Sequence[Query]) -> str:
    """SHA-256 over inputs, right answers and items, with their labels: what makes runs comparable; not judgements."""
    digest = sha256()
    last: tuple[Document, ...] | None = None
    for query in queries:
        items = dataset.candidates(query).documents
        if items is not last:  # a corpus that queries share is read once
            last, shown = items, [[item.doc_id, item.title, item.text, item.groups] for item in items]
            of_items = sha256(json.dumps(shown).encode()).hexdigest()
        told = [query.query_id, query.text, dataset.searched(query), dataset.golds(query.query_id), of_items]
        digest.update(json.dumps(told).encode())
    return digest.hexdigest()
