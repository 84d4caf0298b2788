"""Ratios against parity: beside utility, by themselves, before and after, and by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from llmfair.report.decimals import bound_text
from llmfair.report.plots.base import (
    GREY,
    INK,
    LEGEND,
    LETTER,
    ROW,
    Plot,
    below,
    folded,
    legend_height,
    lines_of,
    ratio_axis,
    rows_axis,
    rows_height,
    tip,
    whisker,
)
from llmfair.report.plots.looks import Look

if TYPE_CHECKING:
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
