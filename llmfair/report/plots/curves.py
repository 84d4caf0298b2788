"""One figure over another as lines with intervals, and single values by what they were had under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from llmfair.report.plots.base import GREY, LEGEND, Plot, below, folded, legend_height, tip
from llmfair.report.plots.looks import Look
from llmfair.report.plots.ratios import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
