"""The pairwise audit: which of two items does a model put first, whatever order they are shown in?

The data's way: dataset -> pairs -> one program per pair, both orders at once -> dispatch -> verdicts ->
measures -> intervals -> run folder. A sequential audit asks pairs in rounds over the queries and stops each
kind when its verdict is settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmfair.asking.dispatch import Program
from llmfair.audits.pairwise.design import PairDesign, make_pair_design
from llmfair.audits.pairwise.outcome import outcome_of
from llmfair.audits.pairwise.stopping import Stopping
from llmfair.audits.run import Outcome, Result, Watch, audit, no_watch
from llmfair.audits.subject import backend_of, capable, label_of
from llmfair.backends.base import Backend
from llmfair.records import Failure, PairKind, Probe, Verdict
from llmfair.settings import PairwiseSettings, band_of
from llmfair.steps import Steps


def audit_pairwise(
    settings: PairwiseSettings,
    model: str,
    watch: Watch = no_watch,
    adapted: bool = True,
    given: Backend | None = None,
) -> Result:
    """Runs or continues one model's pairwise audit; raises what `audit` does, and UsageError for wrong input.

    Without `adapted` the base of the settings' adapter is asked, in the adapter's engine. A backend that is `given`
    is asked under the model's name.
    """
    return audit(Pairwise.of(settings, model, adapted, given), watch)


@dataclass(frozen=True)
class Pairwise:
    """A pairwise audit of one model, made but not begun."""

    design: PairDesign
    model: str
    stopping: Mapping[PairKind, Stopping] = field(default_factory=dict)
    adapted: bool = True
    given: Backend | None = None
    name: str = "pairwise"

    @classmethod
    def of(
        cls, settings: PairwiseSettings, model: str, adapted: bool = True, given: Backend | None = None
    ) -> Pairwise:
        """Loads what the settings name. Raises UsageError."""
        design = make_pair_design(settings)
        stopping = {}
        if settings.sequential:
            band = band_of(settings.band)
            stopping = {
                kind: Stopping.over(design.in_rounds(kind), band, settings.level) for kind in design.kinds
            }
        return cls(design, model, stopping, adapted, given)

    @property
    def settings(self) -> PairwiseSettings:
        return self.design.settings

    @property
    def calls(self) -> int:
        return self.design.calls

    def backend(self) -> Backend:
        if self.given is not None:
            return capable(self.given, self.model, self.settings)
        return backend_of(self.model, self.settings, self.adapted)

    def probes(self) -> Iterator[Probe]:
        if not self.stopping:
            yield from self.design.probes()
        for stopping in self.stopping.values():
            yield from stopping.probes

    def programs(self) -> Iterator[Program]:
        """One program per probe; under --sequential none past the pair at which its kind was settled."""
        if not self.stopping:
            for probe in self.design.probes():
                yield Program(probe.probe_id, lambda probe=probe: self.design.ranker.steps(probe))  # type: ignore[misc]
        for stopping in self.stopping.values():
            for probe in stopping.undecided():
                yield Program(
                    probe.probe_id,
                    lambda probe=probe, stopping=stopping: self._noting(probe, stopping),  # type: ignore[misc]
                )

    def _noting(self, probe: Probe, stopping: Stopping) -> Steps[Verdict]:
        """The probe's program; its verdict is noted before another pair is begun."""
        try:
            verdict = yield from self.design.ranker.steps(probe)
        except BaseException:
            stopping.gap = True
            raise
        stopping.note(probe, verdict)
        return verdict

    def identity(self) -> dict[str, Any]:
        return self.design.identity()

    def describe(self) -> dict[str, Any]:
        return self.design.describe()

    def planned(self) -> dict[str, Any]:
        return {"calls": self.calls, "design": self.design.facts(), "reach": {}}

    def name_parts(self) -> tuple[str, ...]:
        return self.design.name_parts()

    def unreadable(self, result: Verdict) -> int:
        return sum(answer.problem not in (None, "tie") for answer in (result.first, result.second))

    def outcome(self, run: str, results: Mapping[str, Verdict], failures: Sequence[Failure]) -> Outcome:
        stopped = {
            kind: Stopping.over(one.probes, one.band, one.level) for kind, one in self.stopping.items()
        }
        for kind_stopping in stopped.values():
            for probe in kind_stopping.undecided():
                if probe.probe_id in results:
                    kind_stopping.note(probe, results[probe.probe_id])
        probes = self.probes() if not stopped else (p for one in stopped.values() for p in one.counted())
        verdicts = [results[probe.probe_id] for probe in probes if probe.probe_id in results]
        label = label_of(self.model, self.settings, self.adapted)
        return outcome_of(self.design, run, label, verdicts, failures, stopped)
