"""Figures that any audits have side by side: their headlines against the band."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llmfair.metrics.base import plain_name
from llmfair.report.exhibits import Declared
from llmfair.report.figures import HEADLINES, favoured_of, has_log_axis, on_log, value_of
from llmfair.report.groups import Group
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import ratios


def headlines(group: Group, declared: Declared, number: int, titles: Mapping[str, str]) -> Iterator[Plot]:
    """What the conclusions of a group speak of; `number` keeps the figures' names apart from other groups'."""
    found, labels = [], {}
    spoken = {audited.results.words for audited in group.audits()}
    favoured = favoured_of(spoken.pop()) if len(spoken) == 1 else ("reference", "protected")
    for name, runs in group.drawn.items():
        for audited in runs.values():
            results, cells = audited.results, audited.results.by_condition()
            for condition, finding in results.findings.items():
                if condition in group.aside or not has_log_axis(finding.measure, declared):
                    continue
                value = on_log(value_of(cells.get((finding.measure, condition))))
                told = f"{name}\n{results.attribute}: {titles.get(condition, condition)}"
                found.append((told, None, value, plain_name(finding.measure)))
                says = declared.get(finding.measure)
                labels[plain_name(finding.measure)] = says.label if says else None
    for place, measure in enumerate(dict.fromkeys(measure for *_, measure in found)):
        of_it = [(name, before, value) for name, before, value, own in found if own == measure]
        if any(value for _, _, value in of_it):
            label = labels[measure] or measure
            band = group.audits()[0].results.band
            title = f"{label[:1].upper()}{label[1:]} against the band"
            yield ratios(of_it, label, band, title, f"{HEADLINES}-{number}-{place}", favoured=favoured)
