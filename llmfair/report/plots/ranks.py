"""Where protected items stand: boxes of ranks, and their share among the first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llmfair.report.plots.base import (
    INK,
    LEGEND,
    LETTER_WIDTH,
    PROTECTED,
    UNPROTECTED,
    Plot,
    bar_of,
    below,
    folded,
    legend_height,
    tip,
)
from llmfair.report.plots.looks import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
