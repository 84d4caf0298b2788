"""Several audits of generators side by side: the paper's tables, a row a generator, and curves averaged as there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum

from llmfair.audits.rag.figures import WITH_INTERVALS, Curves, curve_plots
from llmfair.audits.rag.results import Curve, CurvePoint, Intervals, RagResults
from llmfair.audits.rag.tables import Named, tradeoff_tables
from llmfair.report.groups import Group
from llmfair.report.plots.base import Plot
from llmfair.report.tables import Table
from llmfair.results import Figure
from llmfair.stats import tradeoff
from llmfair.stats.significance import holm

OWN_LABELS = (
    "useful is what helps the generator of the row, so EE-R of two generators is not of the same items"
)


def group_plots(group: Group, number: int) -> Iterator[Plot]:
    """A line a generator, and where there are several retrievers a line a retriever: means of the others' means."""
    found = {name: of.tradeoff for name, of in _audits(group).items()}
    retrievers = list(dict.fromkeys(retriever for of in found.values() for retriever in of))
    by_generator = {name: averaged([*of.values()]) for name, of in found.items()}
    several = len(retrievers) > 1
    told = "averaged over retrievers" if several else WITH_INTERVALS
    yield from curve_plots(_drawn(by_generator, group), told, " by generator" * several, f"-{number}")
    if several:
        by_retriever = {one: averaged([of[one] for of in found.values() if one in of]) for one in retrievers}
        told = "averaged over generators" if len(found) > 1 else WITH_INTERVALS
        yield from curve_plots(by_retriever, told, " by retriever", f"-{number}-retrievers")


def group_tables(group: Group) -> Iterator[Table]:
    """Tables 2 and 1, a row a retriever and generator; p adjusted over all of them."""
    audits = _audits(group)
    retrievers = dict.fromkeys(retriever for of in audits.values() for retriever in of.intervals)
    tables: dict[Named, Intervals] = {
        (retriever, name): of.intervals[retriever]
        for retriever in retrievers
        for name, of in audits.items()
        if retriever in of.intervals
    }
    rows = {
        name: (table, audits[name[1]].tradeoff[name[0]])
        for name, table in zip(tables, _adjusted([*tables.values()]), strict=True)
    }
    for table in tradeoff_tables(rows, ("retriever", "generator")):
        relevant = table.title.startswith("EE-R")
        yield replace(table, notes=(*table.notes, *[OWN_LABELS] * relevant)) if len(audits) > 1 else table


def _audits(group: Group) -> dict[str, RagResults]:
    """The results by what the rows of a group are called."""
    return {
        name: audited.results
        for name, runs in group.rows.items()
        for audited in runs.values()
        if isinstance(audited.results, RagResults)
    }


def _drawn(found: Curves, group: Group) -> Curves:
    return {name: of for name, of in found.items() if name in group.drawn}


def averaged(found: Sequence[Sequence[Curve]]) -> list[Curve]:
    """Curves of the same two measures as one, the points of one place averaged; one alone as it is."""
    named: dict[tuple[str, str], list[Curve]] = {}
    for one in (one for of in found for one in of):
        named.setdefault((one.across, one.up), []).append(one)
    return [of[0] if len(of) == 1 else _mean(of) for of in named.values()]


def _mean(found: Sequence[Curve]) -> Curve:
    values: dict[float, list[float]] = {}
    for point in (point for one in found for point in one.points):
        if point.mean.value is not None:
            values.setdefault(point.at, []).append(point.mean.value)
    means: Mapping[float, float] = {at: fsum(values[at]) / len(values[at]) for at in sorted(values)}
    whole = [one.deterministic for one in found if one.deterministic is not None]
    line, area = tradeoff.line([*means], [*means.values()]), tradeoff.area([*means], [*means.values()])
    return replace(
        found[0],
        observations=sum(one.observations for one in found),
        slope=None,
        slope_of_points=None if line is None else line.slope,
        area=None if area is None else area.whole,
        area_observed=None if area is None else area.observed,
        low=None if area is None else area.low,
        high=None if area is None else area.high,
        deterministic=(fsum(x for x, _ in whole) / len(whole), fsum(y for _, y in whole) / len(whole))
        if whole
        else None,
        points=[
            CurvePoint(at=at, observations=0, mean=Figure(mean, None, None, None, None, None, None, None))
            for at, mean in means.items()
        ],
    )


def _adjusted(tables: Sequence[Intervals]) -> list[Intervals]:
    """The tables with Holm's p over all their cells."""
    p_values = iter(
        holm([cell.paired.p if cell.paired else None for table in tables for cell in table.cells])
    )
    return [
        replace(
            table,
            cells=[
                replace(cell, paired=paired and replace(paired, p_adjusted=p))
                for cell, paired, p in ((cell, cell.paired, next(p_values)) for cell in table.cells)
            ],
        )
        for table in tables
    ]
