"""Remedies in a table: what each buys and costs, a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmfair.io.files import typed
from llmfair.mitigation.results import (
    ANSWERS,
    CONSISTENCY,
    ODDS,
    PAGE,
    RATIO,
    UTILITY,
    MitigationPlan,
    MitigationResults,
    RemedyRow,
)
from llmfair.mitigation.verdict import change_text
from llmfair.report.lead import headed
from llmfair.report.reasons import in_words
from llmfair.report.tables import Table, cell, count, few_queries, filled
from llmfair.results import Figure

LABELS = {ODDS: "odds of rankings", ANSWERS: "odds of answers", CONSISTENCY: "consistency"}
HEADINGS = (
    "remedy", "odds of rankings", "change", "odds of answers", "ExpRatio", "nDCG@20", "change", "consistency",
    "calls", "cost", "front",
)  # fmt: skip


def mitigation_table(found: MitigationResults) -> Table:
    """One row a remedy that has figures, the unmitigated rankings first; the others are named below."""
    rows = tuple(_line(one) for one in (found.base, *found.tried))
    simulated = ", a simulated model" * found.model.startswith("fake:")
    parts = [
        "Mitigation",
        found.dataset,
        f"{found.attribute} (protected: {found.words.protected})",
        f"{found.model}{simulated}",
        count(found.queries, "query", "queries"),
        f"{found.condition} prompt" * found.prompted,
        count(found.orders, "order of each list", "orders of each list"),
    ]
    level = f"{found.level * 100:g} %"
    notes = [
        *missing_lines(found),
        *few_queries(found.queries),
        f"odds: preference odds, of equally relevant items of both groups in the final rankings, and of the answers "
        f"behind them; figures with {level} intervals",
        "changes are paired by query; p by sign flip, Holm over the remedies, by measure",
        "front: no other is nearer to parity at no less nDCG@20 (by the estimates)",
        *(f"{one.title}: {said}" for one in found.tried for said in one.remarks),
        *(f"{measure}: {note}" for measure, note in found.measure_notes.items() if measure != PAGE),
    ]
    return filled(Table(" · ".join(filter(None, parts)), HEADINGS, rows, tuple(notes)))


def _line(one: RemedyRow) -> tuple[str, ...]:
    changes = {measure: change_text(one.changes[measure]) for measure in (ODDS, UTILITY) if one.changes}
    odds, utility = (changes.get(measure, "") for measure in (ODDS, UTILITY))
    return (
        one.title,
        short(one.figures[ODDS]),
        odds if one.figures[ODDS].value is not None else "",
        short(one.figures[ANSWERS], interval=False),
        short(one.figures[RATIO], interval=False),
        short(one.figures[UTILITY], 3, interval=False),
        utility if one.figures[UTILITY].value is not None else "",
        short(one.figures[CONSISTENCY], interval=False),
        f"{one.calls:,}" if one.calls is not None else "",
        "" if one.cost is None else f"{one.cost:,.4f}",
        "●" if one.front else "",
    )


UNSAID = {
    "not_measured": "",
    "answers_untouched": "as unmitigated",
    "other_lists": "other lists",
    "single_order": "one order",
}
"""Reasons so short that a cell has room for them; the notes and the report say more."""


def short(figure: Figure, digits: int = 2, interval: bool = True) -> str:
    """A figure of a narrow cell."""
    if figure.value is None:
        return UNSAID[reason] if (reason := figure.reason or "") in UNSAID else cell(figure)
    text = f"{figure.value:.{digits}f}"
    if not interval or figure.low is None or figure.high is None:
        return text
    return f"{text} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def missing_lines(found: MitigationResults) -> list[str]:
    """The remedies without figures, why, and the way out."""
    lines = []
    for one in found.missing:
        assert one.error is not None
        hint = f": {one.error['hint']}" if one.error["hint"] else ""
        lines.append(f"{one.title} is not here: {one.error['message'].rstrip('.')}{hint}")
    return lines


def changes_table(found: MitigationResults) -> Table:
    """Every measure's paired change, a line each remedy; for the report."""
    measures = (ODDS, ANSWERS, RATIO, UTILITY, PAGE, CONSISTENCY)
    rows = tuple((one.title, *(_changed(one, measure) for measure in measures)) for one in found.tried)
    names = tuple(LABELS.get(measure, measure) for measure in measures)
    title = "Changes beside the unmitigated rankings, paired by query"
    notes = ("× of ratios and odds, differences of the others",)
    return filled(Table(title, ("remedy", *names), rows, notes))


def _changed(one: RemedyRow, measure: str) -> str:
    change = one.changes.get(measure)
    if change is None:
        return ""
    if change.change is None:
        return UNSAID.get(change.reason or "", in_words(change.reason, measure))
    return change_text(change)


def headed_table(found: MitigationResults, folder: Path | None = None) -> Table:
    """The table below its verdict."""
    return headed(mitigation_table(found), found.verdict, folder)


def table_of(document: Mapping[str, Any]) -> Table:
    """The same of results as JSON has them."""
    return headed_table(typed(document, MitigationResults))


def plan_table(planned: MitigationPlan) -> Table:
    """What a dry run says: calls of each remedy, or why it cannot be had."""
    rows: list[Sequence[str]] = []
    for one in planned["remedies"]:
        error = one["error"]
        why = "" if error is None else f"not here: {error['message']}"
        calls, answered = (f"{one[key]:,}" if one[key] is not None else "" for key in ("calls", "answered"))
        rows.append((one["remedy"], one["title"], calls, answered, why or one["folder"] or ""))
    header = ("remedy", "", "calls", "answered already", "run folder")
    title = f"Mitigation of {planned['run']} · {count(planned['calls'], 'call')}"
    return Table(title, header, tuple(tuple(row) for row in rows), ("Nothing was asked.",))
