"""The budget of a command: what one of its runs used is taken off what the next may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import Any, TypeVar

from llmfair.asking.limits import Progress
from llmfair.audits.runs.run import Watch
from llmfair.audits.subject import Subject
from llmfair.errors import Incomplete
from llmfair.settings import AuditSettings

S = TypeVar("S", bound=AuditSettings)
GO_ON = "the same command continues"


@dataclass
class Spending:
    """What the runs of a command have used so far: calls, and money at the prices given."""

    calls: int = 0
    cost: float = 0.0

    @contextmanager
    def run(self, settings: S, subject: Subject, watch: Watch) -> Iterator[tuple[S, Watch]]:
        """The settings of the next run with what is left of the budget, and its watch, which notes what it uses.

        Raises Incomplete when nothing is left for the subject; an Incomplete of the run says how much was used before.
        """
        begun: list[Progress] = []

        def noting(
            folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
        ) -> AbstractContextManager[None]:
            begun.append(progress)
            return watch(folder, planned, progress, limit)

        left, before = self._left(settings, subject), self.told(settings)
        try:
            yield left, noting
        except Incomplete as error:
            error.message += before
            raise
        finally:
            self.calls += sum(progress.calls for progress in begun)
            self.cost += fsum(progress.cost or 0.0 for progress in begun)

    def _left(self, settings: S, subject: Subject) -> S:
        calls, cost = settings.max_calls, settings.max_cost
        if not subject.ranks:  # which asks nothing
            if calls is not None and self.calls >= calls:
                raise Incomplete(f"the budget of {calls} calls is spent.", GO_ON)
            if cost is not None and 0 < cost <= self.cost:
                raise Incomplete(f"the budget of {cost:g} is spent.", GO_ON)
        return replace(
            settings,
            max_calls=None if calls is None else max(0, calls - self.calls),
            max_cost=None if cost is None else max(0.0, cost - self.cost),
        )

    def told(self, settings: AuditSettings) -> str:
        """What earlier runs of the command took of its budget, in a sentence; "" where they took nothing."""
        told = ""
        if settings.max_calls is not None and self.calls:
            told += f" Of the command's {settings.max_calls} calls {self.calls} were used before."
        if settings.max_cost is not None and self.cost:
            told += f" Of the command's budget of {settings.max_cost:g}, {self.cost:.4g} was spent before."
        return told
