"""How prompts, models and sides are told apart: by colour, and by a mark or a dash beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmfair.report.plots.base import GREY, INK, MARKS, PROTECTED, UNPROTECTED

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


def looks_of(names: Sequence[str], words: Mapping[str, str]) -> dict[str, Look]:
    """Prompts that name a side have its colour; every name has a mark and a dash of its own as long as they last."""
    sides = {
        words.get("protected", "").casefold(): PROTECTED,
        words.get("unprotected", "").casefold(): UNPROTECTED,
        "neutral": INK,
    }
    return {
        name: Look(sides.get(name, GREY), MARKS[place % len(MARKS)], DASHES[place % len(DASHES)])
        for place, name in enumerate(names)
    }


def palette(names: Sequence[str]) -> dict[str, Look]:
    """Names that belong to no side."""
    colors = (
        PROTECTED,
        UNPROTECTED,
        GREY,
        INK,
        "#009E73",
        "#CC79A7",
        "#D55E00",
        "#56B4E9",
    )  # Okabe and Ito's
    return {
        name: Look(
            colors[place % len(colors)], MARKS[place % len(MARKS)], DASHES[place // len(colors) % len(DASHES)]
        )
        for place, name in enumerate(names)
    }
