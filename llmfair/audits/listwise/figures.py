"""The figures of listwise audits, of one and of several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from llmfair.audits.listwise.lists import RankedLists, read_lists
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.audits.listwise.words import TITLES
from llmfair.metrics.base import plain_name
from llmfair.report.exhibits import Declared
from llmfair.report.figures import (
    headline_plots,
    on_log,
    ratio_of,
    reach_of,
    utility_of,
    value_of,
)
from llmfair.report.groups import DRAWN, AuditedRun, Group
from llmfair.report.plots.base import MARKS, Plot
from llmfair.report.plots.looks import Look, palette
from llmfair.report.plots.ranks import exposure_curve, rank_boxes
from llmfair.report.plots.ratios import Point, utility_and_ratio


def listwise_plots(results: ListwiseResults, lists: RankedLists | None, declared: Declared) -> Iterator[Plot]:
    """Utility and exposure, or preference where nothing is ranked; the headline and its band, ranks, exposure curve."""
    cells, design, words = results.by_condition(), results.design, asdict(results.words)
    conditions = [condition for condition in design.conditions if results.chains[condition].ranked]
    looks = palette([TITLES.get(condition, condition) for condition in (*conditions, "initial")])
    across, up = utility_of(results.shown, declared), ratio_of(results.shown, declared)
    if across and up:
        points: list[Point] = []
        for condition in (*conditions, "initial"):
            utility = value_of(cells.get((across, condition)))
            # of the input there is nothing to control for
            ratio = on_log(value_of(cells.get((up, condition)) or cells.get((plain_name(up), condition))))
            if utility and ratio:
                name = TITLES.get(condition, condition)
                points.append((name, utility, ratio, looks[name], name))
        if points:
            yield utility_and_ratio(points, plain_name(across), plain_name(up), reach_of(results.reach, up))
    yield from headline_plots(results, conditions, declared, TITLES)
    if lists is not None:
        ranked = [condition for condition in conditions if lists.ranked.get(condition)]
        boxes = {
            TITLES.get(condition, condition): (
                lists.ranks(condition, "protected"),
                lists.ranks(condition, "unprotected"),
            )
            for condition in ranked
        }
        if any(len(ranks) for both in boxes.values() for ranks in both):
            yield rank_boxes(boxes, words)
            curves = {
                TITLES.get(condition, condition): lists.protected_share(condition) for condition in ranked
            }
            yield exposure_curve(curves, lists.pool_share(), looks, words)


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[Plot]:
    """Utility and exposure of every model and prompt, and ranks by model."""
    looks = palette(list(group.drawn))
    yield from _utilities(group, group.drawn, looks, declared, f"utility-{number}")
    yield from _boxes(group.drawn, f"ranks-{number}")


def _utilities(
    group: Group,
    rows: Mapping[str, Mapping[str, AuditedRun]],
    looks: Mapping[str, Look],
    declared: Declared,
    name: str,
) -> Iterator[Plot]:
    """Utility and exposure of every model and prompt: colours are models, marks are prompts."""
    shown = list(dict.fromkeys(measure for audited in group.audits() for measure in audited.results.shown))
    across, up = utility_of(shown, declared), ratio_of(shown, declared)
    if not across or not up:
        return
    marks = {column: MARKS[place % len(MARKS)] for place, column in enumerate(group.columns)}
    points: list[Point] = []
    joined = []
    for model, runs in rows.items():
        places = []
        for attribute, audited in runs.items():
            # runs differ in how they control for order, and so in the full names of what they measured
            cells = {
                (plain_name(measure), condition): row
                for (measure, condition), row in audited.results.by_condition().items()
                if measure in audited.results.shown
            }
            for condition in audited.results.design.conditions:
                utility = value_of(cells.get((plain_name(across), condition)))
                ratio = on_log(value_of(cells.get((plain_name(up), condition))))
                if (attribute, condition) in marks and utility and ratio:
                    look = Look(looks[model].color, marks[attribute, condition], "-")
                    places.append(len(points))
                    points.append(
                        (f"{model} {condition}", utility, ratio, look, None if len(places) > 1 else model)
                    )
        joined.append(places)
    if points:
        signs = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
        told = ", ".join(
            f"{signs[mark]} {attribute} {condition}" for (attribute, condition), mark in marks.items()
        )
        yield utility_and_ratio(points, plain_name(across), plain_name(up), None, joined, name, f" {told}.")


def _boxes(rows: Mapping[str, Mapping[str, AuditedRun]], name: str) -> Iterator[Plot]:
    """Ranks under each run's first prompt, by model."""
    boxes: dict[str, Any] = {}
    for model, runs in rows.items():
        for attribute, audited in runs.items():
            condition = audited.results.design.conditions[0]
            lists = read_lists(audited.folder, [condition])
            if lists is not None and lists.ranked[condition]:
                both = (lists.ranks(condition, "protected"), lists.ranks(condition, "unprotected"))
                boxes[f"{model} {attribute}" if len(runs) > 1 else model] = both
    if any(len(ranks) for both in boxes.values() for ranks in both):
        boxes = dict(list(boxes.items())[:DRAWN])
        yield rank_boxes(boxes, {}, name)
