"""Figures: drawn by matplotlib without its global state, cleaned for a page of many, the same bytes each time.

Ink is drawn in a colour that nothing else has and becomes `currentColor`, so that a figure follows the page into
the dark. Drawn narrow with letters of 13 px: a phone shows it as it is.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from llmfair.io.files import make_inside, whole
from llmfair.io.text import in_lines
from llmfair.report.phrases import bound_text, capitalised

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDTH = 340
LETTER = 13
INK, PAPER = "#010203", "#FDFEFC"
"""Colours of the page: nothing else has them, so that they can be told apart and follow it into the dark."""
PROTECTED, UNPROTECTED, GREY = "#0072B2", "#C47A00", "#8C8C8C"
COLORS = (INK, "#00805E", "#C0428A", "#6A3D9A", "#737300", "#B3261E", "#7B4A2D", "#4C8A00")
"""What is no group: conditions, or models."""
MARKS = ("o", "s", "D", "^", "v", "P", "X", "*")
FORMATS = ("svg", "pdf", "png")
DASHED: dict[str, Any] = {"color": INK, "linewidth": 1, "linestyle": (0, (4, 3)), "zorder": 1}
"""How a line looks that figures are held against."""
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": LETTER, "lines.linewidth": 1.6, "text.color": INK,
    "text.parse_math": False,  # a model's name may hold $
    "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.labelsize": LETTER, "axes.linewidth": 0.8,
    "axes.spines.right": False, "axes.spines.top": False, "axes.unicode_minus": True,
    "legend.fontsize": LETTER, "legend.frameon": False, "pdf.fonttype": 42, "svg.fonttype": "none",
    "xtick.color": INK, "xtick.labelsize": LETTER, "ytick.color": INK, "ytick.labelsize": LETTER,
}  # fmt: skip


Interval = tuple[float, float]


@dataclass(frozen=True)
class Plot:
    """A figure not yet drawn: the name of its file and ids, its title, what it shows in a sentence, its height."""

    name: str
    title: str
    sentence: str
    draw: Callable[[Axes], None]
    height: float = 300.0


def drawn(plot: Plot, file_format: str = "svg") -> bytes:
    """The figure as a file of this format; equal plots give equal bytes.

    In our style, whatever the user's is, and without a word: a missing font folder or glyph is none of the reader's
    business (where no folder can be written matplotlib takes a temporary one itself).
    """
    logger, file = logging.getLogger("matplotlib"), io.BytesIO()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        with matplotlib.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matplotlib.rcdefaults()
            cast(Any, matplotlib.rcParams).update(STYLE | {"svg.hashsalt": plot.name})
            layout = ConstrainedLayoutEngine(w_pad=2 / 72, h_pad=4 / 72)
            figure = Figure(figsize=(WIDTH / 72, plot.height / 72), dpi=72, layout=layout)
            plot.draw(figure.add_subplot())
            dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
            dots, bare = 200 if file_format == "png" else 72, file_format == "svg"
            figure.savefig(
                file, format=file_format, transparent=bare, metadata=dates.get(file_format), dpi=dots
            )
    finally:
        logger.setLevel(level)
    if file_format != "svg":
        return file.getvalue()
    return in_lines(TIP.sub(rb"<g><title>\2</title>", file.getvalue()).decode()).encode()


def write_plots(plots: Sequence[Plot], folder: Path, formats: Sequence[str]) -> None:
    """Every figure as `folder/NAME.FORMAT`. Raises OSError."""
    make_inside(folder)
    for plot in plots:
        for file_format in formats:
            with whole(folder / f"{plot.name}.{file_format}") as file:
                file.write(drawn(plot, file_format))


TIP = re.compile(rb"""<g id=(["'])tip:(.*?)\1>""")
PROLOGUE = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>\s*|<style.*?</style>\s*", re.DOTALL)
ROOT = re.compile(r"<svg[^>]*?(viewBox=\"[^\"]*\")[^>]*>")
ID = re.compile(r' id="([^"]*)"')
REFERENCE = re.compile(r'(?:xlink:href="#|url\(#)([^")]*)')
FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
SPACES = re.compile(r">\s+<")
TITLE = re.compile(r"<title>(.*?)</title>")
MOST_READ = 24
"""Values of a figure that are read to those who do not see it; all of them stand in tables."""

ON_PAGE = {
    INK: "currentColor",
    PAPER.lower(): "var(--paper)",
    PROTECTED.lower(): "var(--p)",
    UNPROTECTED.lower(): "var(--u)",
    **{color.lower(): f"var(--c{place})" for place, color in enumerate(COLORS) if place},
}
"""What colours are called on the page, which has lighter ones in the dark."""


def inline_svg(plot: Plot) -> str:
    """The figure for a page: ids under its own name, ink in the colour of the text, no prologue, no address."""
    text = PROLOGUE.sub("", drawn(plot).decode())
    used = set(REFERENCE.findall(text))
    text = ID.sub(lambda m: f' id="{plot.name}-{m[1]}"' if m[1] in used else "", text)
    text = text.replace('xlink:href="#', f'href="#{plot.name}-').replace("url(#", f"url(#{plot.name}-")
    text = FAMILY.sub("", text)
    for color, on_page in ON_PAGE.items():
        text = text.replace(color, on_page)
    values = "; ".join([*dict.fromkeys(TITLE.findall(text))][:MOST_READ])
    label = f"{escape(plot.sentence)} {values}."
    text = ROOT.sub(lambda m: f'<svg {m[1]} role="img" aria-label="{label}">', text, count=1)
    return SPACES.sub("><", text).strip()


# What several figures draw

ROW = 34
"""Height of a row whose name has two lines."""


def rows_height(names: Sequence[str]) -> float:
    """What rows of these names take, all as high as the one with the most lines."""
    return ROW / 2 * max(2, *map(lines_of, names)) * len(names) if names else 0.0


def rows_axis(axes: Axes, names: Sequence[str]) -> None:
    """Named rows from top to bottom."""
    axes.set_yticks(range(len(names)), [*map(folded, names)])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def rows_length(names: Sequence[str]) -> float:
    """About how long the axis beside these names is, in the units of the drawing."""
    return WIDTH - 25 - LETTER_WIDTH * max(len(line) for name in names for line in folded(name).split("\n"))


def ratio_axis(
    axes: Axes, low: float, high: float, length: float, edges: Interval | None = None, axis: str = "x"
) -> None:
    """A logarithmic axis around parity: 0.5 and 2 are equally far, marks are plain numbers, those of a band's `edges`
    among them. `length` in the units of the drawing."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min(low, 0.9) / 1.06, max(high, 1.11) * 1.06
    across = axis == "x"
    (axes.set_xscale if across else axes.set_yscale)("log")
    (axes.set_xlim if across else axes.set_ylim)(low, high)
    ruler = axes.xaxis if across else axes.yaxis
    ruler.set_major_locator(FixedLocator(ticks(low, high, length, edges, axis)))
    ruler.set_minor_locator(NullLocator())
    ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    (axes.axvline if across else axes.axhline)(1, **DASHED)


MARKED = (
    (0.1, 10), (0.5, 2), (0.01, 100), (0.2, 5), (0.05, 20), (0.02, 50), (0.3, 3), (0.7, 1.4), (0.9, 1.1),
    *((10.0**-power, 10.0**power) for power in range(3, 9)),
)  # fmt: skip
"""Numbers that an axis of ratios is marked with where there is room for both, the first before others."""
DIGIT = 8.3
"""How wide a digit is; a point takes half of it."""


def ticks(
    low: float, high: float, length: float, edges: Interval | None = None, axis: str = "x"
) -> list[float]:
    """The marks of an axis of this length: a band's edges, parity, round numbers, as far as they have room."""

    def size(mark: float) -> float:
        text = f"{mark:.3g}"
        return DIGIT * (len(text) - text.count(".") / 2) if axis == "x" else LETTER

    def apart(mark: float, other: float) -> bool:
        between = length * abs(log(mark / other)) / log(high / low)
        return between >= (size(mark) + size(other)) / 2 + DIGIT / 2

    marks: list[float] = []
    for wanted in (edges or (), (1,), *MARKED):
        new = [mark for mark in wanted if low <= mark <= high]
        if all(apart(mark, other) for mark in new for other in {*marks, *new} - {mark}):
            marks += new
    return sorted(marks)


def tip(text: str) -> str:
    """The `gid` of what says this while a pointer rests on it."""
    return "tip:" + text.replace("\n", ", ")


LETTER_WIDTH, HANDLE = 7.5, 44
"""About what a letter takes, and the sign of a legend with its room, in the units of the drawing."""


LEGEND = 34
"""Letters of a name in a legend."""


def legend_columns(names: Sequence[str]) -> int:
    """How many names of a legend stand side by side on the width of a figure."""
    longest = max(len(line) for name in names for line in folded(name, LEGEND).split("\n"))
    return max(1, min(3, len(names), int(WIDTH / (HANDLE + LETTER_WIDTH * longest))))


def legend_height(names: Sequence[str]) -> float:
    """What a legend adds to the height of a figure."""
    if len(names) < 2:
        return 0.0
    columns = legend_columns(names)
    return 18.0 * (ceil(len(names) / columns) if columns > 1 else sum(lines_of(of, LEGEND) for of in names))


def below(axes: Axes, names: Sequence[str]) -> None:
    """A legend under the axes, where it covers nothing."""
    if len(names) > 1:
        columns = legend_columns(names)
        axes.figure.legend(loc="outside lower center", ncols=columns, columnspacing=1.2, handlelength=2)


SEPARATED = re.compile(r"[^\s,:/_-]*[\s,:/_-]?")
"""A part of a name, with what may end a line behind it."""


def folded(text: str, most: int = 22) -> str:
    """A name on as many lines as leave room for the figure, none of them cut but a part that no line can hold."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines.append("")
        for part in SEPARATED.findall(line):
            if lines[-1] and len((lines[-1] + part).rstrip()) > most:
                lines[-1] = lines[-1].rstrip()
                lines.append("")
            lines[-1] += clipped(part, most)
    return "\n".join(lines)


def lines_of(text: str, most: int = 22) -> int:
    """On how many lines a name is folded."""
    return folded(text, most).count("\n") + 1


def clipped(text: str, most: int) -> str:
    """A name that leaves room for the figure; the middle goes, since names differ at their ends."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}…{text[-half:]}"


# How conditions and models are told apart: by colour, and by a mark or a dash beside it. Blue and orange are the two
# groups on the whole page, grey is what figures are held against; nothing here has them.


DASHES: tuple[Any, ...] = (
    "-", *((0, dash) for dash in ((5, 2), (1, 1.5), (5, 2, 1, 2), (8, 2), (3, 1, 1, 1, 1, 1))),
)  # fmt: skip


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


JOINED: Mapping[str, Any] = {"color": GREY, "linewidth": 1, "zorder": 1}
BAND: Mapping[str, Any] = {"color": GREY, "alpha": 0.16, "linewidth": 0, "zorder": 0}
HIGH = 285
"""The height of a figure of lines without its legend."""


@dataclass(frozen=True)
class Value:
    """A figure with its interval; with one limit alone it is a bound, and the value that limit."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> Interval | None:
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


# Utility across and a ratio on a logarithmic axis up: of prompts and models, of remedies.


PLANE = 230
"""The height of its axis."""
Point = tuple[str, Value, Value]
"""A name, its utility and its ratio."""


def _plane(
    plot: tuple[str, str, str],
    points: Sequence[Point],
    names: tuple[str, str],
    shaded: Interval | None,
    line: Sequence[int] = (),
    hollow: Collection[int] = (),
) -> Plot:
    """A figure of this name, title and sentence; `line` joins points by their places, `hollow` are some."""
    legend = [name for name, *_ in points]
    looks = palette(legend)

    def draw(axes: Axes) -> None:
        if line:
            axes.plot([points[p][1].value for p in line], [points[p][2].value for p in line], **JOINED)
        for place, (of, utility, ratio) in enumerate(points):
            fill = PAPER if place in hollow else looks[of].color
            point(axes, utility, ratio, f"{of}: {names[0]} {utility}, {names[1]} {ratio}", looks[of].color, 1.4,
                   marker=looks[of].mark, markersize=8, markeredgewidth=1.6, markerfacecolor=fill,
                   label=folded(of, LEGEND))  # fmt: skip
        ends = [end for *_, ratio in points for end in ratio.ends()] + [*(shaded or ())]
        if shaded is not None:
            axes.axhspan(*shaded, **BAND)
        ratio_axis(axes, min(ends), max(ends), PLANE, shaded, "y")
        axes.margins(x=0.12)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
        below(axes, legend)

    return Plot(*plot, draw, (90 if line or hollow else 70) + PLANE + legend_height(legend))


def utility_and_ratio(points: Sequence[Point], across: str, up: str, reach: Interval | None) -> Plot:
    """Utility across, a ratio up, each point with both intervals; `reach` is shaded."""
    between = "; shaded: between the rankers that always put one group first, {:.2f} … {:.2f}"
    title = f"Utility and {'preference' if up.partition('(')[0].endswith('Odds') else 'exposure'}"
    sentence = f"{across} across and {up} up, with intervals; dashed: parity{between.format(*reach) if reach else ''}."
    return _plane(("utility-and-exposure", title, sentence), points, (across, up), reach)


def front_plot(
    remedies: Sequence[tuple[str, Value, Value, bool]], band: Interval, favoured: tuple[str, str], name: str
) -> Plot:
    """Utility across, odds up, of remedies by name; full marks are on the front, the first is the unmitigated.

    The front joins those with no other remedy better in both.
    """
    points = [(title, utility, odds) for title, utility, odds, _ in remedies]
    front = [place for place, (*_, on_front) in enumerate(remedies) if on_front]
    front.sort(key=lambda place: abs(log(points[place][2].value)))
    sentence = (
        "nDCG@20 of the rankings across and their odds up, with intervals; dashed: parity; shaded: the "
        f"band of conclusions, {band[0]:g} to {band[1]:g}. Full marks: the front, joined by a line; hollow: another "
        f"remedy is nearer to parity at no less nDCG@20. Below parity {favoured[0]} items are favoured, above it "
        f"{favoured[1]} ones."
    )
    plot = (name, "What each remedy buys and costs", sentence)
    return _plane(
        plot, points, ("nDCG@20", "odds of rankings"), band, front, {*range(len(points))} - {*front}
    )


# Named rows, one under the other: ratios, what a study of windows measured, shares.


GROUP = 14
"""Letters of a group's name at an end of an axis."""
Row = tuple[str, Value | None]
"""A name, and what it has."""


def ratios(
    rows: Sequence[Row],
    what: str,
    band: Interval | None,
    title: str,
    name: str,
    favoured: tuple[str, str] | None = None,
) -> Plot:
    """Ratios one under the other, the band of conclusions shaded.

    `favoured`: the groups that are favoured at the lower and at the upper end of the axis.
    """
    names = [of for of, _ in rows]

    def draw(axes: Axes) -> None:
        for place, (of, value) in enumerate(rows):
            if value is not None:
                point(axes, value, Value(place), f"{of}: {value}", marker=value.mark)
            else:
                axes.text(1, place, " undefined", va="center", ha="left")
        if band is not None:
            axes.axvspan(*band, **BAND)
        ends = [end for _, value in rows if value for end in value.ends()] + [*(band or ())]
        ratio_axis(axes, min(ends, default=0.8), max(ends, default=1.25), rows_length(names), band)
        rows_axis(axes, names)
        axes.set_xlabel(what)
        if favoured is not None:
            low, high = (folded(group, GROUP) for group in favoured)
            axes.set_title(f"← {low}\nfavoured", loc="left", fontsize=LETTER)
            axes.set_title(f"{high} →\nfavoured", loc="right", fontsize=LETTER)

    shaded = "; shaded: the band of conclusions, {:g} to {:g}".format(*band) if band else ""
    sentence = f"{capitalised(what)} with intervals on a logarithmic axis; dashed: parity{shaded}."
    height = 74 + rows_height(names)
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


def stacked_answers(rows: Sequence[tuple[str, Shares]], words: Mapping[str, str]) -> Plot:
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
            looks: dict[str, Any] = {"facecolor": color, "edgecolor": color, "linewidth": 0}
            if color == UNPROTECTED:
                looks |= {"facecolor": (color, 0.2), "linewidth": 1.6}
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

    sides = [f"{side} ({words[side]})" if side in words else side for side in ("protected", "unprotected")]
    sentence = (
        f"What pairs came to, asked in both orders: the {sides[0]} or the {sides[1]} item preferred in both, or "
        "an answer that flips with the order."
    )
    return Plot(
        "answers", "Answers on pairs", sentence, draw, 118 + 1.2 * rows_height([of for of, _ in rows])
    )


# One figure over another, as lines. And single values by heading.


@dataclass(frozen=True)
class Line:
    """A line through points from left to right, a point of its own that is drawn hollow, and points off the line."""

    name: str
    look: Look
    points: Sequence[tuple[float, Value]]
    hollow: Interval | None = None
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
