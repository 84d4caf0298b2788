"""The front of remedies: preference odds against relevance, joined where no other remedy is better in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import TYPE_CHECKING

from llmfair.report.plots.base import (
    GREY,
    INK,
    LEGEND,
    PAPER,
    Plot,
    below,
    clipped,
    legend_height,
    ratio_axis,
    tip,
)
from llmfair.report.plots.looks import Look, palette
from llmfair.report.plots.ratios import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
