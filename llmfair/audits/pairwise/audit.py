"""The pairwise audit: which of two items does a model put first, whatever order they are shown in?

The data's way: dataset -> pairs -> one program per pair, both orders at once -> dispatch -> verdicts ->
measures -> intervals -> run folder. A sequential audit asks pairs in rounds over the queries and stops each
kind when its verdict is settled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llmfair.audits.design import Outcome
from llmfair.audits.pairwise.design import PairwiseDesign
from llmfair.audits.pairwise.outcome import outcome_of
from llmfair.audits.pairwise.plan import findable_of, plan_of, tokens_of
from llmfair.audits.pairwise.settings import PlanPairwiseSettings
from llmfair.records import Failure, Verdict


@dataclass(frozen=True, kw_only=True)
class PairwiseAudit(PairwiseDesign):
    """A pairwise audit made but not begun: what it asks, what that costs and can find, what the answers come to."""

    def plan(self, models: int) -> dict[str, Any]:
        return plan_of(self, models)

    def tokens(self) -> tuple[int, int]:
        return tokens_of(self)

    def findable(self, settings: PlanPairwiseSettings) -> dict[str, Any]:
        return {kind: asdict(findable_of(self, kind, settings)) for kind in self.kinds}

    def unreadable(self, result: Verdict) -> int:
        return sum(answer.problem not in (None, "tie") for answer in (result.first, result.second))

    def outcome(self, run: str, results: Mapping[str, Verdict], failures: Sequence[Failure]) -> Outcome:
        stopped = {kind: self.stopping(kind) for kind in self.kinds if self.settings.sequential}
        for one in stopped.values():
            for probe in one.undecided():
                if probe.probe_id in results:
                    one.note(probe, results[probe.probe_id])
        probes = self.probes() if not stopped else (p for one in stopped.values() for p in one.counted())
        verdicts = [results[probe.probe_id] for probe in probes if probe.probe_id in results]
        return outcome_of(self, run, self.subject.label, verdicts, failures, stopped)
