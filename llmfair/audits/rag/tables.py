"""Tables of what fairer lists cost, in the layout of Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from llmfair.audits.rag.results import AlphaTest, Curve, IntervalCell, Intervals, RagResults
from llmfair.report.tables import Table, cell, count, filled, p_text
from llmfair.stats.tradeoff import INTERVALS, STARRED

Named = tuple[str, ...]
"""What a row is of: a retriever; of several runs the data set and the generator, too."""
NONE = "–"
APART = 0.01
"""Of the paper's tests of alphas."""


def collection_table(results: RagResults) -> Table:
    """Which queries the figures speak of; beside the share of useful items what lists drawn at random have of them."""
    of = results.collection
    header = ["queries kept", "dropped: no useful item", "dropped: one", "items n", "useful m", "m/n"]
    cells = [
        f"{of.kept:,}",
        *(f"{of.dropped.get(useful, 0):,}" for useful in ("0", "1")),
        *(
            NONE if value is None else f"{value:.{digits}f}"
            for value, digits in ((of.items, 1), (of.useful, 1), (of.useful_share, 3))
        ),
    ]
    figures, factors = results.by_condition(), results.design.factors or {}
    for name in (name for name, varied in factors.items() if varied["alpha"] == 0):
        header.append(f"EE-R of {name}")
        cells.append(cell(figures.get(("EE-R", name))))
    notes = (_alphas_apart(retriever, tests) for retriever, tests in results.alpha_tests.items() if tests)
    return Table("Collection: means over the queries kept", tuple(header), (tuple(cells),), tuple(notes))


def _alphas_apart(retriever: str, tests: Sequence[AlphaTest]) -> str:
    tested = [one.p for one in tests if one.p is not None]
    if not tested:
        return f"{retriever}: too few queries to test whether alphas differ in disparity"
    apart, pairs = sum(p < APART for p in tested), count(len(tested), "pair", "pairs")
    return f"{retriever}: {apart} of {pairs} of alphas differ in disparity (t test paired by query, p below {APART:g})"


def slopes_table(rows: Mapping[Named, Curve], named: Sequence[str]) -> Table:
    """Table 1: how one measure rises with another, and the area below it."""
    across, up = _shared([(one.across, one.up) for one in rows.values()])
    lines = tuple(
        (
            *name,
            _number(one.slope),
            _number(one.area),
            _number(one.slope_of_points),
            _number(one.area_observed),
            "" if one.low is None or one.high is None else f"{one.low:g}–{one.high:g}",
            f"{one.observations:,} ({count(one.queries, 'query', 'queries')})" if one.observations else "",
        )
        for name, one in rows.items()
    )
    header = (*named, "slope", "area", "slope of means", "area observed", "range", "observations")
    notes = (
        "observation: a query under an alpha, without the one list by score; slope: of the least-squares line over all",
        f"means: of the observations nearest to 0, 0.2 … 1 of {across}; area: below them by trapezoid, from 0 to 1 "
        "with constant ends, and over the range of those that are there; the paper defines neither slope nor area",
    )
    return filled(Table(f"{up} over {across}: slope and area", header, lines, notes))


def intervals_table(rows: Mapping[Named, Intervals], named: Sequence[str]) -> Table:
    """Table 2: utility by interval of disparity, less that of the one list by score, pooled and unpaired."""
    disparity, utility = _shared([(one.disparity, one.utility) for one in rows.values()])
    lines = []
    for name, one in rows.items():
        cells = {found.interval: found for found in one.cells}
        baseline = NONE if one.baseline is None else f"{one.baseline:.3f}"
        lines.append((*name, baseline, *(_pooled(cells.get(interval)) for interval in INTERVALS)))
    return Table(
        f"Change of {utility} by interval of {disparity}, pooled as in the paper; {_said(rows.values())}",
        (*named, f"{utility} of the one list", *INTERVALS),
        tuple(lines),
        (
            f"mean {utility} of the observations in the interval less that of the one list by score, over all queries; "
            f"* unpaired p below {STARRED:g} (Student), which takes observations of one query for independent; in "
            "brackets observations and their queries",
        ),
    )


def paired_table(rows: Mapping[Named, Intervals], named: Sequence[str]) -> Table | None:
    """The same, each query beside itself; None where no interval has an observation."""
    lines = tuple(
        (
            *name,
            found.interval,
            f"{found.observations:,}",
            f"{found.queries:,}",
            _paired(found),
            *("" if found.paired is None or p is None else p_text(p) for p in _tests(found)),
        )
        for name, one in rows.items()
        for found in one.cells
        if found.observations and found.paired is not None
    )
    if not lines:
        return None
    header = (
        *named, "interval", "observations", "queries", "paired change", "p", "p (Holm)", "p (Welch)", "p (Student)",
    )  # fmt: skip
    note = "paired change: mean over the interval's queries of their own mean in it less their own one list by score"
    return filled(Table("The same changes paired by query", header, lines, (note,)))


def tradeoff_tables(
    rows: Mapping[Named, tuple[Intervals, Sequence[Curve]]], named: Sequence[str]
) -> Iterator[Table]:
    """Tables 2 and 1 of these retrievers, of those that drew anything."""
    intervals = {name: table for name, (table, _) in rows.items() if table.cells}
    if intervals:
        yield intervals_table(intervals, named)
        paired = paired_table(intervals, named)
        if paired is not None:
            yield paired
    first = {name: of[0] for name, (_, of) in rows.items() if of and of[0].points}
    if first:
        yield slopes_table(first, named)


def _said(tables: Iterable[Intervals]) -> str:
    """What the paired tests say of all cells together."""
    tested = [
        one.paired
        for table in tables
        for one in table.cells
        if one.paired is not None and one.paired.p_adjusted is not None
    ]
    if not tested:
        return "paired by query nothing can be tested"
    found = [one for one in tested if (one.p_adjusted or 0) < STARRED]
    ways = [
        f"{sum((one.value or 0) * sign > 0 for one in found)} {way}"
        for sign, way in ((1, "up"), (-1, "down"))
    ]
    told = f" ({', '.join(ways)})" * bool(found)
    return (
        f"paired by query {len(found)} of {count(len(tested), 'interval differs', 'intervals differ')}{told}"
    )


def _shared(pairs: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The names that all rows have, or the first."""
    return next(iter(pairs), ("EE-D", "EU"))


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"


def _pooled(found: IntervalCell | None) -> str:
    if found is None or found.difference is None:
        return NONE
    counted = f" ({found.observations:,}, {count(found.queries, 'query', 'queries')})" * bool(
        found.observations
    )
    return f"{found.difference:+z.3f}{'*' * found.starred}{counted}"


def _paired(found: IntervalCell) -> str:
    one = found.paired
    if one is None or one.value is None:
        return NONE
    between = "" if one.low is None or one.high is None else f" [{one.low:+z.3f}, {one.high:+z.3f}]"
    return f"{one.value:+z.3f}{between}"


def _tests(found: IntervalCell) -> tuple[float | None, ...]:
    paired = found.paired
    own = (None, None) if paired is None else (paired.p, paired.p_adjusted)
    return (*own, found.p_welch, found.p_student)
