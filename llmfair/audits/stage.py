"""A further part of an audit: what is asked once the programs before it have their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmfair.asking.dispatch import Program
from llmfair.audits.texts import TEXTS
from llmfair.backends.base import Backend
from llmfair.rundir import JOURNAL


@dataclass(frozen=True)
class Stage:
    """Programs made from the results before them, with a model and a journal (`NAME.jsonl`) of their own.

    The model is made when it is wanted: a run is replayed without it. `said`: what a run says of it, by all results.
    """

    name: str
    programs: Callable[[Mapping[str, Any]], Iterator[Program]]
    make: Callable[[], Backend]
    said: Callable[[Mapping[str, Any]], str] = lambda results: ""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or f"{self.name}.jsonl" in (TEXTS, JOURNAL):
            raise ValueError(f"a stage cannot be called {self.name!r}: its journal bears its name")

    @cached_property
    def backend(self) -> Backend:
        """What answers. Raises UsageError."""
        return self.make()
