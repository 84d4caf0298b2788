"""Where a sequential audit stopped."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Literal

from llmfair.report.tables import count
from llmfair.results import Band, Count, JsonObject


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


def settled_text(
    condition: str, settled: StoppingPoint, band: Band, level: float, unit: str, aside: str = ""
) -> str:
    """Where a condition stopped, what that spared, and how sure it is; `aside` follows what was settled."""
    (low, high), told = band, f"{level * 100:g} %"
    found = {
        "above": f"the odds are above {high:g}",
        "below": f"the odds are below {low:g}",
        "inside": f"the odds lie within {low:g}–{high:g}",
        None: "nothing is settled",
    }[settled.decision]
    text = f"{condition}: after {count(settled.units, unit)} {found}{aside}"
    if settled.saved is not None:
        text += f"; {settled.saved * 100:.0f} % of the calls for {settled.cap:,} {unit}s saved"
    elif settled.gap:
        text += "; it broke off there"
    if settled.decision is not None:
        by_bets = settled.log_e.get(settled.decision, 0.0) >= log(2 / (1 - level))
        text += (
            "; settled by an e-value of these queries and, over queries, by the interval of the odds"
            if by_bets
            else f"; settled by the interval of the odds at a preset look, {told} over all looks"
        )
    return f"{text}; the interval in the table is not adjusted for stopping"
