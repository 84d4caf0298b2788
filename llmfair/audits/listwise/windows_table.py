"""A windows study in a table: what each setting read, could have read, and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llmfair.audits.listwise.results import WindowsResults, WindowsRow
from llmfair.audits.listwise.sentences import PRECISION, RATIO, conclusion
from llmfair.audits.listwise.words import TITLES
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.report.exhibits import Declared
from llmfair.report.figures import on_log, ratio_of, reach_of, utility_of, value_of
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import Window, windows
from llmfair.report.tables import (
    Table,
    cell,
    count,
    drawn_note,
    few_queries,
    filled,
    headings,
    percent,
    plural,
)
from llmfair.results import Reach

INITIAL = "initial"
ATTAINABLE, PERFECT = f"attainable {RATIO}", f"perfect {PRECISION}"
INTERVALS = {"linear-t": "t intervals over queries", "boot-t": "bootstrap-t intervals"}


def windows_table(study: WindowsResults) -> Table:
    """One row a setting, and a prompt where several were asked; below them the orders that all began with."""
    if not study.rows:
        return Table("Windows", ("setting",), (), ("no setting has results yet",))
    shown = [m for m in study.shown if any(m in row.figures for row in study.rows)]
    found = (figure for row in study.rows for figure in row.figures.items())
    intervals = {(name, "") for name, figure in found if figure.low is not None}
    prompts = ("prompt",) * (len(study.conditions) > 1)
    named = headings([(measure, "") for measure in shown], study, intervals)
    header = ("setting", *prompts, "calls", *named, ATTAINABLE, PERFECT, "conclusion")
    asked = [row for row in study.rows if row.condition != INITIAL]
    rows = []
    for row in asked:
        prompt = (_prompt(row.condition),) * len(prompts)
        cells = tuple(cell(row.figures.get(measure)) for measure in shown)
        rows.append(
            (row.setting, *prompt, _calls([row]), *cells, *reached(row.reach).values(), _words(row, study))
        )
    for cells, settings in _inputs(shown, study.rows).items():
        whose = "" if len(settings) * len(study.conditions) == len(asked) else f" of {', '.join(settings)}"
        rows.append((f"initial ranking{whose}", *("",) * len(prompts), "0", *cells, "", "", ""))
    return filled(Table(_title(study, asked), header, tuple(rows), tuple(_notes(study, asked))))


def _inputs(shown: Sequence[str], rows: Sequence[WindowsRow]) -> dict[tuple[str, ...], list[str]]:
    """What the initial orders read, with the settings they were read in; broken-off runs know fewer of them."""
    found: dict[tuple[str, ...], list[str]] = {}
    odds = {row.finding.measure for row in rows if row.finding}
    for row in rows:
        if row.condition == INITIAL:
            # Of the input there is nothing to control for: its own figure stands in the column. It has no pair
            # odds: those would be read off each setting's curve, though no window shaped it.
            plain = {name: figure for name, figure in row.figures.items() if name not in odds}
            figures = (plain.get(m) or plain.get(plain_name(m)) for m in shown)
            found.setdefault(tuple(map(cell, figures)), []).append(row.setting)
    return found


def _calls(asked: Sequence[WindowsRow]) -> str:
    """The calls behind the figures of some rows; where some were not made, with those planned."""
    planned, made = sum(row.calls for row in asked), sum(row.answers.windows for row in asked)
    return f"{planned:,}" if made == planned else f"{made:,} of {planned:,}"


def _title(study: WindowsResults, asked: Sequence[WindowsRow]) -> str:
    low, high = study.candidates
    parts = [
        "Windows",
        *study.about,
        f"{count(study.queries, 'query', 'queries')} × {low}" + (f"–{high}" if high > low else ""),
        count(study.orders, f"{study.initial} order"),
        f"{_calls(asked)} {plural(sum(row.calls for row in asked), 'call')}",
    ]
    return " · ".join(parts)


def _prompt(condition: str) -> str:
    return TITLES.get(condition, condition)


def reached(reach: Mapping[str, Reach]) -> dict[str, str]:
    """By column, what a ranker that always puts one side first reads, either way, and a perfect one."""
    ratio, precision = reach.get(RATIO, Reach()), reach.get(PRECISION, Reach())
    attainable = "" if ratio.low is None or ratio.high is None else f"{ratio.low:.3f} … {ratio.high:.3f}"
    if ratio.indifferent is not None:
        attainable = f"{ratio.indifferent:.3f} without preference"
    return {ATTAINABLE: attainable, PERFECT: "" if precision.high is None else f"{precision.high:.2f}"}


def _words(row: WindowsRow, study: WindowsResults) -> str:
    """The conclusion, after how much of the setting it speaks of."""
    chains, finding = row.chains, row.finding
    said = []
    if chains is not None and chains.ranked < chains.asked:
        said.append(f"{chains.ranked} of {chains.asked} chains")
    if row.condition == "repeat":
        said.append("the same prompt, the same orders")
    elif row.answers.unparseable and row.answers.unparseable == row.answers.windows:
        said.append("no parseable answer: the initial ranking")
    elif finding:
        said.append(conclusion(finding, row.figures.get(finding.measure), study.band, study.level))
    return "; ".join(said)


def _notes(study: WindowsResults, asked: list[WindowsRow]) -> list[str]:
    notes = [*few_queries(study.queries)]
    if unparseable := _unparseable(asked):
        notes.append(f"unparseable answers: {', '.join(unparseable)}")
    by_group = [m for m in study.shown if not any(m in row.figures for row in study.rows)]
    if by_group:
        notes.append(
            f"{', '.join(by_group)}: a figure for each group, which finds no place here; each setting's run has them "
            "(llmfair runs show RUN)"
        )
    if any(measure.startswith(RATIO) for measure in study.shown):
        control = ", what initial orders explain taken out" * any(CONTROLLED in m for m in study.shown)
        methods = [study.intervals[m] for m in study.shown if m.startswith(RATIO) and m in study.intervals]
        how = "".join(f"; {INTERVALS[m]}" + f" (seed {study.seed})" * (m == "boot-t") for m in methods[:1])
        notes.append(f"{RATIO}: ratio of means{control}{how}")
    if any(row.reach.get(RATIO, Reach()).low is not None for row in asked):
        notes.append(f"{ATTAINABLE}: of rankers that always put one group first, from random orders")
    if any(row.finding for row in asked):
        notes.append("each setting is concluded by itself: p is not adjusted over settings")
    notes += [
        f"{row.setting}: ranks that no window holds in some list: {_ranks(row.never_ranked)}"
        for row in asked
        if row.condition == study.conditions[0] and row.never_ranked
    ]
    return [*notes, *drawn_note(study.drawn)]


def _unparseable(asked: list[WindowsRow]) -> list[str]:
    """Share and number of each setting, all its prompts together; none where every answer was readable."""
    told = []
    for setting in dict.fromkeys(row.setting for row in asked):
        answers = [row.answers for row in asked if row.setting == setting]
        unparseable, windows = (
            sum(getattr(condition, key) for condition in answers) for key in ("unparseable", "windows")
        )
        if unparseable:
            told.append(f"{setting} {percent(unparseable, windows)} ({unparseable:,} of {windows:,})")
    return told


def _ranks(positions: Sequence[int]) -> str:
    return ", ".join(str(position + 1) for position in positions[:12]) + ", …" * (len(positions) > 12)


def windows_plots(study: WindowsResults, declared: Declared) -> Iterator[Plot]:
    """Utility and ratio by window and step, each beside what it could have been."""
    across, up = utility_of(study.shown, declared), ratio_of(study.shown, declared)
    if not across or not up:
        return
    several = len(study.conditions) > 1
    settings = []
    for row in study.rows:
        if row.condition == INITIAL:
            continue
        figures = row.figures
        settings.append(
            Window(
                row.setting + (f" {TITLES.get(row.condition, row.condition)}" if several else ""),
                value_of(figures.get(across)),
                row.reach.get(plain_name(across), Reach()).high,
                on_log(value_of(figures.get(up))),
                reach_of(row.reach, up),
            )
        )
    if settings:
        yield from windows(settings, plain_name(across), plain_name(up))
