"""The figures of an audit of query refinement: AWRF of every topic from step to step, and means by round.

Chen & Fang, "FAIR-QR", arXiv 2503.21092, Figure 2: each topic before refinement, after it, and in its last order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llmfair.audits.refine.design import FAIR_QR, REFINED
from llmfair.audits.refine.results import RefineResults
from llmfair.audits.refine.settings import BASELINE
from llmfair.report.furthest import read_csv
from llmfair.report.groups import Group
from llmfair.report.plots.base import COLORS, INK, Plot, below, clipped, legend_height, tip
from llmfair.report.plots.curves import Line, curves
from llmfair.report.plots.looks import palette
from llmfair.report.plots.ratios import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = {BASELINE: "original query", REFINED: "refined", FAIR_QR: "refined, in the original query's order"}
MARKS = {BASELINE: "o", REFINED: "s", FAIR_QR: "D"}
ROW = 16


def refine_plots(results: RefineResults, folder: Path) -> Iterator[Plot]:
    """Every figure of one run; that of the first screen first."""
    topics = topic_values(folder, results.design.aimed)
    if topics:
        yield steps_plot(topics, results.design.aimed)
    yield from round_plots(results)


def group_plots(group: Group, number: int) -> Iterator[Plot]:
    """Of several audits side by side a panel each, as the paper has one for each attribute."""
    for name, runs in group.drawn.items():
        for attribute, audited in runs.items():
            results = audited.results
            topics = (
                topic_values(audited.folder, results.design.aimed)
                if isinstance(results, RefineResults)
                else {}
            )
            if topics and isinstance(results, RefineResults):
                ending = f"-{number}-{audited.folder.resolve().name}"
                yield steps_plot(topics, results.design.aimed, ending, f", {attribute}, {name}")


def topic_values(folder: Path, measure: str) -> dict[str, dict[str, float]]:
    """The measure's values by query and condition, of queries that have all."""
    found: dict[str, dict[str, float]] = {}
    for row in read_csv(folder / "per_query.csv"):
        if row["measure"] == measure and row["condition"] in STEPS and row["value"]:
            found.setdefault(row["query_id"], {})[row["condition"]] = float(row["value"])
    return {query: values for query, values in found.items() if len(values) == len(STEPS)}


def steps_plot(
    topics: Mapping[str, Mapping[str, float]], measure: str, ending: str = "", of: str = ""
) -> Plot:
    """A row a topic, sorted by the original query; a step that improves is solid, one that does not dashed.

    `ending` of its name and `of` of its title tell it from others on a page.
    """
    ordered = sorted(topics, key=lambda query: (topics[query][BASELINE], query))
    better = sum(topics[query][FAIR_QR] > topics[query][BASELINE] for query in ordered)
    sentence = (
        f"{measure} of every query's page: of the original query, after refinement, and in its last order. Solid and "
        f"filled where a step improves on the one before, dashed and hollow where it does not. {better} of "
        f"{len(ordered)} queries end higher than they began."
    )
    numbers = "; ".join(
        f"{query}: " + ", ".join(f"{topics[query][step]:.3f}" for step in STEPS) for query in ordered
    )
    height = 70 + ROW * len(ordered) + legend_height([*STEPS.values()])
    draw = partial(_steps, [(query, topics[query]) for query in ordered], measure)
    return Plot(f"cost-steps{ending}", f"Query by query{of}", sentence, f"{numbers}.", draw, height)


def _steps(topics: Sequence[tuple[str, Mapping[str, float]]], measure: str, axes: Axes) -> None:
    colors = dict(zip(STEPS, (INK, *COLORS[1:]), strict=False))
    for row, (query, values) in enumerate(topics):
        before = None
        for step in STEPS:
            value = values[step]
            improves = before is None or value > before
            if before is not None:
                axes.plot([before, value], [row, row], color=colors[step], linewidth=1.4, zorder=2,
                          linestyle="-" if improves else (0, (2, 2)))  # fmt: skip
            axes.plot([value], [row], marker=MARKS[step], color=colors[step], markersize=6, linestyle="none", zorder=3,
                      clip_on=False, markerfacecolor=colors[step] if improves else "none",
                      gid=tip(f"{query}, {STEPS[step]}: {value:.3f}"))  # fmt: skip
            before = value
    for step, name in STEPS.items():
        axes.plot([], [], marker=MARKS[step], color=colors[step], linestyle="none", label=name)
    axes.set_yticks(range(len(topics)), [clipped(query, 12) for query, _ in topics])
    axes.set_ylim(len(topics) - 0.4, -0.6)
    axes.set_xlabel(measure)
    axes.margins(x=0.06)
    below(axes, [*STEPS.values()])


def round_plots(results: RefineResults, name: str = "mean", ending: str = "") -> Iterator[Plot]:
    """Means of the objective and of AWRF after 0, 1, … rounds."""
    design, rounds = results.design, results.rounds
    ticks = [one.iteration for one in rounds]
    if len(ticks) < 2:
        return
    look = palette([name])[name]
    for measure, values, title in (
        (design.objective, [one.objective for one in rounds], "The objective, round by round"),
        (design.aimed, [one.aimed for one in rounds], "AWRF, round by round"),
    ):
        points = [
            (float(at), Value(value)) for at, value in zip(ticks, values, strict=True) if value is not None
        ]
        if points:
            asked = ", ".join(f"{one.asked} in round {one.iteration}" for one in rounds[1:])
            sentence = (
                f"Mean {measure} of all queries by rounds; a query whose loop ended keeps its page ({asked})."
            )
            kind = "objective" if measure == design.objective else "awrf"
            yield curves(
                [Line(name, look, points)],
                ("rounds", measure),
                title,
                sentence,
                f"rounds-{kind}{ending}",
                ticks,
            )
