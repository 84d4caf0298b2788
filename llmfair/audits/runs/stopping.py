"""When a sequential audit has asked enough of one condition: units enter in schedule order, always.

Answers come in any order, so one waits until all before it are there. The decision thus depends on the answers
alone: workers, interruptions and replays change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from llmfair.io.text import count
from llmfair.nouns import Probe, Steps
from llmfair.results import Band, Count, JsonObject
from llmfair.stats.sequential import Decision, EProcess


class StoppingPoint(JsonObject, frozen=True, kw_only=True):
    """At which pair or window a sequential audit of one condition was settled, and what that spared."""

    decision: Literal["above", "below", "inside"] | None
    pairs: Count | None = None
    windows: Count | None = None
    cap: Count
    saved: float | None
    gap: bool
    confidence: tuple[float, float] | None
    log_e: Mapping[str, float]

    @property
    def units(self) -> int:
        """How many were asked that count."""
        return (self.pairs or 0) + (self.windows or 0)


def settled_text(condition: str, settled: StoppingPoint, band: Band, unit: str, aside: str = "") -> str:
    """Where a condition stopped, and what that spared; `aside` follows what was settled."""
    low, high = band
    decision = {
        "above": f"the odds are above {high:g}",
        "below": f"the odds are below {low:g}",
        "inside": f"the odds lie within {low:g}–{high:g}",
        None: "nothing is settled",
    }[settled.decision]
    text = f"{condition}: after {count(settled.units, unit)} {decision}{aside}"
    if settled.saved is not None:
        text += f"; {settled.saved * 100:.0f} % of the calls for {settled.cap:,} {unit}s saved"
    elif settled.gap:
        text += "; it broke off there"
    return f"{text}; the interval in the table is not adjusted for stopping"


R = TypeVar("R")


@dataclass
class Stopping(Generic[R]):
    """One condition's schedule, and how far it has come; R is what is kept of an answer.

    `share`: what the protected item wins of it, X; `look`: where the interval of the odds over the answers so far
    lies. `gap`: a probe failed, which no later one can pass.
    """

    probes: Sequence[Probe]
    process: EProcess
    share: Callable[[R], float]
    look: Callable[[Sequence[R]], Decision | None]
    waiting: dict[str, R] = field(default_factory=dict)
    entered: list[R] = field(default_factory=list)
    gap: bool = False

    def undecided(self) -> Iterator[Probe]:
        """The schedule, until it is settled or a probe has no answer: ask this iterator again after every one."""
        for probe in self.probes:
            if self.process.decision is not None or self.gap:
                return
            yield probe

    def noting(self, probe: Probe, steps: Steps[Any], kept: Callable[[Any], R]) -> Steps[Any]:
        """A probe's program; what is `kept` of its result is noted before another probe is begun."""
        try:
            result = yield from steps
        except BaseException:
            self.gap = True
            raise
        self.note(probe, kept(result))
        return result

    def note(self, probe: Probe, answer: R) -> None:
        """Takes an answer; those that now follow on each other without a gap enter the process."""
        self.waiting[probe.probe_id] = answer
        while len(self.entered) < len(self.probes) and self.process.decision is None:
            following = self.waiting.pop(self.probes[len(self.entered)].probe_id, None)
            if following is None:
                return
            self.entered.append(following)
            self.process = self.process.after(
                [self.share(following)], lambda units: self.look(self.entered[:units])
            )

    def counted(self) -> Sequence[Probe]:
        """The probes that the verdict rests on: all up to the stop."""
        return self.probes[: len(self.entered)]

    def settled(self, units: Literal["pairs", "windows"]) -> StoppingPoint:
        """Where it stopped, and what that spared."""
        process, cap, asked = self.process, len(self.probes), len(self.entered)
        return StoppingPoint(
            decision=None if process.decision is None else process.decision.value,
            **{units: asked},
            cap=cap,
            saved=None if process.decision is None or not cap else 1 - asked / cap,
            gap=asked < cap and process.decision is None,
            confidence=process.confidence,
            log_e={str(side): value for side, value in process.log_e.items()},
        )
