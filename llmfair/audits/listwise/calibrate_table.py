"""A calibration in a table and sentences: what simulated audits of planted preferences found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.audits.listwise.table import window_text
from llmfair.report.tables import Table, count, few_queries, tsv

Row = Mapping[str, Any]
FAR = 0.1
"""From this deviation of the slope from 1 on, implied odds are said to misread what was planted."""
TSV = (
    "planted", "planted_odds", "odds", "log_odds", "log_odds_error", "exposure_ratio", "excess_ratio", "covered",
    "covered_error", "covered_n", "excess_covered", "excess_covered_error", "rejected", "rejected_error",
    "rejected_n", "within", "outside", "inconclusive", "not_assessable",
)  # fmt: skip


def calibrate_table(results: Mapping[str, Any]) -> Table:
    """One row a planted preference: what was recovered, how intervals and tests did, what was concluded."""
    level, (low, high) = results["level"], results["band"]
    header = (
        "planted odds",
        "recovered",
        "ExpRatio",
        f"{100 * level:g} % intervals: odds held",
        "excess ratio held",
        f"p < {1 - level:.3g}",
        "within",
        f"outside {low:g}–{high:g}",
        "inconclusive",
        "not assessable",
    )
    rows = tuple(
        (
            f"{row['planted_odds']:.3f} (ln {row['planted']:+g})" if row["planted"] else "1 (no preference)",
            "out of reach" if row["odds"] is None else f"{row['odds']:.3f}",
            f"{row['exposure_ratio']:.3f}",
            share(row, "covered"),
            share(row, "excess_covered"),
            share(row, "rejected"),
            *(percent(row[end]) for end in ("within", "outside", "inconclusive", "not_assessable")),
        )
        for row in results["planted"]
    )
    return Table(_title(results), header, rows, tuple(_notes(results)))


def calibrate_tsv(results: Mapping[str, Any]) -> str:
    """The figures for programs: one planted preference a line, undefined ones empty."""
    return tsv(TSV, results["planted"])


def _title(results: Mapping[str, Any]) -> str:
    design, (low, high) = results["design"], results["design"]["candidates"]
    return " · ".join(
        [
            "Calibrate listwise",
            results["dataset"],
            f"{results['attribute']} (protected: {results['words']['protected']})",
            f"{count(design['queries'], 'query', 'queries')} × {low if low == high else f'{low}–{high}'}",
            f"{results['runs']:,} simulated audits a row",
            f"seed {results['seed']}",
            "no model asked",
        ]
    )


def _notes(results: Mapping[str, Any]) -> list[str]:
    asked, design = results["settings"], results["design"]
    notes = [
        f"{window_text(asked)}, {count(asked['orders'], 'random initial order')}"
        f"{', control variate' if asked['control_variate'] else ''}; {results['intervals']} intervals",
        "planted: log pair odds of a protected item against an equally relevant other, beside a log-weight of "
        f"{asked['relevance']:g} for each grade; recovered: median implied pair odds; ± Monte Carlo error",
        _false_alarms(results),
        _smallest(results["smallest"]),
        *_slope(results),
    ]
    for row in results["planted"]:
        if row["undefined"]:
            why = ", ".join(f"{reason} in {n:,}" for reason, n in row["undefined"].items())
            notes.append(f"planted {row['planted']:+g}: {why} of {results['runs']:,} audits")
    if design["one_sided"]:
        notes.append(f"{count(design['one_sided'], 'query', 'queries')} without items of both sides left out")
    return [*notes, *few_queries(design["queries"] - design["one_sided"])]


def _false_alarms(results: Mapping[str, Any]) -> str:
    none = next(row for row in results["planted"] if not row["planted"])
    if none["rejected"] is None:
        return "false alarms: too few queries for a test"
    return (
        f"false alarms: {share(none, 'rejected')} of {none['rejected_n']:,} audits without preference have "
        f"p < {1 - results['level']:.3g} (sign flip by query)"
    )


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


def share(row: Row, name: str) -> str:
    value, error = row[name], row[f"{name}_error"]
    return "none" if value is None else f"{100 * value:.1f} ±{100 * error:.1f} %"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
