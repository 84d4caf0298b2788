"""Figures made from results alone: a measure's declaration says how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llmfair.metrics.base import plain_name
from llmfair.report.exhibits import Declared
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import Value, ratios
from llmfair.results import Figure, Reach, Results, Words

HEADLINES, COST = "odds", "cost"
"""What figures of headlines against their band, and those of what fairness costs, are called before any number."""


def utility_of(measures: Sequence[str], declared: Declared) -> str | None:
    """The first measure of which more is better, beside those that compare two rankings."""
    return next(
        (
            name
            for name in measures
            if (says := declared.get(name)) and says.better == "higher" and not says.agreement
        ),
        None,
    )


def ratio_of(measures: Sequence[str], declared: Declared, of_queries: bool = False) -> str | None:
    """The first measure with parity on a logarithmic axis; with `of_queries`, one that single queries have too."""
    return next(
        (
            name
            for name in measures
            if (says := declared.get(name))
            and says.better == "parity"
            and says.scale == "log"
            and not (of_queries and says.of_all)
        ),
        None,
    )


def value_of(row: Figure | None) -> Value | None:
    """A row's figure, of a bound the limit; None where it is undefined or, on a logarithmic axis, has no place."""
    if row is None:
        return None
    value = (
        row.value
        if (row.low is None) == (row.high is None)
        else next(filter(None, (row.low, row.high)), None)
    )
    return None if value is None else Value(value, row.low, row.high)


def on_log(value: Value | None) -> Value | None:
    """A value above 0, its interval kept while it is above 0 too."""
    if value is None or value.value <= 0:
        return None
    return value if value.low is None or value.low > 0 else Value(value.value)


def reach_of(reach: Mapping[str, Reach], measure: str) -> tuple[float, float] | None:
    """What a measure can be in this setting at all, where both ends are known."""
    found = reach.get(plain_name(measure), Reach())
    return None if found.low is None or found.high is None else (found.low, found.high)


def headline_plots(
    results: Results, conditions: Sequence[str], declared: Declared, titles: Mapping[str, str]
) -> Iterator[Plot]:
    """The measures that conclusions speak of, against their band; `titles` of conditions not told by their names."""
    cells = results.by_condition()
    named = dict.fromkeys(finding.measure for finding in results.findings.values())
    measures = [measure for measure in named if has_log_axis(measure, declared)]
    for number, measure in enumerate(measures):
        label = declared[measure].label if measure in declared else plain_name(measure)
        rows = [
            (titles.get(condition, condition), None, on_log(value_of(cells.get((measure, condition)))))
            for condition in conditions
            if condition in results.findings
        ]
        if any(value for _, _, value in rows):
            name = HEADLINES if not number else f"{HEADLINES}-{number}"
            title = f"{label[:1].upper()}{label[1:]} against the band"
            yield ratios(rows, label, results.band, title, name, favoured=favoured_of(results.words))


def favoured_of(words: Words) -> tuple[str, str]:
    """Who is favoured below parity, and above."""
    return words.unprotected, words.protected


def has_log_axis(measure: str, declared: Declared) -> bool:
    """Whether a headline can stand on a logarithmic axis; those that nothing here declares are odds."""
    return measure not in declared or declared[measure].scale == "log"


def ratio_plots(
    results: Results, conditions: Sequence[str], declared: Declared, titles: Mapping[str, str]
) -> Iterator[Plot]:
    """The first ratio of the table against parity, where nothing is concluded of it."""
    if (measure := ratio_of(results.shown, declared)) is None:
        return
    cells, label = results.by_condition(), str(declared[measure].label)
    rows = [
        (titles.get(condition, condition), None, on_log(value_of(cells.get((measure, condition)))))
        for condition in conditions
    ]
    if any(value for _, _, value in rows):
        yield ratios(rows, label, None, f"{label[:1].upper()}{label[1:]} against parity", "ratio")
