"""The figures of an audit of query refinement: AWRF of every topic from step to step, beside nDCG, and by round.

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
from llmfair.io.files import query_figures
from llmfair.report.figures import value_of
from llmfair.report.groups import Group
from llmfair.report.plots.base import COLORS, INK, LEGEND, Plot, below, clipped, folded, legend_height, tip
from llmfair.report.plots.curves import Line, curves
from llmfair.report.plots.looks import palette
from llmfair.report.plots.ratios import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = {BASELINE: "original query", REFINED: "refined", FAIR_QR: "refined, in the original query's order"}
MARKS = {BASELINE: "o", REFINED: "s", FAIR_QR: "D"}
ROW = 16
Place = tuple[RefineResults, str]
"""A method in the results of a run."""


def refine_plots(results: RefineResults, folder: Path) -> Iterator[Plot]:
    """Every figure of one run; that of the first screen first."""
    topics = topic_values(folder, results.design.aimed)
    if topics:
        yield steps_plot(topics, results.design.aimed)
    yield from beside_plots({name: (results, name) for name in results.design.conditions})
    yield from round_plots(results)


def group_plots(group: Group, number: int) -> Iterator[Plot]:
    """Of several audits side by side a panel each, as the paper has one for each attribute; and models in one."""
    by_attribute: dict[str, dict[str, Place]] = {}
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
            if isinstance(results, RefineResults):
                places = by_attribute.setdefault(attribute, {STEPS[BASELINE]: (results, BASELINE)})
                places[name] = (results, FAIR_QR)
    for attribute, places in by_attribute.items():
        searched = {_place(results, BASELINE) for results, _ in places.values()}
        if len(places) > 2 and len(searched) == 1:  # models alone differ
            yield from beside_plots(places, f"-{number}-{attribute}", f", {attribute}")


def beside_plots(places: Mapping[str, Place], ending: str = "", of: str = "") -> Iterator[Plot]:
    """Relevance across and fairness up, a mark a name: what is nearer, and at what cost. Undefined ones are absent."""
    marks = {
        name: (across, up)
        for name, (results, condition) in places.items()
        for across, up in [_place(results, condition)]
        if across and up
    }
    if len(marks) < 2:
        return
    design = next(results.design for results, _ in places.values())
    sentence = (
        f"Mean {design.utility} across and {design.aimed} up, with intervals over queries: up is nearer the target, to "
        "the right more relevant. Changes are paired by query, so that marks whose intervals overlap may differ."
    )
    numbers = "; ".join(f"{name}: {across} across, {up} up" for name, (across, up) in marks.items())
    draw = partial(_beside, marks, (design.utility, design.aimed))
    height = 285 + legend_height([*marks])
    yield Plot(f"beside{ending}", f"Fairness beside relevance{of}", sentence, f"{numbers}.", draw, height)


def _place(results: RefineResults, condition: str) -> tuple[Value | None, Value | None]:
    """A method's means of relevance and of fairness."""
    rows = {row.measure: row for row in results.of_all() if row.condition == condition}
    return value_of(rows.get(results.design.utility)), value_of(rows.get(results.design.aimed))


def _beside(marks: Mapping[str, tuple[Value, Value]], names: tuple[str, str], axes: Axes) -> None:
    looks = palette([*marks])
    for name, (across, up) in marks.items():
        look, at = looks[name], (across.value, up.value)
        if across.low is not None and across.high is not None:
            axes.plot(
                [across.low, across.high],
                [at[1], at[1]],
                color=look.color,
                linewidth=1.4,
                alpha=0.6,
                zorder=2,
            )
        if up.low is not None and up.high is not None:
            axes.plot([at[0], at[0]], [up.low, up.high], color=look.color, linewidth=1.4, alpha=0.6, zorder=2)
        axes.plot([at[0]], [at[1]], color=look.color, marker=look.mark, markersize=7, linestyle="none", zorder=3,
                  clip_on=False, label=folded(name, LEGEND), gid=tip(f"{name}: {across} across, {up} up"))  # fmt: skip
    axes.margins(0.08)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    below(axes, [*marks])


def topic_values(folder: Path, measure: str) -> dict[str, dict[str, float]]:
    """The measure's values by query and condition, of queries that have all."""
    found: dict[str, dict[str, float]] = {}
    for row in query_figures(folder):
        if row.measure == measure and row.condition in STEPS and row.value is not None:
            found.setdefault(row.query_id, {})[row.condition] = row.value
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
    axes.set_yticks(range(len(topics)), [clipped(query, 22) for query, _ in topics])
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
