"""Figures made from results alone: a measure's declaration says how it is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from llmfair.metrics.base import plain_name
from llmfair.report.phrases import capitalised
from llmfair.report.plots import Plot, Row, Value, ratios
from llmfair.results import Declared, Figure, Finding, Results, Words

HEADLINES, COST = "odds", "cost"
"""What figures of headlines against their band, and those of what fairness costs, are called before any number."""


def utility_of(measures: Sequence[str], declared: Declared) -> str | None:
    """The first measure of which more is better, beside those that compare two rankings."""
    definitions = ((name, declared[name].definition) for name in measures if name in declared)
    return next((name for name, of in definitions if of.better == "higher" and not of.agreement), None)


def ratio_of(measures: Sequence[str], declared: Declared, of_queries: bool = False) -> str | None:
    """The first measure with parity on a logarithmic axis; with `of_queries`, one that single queries have too."""
    definitions = ((name, declared[name].definition) for name in measures if name in declared)
    of_parity = (name for name, of in definitions if (of.better, of.scale) == ("parity", "log"))
    return next((name for name in of_parity if not (of_queries and declared[name].of_all)), None)


def value_of(row: Figure | None) -> Value | None:
    """A row's figure, of a bound the limit; None where it is undefined or, on a logarithmic axis, has no place."""
    if row is None:
        return None
    value = row.value
    if (row.low is None) != (row.high is None):
        value = row.low or row.high or None
    return None if value is None else Value(value, row.low, row.high)


def on_log(value: Value | None) -> Value | None:
    """A value above 0, its interval kept while it is above 0 too."""
    if value is None or value.value <= 0:
        return None
    return value if value.low is None or value.low > 0 else Value(value.value)


def headline_plots(
    results: Results,
    conditions: Sequence[str],
    declared: Declared,
    titles: Mapping[str, str],
    where: str = "",
) -> Iterator[Plot]:
    """The measures that conclusions speak of, against their band; `titles` of conditions not told by their names,
    `where` ends the figures' own."""
    cells = results.by_key()
    values = [
        spoken_of(finding, titles.get(condition, condition), condition, cells)
        for condition in conditions
        if (finding := results.findings.get(condition))
    ]
    plots = against_the_band(values, declared, results.band, favoured_of(results.words), HEADLINES)
    return (replace(plot, title=plot.title + where) for plot in plots)


def spoken_of(
    finding: Finding, name: str, condition: str, cells: Mapping[tuple[str, str], Figure]
) -> tuple[str, str, Figure | None]:
    """The headline's measure, the name of its row with the items that decide, and the figure that is spoken of."""
    items = f"\n{finding.decisive} items" * (finding.decisive != "all")
    return finding.measure, name + items, cells.get((finding.spoken_of, condition))


def against_the_band(
    values: Iterable[tuple[str, str, Figure | None]],
    declared: Declared,
    band: tuple[float, float] | None,
    favoured: tuple[str, str] | None,
    name: str,
) -> Iterator[Plot]:
    """A figure for each of these measures that a logarithmic axis can have: (measure, name of its row, figure); against
    parity where there is no band."""
    rows: dict[str, list[Row]] = {}
    labels: dict[str, str] = {}
    for measure, of, figure in values:
        of_it = declared.get(measure)
        if of_it is None or of_it.definition.scale == "log":  # those that nothing here declares are odds
            labels.setdefault(plain_name(measure), of_it.label if of_it else plain_name(measure))
            rows.setdefault(plain_name(measure), []).append((of, on_log(value_of(figure))))
    for place, (measure, of_measure) in enumerate(rows.items()):
        if any(value for _, value in of_measure):
            label, ending = labels[measure], f"-{place}" * bool(place)
            title = f"{capitalised(label)} against {'the band' if band else 'parity'}"
            yield ratios(of_measure, label, band, title, name + ending, favoured=favoured)


def favoured_of(words: Words) -> tuple[str, str] | None:
    """Who is favoured below parity, and above; None of several groups, whose rows name them."""
    return (words.unprotected, words.protected) if words.protected else None
