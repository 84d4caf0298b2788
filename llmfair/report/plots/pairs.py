"""Answers on pairs: what they came to, and how much the position decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from llmfair.report.plots.base import (
    GREY,
    INK,
    LETTER_WIDTH,
    PAPER,
    PROTECTED,
    UNPROTECTED,
    WIDTH,
    Plot,
    bar_of,
    below,
    folded,
    rows_axis,
    rows_height,
    tip,
    whisker,
)
from llmfair.report.plots.ratios import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Shares = Mapping[str, float]
"""The share of each cell (PP, UU, FF, SS, T, M1, M2), summing to 1."""
PARTS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("protected", ("PP",), PROTECTED, ""),
    ("flips", ("FF", "SS"), GREY, "///"),
    ("tied", ("T",), GREY, "..."),
    ("unprotected", ("UU",), UNPROTECTED, ""),
    ("unparseable", ("M1", "M2"), INK, ""),
)
SOME = 1e-6
"""A smaller part is the rounding of a sum."""
NUMBER_WIDTH = 36
"""About what the number of a part takes, in the units of the drawing."""


def stacked_answers(
    rows: Sequence[tuple[str, Shares]], words: Mapping[str, str], name: str = "answers"
) -> Plot:
    """`rows` gives the shares of cells by relevance stratum, or by model and stratum."""
    told = "; ".join(
        f"{of}: "
        + ", ".join(f"{part} {100 * _sum(shares, cells):.0f} %" for part, cells, *_ in _present(rows))
        for of, shares in rows[:8]
    )
    sentence = (
        f"What pairs came to, asked in both orders: the protected{_side(words, 'protected')} or the "
        f"unprotected{_side(words, 'unprotected')} item preferred in both, or an answer that flips with the order."
    )
    return Plot(
        name,
        "Answers on pairs",
        sentence,
        f"{told}.",
        partial(_stacked, rows),
        118 + 1.2 * rows_height([of for of, _ in rows]),
    )


def _side(words: Mapping[str, str], side: str) -> str:
    return f" ({words[side]})" if side in words else ""


def _sum(shares: Shares, cells: Sequence[str]) -> float:
    return sum(shares.get(cell, 0.0) for cell in cells)


def _present(rows: Sequence[tuple[str, Shares]]) -> list[tuple[str, tuple[str, ...], str, str]]:
    """Parts that some row has; the three outcomes always."""
    return [
        part
        for part in PARTS
        if part[0] in ("protected", "flips", "unprotected")
        or any(_sum(shares, part[1]) > SOME for _, shares in rows)
    ]


def _stacked(rows: Sequence[tuple[str, Shares]], axes: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    names = [folded(of) for of, _ in rows]
    room = WIDTH - 25 - LETTER_WIDTH * max(len(line) for name in names for line in name.split("\n"))
    for number, (part, cells, color, hatch) in enumerate(_present(rows)):
        for place, (_, shares) in enumerate(rows):
            width = _sum(shares, cells)
            left = sum(_sum(shares, before) for _, before, *_ in _present(rows)[:number])
            axes.barh(
                place, width, 0.62, left=left, label=part if place == 0 else None,
                gid=tip(f"{names[place]}: {part} {100 * width:.1f} %"), **_bar(color, hatch),
            )  # fmt: skip
            if width * room >= NUMBER_WIDTH:
                ink = PAPER if color in (PROTECTED, INK) else INK
                axes.text(left + width / 2, place, f"{100 * width:.0f} %", ha="center", va="center", color=ink,
                          fontweight="bold" if color == GREY else "normal")  # fmt: skip
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1] if room > 200 else [0, 0.5, 1])
    rows_axis(axes, names)
    below(axes, [part for part, *_ in _present(rows)])


def _bar(color: str, hatch: str) -> dict[str, Any]:
    if not hatch:
        return bar_of(color)
    return {"facecolor": color, "alpha": 0.45, "hatch": hatch, "edgecolor": PAPER, "linewidth": 0}


def position_bias(rows: Sequence[tuple[str, Value]]) -> Plot:
    """`rows` gives the share of answers won by the item shown first, by relevance stratum."""
    told = "; ".join(f"{of} {100 * one.value:.0f} %" for of, one in rows[:8])
    sentence = "Share of parseable answers that the item shown first wins, with intervals; dashed: 50 %."
    draw, height = partial(_position, rows), 74 + rows_height([of for of, _ in rows])
    return Plot("position-bias", "Position bias", sentence, f"{told}.", draw, height)


def _position(rows: Sequence[tuple[str, Value]], axes: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    for place, (of, one) in enumerate(rows):
        whisker(axes, one.value, place, one.low, one.high, gid=tip(f"{of}: {one.of_hundred()}"))
    axes.axvline(0.5, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    rows_axis(axes, [of for of, _ in rows])
    axes.set_xlabel("won by the item shown first")
