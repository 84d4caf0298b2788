"""What every calibration tells in a table and notes: what was injected, rejected and concluded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from llmfair.report.tables import Table, tsv

Row = Mapping[str, Any]


def calibration_table(
    results: Mapping[str, Any], size: str, columns: Mapping[str, Callable[[Row], str]], notes: Sequence[str]
) -> Table:
    """One row an injected preference: a kind's own columns, then tests and conclusions; `size` says of how much."""
    level, (low, high) = results["level"], results["band"]
    task = results["task"].capitalize()
    title = [
        task,
        results["dataset"],
        f"{results['attribute']} (protected: {results['words']['protected']})",
        size,
        f"{results['runs']:,} simulated audits a row",
        f"seed {results['seed']}",
        "no model asked",
    ]
    ends = {
        "within": "within",
        f"outside {low:g}–{high:g}": "outside",
        "inconclusive": "inconclusive",
        "not assessable": "not_assessable",
    }
    header = (*columns, f"p < {1 - level:.3g}", *ends)
    rows = tuple(
        (
            *(cell(row) for cell in columns.values()),
            share(row, "rejected"),
            *(percent(row[end]) for end in ends.values()),
        )
        for row in results["injected"]
    )
    return Table(" · ".join(title), header, rows, tuple(notes))


def calibration_tsv(results: Mapping[str, Any]) -> str:
    """The figures for programs: a line for every row, undefined ones empty."""
    return tsv([name for name in results["injected"][0] if name != "undefined"], results["injected"])


def injected(row: Row) -> str:
    return f"{row['injected_odds']:.3f} (ln {row['injected']:+g})" if row["injected"] else "1 (no preference)"


def held(results: Mapping[str, Any]) -> str:
    """The head of the share of intervals that hold the truth."""
    return f"{100 * results['level']:g} % intervals: odds held"


def false_alarms(rows: Iterable[Row], level: float, told: Callable[[Row], str], no_test: str) -> str:
    """How often nothing was found to be something; `told` follows where there was a test."""
    none = next(row for row in rows if not row["injected"])
    if none["rejected"] is None:
        return f"false-positive rate: {no_test}"
    return (
        f"false-positive rate: {share(none, 'rejected')} of {none['rejected_n']:,} audits without preference have "
        f"p < {1 - level:.3g}{told(none)}"
    )


def undefined_notes(rows: Iterable[Row], runs: int, kind: str = "") -> list[str]:
    """How many audits have no figure or conclusion, and why."""
    return [
        f"{kind}injected {row['injected']:+g}: "
        f"{', '.join(f'{reason} in {n:,}' for reason, n in row['undefined'].items())} of {runs:,} audits"
        for row in rows
        if row["undefined"]
    ]


def share(row: Row, name: str) -> str:
    value, error = row[name], row[f"{name}_error"]
    return "none" if value is None else f"{100 * value:.1f} ±{100 * error:.1f} %"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
