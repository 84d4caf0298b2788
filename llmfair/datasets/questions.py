"""Questions with answers, and the items to answer them from: what every dataset of `llmfair rag` holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

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


class QuestionSet:
    """An `AnswerDataset` of questions that are read when they are first needed.

    Without a task, it is a choice where every item of every question has a label, else free text. `shared`: all
    questions have the same items, a corpus, of which an audit takes those that its retriever finds.
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
        read = [replace(self._questions[query_id], items=of) for query_id, of in items.items()]
        return QuestionSet(self.name, lambda: read, self.task, facts=self._facts)

    @cached_property
    def _questions(self) -> Mapping[str, Question]:
        return {question.query.query_id: question for question in self._read()}

    @cached_property
    def task(self) -> Task:
        if self._task is not None:
            return self._task
        labelled = all(LABEL in item.groups for of in self._questions.values() for item in of.items)
        return CHOICE if labelled else FREE

    @property
    def prompt(self) -> str:
        return self.task.prompt

    @property
    def utility(self) -> str:
        return self.task.utility

    @property
    def label_utility(self) -> str:
        return self.task.label_utility or self.task.utility

    @property
    def queries(self) -> Sequence[Query]:
        return [question.query for question in self._questions.values()]

    @cached_property
    def qrels(self) -> Qrels:
        return {query_id: of.relevance for query_id, of in self._questions.items() if of.relevance}

    @cached_property
    def documents(self) -> Mapping[str, Document]:
        """Items by id. Where two questions give one id to different items, the first: `candidates` knows each."""
        found: dict[str, Document] = {}
        for question in self._questions.values():
            for item in question.items:
                found.setdefault(item.doc_id, item)
        return found

    def candidates(self, query: Query) -> Candidates:
        question = self._questions[query.query_id]
        return Candidates(question.query, question.items, question.relevance)

    def golds(self, query_id: str) -> tuple[str, ...]:
        return self._questions[query_id].golds

    def searched(self, query: Query) -> str:
        return self._questions[query.query_id].searched

    def parts(self, query: Query) -> tuple[str, str]:
        place = self._questions[query.query_id].insertion
        return query.text[:place], query.text[place:]

    def meaning(self, query: Query, output: str) -> str:
        return self._questions[query.query_id].meanings.get(output, output)

    def describe(self) -> dict[str, Any]:
        answered = sum(bool(question.golds) for question in self._questions.values())
        return {"answered": answered, "utility": self.utility, "prompt": self.prompt, **self._facts}
