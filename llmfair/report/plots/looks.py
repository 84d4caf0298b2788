"""How conditions and models are told apart: by colour, and by a mark or a dash beside it.

Blue and orange are the two groups on the whole page, grey is what figures are held against; nothing here has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmfair.report.plots.base import COLORS, MARKS

DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (5, 2, 1, 2)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)


@dataclass(frozen=True)
class Look:
    """Colour, mark and dash of one thing in a figure."""

    color: str
    mark: str
    dash: Any


def palette(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name; the first has the colour of the text."""
    return {
        name: Look(COLORS[place % len(COLORS)], MARKS[place % len(MARKS)], DASHES[place % len(DASHES)])
        for place, name in enumerate(names)
    }
