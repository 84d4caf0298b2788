"""A study of windows in a table, notes and plots: what each setting read, could have read, and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import convert

from llmfair.audits.listwise.measure import INITIAL
from llmfair.audits.listwise.results import WindowsResults, WindowsRow
from llmfair.audits.listwise.words import PRECISION, RATIO, TITLES, row_words
from llmfair.io.text import count, plural
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.report.figures import on_log, ratio_of, reach_of, utility_of, value_of
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import Reached, beside_reach
from llmfair.report.tables import (
    Table,
    cell,
    drawn_note,
    few_queries,
    filled,
    headings,
    percent,
    span,
    window_notes,
)
from llmfair.report.words import StudyWording, study_plan_table
from llmfair.results import Declared, Reach

ATTAINABLE, PERFECT = f"attainable {RATIO}", f"perfect {PRECISION}"
INTERVALS = {"linear-t": "t intervals over queries", "boot-t": "bootstrap-t intervals"}


def windows_table(study: WindowsResults) -> Table:
    """One row a setting, and a prompt where several were asked; below them the orders that all began with."""
    if not study.rows:
        return Table("Windows", ("setting",), (), ("no setting has results yet",))
    shown = [measure for measure in study.shown if any(measure in row.figures for row in study.rows)]
    figures = (figure for row in study.rows for figure in row.figures.items())
    intervals = {(name, "") for name, figure in figures if figure.low is not None}
    names = headings([(measure, "") for measure in shown], study, intervals)
    several = len(study.conditions) > 1
    header = ("setting", "prompt", "calls", *names, ATTAINABLE, PERFECT, "conclusion")
    asked = [row for row in study.rows if row.condition != INITIAL]
    rows = []
    for row in asked:
        prompt = TITLES.get(row.condition, row.condition) if several else ""
        cells = tuple(cell(row.figures.get(measure)) for measure in shown)
        figure = row.figures.get(row.finding.measure) if row.finding else None
        text = row_words(study, row.condition, row.chains, row.answers, row.finding, figure)
        rows.append((row.setting, prompt, _calls([row]), *cells, *reached(row.reach).values(), text))
    for cells, settings in _inputs(shown, study.rows).items():
        whose = "" if len(settings) * len(study.conditions) == len(asked) else f" of {', '.join(settings)}"
        rows.append((f"initial ranking{whose}", "", "0", *cells, "", "", ""))
    title = [
        "Windows",
        *study.about,
        f"{count(study.queries, 'query', 'queries')} × {span(*study.candidates)}",
        count(study.orders, f"{study.initial} order"),
        f"{_calls(asked)} {plural(sum(row.calls for row in asked), 'call')}",
    ]
    return filled(Table(" · ".join(title), header, tuple(rows), tuple(_notes(study, asked))))


def _inputs(shown: Sequence[str], rows: Sequence[WindowsRow]) -> dict[tuple[str, ...], list[str]]:
    """What the initial orders read, with the settings they were read in; broken-off runs know fewer of them."""
    inputs: dict[tuple[str, ...], list[str]] = {}
    odds = {row.finding.measure for row in rows if row.finding}
    for row in rows:
        if row.condition == INITIAL:
            # Of the input there is nothing to control for: its own figure stands in the column. It has no pair
            # odds: those would be read off each setting's curve, though no window shaped it.
            plain = {name: figure for name, figure in row.figures.items() if name not in odds}
            figures = (plain.get(measure) or plain.get(plain_name(measure)) for measure in shown)
            inputs.setdefault(tuple(map(cell, figures)), []).append(row.setting)
    return inputs


def _calls(asked: Sequence[WindowsRow]) -> str:
    """The calls behind the figures of some rows; where some were not made, with those planned."""
    planned, made = sum(row.calls for row in asked), sum(row.answers.windows for row in asked)
    return f"{planned:,}" if made == planned else f"{made:,} of {planned:,}"


def reached(reach: Mapping[str, Reach]) -> dict[str, str]:
    """By column, what a ranker that always puts one side first reads, either way, and a perfect one."""
    ratio, precision = reach.get(RATIO, Reach()), reach.get(PRECISION, Reach())
    attainable = "" if ratio.low is None or ratio.high is None else f"{ratio.low:.3f} … {ratio.high:.3f}"
    if ratio.indifferent is not None:
        attainable = f"{ratio.indifferent:.3f} without preference"
    return {ATTAINABLE: attainable, PERFECT: "" if precision.high is None else f"{precision.high:.2f}"}


def planned_reach(setting: Mapping[str, Any]) -> dict[str, str]:
    """The same of a planned setting."""
    return reached(convert(setting["reach"], dict[str, Reach]))


def _notes(study: WindowsResults, asked: Sequence[WindowsRow]) -> Iterator[str]:
    yield from few_queries(study.queries)
    if unparseable := list(_unparseable(asked)):
        yield f"unparseable answers: {', '.join(unparseable)}"
    by_group = [name for name in study.shown if not any(name in row.figures for row in study.rows)]
    if by_group:
        yield f"{', '.join(by_group)}: a figure for each group, which each setting's run has (llmfair runs show RUN)"
    ratios = [measure for measure in study.shown if measure.startswith(RATIO)]
    if ratios:
        control = ", what initial orders explain taken out" * any(CONTROLLED in name for name in study.shown)
        methods = [study.intervals[measure] for measure in ratios if measure in study.intervals]
        how = "".join(f"; {INTERVALS[m]}" + f" (seed {study.seed})" * (m == "boot-t") for m in methods[:1])
        yield f"{RATIO}: ratio of means{control}{how}"
    if any(row.reach.get(RATIO, Reach()).low is not None for row in asked):
        yield f"{ATTAINABLE}: of rankers that always put one group first, from random orders"
    if any(row.finding for row in asked):
        yield "each setting is concluded by itself: p is not adjusted over settings"
    for row in asked:
        if row.condition == study.conditions[0]:
            yield from (f"{row.setting}: {note}" for note in window_notes(row.never_ranked, None, None))
    yield from drawn_note(study.drawn)


def _unparseable(asked: Sequence[WindowsRow]) -> Iterator[str]:
    """Share and number of each setting, all its prompts together; none where every answer was readable."""
    for setting in dict.fromkeys(row.setting for row in asked):
        answers = [row.answers for row in asked if row.setting == setting]
        unparseable = sum(counts.unparseable for counts in answers)
        windows = sum(counts.windows for counts in answers)
        if unparseable:
            yield f"{setting} {percent(unparseable, windows)} ({unparseable:,} of {windows:,})"


def windows_plots(study: WindowsResults, declared: Declared) -> Iterator[Plot]:
    """Utility and ratio by window and step, each beside what it could have been."""
    across, up = utility_of(study.shown, declared), ratio_of(study.shown, declared)
    if not across or not up:
        return
    several = len(study.conditions) > 1
    utilities, ratios = list[Reached](), list[Reached]()
    for row in study.rows:
        if row.condition == INITIAL:
            continue
        name = row.setting + (f" {TITLES.get(row.condition, row.condition)}" if several else "")
        perfect = row.reach.get(plain_name(across), Reach()).high
        bar = None if perfect is None else (0.0, perfect)
        utilities.append((name, value_of(row.figures.get(across)), bar))
        ratios.append((name, on_log(value_of(row.figures.get(up))), reach_of(row.reach, up)))
    if ratios:
        read = "rankers that always put one group first read; dashed: parity"
        yield beside_reach(
            "windows-utility", plain_name(across), "a perfect ranker would read", utilities, False
        )
        yield beside_reach("windows-ratio", plain_name(up), read, ratios, True)


STUDY = StudyWording(
    method=(
        "The same model orders the same lists under several windows and steps; each setting is a run of its own.",
        "What a ratio can be at all depends on the windows: the grey bars show the attainable range, between "
        "rankers that always put one group first. A ratio near 1 in a setting with a narrow range says little.",
    ),
    plan_table=lambda planned: study_plan_table(planned, planned_reach),
    table=windows_table,
    plots=windows_plots,
)
