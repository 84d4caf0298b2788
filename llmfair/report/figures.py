"""Which figures a run has, made from its results: a measure's declaration says how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from llmfair.audits.listwise.lists import Lists
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.audits.pairwise.results import PairwiseResults
from llmfair.audits.results import ScoreResults, StudyResults
from llmfair.metrics.base import CONTROLLED
from llmfair.report.plots.base import Plot
from llmfair.report.plots.looks import looks_of, palette
from llmfair.report.plots.pairs import position_bias, stacked_answers
from llmfair.report.plots.ranks import exposure_curve, rank_boxes
from llmfair.report.plots.ratios import Point, Value, Window, ratios, utility_and_ratio, windows
from llmfair.results import Figure, Reach, Results, Row

Declared = Mapping[str, Mapping[str, Any]]
NAMES = {"control": "neutral again", "input": "input order"}


def plain(measure: str) -> str:
    """A measure's name without what is said once below the table."""
    return measure.replace(CONTROLLED, "").removesuffix("(agg=pooled)")


def utility_of(measures: Sequence[str], declared: Declared) -> str | None:
    """The first measure of which more is better, beside those that compare two rankings."""
    return next(
        (
            name
            for name in measures
            if (says := declared.get(name)) and says["better"] == "higher" and not says["agreement"]
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
            and says["better"] == "parity"
            and says["scale"] == "log"
            and not (of_queries and says["of_all"])
        ),
        None,
    )


def value_of(row: Figure | None) -> Value | None:
    """A row's figure; None where it is undefined or, on a logarithmic axis, has no place."""
    return None if row is None or row.value is None else Value(row.value, row.low, row.high)


def on_log(value: Value | None) -> Value | None:
    """A value above 0, its interval kept while it is above 0 too."""
    if value is None or value.value <= 0:
        return None
    low = value.low if value.low is not None and value.low > 0 else None
    return Value(value.value, low, value.high if low is not None else None)


def listwise_plots(results: ListwiseResults, lists: Lists | None, declared: Declared) -> Iterator[Plot]:
    """Utility and exposure, the headline against its band, rank boxes, exposure curve."""
    cells, design, words = results.by_variant(), results.design, asdict(results.words)
    arms = [arm for arm in design.arms if results.chains[arm].ranked]
    looks = {NAMES.get(a, a): look for a, look in looks_of([*arms, "input"], words).items()}
    across, up = utility_of(results.shown, declared), ratio_of(results.shown, declared)
    if across and up:
        points: list[Point] = []
        for arm in (*arms, "input"):
            utility = value_of(cells.get((across, arm)))
            # of the input there is nothing to control for
            ratio = on_log(value_of(cells.get((up, arm)) or cells.get((plain(up), arm))))
            if utility and ratio:
                name = NAMES.get(arm, arm)
                points.append((name, utility, ratio, looks[name], name))
        if points:
            yield utility_and_ratio(points, plain(across), plain(up), reach_of(results.reach, up))
    yield from headline_plots(results, cells, arms, declared)
    if lists is not None:
        ranked = [arm for arm in arms if lists.ranked.get(arm)]
        boxes = {
            NAMES.get(arm, arm): (lists.ranks(arm, "protected"), lists.ranks(arm, "unprotected"))
            for arm in ranked
        }
        if any(len(ranks) for both in boxes.values() for ranks in both):
            yield rank_boxes(boxes, words)
            curves = {NAMES.get(arm, arm): lists.protected_share(arm) for arm in ranked}
            yield exposure_curve(curves, lists.pool_share(), looks, words)


def reach_of(reach: Mapping[str, Reach], measure: str) -> tuple[float, float] | None:
    """What a measure can be in this setting at all, where both ends are known."""
    found = reach.get(plain(measure), Reach())
    return None if found.low is None or found.high is None else (found.low, found.high)


def headline_plots(
    results: Results, cells: Mapping[tuple[str, str], Row], arms: Sequence[str], declared: Declared
) -> Iterator[Plot]:
    """The measure that conclusions speak of, against their band."""
    measures = dict.fromkeys(finding.measure for finding in results.findings.values())
    for number, measure in enumerate(measures):
        label = declared.get(measure, {}).get("label", plain(measure))
        rows = [
            (NAMES.get(arm, arm), None, on_log(value_of(cells.get((measure, arm)))))
            for arm in arms
            if arm in results.findings
        ]
        if any(value for _, _, value in rows):
            name = "odds" if not number else f"odds-{number}"
            title = f"{label[:1].upper()}{label[1:]} against the band"
            yield ratios(rows, label, results.band, title, name)


def pairwise_plots(results: PairwiseResults, declared: Declared) -> Iterator[Plot]:
    """Answers on pairs, every ratio against parity, position bias."""
    cells, kinds = results.by_variant(), results.design.arms
    answered = [(kind, asdict(shares)) for kind in kinds if (shares := results.shares.get(kind))]
    if answered:
        yield stacked_answers(answered, asdict(results.words))
    yield from headline_plots(results, cells, kinds, declared)
    first = [
        (kind, value)
        for kind in kinds
        for (measure, variant), row in cells.items()
        if declared.get(measure, {}).get("shows") == "position bias"
        and variant == kind
        and (value := value_of(row))
    ]
    if first:
        yield position_bias(first)
    headlines = {finding.measure for finding in results.findings.values()}
    others = [
        (f"{plain(measure)}\n{kind}" if len(kinds) > 1 else plain(measure), None, value)
        for measure in results.measures
        if measure not in headlines and declared.get(measure, {}).get("better") == "parity"
        for kind in kinds
        if (value := on_log(value_of(cells.get((measure, kind)))))
    ]
    if others:
        yield ratios(others, "ratio", None, "Other ratios of the same answers", "other-ratios")


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


def study_plots(study: StudyResults, declared: Declared) -> Iterator[Plot]:
    """Utility and ratio by window and step, each beside what it could have been."""
    across, up = utility_of(study.shown, declared), ratio_of(study.shown, declared)
    if not across or not up:
        return
    several = len(study.arms) > 1
    settings = []
    for row in study.rows:
        if row.variant == "input":
            continue
        figures = row.figures
        settings.append(
            Window(
                row.setting + (f" {NAMES.get(row.variant, row.variant)}" if several else ""),
                value_of(figures.get(across)),
                row.reach.get(plain(across), Reach()).high,
                on_log(value_of(figures.get(up))),
                reach_of(row.reach, up),
            )
        )
    if settings:
        yield from windows(settings, plain(across), plain(up))
