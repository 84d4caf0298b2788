"""When a sequential pairwise audit has asked enough: pairs enter in schedule order, always.

Answers come in any order, so a verdict waits until all before it are there. The decision thus depends on the
answers alone: workers, interruptions and replays change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from llmfair.audits.aggregates.pairs import joined, tallied
from llmfair.audits.pairwise.concluding import concluded
from llmfair.metrics.pairs import ADJUSTED_ODDS, JudgedPairs, tally
from llmfair.records import Cell, Conclusion, Probe, Verdict
from llmfair.stats.pairs import Weights
from llmfair.stats.sequential import Decision, EProcess, look_level

GAIN = {Cell.PP: 1.0, Cell.UU: 0.0}
"""X of a pair: 1 when the protected item won both times, 0 when the other did, ½ for anything else."""


def judged_of(verdicts: Sequence[Verdict], repeats: int, forced: bool = False) -> Iterator[JudgedPairs]:
    """The queries of these verdicts, as measures see them."""
    by_query: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_query.setdefault(verdict.query_id, []).append(verdict)
    for query_id, of_it in sorted(by_query.items()):
        ordered = sorted(of_it, key=lambda verdict: (verdict.number, verdict.draw))
        yield JudgedPairs(query_id, tuple(ordered), repeats, forced)


@dataclass
class Stopping:
    """One kind's schedule, and how far it has come; `gap`: a pair failed, which no later one can pass."""

    probes: Sequence[Probe]
    process: EProcess
    weights: Weights = "macro"
    waiting: dict[str, Verdict] = field(default_factory=dict)
    entered: list[Verdict] = field(default_factory=list)
    gap: bool = False

    @classmethod
    def over(
        cls, probes: Sequence[Probe], band: tuple[float, float], level: float, weights: Weights = "macro"
    ) -> Stopping:
        return cls(probes, EProcess(band, level, len(probes)), weights)

    def undecided(self) -> Iterator[Probe]:
        """The schedule, until it is settled or a pair has no answer: ask this iterator again after every verdict."""
        for probe in self.probes:
            if self.process.decision is not None or self.gap:
                return
            yield probe

    def note(self, probe: Probe, verdict: Verdict) -> None:
        """Takes a verdict; those that now follow on each other without a gap enter the process."""
        self.waiting[probe.probe_id] = verdict
        while len(self.entered) < len(self.probes) and self.process.decision is None:
            following = self.waiting.pop(self.probes[len(self.entered)].probe_id, None)
            if following is None:
                return
            self.entered.append(following)
            self.process = self.process.after([GAIN.get(following.cell, 0.5)], self._look)

    def counted(self) -> Sequence[Probe]:
        """The pairs that the verdict rests on: all up to the stop."""
        return self.probes[: len(self.entered)]

    def _look(self, pairs: int) -> Decision | None:
        return seen(self.entered[:pairs], self.process.band, self.process.level, self.weights)


def seen(
    verdicts: Sequence[Verdict], band: tuple[float, float], level: float, weights: Weights = "macro"
) -> Decision | None:
    """Where the odds of these pairs lie by their interval, at the level of one look of several; None if nowhere."""
    values = [tally(judged, ADJUSTED_ODDS) for judged in judged_of(verdicts, repeats=1)]
    odds, counted = tallied(values, weights, look_level(level)), joined(values, weights)
    if odds is None or odds.value is None or counted is None:
        return None
    found = concluded(odds, counted, band, look_level(level))
    if found.conclusion is Conclusion.WITHIN or found.reason == "chance_answers":
        return Decision.INSIDE
    if found.conclusion is Conclusion.OUTSIDE:
        return Decision.BELOW if odds.value < 1 else Decision.ABOVE
    return None
