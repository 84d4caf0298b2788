"""What random initial orders explain of exposure ratios, taken out before they become one figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from llmfair.metrics.base import Quotient, Ratio, Value
from llmfair.stats.intervals import without_favour

FEWEST_RUNS = 15
"""From fewer runs the slope on the initial orders is not taken: fitted to so few, it feigns certainty."""


def controlled(values: Sequence[Value]) -> list[Value]:
    """The values with what the initial orders explain of their ratios taken out, where they know those orders.

    The slope is fitted over all queries, so this is no value of a single query. Over fewer than FEWEST_RUNS runs
    in all, nothing is taken out.
    """
    ratios = {
        place: ratio
        for place, value in enumerate(values)
        if isinstance(ratio := value.ratio if isinstance(value, Quotient) else value, Ratio)
        and ratio.controlled
    }
    if sum(len(ratio.controlled) for ratio in ratios.values()) < FEWEST_RUNS:
        return list(values)
    sides = []
    for side in (0, 1):
        final = [np.array([run.final[side] for run in ratio.controlled]) for ratio in ratios.values()]
        favour = [np.array([run.favour(side) for run in ratio.controlled]) for ratio in ratios.values()]
        sides.append([float(runs.mean()) for runs in without_favour(final, favour)])
    changed = list(values)
    for place, over, under in zip(ratios, *sides, strict=True):
        value, ratio = values[place], Ratio(over, under, ratios[place].reason)
        changed[place] = replace(value, ratio=ratio) if isinstance(value, Quotient) else ratio
    return changed
