"""What a ranking did to a list: a line for each item from its initial rank to its final one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

LEFT, RIGHT, TOP = 34, 306, 24
TALLEST, ROW = 480, 7
WIDTH = 340
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
    height = min(TALLEST, ROW * last)

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
        WIDTH, TOP + height + 8, f"A line for each item from its initial to its final rank. {mean_text(items)}.",
        0, WIDTH, marks, Markup("").join(thin + thick),
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
