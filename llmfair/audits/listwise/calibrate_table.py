"""A calibration in a table and sentences: what simulated audits of planted preferences found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.audits.listwise.table import window_text
from llmfair.report.calibration import (
    calibration_table,
    false_alarms,
    held,
    planted,
    share,
    undefined_notes,
)
from llmfair.report.tables import Table, count, few_queries, span

FAR = 0.1
"""From this deviation of the slope from 1 on, implied odds are said to misread what was planted."""


def calibrate_table(results: Mapping[str, Any]) -> Table:
    """One row a planted preference: what was recovered, how intervals and tests did, what was concluded."""
    design = results["design"]
    size = f"{count(design['queries'], 'query', 'queries')} × {span(*design['candidates'])}"
    columns = {
        "planted odds": planted,
        "recovered": lambda row: "out of reach" if row["odds"] is None else f"{row['odds']:.3f}",
        "ExpRatio": lambda row: f"{row['exposure_ratio']:.3f}",
        held(results): lambda row: share(row, "covered"),
        "excess ratio held": lambda row: share(row, "excess_covered"),
    }
    return calibration_table(results, size, columns, _notes(results))


def _notes(results: Mapping[str, Any]) -> list[str]:
    asked, design = results["settings"], results["design"]
    notes = [
        f"{window_text(asked)}, {count(asked['orders'], 'random initial order')}"
        f"{', control variate' if asked['control_variate'] else ''}; {results['intervals']} intervals",
        "planted: log pair odds of a protected item against an equally relevant other, beside a log-weight of "
        f"{asked['relevance']:g} for each grade; recovered: median implied pair odds; ± Monte Carlo error",
        false_alarms(
            results["planted"],
            results["level"],
            lambda row: " (sign flip by query)",
            "too few queries for a test",
        ),
        _smallest(results["smallest"]),
        *_slope(results),
        *undefined_notes(results["planted"], results["runs"]),
    ]
    if design["one_sided"]:
        notes.append(f"{count(design['one_sided'], 'query', 'queries')} without items of both sides left out")
    return [*notes, *few_queries(design["queries"] - design["one_sided"])]


def _smallest(smallest: Mapping[str, Any]) -> str:
    """The smallest detectable effect, as odds and as ratio."""
    below, above = smallest["ratios"]
    if below is None:
        return "smallest effect found: too few queries for a test"
    return (
        f"smallest effect found with {100 * smallest['power']:g} % power: implied pair odds {_odds(smallest)}, an "
        f"exposure ratio of {below:.3f} or {above:.3f} ({count(smallest['queries'], 'query', 'queries')}, "
        f"standard error of its logarithm {smallest['error']:.4f})"
    )


def _slope(results: Mapping[str, Any]) -> list[str]:
    """How far implied odds fall short of the planted ones, where they do."""
    slope = results["slope"]
    if slope is None or abs(slope - 1) < FAR:
        return []
    return [
        f"implied log odds are {slope:.2f} of the planted ones on these lists; ExpRatio, its intervals and tests "
        "do not depend on them"
    ]


def _odds(smallest: Mapping[str, Any]) -> str:
    low, high = ("beyond reach" if odds is None else f"{odds:.2f}" for odds in smallest["odds"])
    return f"{low} or {high}"
