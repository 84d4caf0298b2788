"""The page of measured runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from llmfair.audits.scoring.score_results import ScoreResults
from llmfair.metrics.base import plain_name
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import HEADLINES, favoured_of, on_log, ratio_of, utility_of, value_of
from llmfair.report.page import General, Page, plain_page, warnings_of
from llmfair.report.plots.base import Plot
from llmfair.report.plots.looks import palette
from llmfair.report.plots.ratios import Point, ratios, utility_and_ratio
from llmfair.report.queries import queries_table
from llmfair.report.score import lacking, named_conditions, score_outcome, score_table
from llmfair.report.section import Section
from llmfair.report.source import Source
from llmfair.report.tables import Table, count

WORDS = (
    "Rankings that exist, measured as they stand, in the order trec_eval reads them; no model was asked.",
    "Exposure of the item at rank a is 1 / ln(1 + a). Each group's exposure is the mean over its items; the "
    "ratio of the protected group's to the other's is 1 at parity, wherever relevance is spread alike.",
)


def score_page(source: Source, exhibits: Exhibits) -> Page:
    """The page of measured runs."""
    results: ScoreResults = source.found
    table = score_table(results)
    datasets, attributes = (
        " and ".join(dict.fromkeys(getattr(run, name) for run in results.runs))
        for name in ("dataset", "attribute")
    )
    section = Section(table, list(score_plots(results, exhibits.measures)), words=WORDS)
    page = plain_page(
        source.document, replace(exhibits, command=results.command), section, "Measured runs",
        f"{count(len(table.rows), 'ranking')} of {datasets}, {attributes}", asdict(results.runs[0].words),
        lacking(results),
        warnings_of([row.model for row in results.rows], results.requirements),
        score_queries(source.run.path, results, exhibits),
    )  # fmt: skip
    following = "" if results.verdict is None else results.verdict.next
    return replace(page, outcome=score_outcome(results), following=following)


def score_queries(folder: Path, results: ScoreResults, exhibits: Exhibits) -> Table | None:
    """Every query of every ranking that the table names."""
    names = {(run.run, condition): name for run, condition, name in named_conditions(results)}
    return queries_table(
        folder,
        "run",
        lambda row: names.get((row.run, row.condition)),
        results,
        results.measures,
        exhibits,
    )


def score_plots(results: ScoreResults, declared: Declared) -> Iterator[Plot]:
    """Utility and exposure of measured runs, and the headline of each against the band."""
    rows = [row for row in results.rows if row.query_id == "all" and row.group == ""]
    named = named_conditions(results)
    looks = palette([name for *_, name in named])
    across, up = utility_of(results.measures, declared), ratio_of(results.measures, declared)
    points: list[Point] = []
    odds = []
    for run, condition, name in named:
        of_it = {row.measure: row for row in rows if (row.run, row.condition) == (run.run, condition)}
        if across and up:
            utility, ratio = value_of(of_it.get(across)), on_log(value_of(of_it.get(up)))
            if utility and ratio:
                points.append((name, utility, ratio, looks[name], name))
        if finding := run.findings.get(condition):
            odds.append((name, None, on_log(value_of(of_it.get(finding["measure"])))))
    if across and up and points:
        yield utility_and_ratio(points, plain_name(across), plain_name(up), None)
    if any(value for _, _, value in odds):
        yield ratios(
            odds,
            "odds of the conclusions",
            results.band,
            "Odds against the band",
            HEADLINES,
            favoured=favoured_of(results.runs[0].words),
        )


SCORE = General(
    words=WORDS,
    page=score_page,
    table=lambda source: score_table(source.found),
    missing=lambda source: lacking(source.found),
    outcome=lambda source: score_outcome(source.found),
)
