"""What an audit can conclude at all, known before anything is asked: a gate on what cannot be settled is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmfair.audits.design import Design
from llmfair.audits.gates import Gate, always_held
from llmfair.errors import UsageError
from llmfair.metrics.names import parse_measure
from llmfair.results import Reach
from llmfair.stats.intervals import FEWEST_QUERIES


@dataclass(frozen=True)
class Prospects:
    """How many queries can be assessed; `said` in words where that is not all, or where nothing can be concluded.

    `barred`: nothing can be concluded, whatever the answers are.
    """

    assessable: int
    said: tuple[str, ...]
    barred: bool


def prospects_of(design: Design[Any]) -> Prospects:
    """Those of a design: its queries, and its gates."""
    queries, assessable = len(design.queries), design.assessable
    few = assessable < FEWEST_QUERIES
    said = f"{assessable:,} of {queries:,} queries can be assessed"
    if assessable < queries:
        said += f" ({design.why_not_assessable})"
    if few:
        said += f", where a conclusion takes at least {FEWEST_QUERIES}"
    reach = design.planned()["reach"] if design.gates else {}
    idle = tuple(filter(None, (always_held(gate, reach, _where(gate, reach)) for gate in design.gates)))
    return Prospects(assessable, ((said,) if few or assessable < queries else ()) + idle, few or bool(idle))


def _where(gate: Gate, reach: Mapping[str, Reach]) -> str:
    """In which setting a gate is always held, with the numbers."""
    known = reach.get(parse_measure(gate.measure).reach, Reach())
    return f"in this design, whose attainable range is {known.low or 0:.3f} … {known.high or 0:.3f}"


def require_prospects(design: Design[Any]) -> Prospects:
    """The same. Raises UsageError for gates on a design from which nothing can be concluded."""
    found = prospects_of(design)
    gated = [name for name in ("require", "fail_on") if getattr(design.settings, name, None)]
    if found.barred and gated:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in gated)
        other = (
            "give it more queries that can" if found.assessable < FEWEST_QUERIES else "choose another design"
        )
        raise UsageError(f"{'; '.join(found.said)}.", f"{other}, or leave {flags} out")
    return found
