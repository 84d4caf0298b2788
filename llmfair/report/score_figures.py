"""The figures of measured runs."""

from __future__ import annotations

from collections.abc import Iterator

from llmfair.audits.results import ScoreResults
from llmfair.report.figures import Declared, on_log, plain, ratio_of, utility_of, value_of
from llmfair.report.plots.base import Plot
from llmfair.report.plots.looks import palette
from llmfair.report.plots.ratios import Point, ratios, utility_and_ratio


def score_plots(results: ScoreResults, declared: Declared) -> Iterator[Plot]:
    """Utility and exposure of measured runs, and the headline of each against the band."""
    rows = [row for row in results.rows if row.query_id == "all" and row.group == ""]
    named = [(run, variant) for run in results.runs for variant in run.variants]
    distinct = len({variant for _, variant in named}) == len(named)
    looks = palette([variant if distinct else f"{run.run} {variant}" for run, variant in named])
    across, up = utility_of(results.measures, declared), ratio_of(results.measures, declared)
    points: list[Point] = []
    odds = []
    for (run, variant), (name, look) in zip(named, looks.items(), strict=True):
        of_it = {row.measure: row for row in rows if (row.run, row.variant) == (run.run, variant)}
        if across and up:
            utility, ratio = value_of(of_it.get(across)), on_log(value_of(of_it.get(up)))
            if utility and ratio:
                points.append((name, utility, ratio, look, name))
        if finding := run.findings.get(variant):
            odds.append((name, None, on_log(value_of(of_it.get(finding["measure"])))))
    if across and up and points:
        yield utility_and_ratio(points, plain(across), plain(up), None)
    if any(value for _, _, value in odds):
        yield ratios(
            odds,
            "odds of the conclusions",
            results.band,
            "Odds against the band",
            "odds",
        )
