"""A calibration in a table and sentences: what simulated audits of injected preferences found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.audits.listwise.table import window_text
from llmfair.report.calibration import (
    calibration_table,
    false_alarms,
    held,
    injected,
    share,
    undefined_notes,
)
from llmfair.report.tables import Table, count, few_queries, span


def calibrate_table(results: Mapping[str, Any]) -> Table:
    """One row an injected preference: what was recovered, how intervals and tests did, what was concluded."""
    design = results["design"]
    size = f"{count(design['queries'], 'query', 'queries')} × {span(*design['candidates'])}"
    columns = {
        "injected odds": injected,
        "recovered": lambda row: "none" if row["odds"] is None else f"{row['odds']:.3f}",
        held(results): lambda row: share(row, "covered"),
    }
    return calibration_table(results, size, columns, _notes(results))


def _notes(results: Mapping[str, Any]) -> list[str]:
    asked, design = results["settings"], results["design"]
    notes = [
        f"{window_text(asked)}, {count(asked['orders'], 'random initial order')}; "
        f"{100 * asked['alike']:g} % of windows answered with the same noise every time (--alike), log odds of the "
        f"first slot against the last {asked['slots']:+g} (--slots)",
        "injected: odds of a protected item against an equally relevant other; recovered: median preference odds; "
        "± Monte Carlo error",
        "within: where the interval lies; parity also needs a ranker that does its job",
        false_alarms(
            results["injected"],
            results["level"],
            lambda row: " (sign flip by query)",
            "too few queries for a test",
        ),
        _smallest(results["smallest"]),
        *undefined_notes(results["injected"], results["runs"]),
    ]
    if design["without_comparison"]:
        notes.append(
            f"{count(design['without_comparison'], 'query', 'queries')} without equally relevant items of both "
            "groups left out"
        )
    return [*notes, *few_queries(design["queries"] - design["without_comparison"])]


def _smallest(smallest: Mapping[str, Any]) -> str:
    """The smallest detectable odds, either way."""
    below, above = smallest["odds"]
    if below is None:
        return "smallest odds found: too few queries for a test"
    return (
        f"smallest odds found with {100 * smallest['power']:g} % power: {below:.2f} or {above:.2f} "
        f"({count(smallest['queries'], 'query', 'queries')}, standard error of ln odds {smallest['error']:.4f})"
    )
