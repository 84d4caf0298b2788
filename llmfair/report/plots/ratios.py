"""Ratios against parity: beside utility, by themselves, before and after, and by window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llmfair.report.plots.base import (
    GREY,
    INK,
    LEGEND,
    LETTER,
    LETTER_WIDTH,
    PAPER,
    PROTECTED,
    ROW,
    UNPROTECTED,
    WIDTH,
    Look,
    Plot,
    bar_of,
    below,
    clipped,
    folded,
    legend_height,
    lines_of,
    palette,
    ratio_axis,
    rows_axis,
    rows_height,
    tip,
    whisker,
)
from llmfair.report.tables import bound_text

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Value:
    """A figure with its interval; with one limit alone it is a bound, and the value that limit."""

    value: float
    low: float | None = None
    high: float | None = None

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
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def of_hundred(self) -> str:
        """The same as a share."""
        if self.low is None or self.high is None:
            return f"{100 * self.value:.0f} %"
        return f"{100 * self.value:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"


Point = tuple[str, Value, Value, Look, str | None]
"""A name, its utility, its ratio, how it looks, and its name in the legend, if it stands there."""


def utility_and_ratio(
    points: Sequence[Point],
    across: str,
    up: str,
    reach: tuple[float, float] | None,
    joined: Sequence[Sequence[int]] = (),
    name: str = "utility-and-exposure",
    marks: str = "",
) -> Plot:
    """Utility across, a ratio up, each point with both intervals; `joined` are places of points of one model, `marks`
    says what marks mean that the legend does not."""
    shaded = (
        ""
        if reach is None
        else f"; shaded: between the rankers that always put one group first, {reach[0]:.2f} … {reach[1]:.2f}"
    )
    told = "; ".join(f"{of} {utility.value:.2f} and {ratio}" for of, utility, ratio, *_ in points[:12])
    sentence = f"{across} across and {up} up, with intervals; dashed: parity{shaded}.{marks}"
    height = 300 + legend_height([label for *_, label in points if label is not None])
    draw = partial(_utility, points, across, up, reach, joined)
    title = f"Utility and {'preference' if up.partition('(')[0].endswith('Odds') else 'exposure'}"
    return Plot(name, title, sentence, f"{told}.", draw, height)


def _utility(
    points: Sequence[Point],
    across: str,
    up: str,
    reach: tuple[float, float] | None,
    joined: Sequence[Sequence[int]],
    axes: Axes,
) -> None:
    for places in joined:
        line = [points[place] for place in places]
        axes.plot(
            [p[1].value for p in line],
            [p[2].value for p in line],
            color=GREY,
            linewidth=1,
            alpha=0.7,
            zorder=1,
        )
    for of, utility, ratio, look, label in points:
        said = tip(f"{of}: {across} {utility}, {up} {ratio}")
        if utility.low is not None and utility.high is not None:
            axes.plot(
                [utility.low, utility.high], [ratio.value] * 2, color=look.color, linewidth=1.4, zorder=2, gid=said
            )  # fmt: skip
        if ratio.low is not None and ratio.high is not None:
            axes.plot(
                [utility.value] * 2, [ratio.low, ratio.high], color=look.color, linewidth=1.4, zorder=2, gid=said
            )  # fmt: skip
        axes.plot(
            [utility.value], [ratio.value], linestyle="none", marker=look.mark, color=look.color, markersize=8,
            label=None if label is None else folded(label, LEGEND), zorder=3, gid=said,
        )  # fmt: skip
    ends = [end for _, _, ratio, *_ in points for end in ratio.ends()]
    if reach is not None:
        axes.axhspan(*reach, color=GREY, alpha=0.16, linewidth=0, zorder=0)
        ends += reach
    ratio_axis(axes, min(ends), max(ends), "y")
    axes.margins(x=0.12)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    below(axes, [label for *_, label in points if label is not None])


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
    times: tuple[str, str] = ("before", "after"),
    favoured: tuple[str, str] | None = None,
) -> Plot:
    """Ratios one under the other, the band of conclusions shaded; with a before, ○ before and ● after.

    `favoured`: the groups that are favoured at the lower and at the upper end of the axis.
    """
    shaded = "" if band is None else f"; shaded: the band of conclusions, {band[0]:g} to {band[1]:g}"
    paired = any(before is not None for _, before, _ in rows)
    told = "; ".join(
        f"{of} ".replace("\n", ", ")
        + (f"{times[0]} {before}, {times[1]} " if before else "")
        + (str(after) if after else "undefined")
        for of, before, after in rows[:8]
    )
    marks = f" ○ {times[0]}, ● {times[1]}." if paired else ""
    sentence = (
        f"{what[:1].upper()}{what[1:]} with intervals on a logarithmic axis; dashed: parity{shaded}.{marks}"
    )
    if favoured is not None:
        sentence += f" Left of parity {favoured[0]} items are favoured, right of it {favoured[1]} ones."
    height = 74 + rows_height([of for of, *_ in rows]) * (1.25 if paired else 1) + (26 if paired else 0)
    if favoured:
        height += ROW / 2 * (1 + max(lines_of(group, GROUP) for group in favoured))
    draw = partial(_ratios, rows, what, band, paired, times, favoured)
    return Plot(name, title, sentence, f"{told}.", draw, height)


def _ratios(
    rows: Sequence[Row],
    what: str,
    band: tuple[float, float] | None,
    paired: bool,
    times: tuple[str, str],
    favoured: tuple[str, str] | None,
    axes: Axes,
) -> None:
    ends = [end for _, *both in rows for one in both if one is not None for end in one.ends()]
    shift = 0.16 if paired else 0.0
    for place, (of, before, after) in enumerate(rows):
        if before is not None and after is not None:
            axes.plot(
                [before.value, after.value], [place - shift, place + shift], color=GREY, linewidth=1, zorder=1
            )
        if before is not None:
            whisker(axes, before.value, place - shift, before.low, before.high, color=GREY, markerfacecolor="none",
                    markeredgewidth=1.8, label=times[0] if place == 0 else None,
                    gid=tip(f"{of}, {times[0]}: {before}"))  # fmt: skip
        if after is not None:
            whisker(axes, after.value, place + shift, after.low, after.high, marker=after.mark,
                    label=times[1] if place == 0 and paired else None,
                    gid=tip(f"{of}{f', {times[1]}' if paired else ''}: {after}"))  # fmt: skip
        else:
            axes.text(1, place + shift, " undefined", va="center", ha="left")
    if band is not None:
        axes.axvspan(*band, color=GREY, alpha=0.16, linewidth=0, zorder=0)
        ends += band
    ratio_axis(axes, min(ends, default=0.8), max(ends, default=1.25))
    rows_axis(axes, [of for of, _, _ in rows])
    axes.set_xlabel(what)
    if favoured is not None:
        low, high = (folded(group, GROUP) for group in favoured)
        axes.set_title(f"← {low}\nfavoured", loc="left", fontsize=LETTER)
        axes.set_title(f"{high} →\nfavoured", loc="right", fontsize=LETTER)
    if paired:
        below(axes, times)


@dataclass(frozen=True)
class Window:
    """One setting of a windows study: its utility and ratio, and what each could have been."""

    setting: str
    utility: Value | None
    perfect: float | None
    ratio: Value | None
    reach: tuple[float, float] | None


def windows(settings: Sequence[Window], utility: str, ratio: str) -> tuple[Plot, Plot]:
    """Utility by setting beside that of a perfect ranker, and the ratio beside its reach."""
    usefulness = "; ".join(f"{one.setting} {one.utility}" for one in settings if one.utility)
    ratios_told = "; ".join(f"{one.setting} {one.ratio}" for one in settings if one.ratio)
    height = 74 + rows_height([one.setting for one in settings])
    return (
        Plot(
            "windows-utility",
            f"{utility} by window and step",
            f"{utility} with intervals by window and step; grey bars: what a perfect ranker would read.",
            f"{usefulness}.",
            partial(_window_utility, settings, utility),
            height,
        ),
        Plot(
            "windows-ratio",
            f"{ratio} by window and step",
            f"{ratio} with intervals by window and step; grey bars: what rankers that always put one group first read; "
            "dashed: parity.",
            f"{ratios_told}.",
            partial(_window_ratio, settings, ratio),
            height,
        ),
    )


def _window_utility(settings: Sequence[Window], name: str, axes: Axes) -> None:
    for place, one in enumerate(settings):
        if one.perfect is not None:
            axes.barh(place, one.perfect, 0.5, color=GREY, alpha=0.25)
            axes.plot([one.perfect] * 2, [place - 0.25, place + 0.25], color=INK, linewidth=2)
        if one.utility is not None:
            said = tip(f"{one.setting}: {one.utility}")
            whisker(axes, one.utility.value, place, one.utility.low, one.utility.high, gid=said)
    axes.set_xlim(0, 1)
    rows_axis(axes, [one.setting for one in settings])
    axes.set_xlabel(name)


def _window_ratio(settings: Sequence[Window], name: str, axes: Axes) -> None:
    ends: list[float] = []
    for place, one in enumerate(settings):
        if one.reach is not None:
            low, high = one.reach
            axes.barh(place, high - low, 0.5, left=low, color=GREY, alpha=0.25)
            ends += one.reach
        if one.ratio is not None:
            said = tip(f"{one.setting}: {one.ratio}")
            whisker(axes, one.ratio.value, place, one.ratio.low, one.ratio.high, gid=said)
            ends += one.ratio.ends()
    ratio_axis(axes, min(ends, default=0.8), max(ends, default=1.25))
    rows_axis(axes, [one.setting for one in settings])
    axes.set_xlabel(name)


# Answers on pairs: what they came to, and how much the position decides.


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


# The front of remedies: preference odds against relevance, joined where no other remedy is better in both.


@dataclass(frozen=True)
class Remedied:
    """A remedy's place: its utility, its preference odds, and whether it is on the front."""

    title: str
    utility: Value
    odds: Value
    front: bool


def front_plot(
    points: Sequence[Remedied], band: tuple[float, float], favoured: tuple[str, str], name: str
) -> Plot:
    """Utility across, odds up; full marks are on the front, hollow ones are not, the first is the unmitigated."""
    best = [one for one in points if one.front]
    told = "; ".join(f"{one.title} {one.utility.value:.3f} and {one.odds}" for one in points[:12])
    low, high = favoured
    sentence = (
        f"nDCG@20 of the rankings across and their preference odds up, with intervals; dashed: parity; shaded: the "
        f"band of conclusions, {band[0]:g} to {band[1]:g}. Full marks: the front, joined by a line; hollow: another "
        f"remedy is nearer to parity at no less nDCG@20. Below parity {low} items are favoured, above it {high} ones."
    )
    height = 320 + legend_height([one.title for one in points])
    draw = partial(_front, points, best, band)
    return Plot(name, "What each remedy buys and costs", sentence, f"{told}.", draw, height)


def _front(
    points: Sequence[Remedied], best: Sequence[Remedied], band: tuple[float, float], axes: Axes
) -> None:
    looks: dict[str, Look] = palette([one.title for one in points])
    line = sorted(best, key=lambda one: (abs(log(one.odds.value)), one.utility.value))
    axes.plot(
        [one.utility.value for one in line], [one.odds.value for one in line], color=GREY, linewidth=1.4, zorder=1
    )  # fmt: skip
    axes.axhspan(*band, color=GREY, alpha=0.16, linewidth=0, zorder=0)
    for one in points:
        look, said = looks[one.title], tip(f"{one.title}: nDCG@20 {one.utility}, preference odds {one.odds}")
        if one.utility.low is not None and one.utility.high is not None:
            axes.plot([one.utility.low, one.utility.high], [one.odds.value] * 2, color=look.color, linewidth=1,
                      alpha=0.55, zorder=2, gid=said)  # fmt: skip
        if one.odds.low is not None and one.odds.high is not None:
            axes.plot([one.utility.value] * 2, [one.odds.low, one.odds.high], color=look.color, linewidth=1,
                      alpha=0.55, zorder=2, gid=said)  # fmt: skip
        axes.plot(
            [one.utility.value], [one.odds.value], linestyle="none", marker=look.mark, color=look.color, markersize=8,
            markerfacecolor=look.color if one.front else PAPER, markeredgewidth=1.6, label=clipped(one.title, LEGEND),
            zorder=3, gid=said,
        )  # fmt: skip
    ends = [end for one in points for end in one.odds.ends()] + [*band]
    ratio_axis(axes, min(ends), max(ends), "y")
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("nDCG@20")
    axes.set_ylabel("preference odds of rankings")
    axes.tick_params(colors=INK)
    below(axes, [one.title for one in points])


# What a ranking did to a list: a line for each item from its initial rank to its final one.


LEFT, RIGHT, TOP = 34, 306, 24
TALLEST, SLOPE_ROW = 480, 7
SLOPE_WIDTH = 340
GROUPS = {"protected": "p", "unprotected": "u"}
"""Classes of the page by group; dashes tell the second without its colour."""


@dataclass(frozen=True)
class RankChange:
    """An item with its group, or None of neither, and its ranks, from 1."""

    title: str
    group: str | None
    initial: int
    final: int


def slopes(items: Sequence[RankChange]) -> Markup:
    """The drawing, as SVG for the page; thick lines are the mean ranks of either group."""
    from markupsafe import Markup

    last = max(max(item.initial, item.final) for item in items)
    height = min(TALLEST, SLOPE_ROW * last)

    def at(rank: float) -> str:
        return f"{TOP + (rank - 1) / max(last - 1, 1) * height:.0f}"

    def line(name: str, said: str, initial: float, final: float) -> Markup:
        return Markup('<path class="{}" d="M{} {}L{} {}"><title>{}</title></path>').format(
            name, LEFT, at(initial), RIGHT, at(final), said
        )

    thin = [
        line(
            GROUPS.get(one.group or "", "x"),
            f"{one.title}: {one.initial} → {one.final}",
            one.initial,
            one.final,
        )
        for one in items
    ]
    thick = [
        line(f"{GROUPS[group]} m", f"{group}: mean rank {initial:.1f} → {final:.1f}", initial, final)
        for group, initial, final in mean_ranks(items)
    ]
    marks = Markup("").join(
        Markup('<text x="{}" y="{}"{}>{}</text>').format(x, f"{float(at(rank)) + 4:.0f}", end, rank)
        for x, end in ((LEFT - 6, Markup(' class="end"')), (RIGHT + 6, ""))
        for rank in dict.fromkeys((1, last))
    )
    return Markup(
        '<svg class="slopes" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<text x="{}" y="11">initial rank</text><text x="{}" y="11" class="end">final rank</text>{}{}</svg>'
    ).format(
        SLOPE_WIDTH, TOP + height + 8, f"A line for each item from its initial to its final rank. {mean_text(items)}.",
        0, SLOPE_WIDTH, marks, Markup("").join(thin + thick),
    )  # fmt: skip


def mean_ranks(items: Sequence[RankChange]) -> list[tuple[str, float, float]]:
    """Group, mean initial and mean final rank of each group that has items."""
    found = []
    for group in GROUPS:
        of_it = [item for item in items if item.group == group]
        if of_it:
            initial, final = (
                sum(ranks) / len(of_it) for ranks in zip(*((i.initial, i.final) for i in of_it), strict=True)
            )
            found.append((group, initial, final))
    return found


def mean_text(items: Sequence[RankChange]) -> str:
    """The mean ranks of the groups, in words."""
    signs = {"protected": "● protected", "unprotected": "○ unprotected"}
    told = (f"{signs[group]} {initial:.1f} → {final:.1f}" for group, initial, final in mean_ranks(items))
    return f"Mean rank: {', '.join(told)}"


# Where protected items stand: boxes of ranks, and their share among the first.


MARKED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Ranks at which a curve has its marks."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Boxes = Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]


def rank_boxes(boxes: Boxes, words: Mapping[str, str], name: str = "rank-boxes") -> Plot:
    """`boxes` gives the ranks of protected and of unprotected items, by the name of what ranked them."""
    longest = max(
        max((int(ranks.max()) for ranks in both if len(ranks)), default=1) for both in boxes.values()
    )
    protected, unprotected = words.get("protected", "protected"), words.get("unprotected", "unprotected")
    named = "" if protected == "protected" else "protected, "
    sentence = (
        f"Items that are {protected} ({named}filled) and {unprotected} (outlined), rank 1 on top: median, quartiles, "
        "and lines from the 5th to the 95th percentile; dashed: the middle of the list."
    )
    medians = [
        f"{of} {np.median(both[0]):g} against {np.median(both[1]):g}"
        for of, both in boxes.items()
        if len(both[0]) and len(both[1])
    ]
    numbers = f"Medians: {', '.join(medians)}."
    height = 300.0
    if _upright([*boxes]):
        height = 250 + LETTER_WIDTH * max(
            len(line) for of in boxes for line in folded(of, LEGEND).split("\n")
        )
    return Plot(name, "Ranks of protected items", sentence, numbers, partial(_boxes, boxes, longest), height)


def _boxes(boxes: Boxes, longest: int, axes: Axes) -> None:
    for place, (name, both) in enumerate(boxes.items()):
        for ranks, shift, color in zip(both, (-0.19, 0.19), (PROTECTED, UNPROTECTED), strict=True):
            if not len(ranks):
                continue
            least, low, middle, high, most = np.quantile(ranks, QUANTILES).tolist()
            at = place + shift
            said = tip(
                f"{name}, {'protected' if color == PROTECTED else 'unprotected'}: median {middle:g}, half of them "
                f"between {low:g} and {high:g}"
            )
            axes.plot([at, at], [least, low], color=color, linewidth=1.4, zorder=2)
            axes.plot([at, at], [high, most], color=color, linewidth=1.4, zorder=2)
            axes.bar(at, high - low, 0.3, bottom=low, zorder=3, gid=said, **bar_of(color))
            axes.plot([at - 0.15, at + 0.15], [middle, middle], color=INK, linewidth=2, zorder=4, gid=said)
    axes.axhline((longest + 1) / 2, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_ylim(longest + 0.02 * longest, 1 - 0.02 * longest)
    axes.set_yticks(_rank_ticks(longest))
    axes.set_ylabel("rank")
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.5, len(boxes) - 0.5)
    names = [*boxes]
    if _upright(names):
        axes.set_xticks(range(len(names)), [folded(name, LEGEND) for name in names], rotation=90)
    else:
        axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])


def _upright(names: list[str]) -> bool:
    """Whether names are too long, or too many, to stand side by side."""
    return len(names) > 5 or max(len(word) for name in names for word in name.split()) * len(names) > 36


def _rank_ticks(longest: int) -> list[int]:
    step = next((step for step in (1, 2, 5, 10, 25, 50, 100) if longest / step <= 6), 10 ** len(str(longest)))
    return [1, *(rank for rank in range(step, longest + 1, step) if rank > max(1, step / 2))]


def exposure_curve(
    curves: Mapping[str, NDArray[np.float64]],
    pool: float | None,
    looks: Mapping[str, Look],
    words: Mapping[str, str],
) -> Plot:
    """`curves` gives the share of protected among the first r items, by prompt; `pool` their share of all."""
    numbers = ""
    sentence = (
        f"Share of {words.get('protected', 'protected')} (protected) items among the first r, mean over queries and "
        "runs" + ("" if pool is None else f"; dashed: their share of the lists, {100 * pool:.0f} %") + "."
    )
    at = [r for r in (10, 20) if all(len(curve) >= r for curve in curves.values())]
    if at:
        told = ", ".join(f"{of} {100 * curve[at[-1] - 1]:.0f} %" for of, curve in curves.items())
        numbers = f"Among the first {at[-1]}: {told}."
    draw, height = partial(_curve, curves, pool, looks), 285 + legend_height([*curves])
    return Plot("exposure-curve", "Protected items among the first", sentence, numbers, draw, height)


def _curve(
    curves: Mapping[str, NDArray[np.float64]], pool: float | None, looks: Mapping[str, Look], axes: Axes
) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter, ScalarFormatter

    longest = max(len(curve) for curve in curves.values())
    for name, curve in curves.items():
        look = looks[name]
        axes.plot(range(1, len(curve) + 1), curve, color=look.color, linestyle=look.dash, zorder=3)
        for r in (r for r in MARKED if r <= len(curve)):
            axes.plot([r], [curve[r - 1]], color=look.color, marker=look.mark, markersize=5, clip_on=False, zorder=4,
                      gid=tip(f"{name}: {100 * curve[r - 1]:.0f} % of the first {r}"))  # fmt: skip
        axes.plot([], [], color=look.color, linestyle=look.dash, marker=look.mark, markersize=5,
                  label=folded(name, LEGEND))  # fmt: skip
    if pool is not None:
        axes.axhline(pool, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xscale("log")  # exposure falls with the logarithm of the rank: the head has room
    axes.set_xlim(1, max(longest, 2))
    axes.xaxis.set_major_locator(FixedLocator([r for r in MARKED if r <= longest]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    drawn = np.concatenate([*curves.values(), [] if pool is None else [pool]])
    low, high = float(drawn.min()), float(drawn.max())
    room = max(0.05, (high - low) * 0.08)
    axes.set_ylim(max(0.0, low - room), min(1.0, high + room))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("first r items")
    below(axes, [*curves])


# One figure over another as lines with intervals, and single values by what they were had under.


MOST = 200
"""Values of one name under one heading that are drawn; more would be a stain, and slow."""
WIDE = 0.6
"""How much of a heading's place its values take."""
TURN = 0.618034
"""Multiples of the golden ratio fall evenly between 0 and 1, neighbours far apart."""


@dataclass(frozen=True)
class Line:
    """A line through points from left to right, and a point of its own that is drawn hollow."""

    name: str
    look: Look
    points: Sequence[tuple[float, Value]]
    hollow: tuple[float, float] | None = None


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
    told = "; ".join(
        f"{line.name}: " + ", ".join(f"{value} at {at:g}" for at, value in line.points) for line in lines[:8]
    )
    draw, height = (
        partial(_curves, lines, axes_names, ticks, diagonal),
        285 + legend_height([line.name for line in lines]),
    )
    return Plot(name, title, sentence, f"{told}.", draw, height)


def _curves(
    lines: Sequence[Line], names: tuple[str, str], ticks: Sequence[float], diagonal: bool, axes: Axes
) -> None:
    if diagonal:
        axes.plot(
            [ticks[0], ticks[-1]], [ticks[0], ticks[-1]], color=GREY, linewidth=1, linestyle=(0, (4, 3))
        )
    for line in lines:
        look = line.look
        for at, one in line.points:
            if one.low is not None and one.high is not None:
                axes.plot([at, at], [one.low, one.high], color=look.color, linewidth=1.4, alpha=0.6, zorder=2)
        axes.plot([at for at, _ in line.points], [one.value for _, one in line.points], color=look.color,
                  linestyle=look.dash, zorder=3)  # fmt: skip
        for at, one in line.points:
            axes.plot([at], [one.value], color=look.color, marker=look.mark, markersize=6, clip_on=False, zorder=4,
                      gid=tip(f"{line.name}: {one} at {at:g}"))  # fmt: skip
        if line.hollow is not None:
            axes.plot(*([end] for end in line.hollow), color=look.color, marker=look.mark, markersize=9, clip_on=False,
                      markerfacecolor="none", markeredgewidth=1.6, zorder=5,
                      gid=tip(f"{line.name}, hollow: {line.hollow[1]:.2f} at {line.hollow[0]:.2f}"))  # fmt: skip
        axes.plot([], [], color=look.color, linestyle=look.dash, marker=look.mark, markersize=5,
                  label=folded(line.name, LEGEND))  # fmt: skip
    room = 0.04 * (ticks[-1] - ticks[0])
    axes.set_xlim(ticks[0] - room, ticks[-1] + room)
    axes.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
    axes.margins(y=0.08)
    axes.set_xlabel(folded(names[0], LEGEND))
    axes.set_ylabel(folded(names[1], LEGEND))
    below(axes, [line.name for line in lines])


Values = Mapping[str, Mapping[str, Sequence[float]]]
"""Single values by name and heading."""


def scattered(
    values: Values,
    looks: Mapping[str, Look],
    axes_names: tuple[str, str],
    title: str,
    sentence: str,
    name: str,
) -> Plot:
    """A point a value, beside those of other names under the same heading; of very many some, evenly spaced by size."""
    most = max(len(of) for by in values.values() for of in by.values())
    drawn = f" Of more than {MOST} points so many are drawn, evenly spaced by size." * (most > MOST)
    told = "; ".join(
        f"{of}: "
        + ", ".join(f"{heading} {sorted(some)[len(some) // 2]:.2f}" for heading, some in by.items() if some)
        for of, by in values.items()
    )
    draw, height = partial(_scattered, values, looks, axes_names), 285 + legend_height([*values])
    return Plot(name, title, sentence + drawn, f"Medians: {told}.", draw, height)


def _scattered(values: Values, looks: Mapping[str, Look], names: tuple[str, str], axes: Axes) -> None:
    headings = list(dict.fromkeys(heading for by in values.values() for heading in by))
    width = WIDE / len(values)
    for place, (name, by) in enumerate(values.items()):
        look = looks[name]
        dots: dict[str, Any] = {
            "linestyle": "none",
            "marker": look.mark,
            "markersize": 4,
            "color": look.color,
        }
        dots |= {"alpha": 0.55, "markeredgewidth": 0}
        for heading, some in by.items():
            found = sorted(some)
            if not found:
                continue
            middle, ends = found[len(found) // 2], f"from {found[0]:.2f} to {found[-1]:.2f}"
            said = tip(f"{name}, {names[0]} {heading}: median {middle:.2f}, {ends}")
            if len(found) > MOST:
                found = [found[round(i * (len(found) - 1) / (MOST - 1))] for i in range(MOST)]
            left = headings.index(heading) - WIDE / 2 + width * place
            x = [left + width * (0.1 + 0.8 * (i * TURN % 1)) for i in range(len(found))]
            axes.plot(x, found, clip_on=False, gid=said, **dots)
        axes.plot([], [], label=folded(name, LEGEND), **dots)
    axes.set_xlim(-0.5, len(headings) - 0.5)
    axes.set_xticks(range(len(headings)), headings)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel(names[0])
    axes.set_ylabel(folded(names[1], LEGEND))
    below(axes, [*values])
