"""Everything an audit asks of one subject, known before anything is asked, whatever its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from llmfair.asking.dispatch import Program
from llmfair.audits.gates import Gate
from llmfair.audits.kind import Condition
from llmfair.audits.lists import name_parts
from llmfair.audits.subject import Subject
from llmfair.backends.base import Backend
from llmfair.datasets.base import Dataset, cells, fingerprint
from llmfair.metrics.base import Groups, Measure
from llmfair.prompts import Prompt
from llmfair.records import Attribute, Failure, Measurement, Query, Side
from llmfair.results import DesignFacts, Results, plain
from llmfair.settings import AuditSettings

T = TypeVar("T")
CHARACTERS_PER_TOKEN = 4
NOBODY = Subject("")


@dataclass(frozen=True)
class Outcome:
    """What a run found: results, all rows, and every file by name."""

    results: Results
    rows: Sequence[Measurement]
    files: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Design(ABC, Generic[T]):
    """An audit made but not begun: what it asks, and what the answers come to; T is what one program returns.

    `shown` are the measures of the table, `measures` all that are computed.
    """

    task: ClassVar[str]
    settings: AuditSettings
    subject: Subject = NOBODY
    dataset: Dataset
    attribute: Attribute
    queries: tuple[Query, ...]
    measures: tuple[Measure, ...]
    shown: tuple[Measure, ...]
    gates: tuple[Gate, ...] = ()
    prompt: Prompt | None = None
    doubts: tuple[str, ...] = field(default=())

    # What is asked

    @property
    @abstractmethod
    def conditions(self) -> Sequence[Condition]:
        """What is compared, in the order of tables."""

    @property
    @abstractmethod
    def calls(self) -> int:
        """Requests planned, or the most there can be."""

    @property
    def longest(self) -> int:
        """Requests of the longest chain, one after the other: the critical path."""
        return min(1, self.calls)

    @abstractmethod
    def programs(self) -> Iterator[Program]:
        """What is dispatched, in this order; the same programs every time it is asked."""

    def backend(self) -> Backend:
        """What answers the chats. Raises UsageError."""
        return self.subject.backend(self.settings)

    def tokens(self) -> tuple[int, int]:
        """About how many tokens all prompts and all answers have; 0 where nobody counts them."""
        return 0, 0

    # What names it

    def identity(self) -> dict[str, Any]:
        """All settings that can change a result, for the folder's name and against mixing runs."""
        attribute = asdict(self.attribute)
        return {
            **self.settings.of_result(),
            "attribute": {
                key: attribute[key] for key in ("name", "protected", "unprotected", "other", "words")
            },
            "queries": [query.query_id for query in self.queries],
            "lists_sha256": fingerprint(self.dataset, self.queries),
            **({"prompt_sha256": self.prompt.sha256} if self.prompt else {}),
        }

    def name_parts(self) -> tuple[str, ...]:
        """Words of the folder's name."""
        return name_parts(self.dataset, self.attribute)

    def describe(self) -> dict[str, Any]:
        """What the manifest says of the design, beside the settings."""
        settings, prompt = self.settings, self.prompt
        asked = {} if prompt is None else {"sha256": prompt.sha256, "text": prompt.text}
        return {
            "task": self.task,
            "flags": {key: value for key, value in asdict(settings).items() if not isinstance(value, Path)},
            "dataset": self.dataset.name,
            "lists": {
                **self.dataset.describe(),
                "cells": {
                    query.query_id: cells(self.dataset.candidates(query), self.attribute)
                    for query in self.queries
                },
            },
            **({"prompt": {"file": getattr(settings, "prompt", prompt.id), **asked}} if prompt else {}),
            "doubts": list(self.doubts),
        }

    @abstractmethod
    def facts(self) -> DesignFacts:
        """What results say of the design."""

    def planned(self) -> dict[str, Any]:
        """What is told before the first question."""
        return {"calls": self.calls, "design": self.facts(), "reach": {}}

    def plan(self, models: int) -> dict[str, Any]:
        """What a plan for so many models tells of this kind alone; calls, tokens and time are told of every kind."""
        return {"queries": len(self.queries), "design": plain(self.facts())}

    def findable(self, settings: Any) -> Any:
        """What the audit can find, by the settings of a plan; None where nobody knows."""
        return None

    # What comes back

    def unreadable(self, result: T) -> int:
        """How many answers behind a program's result cannot be read."""
        return 0

    @abstractmethod
    def outcome(self, run: str, results: Mapping[str, T], failures: Sequence[Failure]) -> Outcome:
        """What the programs' results, by probe_id, come to; the same for the same results, whoever ran it when."""

    # What measures look things up in

    @cached_property
    def groups(self) -> Groups:
        attributes = {attribute.name: attribute for attribute in self.dataset.attributes}
        known = {**self.dataset.documents, **self.dataset.stand_ins}
        return Groups(self.attribute.name, attributes, known, self.dataset.relevant_counts)

    @cached_property
    def sides(self) -> Mapping[str, Side | None]:
        """The side of every candidate."""
        documents = (d for query in self.queries for d in self.dataset.candidates(query).documents)
        return {document.doc_id: self.attribute.side(document) for document in documents}
