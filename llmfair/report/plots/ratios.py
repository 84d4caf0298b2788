"""The figures: ratios against parity, utility beside them, answers on pairs, ranks, and curves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llmfair.report.phrases import bound_text, capitalised
from llmfair.report.plots.base import (
    DASHED,
    GREY,
    INK,
    LEGEND,
    LETTER,
    PAPER,
    PROTECTED,
    ROW,
    UNPROTECTED,
    Look,
    Plot,
    bar_of,
    below,
    folded,
    legend_height,
    lines_of,
    palette,
    ratio_axis,
    rows_axis,
    rows_height,
    rows_length,
    tip,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

JOINED: Mapping[str, Any] = {"color": GREY, "linewidth": 1, "zorder": 1}
BAND: Mapping[str, Any] = {"color": GREY, "alpha": 0.16, "linewidth": 0, "zorder": 0}
HIGH = 285
"""The height of a figure of lines or points without its legend."""


@dataclass(frozen=True)
class Value:
    """A figure with its interval; with one limit alone it is a bound, and the value that limit."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def ends(self) -> list[float]:
        return [end for end in (self.low, self.value, self.high) if end is not None and end > 0]

    @property
    def mark(self) -> str:
        """A dot, or of a bound where its figure may be."""
        if (self.low is None) == (self.high is None):
            return "o"
        return "<" if self.low is None else ">"

    def __str__(self) -> str:
        if (bound := bound_text(self.low, self.high)) is not None:
            return bound
        return f"{self.value:.2f}" + (" [{:.2f}, {:.2f}]".format(*self.interval) if self.interval else "")


def point(axes: Axes, x: Value, y: Value, says: str, color: str = INK, width: float = 2, **mark: Any) -> None:
    """A mark with its intervals either way, left out of a bound; `says` while a pointer rests on it."""
    line: dict[str, Any] = {"color": color, "linewidth": width, "solid_capstyle": "butt", "zorder": 2}
    gid = tip(says)
    if x.interval:
        axes.plot(x.interval, [y.value] * 2, gid=gid, **line)
    if y.interval:
        axes.plot([x.value] * 2, y.interval, gid=gid, **line)
    looks = {"marker": "o", "markersize": 7, "color": color, "zorder": 3, "clip_on": False, **mark}
    axes.plot([x.value], [y.value], linestyle="none", gid=gid, **looks)


# Utility and a ratio as a plane: of prompts and models, of remedies.


PLANE = 230
"""The height of its axis."""
Point = tuple[str, Value, Value, Look, str | None]
"""A name, its utility, its ratio, how it looks, and its name in the legend, if it stands there."""


def _plane(
    axes: Axes,
    points: Sequence[Point],
    names: tuple[str, str],
    shaded: tuple[float, float] | None,
    line: Sequence[int] = (),
    hollow: Collection[int] = (),
) -> None:
    """Utility across and a ratio on a logarithmic axis up; `line` joins points by their places, `hollow` are some."""
    if line:
        axes.plot([points[p][1].value for p in line], [points[p][2].value for p in line], **JOINED)
    for place, (of, utility, ratio, look, label) in enumerate(points):
        fill = PAPER if place in hollow else look.color
        point(axes, utility, ratio, f"{of}: {names[0]} {utility}, {names[1]} {ratio}", look.color, 1.4,
               marker=look.mark, markersize=8, markeredgewidth=1.6, markerfacecolor=fill,
               label=None if label is None else folded(label, LEGEND))  # fmt: skip
    ends = [end for _, _, ratio, *_ in points for end in ratio.ends()] + [*(shaded or ())]
    if shaded is not None:
        axes.axhspan(*shaded, **BAND)
    ratio_axis(axes, min(ends), max(ends), PLANE, shaded, "y")
    axes.margins(x=0.12)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    below(axes, [label for *_, label in points if label is not None])


def utility_and_ratio(
    points: Sequence[Point], across: str, up: str, reach: tuple[float, float] | None
) -> Plot:
    """Utility across, a ratio up, each point with both intervals; `reach` is shaded."""
    between = "; shaded: between the rankers that always put one group first, {:.2f} … {:.2f}"
    shaded = between.format(*reach) if reach else ""
    return Plot(
        "utility-and-exposure",
        f"Utility and {'preference' if up.partition('(')[0].endswith('Odds') else 'exposure'}",
        f"{across} across and {up} up, with intervals; dashed: parity{shaded}.",
        lambda axes: _plane(axes, points, (across, up), reach),
        70 + PLANE + legend_height([label for *_, label in points if label is not None]),
    )


@dataclass(frozen=True)
class Remedied:
    """A remedy's place: its utility, its preference odds, and whether it is on the front."""

    title: str
    utility: Value
    odds: Value
    front: bool


def front_plot(
    remedies: Sequence[Remedied], band: tuple[float, float], favoured: tuple[str, str], name: str
) -> Plot:
    """Utility across, odds up; full marks are on the front, hollow ones are not, the first is the unmitigated.

    The front joins those with no other remedy better in both.
    """
    titles = [remedy.title for remedy in remedies]
    looks = palette(titles)
    points: list[Point] = [(of.title, of.utility, of.odds, looks[of.title], of.title) for of in remedies]
    front = [place for place, remedy in enumerate(remedies) if remedy.front]
    front.sort(key=lambda place: abs(log(remedies[place].odds.value)))
    hollow = {*range(len(remedies))} - {*front}
    low, high = favoured
    return Plot(
        name,
        "What each remedy buys and costs",
        f"nDCG@20 of the rankings across and their odds up, with intervals; dashed: parity; shaded: the "
        f"band of conclusions, {band[0]:g} to {band[1]:g}. Full marks: the front, joined by a line; hollow: another "
        f"remedy is nearer to parity at no less nDCG@20. Below parity {low} items are favoured, above it {high} ones.",
        lambda axes: _plane(axes, points, ("nDCG@20", "odds of rankings"), band, front, hollow),
        90 + PLANE + legend_height(titles),
    )


# Named rows, one under the other: ratios, what a study of windows measured, shares.


GROUP = 14
"""Letters of a group's name at an end of an axis."""
Row = tuple[str, Value | None, Value | None]
"""A name, what was before where there is a before, and what is (after)."""


def ratios(
    rows: Sequence[Row],
    what: str,
    band: tuple[float, float] | None,
    title: str,
    name: str = "ratios",
    favoured: tuple[str, str] | None = None,
) -> Plot:
    """Ratios one under the other, the band of conclusions shaded; with a before, ○ before and ● after.

    `favoured`: the groups that are favoured at the lower and at the upper end of the axis.
    """
    names, times = [of for of, *_ in rows], ("before", "after")
    paired = any(before is not None for _, before, _ in rows)
    shift = 0.16 if paired else 0.0

    def draw(axes: Axes) -> None:
        for place, (of, before, after) in enumerate(rows):
            above, under = place - shift, place + shift
            if before is not None and after is not None:
                axes.plot([before.value, after.value], [above, under], **JOINED)
            if before is not None:
                point(axes, before, Value(above), f"{of}, before: {before}", GREY, markerfacecolor="none",
                       markeredgewidth=1.8, label="before" if place == 0 else None)  # fmt: skip
            if after is not None:
                point(axes, after, Value(under), f"{of}{', after' * paired}: {after}", marker=after.mark,
                       label="after" if place == 0 and paired else None)  # fmt: skip
            else:
                axes.text(1, under, " undefined", va="center", ha="left")
        if band is not None:
            axes.axvspan(*band, **BAND)
        ends = [end for _, *both in rows for value in both if value for end in value.ends()] + [*(band or ())]
        length = rows_length(names)
        ratio_axis(axes, min(ends, default=0.8), max(ends, default=1.25), length, band)
        rows_axis(axes, names)
        axes.set_xlabel(what)
        if favoured is not None:
            low, high = (folded(group, GROUP) for group in favoured)
            axes.set_title(f"← {low}\nfavoured", loc="left", fontsize=LETTER)
            axes.set_title(f"{high} →\nfavoured", loc="right", fontsize=LETTER)
        if paired:
            below(axes, times)

    shaded = "; shaded: the band of conclusions, {:g} to {:g}".format(*band) if band else ""
    marks = " ○ before, ● after." * paired
    sentence = f"{capitalised(what)} with intervals on a logarithmic axis; dashed: parity{shaded}.{marks}"
    height = 74 + rows_height(names) * (1.25 if paired else 1) + (26 if paired else 0)
    if favoured is not None:
        sentence += f" Left of parity {favoured[0]} items are favoured, right of it {favoured[1]} ones."
        height += ROW / 2 * (1 + max(lines_of(group, GROUP) for group in favoured))
    return Plot(name, title, sentence, draw, height)


Shares = Mapping[str, float]
"""The share of each cell (PP, UU, FF, SS, T, M1, M2), summing to 1."""
PARTS: Mapping[str, tuple[Sequence[str], str, str]] = {
    "protected": (("PP",), PROTECTED, ""),
    "flips": (("FF", "SS"), GREY, "///"),
    "tied": (("T",), GREY, "..."),
    "unprotected": (("UU",), UNPROTECTED, ""),
    "unparseable": (("M1", "M2"), INK, ""),
}
SOME = 1e-6
"""A smaller part is the rounding of a sum."""
NUMBER_WIDTH = 36
"""About what the number of a part takes, in the units of the drawing."""


def stacked_answers(
    rows: Sequence[tuple[str, Shares]], words: Mapping[str, str], name: str = "answers"
) -> Plot:
    """`rows` gives the shares of cells by relevance stratum, or by model and stratum."""
    names = [folded(of) for of, _ in rows]
    widths = {
        part: [sum(of.get(cell, 0.0) for cell in cells) for _, of in rows]
        for part, (cells, *_) in PARTS.items()
    }
    # parts that some row has; the three outcomes always
    always = ("protected", "flips", "unprotected")
    parts = [part for part in PARTS if part in always or max(widths[part], default=0) > SOME]

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        room, left = rows_length(names), [0.0] * len(rows)
        for part in parts:
            _, color, hatch = PARTS[part]
            looks = bar_of(color)
            if hatch:
                looks |= {"alpha": 0.45, "hatch": hatch, "edgecolor": PAPER}
            ink = PAPER if color in (PROTECTED, INK) else INK
            for place, width in enumerate(widths[part]):
                axes.barh(
                    place, width, 0.62, left=left[place], label=part if place == 0 else None,
                    gid=tip(f"{names[place]}: {part} {100 * width:.1f} %"), **looks,
                )  # fmt: skip
                if width * room >= NUMBER_WIDTH:
                    axes.text(left[place] + width / 2, place, f"{100 * width:.0f} %", ha="center", va="center",
                              color=ink, fontweight="bold" if color == GREY else "normal")  # fmt: skip
                left[place] += width
        axes.set_xlim(0, 1)
        axes.set_xticks((0, 0.25, 0.5, 0.75, 1) if room > 200 else (0, 0.5, 1))
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        rows_axis(axes, names)
        below(axes, parts)

    protected, unprotected = (
        f"{side} ({words[side]})" if side in words else side for side in ("protected", "unprotected")
    )
    sentence = (
        f"What pairs came to, asked in both orders: the {protected} or the {unprotected} item preferred in both, or "
        "an answer that flips with the order."
    )
    return Plot(name, "Answers on pairs", sentence, draw, 118 + 1.2 * rows_height([of for of, _ in rows]))


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def rank_boxes(
    boxes: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]],
    words: Mapping[str, str],
    name: str = "rank-boxes",
) -> Plot:
    """`boxes` gives the ranks of protected and of unprotected items, by the name of what ranked them."""
    longest = max(int(ranks.max(initial=1)) for both in boxes.values() for ranks in both)
    sides = (("protected", -0.19, PROTECTED), ("unprotected", 0.19, UNPROTECTED))

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for place, (of, both) in enumerate(boxes.items()):
            for ranks, (side, shift, color) in zip(both, sides, strict=True):
                if not len(ranks):
                    continue
                least, low, middle, high, most = np.quantile(ranks, QUANTILES).tolist()
                at = place + shift
                gid = tip(f"{of}, {side}: median {middle:g}, half of them between {low:g} and {high:g}")
                for ends in ([least, low], [high, most]):
                    axes.plot(ends, [at, at], color=color, linewidth=1.4, zorder=2)
                axes.barh(at, high - low, 0.3, left=low, zorder=3, gid=gid, **bar_of(color))
                axes.plot([middle, middle], [at - 0.15, at + 0.15], color=INK, linewidth=2, zorder=4, gid=gid)
        axes.axvline((longest + 1) / 2, **DASHED)
        axes.set_xlim(1 - 0.02 * longest, longest + 0.02 * longest)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        rows_axis(axes, [*boxes])
        axes.set_xlabel("rank")

    protected, unprotected = words.get("protected", "protected"), words.get("unprotected", "unprotected")
    named = "" if protected == "protected" else "protected, "
    sentence = (
        f"Items that are {protected} ({named}filled) and {unprotected} (outlined), rank 1 on the left: median, "
        "quartiles, and lines from the 5th to the 95th percentile; dashed: the middle of the list."
    )
    return Plot(name, "Ranks of protected items", sentence, draw, 74 + 1.25 * rows_height([*boxes]))


# One figure over another, as lines. And single values by heading.


@dataclass(frozen=True)
class Line:
    """A line through points from left to right, a point of its own that is drawn hollow, and points off the line."""

    name: str
    look: Look
    points: Sequence[tuple[float, Value]]
    hollow: tuple[float, float] | None = None
    off: Sequence[tuple[float, Value]] = ()


def curves(
    lines: Sequence[Line],
    axes_names: tuple[str, str],
    title: str,
    sentence: str,
    name: str,
    ticks: Sequence[float],
    diagonal: bool = False,
) -> Plot:
    """`axes_names` across and up; `ticks` from the left end of the axis to the right one."""
    names = [line.name for line in lines]

    def draw(axes: Axes) -> None:
        first, last = ticks[0], ticks[-1]
        if diagonal:
            axes.plot([first, last], [first, last], **{**DASHED, "color": GREY})
        for line in lines:
            look = line.look
            axes.plot([x for x, _ in line.points], [y.value for _, y in line.points], color=look.color,
                      linestyle=look.dash, marker=look.mark, markersize=5, markevery=[],
                      label=folded(line.name, LEGEND), zorder=3)  # fmt: skip
            for x, y in (*line.points, *line.off):
                point(axes, Value(x), y, f"{line.name}: {y} at {x:g}", look.color, 1.4, marker=look.mark,
                       markersize=6, zorder=4)  # fmt: skip
            if line.hollow is not None:
                x, up = line.hollow
                point(axes, Value(x), Value(up), f"{line.name}, hollow: {up:.2f} at {x:.2f}", look.color,
                       marker=look.mark, markersize=9, markerfacecolor="none", zorder=5)  # fmt: skip
        room = 0.04 * (last - first)
        axes.set_xlim(first - room, last + room)
        axes.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
        axes.margins(y=0.08)
        axes.set_xlabel(folded(axes_names[0], LEGEND))
        axes.set_ylabel(folded(axes_names[1], LEGEND))
        below(axes, names)

    return Plot(name, title, sentence, draw, HIGH + legend_height(names))
