"""Figures: drawn by matplotlib without its global state, cleaned for a page of many, the same bytes each time.

Ink is drawn in a colour that nothing else has and becomes `currentColor`, so that a figure follows the page into
the dark. Drawn narrow with letters of 13 px: a phone shows it as it is.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from llmfair.io.files import make_inside, whole
from llmfair.io.text import in_lines

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
            metadata = dates.get(file_format, {})
            figure.savefig(file, format=file_format, transparent=bare, metadata=metadata, dpi=dots)
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
    axes: Axes,
    low: float,
    high: float,
    length: float,
    edges: tuple[float, float] | None = None,
    axis: str = "x",
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
    low: float, high: float, length: float, edges: tuple[float, float] | None = None, axis: str = "x"
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


def bar_of(color: str) -> dict[str, Any]:
    """How a bar looks: those of the unprotected group are outlined, all others are filled."""
    if color == UNPROTECTED:
        return {"facecolor": (color, 0.2), "edgecolor": color, "linewidth": 1.6}
    return {"facecolor": color, "edgecolor": color, "linewidth": 0}


def tip(text: str) -> str:
    """The `gid` of what says this while a pointer rests on it."""
    return "tip:" + text.replace("\n", ", ")


LETTER_WIDTH, HANDLE = 7.5, 44
"""About what a letter takes, and the sign of a legend with its room, in the units of the drawing."""


def legend_columns(names: Sequence[str]) -> int:
    """How many names of a legend stand side by side on the width of a figure."""
    longest = max(len(line) for name in names for line in folded(name, LEGEND).split("\n"))
    return max(1, min(3, len(names), int(WIDTH / (HANDLE + LETTER_WIDTH * longest))))


def legend_height(names: Sequence[str]) -> float:
    """What a legend adds to the height of a figure."""
    if len(names) < 2:
        return 0.0
    columns = legend_columns(names)
    return 18.0 * (
        ceil(len(names) / columns) if columns > 1 else sum(lines_of(name, LEGEND) for name in names)
    )


def below(axes: Axes, names: Sequence[str]) -> None:
    """A legend under the axes, where it covers nothing."""
    if len(names) > 1:
        axes.figure.legend(
            loc="outside lower center", ncols=legend_columns(names), columnspacing=1.2, handlelength=2
        )


LEGEND = 34
"""Letters of a name in a legend."""


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
