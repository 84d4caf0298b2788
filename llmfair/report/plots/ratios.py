"""The figures: ratios against parity, utility beside them, answers on pairs, ranks, and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
)
from llmfair.report.tables import bound_text, capitalised

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

DASHED: Mapping[str, Any] = {"color": INK, "linewidth": 1, "linestyle": (0, (4, 3)), "zorder": 1}
BAND: Mapping[str, Any] = {"color": GREY, "alpha": 0.16, "linewidth": 0, "zorder": 0}


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


def _whisker(axes: Axes, value: Value, place: float, **looks: Any) -> None:
    """A point at this height with its interval, left out of a bound; `gid` as `tip` gives it."""
    looks = {"color": INK, "marker": "o", **looks}
    if value.interval:
        axes.plot(value.interval, [place, place], linewidth=2, solid_capstyle="butt", zorder=2,
                  color=looks["color"], gid=looks["gid"])  # fmt: skip
    axes.plot([value.value], [place], linestyle="none", zorder=3, markersize=7, clip_on=False, **looks)


def _crossed(axes: Axes, across: Value, up: Value, look: Look, lines: Mapping[str, Any], **mark: Any) -> None:
    """A point with both intervals; `gid` as `tip` gives it."""
    lines = {"color": look.color, "zorder": 2, "gid": mark["gid"], **lines}
    if across.interval:
        axes.plot(across.interval, [up.value] * 2, **lines)
    if up.interval:
        axes.plot([across.value] * 2, up.interval, **lines)
    axes.plot([across.value], [up.value], linestyle="none", marker=look.mark, color=look.color, markersize=8,
              zorder=3, **mark)  # fmt: skip


def _legend_line(axes: Axes, name: str, look: Look) -> None:
    axes.plot(
        [],
        [],
        color=look.color,
        linestyle=look.dash,
        marker=look.mark,
        markersize=5,
        label=folded(name, LEGEND),
    )


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
    legend = [label for *_, label in points if label is not None]

    def draw(axes: Axes) -> None:
        for places in joined:
            ends = [(points[place][1].value, points[place][2].value) for place in places]
            axes.plot(*zip(*ends, strict=True), color=GREY, linewidth=1, alpha=0.7, zorder=1)
        for of, utility, ratio, look, label in points:
            _crossed(axes, utility, ratio, look, {"linewidth": 1.4},
                     label=None if label is None else folded(label, LEGEND),
                     gid=tip(f"{of}: {across} {utility}, {up} {ratio}"))  # fmt: skip
        _utility_axes(axes, [ratio for _, _, ratio, *_ in points], reach, (across, up), 0.12)
        below(axes, legend)

    shaded = ""
    if reach is not None:
        shaded = (
            f"; shaded: between the rankers that always put one group first, {reach[0]:.2f} … {reach[1]:.2f}"
        )
    numbers = "; ".join(f"{of} {utility.value:.2f} and {ratio}" for of, utility, ratio, *_ in points[:12])
    sentence = f"{across} across and {up} up, with intervals; dashed: parity{shaded}.{marks}"
    title = f"Utility and {'preference' if up.partition('(')[0].endswith('Odds') else 'exposure'}"
    return Plot(name, title, sentence, f"{numbers}.", draw, 300 + legend_height(legend))


def _utility_axes(
    axes: Axes,
    values: Sequence[Value],
    shaded: tuple[float, float] | None,
    names: tuple[str, str],
    margin: float,
) -> None:
    """Utility across and a ratio on a logarithmic axis up, with what is shaded between two ratios."""
    ends = [end for value in values for end in value.ends()] + [*(shaded or ())]
    if shaded is not None:
        axes.axhspan(*shaded, **BAND)
    ratio_axis(axes, min(ends), max(ends), "y")
    axes.margins(x=margin)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])


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
    names = [of for of, *_ in rows]
    paired = any(before is not None for _, before, _ in rows)
    shift = 0.16 if paired else 0.0

    def draw(axes: Axes) -> None:
        for place, (of, before, after) in enumerate(rows):
            if before is not None and after is not None:
                axes.plot(
                    [before.value, after.value],
                    [place - shift, place + shift],
                    color=GREY,
                    linewidth=1,
                    zorder=1,
                )
            if before is not None:
                _whisker(axes, before, place - shift, color=GREY, markerfacecolor="none", markeredgewidth=1.8,
                         label=times[0] if place == 0 else None, gid=tip(f"{of}, {times[0]}: {before}"))  # fmt: skip
            if after is not None:
                _whisker(axes, after, place + shift, marker=after.mark,
                         label=times[1] if place == 0 and paired else None,
                         gid=tip(f"{of}{f', {times[1]}' if paired else ''}: {after}"))  # fmt: skip
            else:
                axes.text(1, place + shift, " undefined", va="center", ha="left")
        ends = [end for _, *both in rows for value in both if value is not None for end in value.ends()]
        if band is not None:
            axes.axvspan(*band, **BAND)
            ends += band
        ratio_axis(axes, min(ends, default=0.8), max(ends, default=1.25))
        rows_axis(axes, names)
        axes.set_xlabel(what)
        if favoured is not None:
            low, high = (folded(group, GROUP) for group in favoured)
            axes.set_title(f"← {low}\nfavoured", loc="left", fontsize=LETTER)
            axes.set_title(f"{high} →\nfavoured", loc="right", fontsize=LETTER)
        if paired:
            below(axes, times)

    shaded = "" if band is None else f"; shaded: the band of conclusions, {band[0]:g} to {band[1]:g}"
    marks = f" ○ {times[0]}, ● {times[1]}." if paired else ""
    numbers = "; ".join(
        f"{of} ".replace("\n", ", ")
        + (f"{times[0]} {before}, {times[1]} " if before else "")
        + (str(after) if after else "undefined")
        for of, before, after in rows[:8]
    )
    sentence = f"{capitalised(what)} with intervals on a logarithmic axis; dashed: parity{shaded}.{marks}"
    height = 74 + rows_height(names) * (1.25 if paired else 1) + (26 if paired else 0)
    if favoured is not None:
        sentence += f" Left of parity {favoured[0]} items are favoured, right of it {favoured[1]} ones."
        height += ROW / 2 * (1 + max(lines_of(group, GROUP) for group in favoured))
    return Plot(name, title, sentence, f"{numbers}.", draw, height)


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
    names = [window.setting for window in settings]

    def plot(
        name: str,
        label: str,
        bars: str,
        values: Sequence[Value | None],
        reach: Sequence[tuple[float, float] | None],
    ) -> Plot:
        def draw(axes: Axes) -> None:
            for place, (value, bounds) in enumerate(zip(values, reach, strict=True)):
                if bounds is not None:
                    low, high = bounds
                    axes.barh(place, high - low, 0.5, left=low, color=GREY, alpha=0.25)
                    if label == utility:
                        axes.plot([high] * 2, [place - 0.25, place + 0.25], color=INK, linewidth=2)
                if value is not None:
                    _whisker(axes, value, place, gid=tip(f"{names[place]}: {value}"))
            if label == utility:
                axes.set_xlim(0, 1)
            else:
                ends = [end for value in values if value for end in value.ends()]
                ends += [end for bounds in reach if bounds for end in bounds]
                ratio_axis(axes, min(ends, default=0.8), max(ends, default=1.25))
            rows_axis(axes, names)
            axes.set_xlabel(label)

        sentence = f"{label} with intervals by window and step; grey bars: what {bars}."
        numbers = "; ".join(f"{of} {value}" for of, value in zip(names, values, strict=True) if value)
        return Plot(
            name, f"{label} by window and step", sentence, f"{numbers}.", draw, 74 + rows_height(names)
        )

    return (
        plot(
            "windows-utility", utility, "a perfect ranker would read", [window.utility for window in settings],
            [None if window.perfect is None else (0.0, window.perfect) for window in settings],
        ),
        plot(
            "windows-ratio", ratio, "rankers that always put one group first read; dashed: parity",
            [window.ratio for window in settings], [window.reach for window in settings],
        ),
    )  # fmt: skip


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
    names = [folded(of) for of, _ in rows]
    widths = {part: [sum(of.get(cell, 0.0) for cell in cells) for _, of in rows] for part, cells, *_ in PARTS}
    # parts that some row has; the three outcomes always
    parts = [
        (part, color, hatch)
        for part, _, color, hatch in PARTS
        if part in ("protected", "flips", "unprotected") or max(widths[part], default=0) > SOME
    ]

    def draw(axes: Axes) -> None:
        room = WIDTH - 25 - LETTER_WIDTH * max(len(line) for of in names for line in of.split("\n"))
        left = [0.0] * len(rows)
        for part, color, hatch in parts:
            looks = bar_of(color)
            if hatch:
                looks = {
                    "facecolor": color,
                    "alpha": 0.45,
                    "hatch": hatch,
                    "edgecolor": PAPER,
                    "linewidth": 0,
                }
            for place, width in enumerate(widths[part]):
                axes.barh(
                    place, width, 0.62, left=left[place], label=part if place == 0 else None,
                    gid=tip(f"{names[place]}: {part} {100 * width:.1f} %"), **looks,
                )  # fmt: skip
                if width * room >= NUMBER_WIDTH:
                    ink = PAPER if color in (PROTECTED, INK) else INK
                    axes.text(left[place] + width / 2, place, f"{100 * width:.0f} %", ha="center", va="center",
                              color=ink, fontweight="bold" if color == GREY else "normal")  # fmt: skip
                left[place] += width
        _share_axis(axes, [0, 0.25, 0.5, 0.75, 1] if room > 200 else [0, 0.5, 1])
        rows_axis(axes, names)
        below(axes, [part for part, *_ in parts])

    protected, unprotected = (
        f"{side} ({words[side]})" if side in words else side for side in ("protected", "unprotected")
    )
    sentence = (
        f"What pairs came to, asked in both orders: the {protected} or the {unprotected} item preferred in both, or "
        "an answer that flips with the order."
    )
    numbers = "; ".join(
        f"{of}: " + ", ".join(f"{part} {100 * widths[part][place]:.0f} %" for part, *_ in parts)
        for place, (of, _) in enumerate(rows[:8])
    )
    height = 118 + 1.2 * rows_height([of for of, _ in rows])
    return Plot(name, "Answers on pairs", sentence, f"{numbers}.", draw, height)


def _share_axis(axes: Axes, ticks: Sequence[float]) -> None:
    """Shares from none to all across."""
    from matplotlib.ticker import PercentFormatter

    axes.set_xlim(0, 1)
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def position_bias(rows: Sequence[tuple[str, Value]]) -> Plot:
    """`rows` gives the share of answers won by the item shown first, by relevance stratum."""

    def draw(axes: Axes) -> None:
        for place, (of, share) in enumerate(rows):
            interval = (
                " [{:.0f}, {:.0f}]".format(*(100 * end for end in share.interval)) if share.interval else ""
            )
            _whisker(axes, share, place, gid=tip(f"{of}: {100 * share.value:.0f} %{interval}"))
        axes.axvline(0.5, **DASHED)
        _share_axis(axes, [0, 0.25, 0.5, 0.75, 1])
        rows_axis(axes, [of for of, _ in rows])
        axes.set_xlabel("won by the item shown first")

    numbers = "; ".join(f"{of} {100 * share.value:.0f} %" for of, share in rows[:8])
    sentence = "Share of parseable answers that the item shown first wins, with intervals; dashed: 50 %."
    height = 74 + rows_height([of for of, _ in rows])
    return Plot("position-bias", "Position bias", sentence, f"{numbers}.", draw, height)


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
    titles = [point.title for point in points]

    def draw(axes: Axes) -> None:
        looks = palette(titles)
        front = sorted((abs(log(p.odds.value)), p.utility.value, p.odds.value) for p in points if p.front)
        axes.plot([x for _, x, _ in front], [y for *_, y in front], color=GREY, linewidth=1.4, zorder=1)
        for point in points:
            look = looks[point.title]
            _crossed(axes, point.utility, point.odds, look, {"linewidth": 1, "alpha": 0.55}, markeredgewidth=1.6,
                     markerfacecolor=look.color if point.front else PAPER, label=clipped(point.title, LEGEND),
                     gid=tip(f"{point.title}: nDCG@20 {point.utility}, preference odds {point.odds}"))  # fmt: skip
        _utility_axes(axes, [p.odds for p in points], band, ("nDCG@20", "preference odds of rankings"), 0.08)
        below(axes, titles)

    low, high = favoured
    sentence = (
        f"nDCG@20 of the rankings across and their preference odds up, with intervals; dashed: parity; shaded: the "
        f"band of conclusions, {band[0]:g} to {band[1]:g}. Full marks: the front, joined by a line; hollow: another "
        f"remedy is nearer to parity at no less nDCG@20. Below parity {low} items are favoured, above it {high} ones."
    )
    numbers = "; ".join(f"{point.title} {point.utility.value:.3f} and {point.odds}" for point in points[:12])
    height = 320 + legend_height(titles)
    return Plot(name, "What each remedy buys and costs", sentence, f"{numbers}.", draw, height)


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

    lines = [
        (
            GROUPS.get(item.group or "", "x"),
            item.initial,
            item.final,
            f"{item.title}: {item.initial} → {item.final}",
        )
        for item in items
    ] + [
        (f"{GROUPS[group]} m", initial, final, f"{group}: mean rank {initial:.1f} → {final:.1f}")
        for group, initial, final in _mean_ranks(items)
    ]
    path = Markup('<path class="{}" d="M{} {}L{} {}"><title>{}</title></path>')
    text = Markup('<text x="{}" y="{}"{}>{}</text>')
    marks = Markup("").join(
        text.format(x, f"{float(at(rank)) + 4:.0f}", end, rank)
        for x, end in ((LEFT - 6, Markup(' class="end"')), (RIGHT + 6, ""))
        for rank in dict.fromkeys((1, last))
    )
    drawn = Markup("").join(
        path.format(of, LEFT, at(one), RIGHT, at(two), title) for of, one, two, title in lines
    )
    return Markup(
        '<svg class="slopes" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<text x="{}" y="11">initial rank</text><text x="{}" y="11" class="end">final rank</text>{}{}</svg>'
    ).format(
        SLOPE_WIDTH, TOP + height + 8, f"A line for each item from its initial to its final rank. {mean_text(items)}.",
        0, SLOPE_WIDTH, marks, drawn,
    )  # fmt: skip


def _mean_ranks(items: Sequence[RankChange]) -> list[tuple[str, float, float]]:
    """Group, mean initial and mean final rank of each group that has items."""
    of_groups = [(group, [item for item in items if item.group == group]) for group in GROUPS]
    return [
        (group, sum(item.initial for item in of) / len(of), sum(item.final for item in of) / len(of))
        for group, of in of_groups
        if of
    ]


def mean_text(items: Sequence[RankChange]) -> str:
    """The mean ranks of the groups, in words."""
    signs = {"protected": "● protected", "unprotected": "○ unprotected"}
    means = (f"{signs[group]} {initial:.1f} → {final:.1f}" for group, initial, final in _mean_ranks(items))
    return f"Mean rank: {', '.join(means)}"


# Where protected items stand: boxes of ranks, and their share among the first.


MARKED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Ranks at which a curve has its marks."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Boxes = Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]


def rank_boxes(boxes: Boxes, words: Mapping[str, str], name: str = "rank-boxes") -> Plot:
    """`boxes` gives the ranks of protected and of unprotected items, by the name of what ranked them."""
    longest = max(int(ranks.max(initial=1)) for both in boxes.values() for ranks in both)
    # names that are too long, or too many, do not stand side by side
    upright = len(boxes) > 5 or max(len(word) for of in boxes for word in of.split()) * len(boxes) > 36

    def draw(axes: Axes) -> None:
        sides = (("protected", -0.19, PROTECTED), ("unprotected", 0.19, UNPROTECTED))
        for place, (of, both) in enumerate(boxes.items()):
            for ranks, (side, shift, color) in zip(both, sides, strict=True):
                if not len(ranks):
                    continue
                least, low, middle, high, most = np.quantile(ranks, QUANTILES).tolist()
                at = place + shift
                gid = tip(f"{of}, {side}: median {middle:g}, half of them between {low:g} and {high:g}")
                for ends in ([least, low], [high, most]):
                    axes.plot([at, at], ends, color=color, linewidth=1.4, zorder=2)
                axes.bar(at, high - low, 0.3, bottom=low, zorder=3, gid=gid, **bar_of(color))
                axes.plot([at - 0.15, at + 0.15], [middle, middle], color=INK, linewidth=2, zorder=4, gid=gid)
        axes.axhline((longest + 1) / 2, **DASHED)
        axes.set_ylim(longest + 0.02 * longest, 1 - 0.02 * longest)
        step = next((s for s in (1, 2, 5, 10, 25, 50, 100) if longest / s <= 6), 10 ** len(str(longest)))
        axes.set_yticks([1, *(rank for rank in range(step, longest + 1, step) if rank > max(1, step / 2))])
        axes.set_ylabel("rank")
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.5, len(boxes) - 0.5)
        names = [folded(of, LEGEND) if upright else of.replace(" ", "\n") for of in boxes]
        axes.set_xticks(range(len(boxes)), names, rotation=90 if upright else 0)

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
    letters = max(len(line) for of in boxes for line in folded(of, LEGEND).split("\n"))
    height = 250 + LETTER_WIDTH * letters if upright else 300.0
    return Plot(name, "Ranks of protected items", sentence, f"Medians: {', '.join(medians)}.", draw, height)


def exposure_curve(
    curves: Mapping[str, NDArray[np.float64]],
    pool: float | None,
    looks: Mapping[str, Look],
    words: Mapping[str, str],
) -> Plot:
    """`curves` gives the share of protected among the first r items, by prompt; `pool` their share of all."""

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter, ScalarFormatter

        longest = max(len(curve) for curve in curves.values())
        for of, curve in curves.items():
            look = looks[of]
            axes.plot(range(1, len(curve) + 1), curve, color=look.color, linestyle=look.dash, zorder=3)
            for r in (r for r in MARKED if r <= len(curve)):
                axes.plot([r], [curve[r - 1]], color=look.color, marker=look.mark, markersize=5, clip_on=False,
                          zorder=4, gid=tip(f"{of}: {100 * curve[r - 1]:.0f} % of the first {r}"))  # fmt: skip
            _legend_line(axes, of, look)
        if pool is not None:
            axes.axhline(pool, **DASHED)
        axes.set_xscale("log")  # exposure falls with the logarithm of the rank: the head has room
        axes.set_xlim(1, max(longest, 2))
        axes.xaxis.set_major_locator(FixedLocator([r for r in MARKED if r <= longest]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        shares = np.concatenate([*curves.values(), [] if pool is None else [pool]])
        low, high = float(shares.min()), float(shares.max())
        room = max(0.05, (high - low) * 0.08)
        axes.set_ylim(max(0.0, low - room), min(1.0, high + room))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlabel("first r items")
        below(axes, [*curves])

    lists = "" if pool is None else f"; dashed: their share of the lists, {100 * pool:.0f} %"
    protected = words.get("protected", "protected")
    sentence = f"Share of {protected} (protected) items among the first r, mean over queries and runs{lists}."
    numbers = ""
    if at := [r for r in (10, 20) if all(len(curve) >= r for curve in curves.values())]:
        shares = ", ".join(f"{of} {100 * curve[at[-1] - 1]:.0f} %" for of, curve in curves.items())
        numbers = f"Among the first {at[-1]}: {shares}."
    height = 285 + legend_height([*curves])
    return Plot("exposure-curve", "Protected items among the first", sentence, numbers, draw, height)


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
    names = [line.name for line in lines]

    def draw(axes: Axes) -> None:
        first, last = ticks[0], ticks[-1]
        if diagonal:
            axes.plot([first, last], [first, last], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        for line in lines:
            look = line.look
            mark: dict[str, Any] = {"color": look.color, "marker": look.mark, "clip_on": False}
            for at, value in line.points:
                if value.interval:
                    axes.plot([at, at], value.interval, color=look.color, linewidth=1.4, alpha=0.6, zorder=2)
            axes.plot([at for at, _ in line.points], [value.value for _, value in line.points], color=look.color,
                      linestyle=look.dash, zorder=3)  # fmt: skip
            for at, value in line.points:
                gid = tip(f"{line.name}: {value} at {at:g}")
                axes.plot([at], [value.value], markersize=6, zorder=4, gid=gid, **mark)
            if line.hollow is not None:
                x, y = line.hollow
                gid = tip(f"{line.name}, hollow: {y:.2f} at {x:.2f}")
                axes.plot(
                    [x],
                    [y],
                    markersize=9,
                    markerfacecolor="none",
                    markeredgewidth=1.6,
                    zorder=5,
                    gid=gid,
                    **mark,
                )
            _legend_line(axes, line.name, look)
        room = 0.04 * (last - first)
        axes.set_xlim(first - room, last + room)
        axes.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
        axes.margins(y=0.08)
        axes.set_xlabel(folded(axes_names[0], LEGEND))
        axes.set_ylabel(folded(axes_names[1], LEGEND))
        below(axes, names)

    numbers = "; ".join(
        f"{line.name}: " + ", ".join(f"{value} at {at:g}" for at, value in line.points) for line in lines[:8]
    )
    return Plot(name, title, sentence, f"{numbers}.", draw, 285 + legend_height(names))


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
    headings = list(dict.fromkeys(heading for by in values.values() for heading in by))
    width = WIDE / len(values)

    def draw(axes: Axes) -> None:
        for place, (of, by) in enumerate(values.items()):
            dots: dict[str, Any] = {
                "linestyle": "none", "marker": looks[of].mark, "markersize": 4, "color": looks[of].color, "alpha": 0.55,
                "markeredgewidth": 0,
            }  # fmt: skip
            for heading, points in by.items():
                y = sorted(points)
                if not y:
                    continue
                gid = tip(
                    f"{of}, {axes_names[0]} {heading}: median {y[len(y) // 2]:.2f}, from {y[0]:.2f} to {y[-1]:.2f}"
                )
                if len(y) > MOST:
                    y = [y[round(i * (len(y) - 1) / (MOST - 1))] for i in range(MOST)]
                left = headings.index(heading) - WIDE / 2 + width * place
                x = [left + width * (0.1 + 0.8 * (i * TURN % 1)) for i in range(len(y))]
                axes.plot(x, y, clip_on=False, gid=gid, **dots)
            axes.plot([], [], label=folded(of, LEGEND), **dots)
        axes.set_xlim(-0.5, len(headings) - 0.5)
        axes.set_xticks(range(len(headings)), headings)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel(axes_names[0])
        axes.set_ylabel(folded(axes_names[1], LEGEND))
        below(axes, [*values])

    most = max(len(points) for by in values.values() for points in by.values())
    thinned = f" Of more than {MOST} points so many are drawn, evenly spaced by size." * (most > MOST)
    medians = "; ".join(
        f"{of}: "
        + ", ".join(
            f"{heading} {sorted(points)[len(points) // 2]:.2f}" for heading, points in by.items() if points
        )
        for of, by in values.items()
    )
    height = 285 + legend_height([*values])
    return Plot(name, title, sentence + thinned, f"Medians: {medians}.", draw, height)
