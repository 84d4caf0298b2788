"""The listwise audit: does a model, asked to order candidates, give both sides the same exposure?

The data's way: dataset -> probes -> one program per chain -> dispatch -> rankings -> measures -> intervals ->
run folder. Nothing goes back up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmfair.asking.dispatch import Program
from llmfair.audits.listwise.design import Design
from llmfair.audits.listwise.making import make_design
from llmfair.audits.listwise.outcome import outcome_of
from llmfair.audits.listwise.reach import known_reach
from llmfair.audits.run import Outcome, Result, Watch, audit, no_watch
from llmfair.audits.subject import backend_of, capable, label_of
from llmfair.backends.base import Backend, NoBackend
from llmfair.rankers.base import ScoringRanker
from llmfair.rankers.listwise import Ranked
from llmfair.records import Failure, Probe
from llmfair.settings import ListwiseSettings


def audit_listwise(
    settings: ListwiseSettings,
    model: str,
    watch: Watch = no_watch,
    adapted: bool = True,
    given: Backend | None = None,
) -> Result:
    """Runs or continues one model's listwise audit; raises what `audit` does, and UsageError for wrong input.

    Without `adapted` the base of the settings' adapter is asked, in the adapter's engine. A backend that is `given`
    is asked under the model's name.
    """
    return audit(Listwise.of(settings, model, adapted, given), watch)


@dataclass(frozen=True)
class Listwise:
    """A listwise audit of one model, made but not begun."""

    design: Design
    model: str
    adapted: bool = True
    given: Backend | None = None
    name: str = "listwise"

    @classmethod
    def of(
        cls, settings: ListwiseSettings, model: str, adapted: bool = True, given: Backend | None = None
    ) -> Listwise:
        """Loads what the settings name. Raises UsageError."""
        return cls(make_design(settings, model), model, adapted, given)

    @property
    def settings(self) -> ListwiseSettings:
        return self.design.settings

    @property
    def calls(self) -> int:
        return self.design.calls

    def backend(self) -> Backend:
        """What answers the chats; a ranker that asks none still says who it is."""
        ranker = self.design.ranker
        if isinstance(ranker, ScoringRanker):
            return NoBackend(ranker.identity)
        if self.given is not None:
            return capable(self.given, self.model, self.settings)
        return backend_of(self.model, self.settings, self.adapted)

    def probes(self) -> Iterator[Probe]:
        return self.design.probes()

    def programs(self) -> Iterator[Program]:
        return self.design.programs()

    def identity(self) -> dict[str, Any]:
        return self.design.identity()

    def describe(self) -> dict[str, Any]:
        return self.design.describe()

    def planned(self) -> dict[str, Any]:
        return {"calls": self.calls, "design": self.design.facts(), "reach": known_reach(self.design)}

    def name_parts(self) -> tuple[str, ...]:
        return self.design.name_parts()

    def unreadable(self, result: Ranked) -> int:
        return sum(window.unreadable for window in result.windows)

    def outcome(self, run: str, results: Mapping[str, Ranked], failures: Sequence[Failure]) -> Outcome:
        chains = [(p, results[p.probe_id]) for p in self.probes() if p.probe_id in results]
        return outcome_of(
            self.design, run, label_of(self.model, self.settings, self.adapted), chains, failures
        )
