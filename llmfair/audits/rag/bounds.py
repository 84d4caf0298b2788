"""Between what figures of an audit of a generator lie, where more is known than their measures know by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmfair.metrics.base import Measure
from llmfair.metrics.texts import GREATEST

NORMED = ("EE-D", "EE-R", "EE-L")


def bounded(measures: Sequence[Measure], utility: str) -> tuple[Measure, ...]:
    """The measures with the bounds that the utility and their norm give them: their intervals go no further."""
    return tuple(_bounded(measure, GREATEST.get(utility)) for measure in measures)


def _bounded(measure: Measure, greatest: float | None) -> Measure:
    norm = measure.arguments.get("norm")
    if (measure.name in NORMED and norm != "raw") or (measure.name == "EU" and norm == "ceiling"):
        bounds = (0.0, 1.0)
    elif measure.name in ("EU", "EU-change") and greatest is not None:
        bounds = (-greatest if measure.name == "EU-change" else 0.0, greatest)
    else:
        return measure
    return replace(measure, definition=replace(measure.definition, bounds=bounds))
