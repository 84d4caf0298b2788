"""Figures of many runs: models beside each other, in the colours that each has on the whole page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from llmfair.audits.listwise.lists import read_lists
from llmfair.report.figures import NAMES, on_log, plain, ratio_of, utility_of, value_of
from llmfair.report.groups import Group
from llmfair.report.plots.base import MARKS, Plot
from llmfair.report.plots.looks import Look, palette
from llmfair.report.plots.pairs import stacked_answers
from llmfair.report.plots.ranks import rank_boxes
from llmfair.report.plots.ratios import Point, ratios, utility_and_ratio
from llmfair.report.source import Source

DRAWN = 8
"""Models that a figure shows; a ninth could not be told apart."""


def group_plots(group: Group, declared: Mapping[str, Mapping[str, Any]], number: int) -> Iterator[Plot]:
    """Figures of a group; `number` keeps their names apart."""
    rows = dict(list(group.rows.items())[:DRAWN])
    looks = palette(list(rows))
    if group.task == "listwise":
        yield from _utilities(group, rows, looks, declared, f"utility-{number}")
        yield from _boxes(rows, f"ranks-{number}")
    else:
        answered = [
            (f"{name}\n{_kind(source, kind)}", asdict(shares))
            for name, runs in rows.items()
            for source in runs.values()
            for kind, shares in source.found.shares.items()
            if shares
        ]
        if answered:
            words = asdict(group.sources()[0].audit.words) if len({a for a, _ in group.columns}) == 1 else {}
            yield stacked_answers(answered, words, f"answers-{number}")
    headlines, labels = [], {}
    for name, runs in rows.items():
        for source in runs.values():
            cells = source.audit.by_variant()
            for arm, finding in source.audit.findings.items():
                if arm != "control":
                    value = on_log(value_of(cells.get((finding.measure, arm))))
                    headlines.append((f"{name}\n{_kind(source, arm)}", None, value, plain(finding.measure)))
                    labels[plain(finding.measure)] = declared.get(finding.measure, {}).get("label")
    for place, measure in enumerate(dict.fromkeys(measure for *_, measure in headlines)):
        of_it = [(name, before, value) for name, before, value, own in headlines if own == measure]
        if any(value for _, _, value in of_it):
            label = labels[measure] or measure
            band = group.sources()[0].audit.band
            title = f"{label[:1].upper()}{label[1:]} against the band"
            yield ratios(of_it, label, band, title, f"odds-{number}-{place}")


def _kind(source: Source, arm: str) -> str:
    return f"{source.audit.attribute}: {NAMES.get(arm, arm)}"


def _utilities(
    group: Group,
    rows: Mapping[str, Mapping[str, Source]],
    looks: Mapping[str, Look],
    declared: Mapping[str, Mapping[str, Any]],
    name: str,
) -> Iterator[Plot]:
    """Utility and exposure of every model and prompt: colours are models, marks are prompts."""
    shown = list(dict.fromkeys(measure for source in group.sources() for measure in source.audit.shown))
    across, up = utility_of(shown, declared), ratio_of(shown, declared)
    if not across or not up:
        return
    marks = {column: MARKS[place % len(MARKS)] for place, column in enumerate(group.columns)}
    points: list[Point] = []
    joined = []
    for model, runs in rows.items():
        places = []
        for attribute, source in runs.items():
            # runs differ in how they control for order, and so in the full names of what they measured
            cells = {
                (plain(measure), arm): row
                for (measure, arm), row in source.audit.by_variant().items()
                if measure in source.audit.shown
            }
            for arm in source.audit.design.arms:
                utility = value_of(cells.get((plain(across), arm)))
                ratio = on_log(value_of(cells.get((plain(up), arm))))
                if (attribute, arm) in marks and utility and ratio:
                    look = Look(looks[model].color, marks[attribute, arm], "-")
                    places.append(len(points))
                    points.append(
                        (f"{model} {arm}", utility, ratio, look, None if len(places) > 1 else model)
                    )
        joined.append(places)
    if points:
        signs = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
        told = ", ".join(f"{signs[mark]} {attribute} {arm}" for (attribute, arm), mark in marks.items())
        yield utility_and_ratio(points, plain(across), plain(up), None, joined, name, f" {told}.")


def _boxes(rows: Mapping[str, Mapping[str, Source]], name: str) -> Iterator[Plot]:
    """Ranks under each run's first prompt, by model."""
    boxes: dict[str, Any] = {}
    for model, runs in rows.items():
        for attribute, source in runs.items():
            arm = source.audit.design.arms[0]
            lists = read_lists(source.run.path, [arm])
            if lists is not None and lists.ranked[arm]:
                both = (lists.ranks(arm, "protected"), lists.ranks(arm, "unprotected"))
                boxes[f"{model} {attribute}" if len(runs) > 1 else model] = both
    if any(len(ranks) for both in boxes.values() for ranks in both):
        boxes = dict(list(boxes.items())[:DRAWN])
        yield rank_boxes(boxes, {}, name)
