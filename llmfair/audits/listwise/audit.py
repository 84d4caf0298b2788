"""The listwise audit: does a model, asked to order candidates, give both sides the same exposure?

The data's way: dataset -> probes -> one program per chain -> dispatch -> rankings -> measures -> intervals ->
run folder. Nothing goes back up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llmfair.audits.design import Outcome
from llmfair.audits.listwise.design import ListwiseDesign
from llmfair.audits.listwise.outcome import outcome_of
from llmfair.audits.listwise.plan import findable_of, plan_of, tokens_of
from llmfair.audits.listwise.reach import known_reach
from llmfair.audits.listwise.settings import PlanSettings
from llmfair.rankers.base import Ranked
from llmfair.records import Failure


@dataclass(frozen=True, kw_only=True)
class ListwiseAudit(ListwiseDesign):
    """A listwise audit made but not begun: what it asks, what that costs and can find, what the answers come to."""

    def planned(self) -> dict[str, Any]:
        return {**super().planned(), "reach": known_reach(self)}

    def plan(self, models: int) -> dict[str, Any]:
        return plan_of(self, models)

    def tokens(self) -> tuple[int, int]:
        return tokens_of(self)

    def findable(self, settings: PlanSettings) -> dict[str, Any]:
        return asdict(findable_of(self, settings))

    def unreadable(self, result: Ranked) -> int:
        return sum(window.unreadable for window in result.windows)

    def outcome(self, run: str, results: Mapping[str, Ranked], failures: Sequence[Failure]) -> Outcome:
        chains = [(p, results[p.probe_id]) for p in self.probes() if p.probe_id in results]
        return outcome_of(self, run, self.subject.label, chains, failures)
